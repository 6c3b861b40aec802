//! The device authorization endpoint (`ACDeviceAuthorizationRequest`): a device is given its codes.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wane::services::device_auth::{Asking, Client};

use super::client::authenticated;
use super::form::Form;
use super::refusal::{Refusal, unkept};
use crate::http::described::Refusals;
use crate::wiring::{AppDeviceAuth, Services};

/// What a device sends to be given codes.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only its description is used")]
pub(in crate::http) struct DeviceAuthorizationForm {
    /// Who asks, unless HTTP Basic says it.
    #[schema(nullable = false)]
    client_id: Option<String>,
    /// What it asks for, parted by blanks; all that the client may have where it is left out.
    #[schema(nullable = false)]
    scope: Option<String>,
    /// The secret of a confidential client that does not use HTTP Basic.
    #[schema(nullable = false)]
    client_secret: Option<String>,
}

/// The codes of a device, and where they are typed.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct DeviceAuthorizationBody {
    /// What the device polls with.
    device_code: String,
    /// What the device shows.
    user_code: String,
    /// Where it is typed.
    verification_uri: String,
    /// The same with the code in it, for a QR code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    verification_uri_complete: Option<String>,
    /// Seconds that both codes live.
    expires_in: u64,
    /// Seconds between two polls.
    interval: u64,
}

/// Gives a device its two codes.
#[utoipa::path(post, path = "/oauth/{owner}/{app}/device_authorization", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path)),
    request_body(content = DeviceAuthorizationForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "the codes", body = DeviceAuthorizationBody), Refusals))]
pub(in crate::http) async fn device_authorization(
    State(services): State<Services>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let form = Form::read(&parts.headers, body, &services.clock).await?;
    let (app, client) = authenticated(&parts, &form, &services).await?;
    let codes = started(&services, &parts, &form, &app, &client).await?;
    Ok(unkept(StatusCode::OK, Json(codes)))
}

/// The codes for a client that is known.
pub(super) async fn started(
    services: &Services,
    parts: &Parts,
    form: &Form,
    app: &AppDeviceAuth,
    client: &Client,
) -> Result<DeviceAuthorizationBody, Refusal> {
    let page = format!("{}/device", services.origin.base_url(parts)?);
    let agent =
        parts.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let asking = Asking {
        address: services.origin.address_of(parts),
        agent: agent.unwrap_or_default().into_owned(),
    };
    let started = app.start(client, form.get("scope"), &asking).await?;
    let user_code = started.user_code.reveal();
    let complete = || format!("{page}?user_code={user_code}");
    Ok(DeviceAuthorizationBody {
        device_code: started.device_code.reveal(),
        verification_uri_complete: services.device_login.tells_complete_uri.then(complete),
        user_code,
        verification_uri: page,
        expires_in: started.expires_in.as_secs(),
        interval: started.interval.as_secs(),
    })
}
