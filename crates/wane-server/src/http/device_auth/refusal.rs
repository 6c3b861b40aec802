//! What a device is told when it is refused: the errors of RFC 6749 and RFC 8628, in their form.
//!
//! `error` is for programs and exactly as the RFCs write it; `error_description` says what to do, in
//! the characters that RFC 6749 allows. No answer of these endpoints is kept by a cache.

use axum::Json;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, PRAGMA, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use wane::services::device_auth::DeviceAuthError;

use crate::http::problem::Problem;

/// The longest description, in characters.
const LONGEST: usize = 1_000;

/// A refusal.
#[derive(Debug)]
pub(in crate::http) struct Refusal {
    status: StatusCode,
    error: &'static str,
    description: String,
    /// How a client may prove who it is, where it did not.
    challenge: Option<&'static str>,
    retry_after: Option<u64>,
    /// Seconds between polls from now on.
    interval: Option<u64>,
}

/// `{"error":"authorization_pending","error_description":".."}`
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct OAuthErrorBody {
    /// What went wrong, by the name that the RFCs give it.
    error: String,
    /// What to do about it.
    error_description: String,
}

impl Refusal {
    /// Answered with 400, as nearly everything is.
    pub(super) fn new(error: &'static str, description: impl Into<String>) -> Self {
        let (status, description) = (StatusCode::BAD_REQUEST, description.into());
        Self { status, error, description, challenge: None, retry_after: None, interval: None }
    }

    /// A request that breaks a rule of its form.
    pub(super) fn invalid_request(description: impl Into<String>) -> Self {
        Self::new("invalid_request", description)
    }

    /// A client that is not known, or did not prove to be it.
    pub(super) fn invalid_client(description: impl Into<String>) -> Self {
        let challenge = Some(r#"Basic realm="oauth""#);
        let status = StatusCode::UNAUTHORIZED;
        Self { status, challenge, ..Self::new("invalid_client", description) }
    }

    /// A device that polls too often.
    pub(super) fn slow_down(interval: u64) -> Self {
        let description = format!("wait {interval} s between polls from now on");
        Self { interval: Some(interval), ..Self::new("slow_down", description) }
    }

    /// Status, error, description, and the interval of `slow_down`.
    pub(super) fn facts(&self) -> (StatusCode, &'static str, String, Option<u64>) {
        (self.status, self.error, plain(&self.description), self.interval)
    }

    /// A key of an application that does not open this, in the same form.
    pub(super) fn of_key(problem: &Problem) -> Self {
        let description = problem.detail().to_owned();
        match problem.status() {
            StatusCode::FORBIDDEN => {
                let status = StatusCode::FORBIDDEN;
                Self { status, ..Self::new("insufficient_scope", description) }
            }
            // A key of another application looks like one that nobody has.
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => {
                let description = "the key is not one of this application";
                Self { challenge: Some("Bearer"), ..Self::invalid_client(description) }
            }
            _ => Self::from(problem.clone()),
        }
    }

    fn later(status: StatusCode, description: String, seconds: u64) -> Self {
        let refusal = Self::new("temporarily_unavailable", description);
        Self { status, retry_after: Some(seconds.max(1)), ..refusal }
    }

    #[cfg(test)]
    pub(super) fn error(&self) -> &'static str {
        self.error
    }
}

impl From<DeviceAuthError> for Refusal {
    fn from(error: DeviceAuthError) -> Self {
        let description = error.to_string();
        match error {
            DeviceAuthError::Invalid { .. } => Self::invalid_request(description),
            DeviceAuthError::InvalidClient => Self::invalid_client(description),
            DeviceAuthError::InvalidScope { .. } => Self::new("invalid_scope", description),
            DeviceAuthError::Limited { retry_after, .. } => {
                let seconds = retry_after.as_millis().div_ceil(1_000) as u64;
                Self::later(StatusCode::TOO_MANY_REQUESTS, description, seconds)
            }
            error @ (DeviceAuthError::ClientExists
            | DeviceAuthError::PublicClient
            | DeviceAuthError::Contended
            | DeviceAuthError::Broken { .. }
            | DeviceAuthError::Store(_)
            | _) => Self::from(Problem::from(error)),
        }
    }
}

impl From<Problem> for Refusal {
    /// What went wrong on the way: a body that did not arrive, a store that does not answer.
    fn from(problem: Problem) -> Self {
        let (status, description) = (problem.status(), problem.detail().to_owned());
        if status.is_server_error() {
            // Whether a write was applied makes no difference: the same request may be sent again.
            return Self::later(StatusCode::SERVICE_UNAVAILABLE, description, 1);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Self::later(status, description, problem.retry_after().unwrap_or(1));
        }
        Self { status, ..Self::invalid_request(description) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = OAuthErrorBody {
            error: self.error.to_owned(),
            error_description: plain(&self.description),
        };
        let mut response = unkept(self.status, Json(body));
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// An answer that no cache keeps. Pages of every origin may read it, as those of a television that is
/// a browser: nothing that a browser adds by itself opens anything here.
pub(super) fn unkept(status: StatusCode, body: impl IntoResponse) -> Response {
    let headers =
        [(CACHE_CONTROL, "no-store"), (PRAGMA, "no-cache"), (ACCESS_CONTROL_ALLOW_ORIGIN, "*")];
    (status, headers, body).into_response()
}

/// Text of bounded length in the characters that a description may have: ASCII without quotes and
/// backslashes.
fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '"' => '\'',
        ' '..='[' | ']'..='~' => c,
        _ => '?',
    };
    text.chars().take(LONGEST).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_the_characters_that_the_rfc_allows() {
        assert_eq!(plain("ask for \"a\\b\"\n\u{e9}~"), "ask for 'a?b'??~");
    }

    #[test]
    fn a_client_that_fails_is_told_how_to_prove_itself() {
        let response = Refusal::invalid_client("no").into_response();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(response.headers()[WWW_AUTHENTICATE].to_str().unwrap().starts_with("Basic"));
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    }
}
