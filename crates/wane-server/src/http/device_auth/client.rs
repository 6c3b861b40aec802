//! Which client asks: by its id alone, with its secret in the form, or by HTTP Basic.
//!
//! One way at a time (RFC 6749, section 2.3). An application that nobody has answers as one that
//! does not have this client: who is registered where is nobody else's business.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wane::services::device_auth::{Client, DeviceAuthError};

use super::form::{Form, decoded};
use super::refusal::Refusal;
use crate::http::path::names_app;
use crate::http::problem::Problem;
use crate::wiring::{AppDeviceAuth, Services};

/// Where `/oauth/{owner}/{app}/..` names the application.
pub(super) const APP: usize = 1;

/// What a client says of itself, with its secret: it has no `Debug`.
struct Presented {
    id: String,
    secret: Option<String>,
}

/// The client that sends this form, of the application in the path. The client is looked for first, and
/// then its application is compared with the path: whether there is one of that name makes no
/// difference to the time that it takes.
pub(super) async fn authenticated(
    parts: &Parts,
    form: &Form,
    services: &Services,
) -> Result<(AppDeviceAuth, Client), Refusal> {
    let presented = presented(&parts.headers, form)?;
    let found = services.device_auth.authenticate(&presented.id, presented.secret.as_deref());
    let (id, client) = found.await?;
    let app = services.apps.numbered(id).await.map_err(Problem::from)?;
    if app.is_some_and(|app| names_app(parts.uri.path(), APP, &app.name)) {
        return Ok((services.device_auth.of(id), client));
    }
    Err(DeviceAuthError::InvalidClient.into())
}

fn presented(headers: &HeaderMap, form: &Form) -> Result<Presented, Refusal> {
    let in_form = form.get("client_id");
    let secret_in_form = form.get("client_secret").map(str::to_owned);
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let header = match (given.next(), given.next()) {
        (Some(header), None) => header.to_str().unwrap_or_default(),
        (None, _) => {
            let id = in_form.ok_or_else(|| Refusal::invalid_request("client_id is missing"))?;
            return Ok(Presented { id: id.to_owned(), secret: secret_in_form });
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::invalid_request("send one header Authorization"));
        }
    };
    let basic = basic(header).ok_or_else(|| {
        Refusal::invalid_client("send Authorization: Basic with id:secret, each form-encoded")
    })?;
    if secret_in_form.is_some() {
        return Err(Refusal::invalid_request("give the secret in one way, not in two"));
    }
    if in_form.is_some_and(|id| id != basic.id) {
        return Err(Refusal::invalid_request("client_id is not the one that authenticates"));
    }
    Ok(basic)
}

/// Id and secret, each encoded as in a form before they were joined (RFC 6749, section 2.3.1).
fn basic(header: &str) -> Option<Presented> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let joined = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (id, secret) = joined.split_once(':')?;
    let (id, secret) = (decoded(id).ok()?, decoded(secret).ok()?);
    Some(Presented { id, secret: Some(secret).filter(|secret| !secret.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_form_encoded_before_they_are_joined() {
        let read = |joined: &str| basic(&format!("Basic {}", STANDARD.encode(joined)));
        let plain = read("tv:secret").unwrap();
        assert_eq!((&*plain.id, plain.secret.as_deref()), ("tv", Some("secret")));
        let escaped = read("t%3Av:a%2Bb+c").unwrap();
        assert_eq!((&*escaped.id, escaped.secret.as_deref()), ("t:v", Some("a+b c")));
        assert_eq!(read("tv:").unwrap().secret, None, "a public client may come this way");
        assert!(read("no colon").is_none() && read("a:%zz").is_none());
        assert!(basic("Bearer x").is_none() && basic("Basic %%%").is_none());
    }
}
