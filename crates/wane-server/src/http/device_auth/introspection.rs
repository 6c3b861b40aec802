//! Introspection (RFC 7662): whom a token stands for, and whether it is still good.
//!
//! The application asks with its own key, of scope `device`; or a confidential client asks. A public
//! client proves nothing, and is told nothing.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wane::services::apps::Scope;
use wane::services::device_auth::ActiveToken;

use super::client::{APP, authenticated};
use super::form::Form;
use super::refusal::{Refusal, unkept};
use crate::http::caller;
use crate::http::described::Refusals;
use crate::http::limiters::Admitted;
use crate::wiring::{AppDeviceAuth, Services};

/// A token to look at.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "only its description is used")]
pub(in crate::http) struct TokenOnlyForm {
    /// The token.
    token: String,
    /// Who asks, where it is a client.
    #[schema(nullable = false)]
    client_id: Option<String>,
    /// Its secret, unless it uses HTTP Basic.
    #[schema(nullable = false)]
    client_secret: Option<String>,
}

/// What there is to say of a token; of one that is not good, only that.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(in crate::http) struct IntrospectionBody {
    /// Whether it is good now.
    active: bool,
    /// What it allows, parted by blanks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    scope: Option<String>,
    /// The client that linked the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    client_id: Option<String>,
    /// Who approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sub: Option<String>,
    /// `Bearer`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    token_type: Option<&'static str>,
    /// When it was issued, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    iat: Option<u64>,
    /// When it ends, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    exp: Option<u64>,
    /// The linked device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    device_id: Option<String>,
}

impl From<ActiveToken> for IntrospectionBody {
    fn from(token: ActiveToken) -> Self {
        Self {
            active: true,
            scope: Some(token.scope.join(" ")).filter(|scope| !scope.is_empty()),
            client_id: Some(token.client.to_string()),
            sub: Some(token.subject),
            token_type: Some("Bearer"),
            iat: Some(token.issued_at.as_unix_millis() / 1_000),
            exp: Some(token.expires_at.as_unix_millis() / 1_000),
            device_id: Some(token.device.to_string()),
        }
    }
}

/// Says whether a token is good, and whom it stands for.
#[utoipa::path(post, path = "/oauth/{owner}/{app}/introspect", tag = "device login",
    params(("owner" = String, Path), ("app" = String, Path)),
    request_body(content = TokenOnlyForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "what there is to say", body = IntrospectionBody),
        Refusals))]
pub(in crate::http) async fn introspect(
    State(services): State<Services>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let form = Form::read(&parts.headers, body, &services.clock).await?;
    let asking = asking(&parts, &form, &services).await?;
    let said = told(&asking.app, &form).await?;
    Ok(unkept(StatusCode::OK, Json(said)))
}

/// Who asks.
struct Asking {
    app: AppDeviceAuth,
    /// Counted as any request of the application is, until the answer is there.
    _admitted: Option<Admitted>,
}

/// The application that asks, by its key or through a client that proved to be its.
async fn asking(parts: &Parts, form: &Form, services: &Services) -> Result<Asking, Refusal> {
    if is_bearer(&parts.headers) {
        if form.get("client_secret").is_some() {
            return Err(Refusal::invalid_request("prove who you are in one way, not in two"));
        }
        let caller = caller::app_named_at(APP, Scope::Device, parts, services).await;
        let (caller, admitted) = caller.map_err(|problem| Refusal::of_key(&problem))?;
        let app = services.device_auth.of(caller.app.id);
        return Ok(Asking { app, _admitted: Some(admitted) });
    }
    let (app, client) = authenticated(parts, form, services).await?;
    if client.is_confidential {
        return Ok(Asking { app, _admitted: None });
    }
    Err(Refusal::invalid_client("a public client proves nothing: use the key of the application"))
}

async fn told(app: &AppDeviceAuth, form: &Form) -> Result<IntrospectionBody, Refusal> {
    let active = app.introspect(form.required("token")?).await?;
    Ok(active.map_or_else(IntrospectionBody::default, IntrospectionBody::from))
}

fn is_bearer(headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    given
        .and_then(|value| value.split_once(' '))
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
}
