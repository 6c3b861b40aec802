//! Requests to an issuer: over TLS or to this machine, within a deadline, with an answer of bounded
//! size. No redirect is followed: what an issuer is told goes to the host that was named. An issuer
//! that is reached over TLS cannot have us call this machine in the clear.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use wane::clock::SharedClock;
use wane::services::device_auth::SignIn;

use crate::client::{Connector, Trust, trusting};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer: discovery documents and keys have a few kilobytes.
const LARGEST: usize = 256 << 10;

type Http = legacy::Client<Connector, Full<Bytes>>;

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{host} is to be reached over https, or on this machine")]
    NotSafe { host: String },
    #[error("{host} does not answer: {reason}")]
    Unreachable { host: String, reason: String },
}

/// Sends requests.
pub(super) struct Fetcher {
    clock: SharedClock,
    plain: OnceLock<Http>,
    encrypted: OnceLock<Http>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

impl Fetcher {
    /// Nothing is set up before the first request.
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, plain: OnceLock::new(), encrypted: OnceLock::new() }
    }

    /// The answer to a request, which an issuer made us send.
    pub(super) async fn fetch(
        &self,
        request: Request<Vec<u8>>,
        issuer: &str,
    ) -> Result<Answer, FetchError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        if !may_name(issuer, &request.uri().to_string()) {
            return Err(FetchError::NotSafe { host });
        }
        let unreachable = |reason: String| FetchError::Unreachable { host: host.clone(), reason };
        let http = match request.uri().scheme_str() {
            Some("https") => self.encrypted().map_err(unreachable)?,
            Some(_) | None => self.plain.get_or_init(|| self.http(None)),
        };
        tokio::select! {
            answer = exchange(http, request) => answer.map_err(unreachable),
            () = self.clock.sleep(PATIENCE) => {
                Err(unreachable(format!("nothing within {} s", PATIENCE.as_secs())))
            }
        }
    }

    fn encrypted(&self) -> Result<&Http, String> {
        if let Some(ready) = self.encrypted.get() {
            return Ok(ready);
        }
        let tls = trusting(&Trust::PublicRoots).map_err(|error| error.to_string())?;
        Ok(self.encrypted.get_or_init(|| self.http(Some(tls))))
    }

    fn http(&self, tls: Option<Arc<rustls::ClientConfig>>) -> Http {
        let connector = Connector::new(tls, Arc::clone(&self.clock));
        // A connection that is kept may be gone when it is needed, and nothing is sent twice.
        legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
    }
}

/// Whether an issuer may name this URL as one of its own: over `https`, or on this machine where it
/// is there itself.
pub(super) fn may_name(issuer: &str, url: &str) -> bool {
    let is_plain = |url: &str| url.starts_with("http://");
    SignIn::is_safe(url) && (!is_plain(url) || is_plain(issuer))
}

async fn exchange(http: &Http, request: Request<Vec<u8>>) -> Result<Answer, String> {
    let request = request.map(|body| Full::new(Bytes::from(body)));
    let answer = http.request(request).await.map_err(|error| innermost(&error))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, LARGEST).collect().await;
    let body = body.map_err(|error| innermost(&*error))?;
    Ok(Answer { status: head.status, body: body.to_bytes().into() })
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
