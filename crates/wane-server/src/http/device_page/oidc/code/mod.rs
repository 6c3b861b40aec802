//! The authorization code: asked for through the visitor's browser, and exchanged for an ID token
//! (OpenID Connect Core 1.0, 3.1, with PKCE, RFC 7636).

use axum::http::{Request, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::about::About;
use super::id_token::Flaw;
use super::{Drawn, OidcError, Party, plain};
use crate::client::{basic, form};
use crate::http::device_page::fetch::Answer;
use crate::http::device_page::jwt::json_object;

/// Where to send somebody who wants to sign in.
pub(super) fn authorization_url(
    about: &About,
    party: &Party<'_>,
    drawn: &Drawn,
    as_another: bool,
) -> String {
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&drawn.verifier));
    let query = form(&[
        ("response_type", "code"),
        ("client_id", party.client_id),
        ("redirect_uri", &party.redirect_uri),
        ("scope", "openid profile"),
        ("state", &drawn.state),
        ("nonce", &drawn.nonce),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ]);
    let endpoint = &about.authorization_endpoint;
    let joint = if endpoint.contains('?') { '&' } else { '?' };
    let prompt = if as_another { "&prompt=login" } else { "" };
    format!("{endpoint}{joint}{query}{prompt}")
}

/// What the issuer is asked for a code.
pub(super) fn token_request(
    about: &About,
    party: &Party<'_>,
    code: &str,
    drawn: &Drawn,
) -> Result<Request<Vec<u8>>, OidcError> {
    let unanswered = |reason: &str| OidcError::Unanswered(reason.to_owned());
    let endpoint = about.token_endpoint.as_ref();
    let endpoint = endpoint.ok_or_else(|| unanswered("it names no token endpoint"))?;
    let request = Request::post(endpoint)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let mut fields = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &party.redirect_uri),
        ("code_verifier", &drawn.verifier),
    ];
    let request = match party.client_secret {
        Some(secret) if about.takes_basic => {
            request.header(header::AUTHORIZATION, basic(party.client_id, secret.reveal()))
        }
        secret => {
            fields.push(("client_id", party.client_id));
            fields.extend(secret.map(|secret| ("client_secret", secret.reveal())));
            request
        }
    };
    let request = request.body(form(&fields).into_bytes());
    request.map_err(|_| unanswered("its token endpoint is no URL"))
}

/// The ID token in the answer of a token endpoint.
pub(super) fn token_in(answer: &Answer) -> Result<String, OidcError> {
    #[derive(Deserialize)]
    struct Given {
        id_token: Option<String>,
    }
    #[derive(Deserialize)]
    struct Refused {
        error: String,
    }
    let unreadable = || {
        let status = answer.status.as_u16();
        OidcError::Unanswered(format!("its answer, HTTP {status}, is not that of a token endpoint"))
    };
    if answer.status == StatusCode::OK {
        let given: Given = json_object(&answer.body).ok_or_else(unreadable)?;
        return given.id_token.ok_or(OidcError::NotGood(Flaw::Missing));
    }
    let refused: Refused = json_object(&answer.body).ok_or_else(unreadable)?;
    Err(OidcError::Refused(plain(&refused.error)))
}

#[cfg(test)]
mod tests;
