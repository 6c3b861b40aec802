//! What an issuer says of itself: OpenID Connect Discovery 1.0, and its keys.

use axum::http::{Request, StatusCode, Uri, header};
use serde::Deserialize;

use super::keys::Keys;
use crate::http::device_page::fetch::{Answer, Fetcher, may_name};
use crate::http::device_page::jwt::json_object;

/// Where an issuer says it.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// An issuer, as far as signing in needs to know it.
#[derive(Debug)]
pub(super) struct About {
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: Option<String>,
    /// Whether it takes the client's secret in the header `Authorization`.
    pub(super) takes_basic: bool,
    /// RFC 9207: it names itself in each answer that it sends people back with.
    pub(super) names_itself: bool,
    pub(super) keys: Keys,
}

#[derive(Debug, Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    #[serde(default)]
    token_endpoint: Option<String>,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: Option<bool>,
}

impl Document {
    /// Basic is what an issuer offers that says nothing.
    fn takes_basic(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_ref();
        methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"))
    }

    fn about(self, issuer: &str, keys: Keys) -> Result<About, String> {
        Ok(About {
            takes_basic: self.takes_basic(),
            names_itself: self.authorization_response_iss_parameter_supported.unwrap_or(false),
            authorization_endpoint: endpoint(issuer, self.authorization_endpoint)?,
            token_endpoint: self.token_endpoint.map(|url| endpoint(issuer, url)).transpose()?,
            keys,
        })
    }
}

/// Asks an issuer what it says of itself, or returns why it does not say it.
pub(super) async fn discovered(fetcher: &Fetcher, issuer: &str) -> Result<About, String> {
    let document = got(fetcher, issuer, &place(issuer)).await?;
    let document = document_of(issuer, &document)?;
    let keys = got(fetcher, issuer, &document.jwks_uri).await?;
    document.about(issuer, Keys::parse(&keys).ok_or_else(unreadable)?)
}

/// Where an issuer says what it says of itself.
fn place(issuer: &str) -> String {
    format!("{}{WELL_KNOWN}", issuer.strip_suffix('/').unwrap_or(issuer))
}

/// What the issuer says, which no other may say for it.
fn document_of(issuer: &str, bytes: &[u8]) -> Result<Document, String> {
    let document: Document = json_object(bytes).ok_or_else(unreadable)?;
    match document.issuer == issuer {
        true => Ok(document),
        false => Err("its discovery document names another issuer".into()),
    }
}

async fn got(fetcher: &Fetcher, issuer: &str, url: &str) -> Result<Vec<u8>, String> {
    let request = Request::get(url).header(header::ACCEPT, "application/json").body(Vec::new());
    let request = request.map_err(|_| not_a_url())?;
    let Answer { status, body } =
        fetcher.fetch(request, issuer).await.map_err(|error| error.to_string())?;
    if status != StatusCode::OK {
        let status = status.as_u16();
        return Err(format!("its discovery document or its keys are not to be had: HTTP {status}"));
    }
    Ok(body)
}

fn unreadable() -> String {
    "its discovery document or its keys cannot be read".into()
}

fn not_a_url() -> String {
    "one of its URLs is none".into()
}

/// A URL that people or we are sent to. RFC 6749: it has no fragment.
fn endpoint(issuer: &str, url: String) -> Result<String, String> {
    let is_plain = url.bytes().all(|byte| matches!(byte, 0x21..=0x7E)) && !url.contains('#');
    let is_url = url.parse::<Uri>().is_ok_and(|it| it.scheme().is_some() && it.host().is_some());
    if !is_plain || !is_url {
        return Err(not_a_url());
    }
    match may_name(issuer, &url) {
        true => Ok(url),
        false => Err("one of its endpoints is not to be reached over https".into()),
    }
}

#[cfg(test)]
mod tests;
