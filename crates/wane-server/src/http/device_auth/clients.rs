//! Clients as the operator registers them, on the admin listener.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::{AppName, AppsError};
use wane::services::device_auth::NewClient;

use crate::http::body::{self, ONE_OPERATION, whole_number};
use crate::http::described::{Making, OfSystem, Reading};
use crate::http::problem::Problem;
use crate::wiring::{AppDeviceAuth, Services};

/// `{"owner":"demo","app":"app","name":"TV","confidential":false,"scopes":["read"]}`
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::http) struct ClientBody {
    #[schema(pattern = r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$")]
    owner: String,
    #[schema(pattern = r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$")]
    app: String,
    /// What people are told is asking.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    name: String,
    /// Its id; drawn where it is left out. Unique across applications.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$", nullable = false)]
    client_id: Option<String>,
    /// Whether it can keep a secret. A device that people hold in their hands cannot.
    #[serde(default)]
    confidential: bool,
    /// What it may ask for, and gets where it asks for nothing.
    #[serde(default)]
    #[schema(max_items = 64)]
    scopes: Vec<String>,
    /// How long its codes live; 900 where it is left out.
    #[schema(value_type = Option<u64>, minimum = 60, maximum = 1_800, nullable = false)]
    code_life_seconds: Option<Number>,
    /// How long its tokens live; 180 days where it is left out.
    #[schema(value_type = Option<u64>, minimum = 60, maximum = 31_104_000, nullable = false)]
    token_life_seconds: Option<Number>,
}

/// A client that was registered.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct RegisteredBody {
    client_id: String,
    /// Told this once; null for a public client.
    #[schema(required)]
    client_secret: Option<String>,
}

/// Registers a client of an application.
#[utoipa::path(post, path = "/api/v1/admin/oauth-clients", tag = "admin", request_body = ClientBody,
    responses((status = 201, description = "it was registered", body = RegisteredBody),
        OfSystem, Reading, Making))]
pub(in crate::http) async fn register(
    State(services): State<Services>,
    request: Request,
) -> Result<(StatusCode, Json<RegisteredBody>), Problem> {
    let body: ClientBody = body::required(request, ONE_OPERATION, &services.clock).await?;
    let usual = NewClient::default();
    let client = NewClient {
        id: body.client_id.as_deref().map(str::parse).transpose()?,
        name: body.name,
        is_confidential: body.confidential,
        scopes: body.scopes,
        code_life: life("codeLifeSeconds", body.code_life_seconds, usual.code_life)?,
        token_life: life("tokenLifeSeconds", body.token_life_seconds, usual.token_life)?,
    };
    let app = app_of(&services, &body.owner, &body.app).await?;
    let registered = app.register(client).await?;
    let body = RegisteredBody {
        client_id: registered.client.id.to_string(),
        client_secret: registered.secret.map(|secret| secret.reveal().to_owned()),
    };
    Ok((StatusCode::CREATED, Json(body)))
}

fn life(field: &str, given: Option<Number>, usual: Duration) -> Result<Duration, Problem> {
    let Some(number) = given else { return Ok(usual) };
    let seconds = whole_number(&number);
    let seconds = seconds.ok_or_else(|| Problem::invalid(field, "give whole seconds"))?;
    Ok(Duration::from_secs(seconds))
}

async fn app_of(services: &Services, owner: &str, app: &str) -> Result<AppDeviceAuth, Problem> {
    let name = AppName::new(owner, app)?;
    let found = services.apps.find(&name).await?;
    let app = found.ok_or(AppsError::NoApp { name })?;
    Ok(services.device_auth.of(app.id))
}

/// Removes a client: it starts nothing any more and can redeem nothing.
#[utoipa::path(delete, path = "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}",
    tag = "admin", params(("owner" = String, Path), ("app" = String, Path), ("clientId" = String, Path)),
    responses((status = 204, description = "it was removed"), OfSystem))]
pub(in crate::http) async fn remove(
    State(services): State<Services>,
    path: Result<Path<(String, String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<StatusCode, Problem> {
    let Path((owner, app, client)) =
        path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    let app = app_of(&services, &owner, &app).await?;
    match app.unregister(&client.parse()?).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::absent()),
    }
}
