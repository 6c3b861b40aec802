//! Clients as the operator registers them, on the admin listener.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use utoipa::ToSchema;
use wane::services::apps::{AppName, AppsError};
use wane::services::device_auth::{ClientInfo, NewClient};

use crate::http::body::{self, ONE_OPERATION, whole_number};
use crate::http::described::{Making, OfSystem, Reading};
use crate::http::problem::Problem;
use crate::http::query::Parameters;
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
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    client_id: Option<String>,
    /// Whether it can keep a secret. A device that people hold in their hands cannot.
    #[serde(default)]
    confidential: bool,
    /// What it may ask for, and gets where it asks for nothing.
    #[serde(default)]
    #[schema(max_items = 64, value_type = HashSet<ScopeName>)]
    scopes: Vec<String>,
    /// How long its codes live; 900 where it is left out.
    #[schema(value_type = Option<u64>, minimum = 60, maximum = 1_800)]
    code_life_seconds: Option<Number>,
    /// How long its tokens live; 180 days where it is left out.
    #[schema(value_type = Option<u64>, minimum = 60, maximum = 31_104_000)]
    token_life_seconds: Option<Number>,
}

/// 1 to 128 visible characters of ASCII, without quotes and backslashes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(pattern = r"^[!#-\[\]-~]{1,128}$")]
struct ScopeName(String);

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

/// A page of clients, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct ClientsBody {
    items: Vec<ClientInfoBody>,
    /// What to give as `after` for the next page; null on the last one.
    #[schema(required)]
    next: Option<String>,
}

/// A client, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClientInfoBody {
    client_id: String,
    name: String,
    confidential: bool,
    scopes: Vec<String>,
    code_life_seconds: u64,
    token_life_seconds: u64,
    created_at: u64,
}

impl From<ClientInfo> for ClientInfoBody {
    fn from(client: ClientInfo) -> Self {
        Self {
            client_id: client.id.to_string(),
            name: client.name,
            confidential: client.is_confidential,
            scopes: client.scopes,
            code_life_seconds: client.code_life.as_secs(),
            token_life_seconds: client.token_life.as_secs(),
            created_at: client.created_at.as_unix_millis(),
        }
    }
}

/// Lists the clients of an application.
#[utoipa::path(get, path = "/api/v1/admin/apps/{owner}/{app}/oauth-clients", tag = "admin",
    params(("owner" = String, Path), ("app" = String, Path),
        ("after" = Option<String>, Query, nullable = false, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
            description = "`next` of the page before"),
        ("limit" = Option<u16>, Query, nullable = false, minimum = 1, maximum = 1000)),
    responses((status = 200, description = "a page of clients", body = ClientsBody), OfSystem))]
pub(in crate::http) async fn list(
    State(services): State<Services>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    uri: Uri,
) -> Result<Json<ClientsBody>, Problem> {
    let Path((owner, app)) = path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    let query = Parameters::of(&uri, &["after", "limit"])?;
    let after = query.get("after").map(str::parse).transpose()?;
    let app = app_of(&services, &owner, &app).await?;
    let page = app.clients(after.as_ref(), query.page_limit()?).await?;
    Ok(Json(ClientsBody {
        items: page.clients.into_iter().map(ClientInfoBody::from).collect(),
        next: page.next.map(String::from),
    }))
}

/// Gives a confidential client another secret; the one before is wrong from now on.
#[utoipa::path(post, path = "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}/secret",
    tag = "admin", params(("owner" = String, Path), ("app" = String, Path), ("clientId" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")),
    responses((status = 200, description = "the new secret", body = RegisteredBody),
        OfSystem, Making))]
pub(in crate::http) async fn rotate_secret(
    State(services): State<Services>,
    path: Result<Path<(String, String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Json<RegisteredBody>, Problem> {
    let Path((owner, app, client)) =
        path.map_err(|error| Problem::invalid("path", error.body_text()))?;
    let client = client.parse()?;
    let secret = app_of(&services, &owner, &app).await?.rotate_secret(&client).await?;
    let secret = secret.ok_or_else(Problem::absent)?;
    let client_secret = Some(secret.reveal().to_owned());
    Ok(Json(RegisteredBody { client_id: client.to_string(), client_secret }))
}

/// Removes a client: it starts nothing any more and can redeem nothing, and the tokens of devices that
/// it linked are not good any more.
#[utoipa::path(delete, path = "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}",
    tag = "admin", params(("owner" = String, Path), ("app" = String, Path), ("clientId" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")),
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
