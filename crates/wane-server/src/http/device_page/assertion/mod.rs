//! Signing in by an assertion that the application hands over: a JWT, signed HS256 with the secret
//! that the operator was told.
//!
//! Written here and not taken from a library, because so little of JWT is wanted: one algorithm, one
//! key, no header that is obeyed. A reader that knows no other algorithm cannot be talked into one,
//! and the mac is checked over the bytes as they came, before anything in them is read.
//!
//! An assertion is for one audience, lives five minutes at most, and names the state that the
//! visitor left with as its `nonce`: it can neither be used again nor be planted on somebody else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use wane::services::device_auth::AssertionSecret;
use wane::store::Timestamp;

use super::session::Person;

/// The longest assertion that is looked at, in bytes.
const LONGEST: usize = 4_096;

/// The longest life, in seconds.
const LONGEST_LIFE: u64 = 300;

/// How far the clocks of application and server may differ, in seconds.
const DRIFT: u64 = 60;

/// The longest subject, in bytes.
const LONGEST_SUBJECT: usize = 255;

/// What is wrong with an assertion. For the log: none of it names what was in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    #[error("it is not three parts of base64url with JSON in the first two")]
    Malformed,
    #[error(
        "its alg is not HS256, its typ is not JWT, or its header names what must be understood"
    )]
    Header,
    #[error("its signature is not made with the secret of the application")]
    Signature,
    #[error("its aud is not this page")]
    Audience,
    #[error("its nonce is not the state that the visitor left with")]
    Nonce,
    #[error("it has expired, is not yet valid, or lives longer than five minutes")]
    Time,
    #[error("its sub is empty, longer than 255 bytes, or has control characters")]
    Subject,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default)]
    crit: Option<serde_json::Value>,
    #[serde(default)]
    b64: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    aud: Audience,
    iat: u64,
    exp: u64,
    #[serde(default)]
    nbf: Option<u64>,
    nonce: String,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// What an assertion must be about.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    pub(super) secret: &'a AssertionSecret,
    pub(super) audience: &'a str,
    /// The state that the visitor left with.
    pub(super) state: &'a str,
    pub(super) now: Timestamp,
}

/// Whom the assertion vouches for.
pub(super) fn check(assertion: &str, expected: &Expected<'_>) -> Result<Person, Flaw> {
    if assertion.len() > LONGEST {
        return Err(Flaw::Malformed);
    }
    let (signed, mac) = assertion.rsplit_once('.').ok_or(Flaw::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(Flaw::Malformed)?;
    let mac = decoded(mac)?;
    if !expected.secret.is_mac(&mac, signed.as_bytes()) {
        return Err(Flaw::Signature);
    }
    let header: Header = parsed(header)?;
    let is_jwt = header.typ.as_deref().is_none_or(|typ| typ.eq_ignore_ascii_case("JWT"));
    if header.alg != "HS256" || !is_jwt || header.crit.is_some() || header.b64.is_some() {
        return Err(Flaw::Header);
    }
    let claims: Claims = parsed(claims)?;
    check_claims(&claims, expected)?;
    Ok(Person { subject: claims.sub, name: claims.name })
}

fn check_claims(claims: &Claims, expected: &Expected<'_>) -> Result<(), Flaw> {
    let is_for_us = match &claims.aud {
        Audience::One(one) => one == expected.audience,
        Audience::Many(many) => many.iter().any(|one| one == expected.audience),
    };
    if !is_for_us {
        return Err(Flaw::Audience);
    }
    // The state is in the visitor's own address bar: there is no secret to time.
    if claims.nonce != expected.state || expected.state.is_empty() {
        return Err(Flaw::Nonce);
    }
    let now = expected.now.as_unix_millis() / 1_000;
    let begins = claims.nbf.unwrap_or(claims.iat).max(claims.iat);
    let is_short = claims.exp > claims.iat && claims.exp - claims.iat <= LONGEST_LIFE;
    if !is_short || begins > now.saturating_add(DRIFT) || now >= claims.exp.saturating_add(DRIFT) {
        return Err(Flaw::Time);
    }
    let is_subject = (1..=LONGEST_SUBJECT).contains(&claims.sub.len());
    if !is_subject || claims.sub.chars().any(char::is_control) {
        return Err(Flaw::Subject);
    }
    Ok(())
}

fn decoded(text: &str) -> Result<Vec<u8>, Flaw> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| Flaw::Malformed)
}

fn parsed<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, Flaw> {
    serde_json::from_slice(&decoded(part)?).map_err(|_| Flaw::Malformed)
}

#[cfg(test)]
mod tests;
