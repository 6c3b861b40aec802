//! The token endpoint (`ACPollToken`): a device asks whether somebody has decided.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wane::services::device_auth::{Client, Issued, Polled};

use super::client::authenticated;
use super::form::Form;
use super::refusal::{Refusal, unkept};
use crate::http::described::Refusals;
use crate::wiring::{AppDeviceAuth, Services};

/// The grant of RFC 8628, the only one that is served.
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What a device sends to learn whether it is linked.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only its description is used")]
pub(in crate::http) struct TokenForm {
    /// `urn:ietf:params:oauth:grant-type:device_code`
    grant_type: String,
    /// The code that the device was given.
    device_code: String,
    /// Who asks, unless HTTP Basic says it.
    #[schema(nullable = false)]
    client_id: Option<String>,
    /// The secret of a confidential client that does not use HTTP Basic.
    #[schema(nullable = false)]
    client_secret: Option<String>,
}

/// The link token of a device.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct TokenBody {
    /// The token; or what the application gave when it approved.
    access_token: String,
    /// `Bearer`
    token_type: &'static str,
    /// Seconds that it is good for; left out where it is the application's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires_in: Option<u64>,
    /// What the device may, parted by blanks; left out where nothing was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    scope: String,
    /// The name of the linked device, which opens nothing.
    device_id: String,
}

impl From<Issued> for TokenBody {
    fn from(issued: Issued) -> Self {
        Self {
            access_token: issued.token.reveal().to_owned(),
            token_type: "Bearer",
            expires_in: issued.expires_in.map(|left| left.as_secs()),
            scope: issued.scope.join(" "),
            device_id: issued.device.to_string(),
        }
    }
}

/// Answers a poll.
#[utoipa::path(post, path = "/oauth/{owner}/{app}/token", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path)),
    request_body(content = TokenForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "the device is linked", body = TokenBody), Refusals))]
pub(in crate::http) async fn token(
    State(services): State<Services>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let form = Form::read(&parts.headers, body, &services.clock).await?;
    check_grant_type(&form)?;
    let (app, client) = authenticated(&parts, &form, &services).await?;
    Ok(unkept(StatusCode::OK, Json(polled(&form, &app, &client).await?)))
}

pub(super) fn check_grant_type(form: &Form) -> Result<(), Refusal> {
    match form.required("grant_type")? {
        DEVICE_CODE => Ok(()),
        _ => Err(Refusal::new("unsupported_grant_type", format!("give {DEVICE_CODE}"))),
    }
}

/// What a client that is known hears of its code. The scope is that of the start, whatever is asked
/// for here.
pub(super) async fn polled(
    form: &Form,
    app: &AppDeviceAuth,
    client: &Client,
) -> Result<TokenBody, Refusal> {
    let refuse = |error, description: &str| Err(Refusal::new(error, description));
    match app.poll(client, form.required("device_code")?).await? {
        Polled::Issued(issued) => Ok(issued.into()),
        Polled::Pending => refuse("authorization_pending", "nobody has decided yet; poll again"),
        Polled::SlowDown { interval } => Err(Refusal::slow_down(interval.as_secs())),
        Polled::Denied => refuse("access_denied", "the request was denied; start again"),
        Polled::Expired => refuse("expired_token", "the code has expired; start again"),
        Polled::Invalid => {
            refuse("invalid_grant", "there is no such code, or it was used; start again")
        }
    }
}
