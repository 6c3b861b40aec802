//! Signing in by an assertion that the application hands over: a JWT, signed HS256 with the secret
//! that the operator was told.
//!
//! One algorithm, one key, no header that is obeyed: a reader that knows no other algorithm cannot be
//! talked into one, and the mac is checked over the bytes as they came, before anything in them is
//! read.
//!
//! An assertion is for one audience, lives five minutes at most, and names the state that the
//! visitor left with as its `nonce`: it can neither be used again nor be planted on somebody else.

use serde::Deserialize;
use wane::services::device_auth::AssertionSecret;
use wane::store::Timestamp;

use super::jwt::{Audience, Jwt, is_subject};
use super::session::Person;

/// The longest assertion that is looked at, in bytes.
const LONGEST: usize = 4_096;

/// The longest life, in seconds.
const LONGEST_LIFE: u64 = 300;

/// How far the clocks of application and server may differ, in seconds.
const DRIFT: u64 = 60;

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
    let jwt = Jwt::split(assertion).ok_or(Flaw::Malformed)?;
    if !expected.secret.is_mac(&jwt.signature, jwt.signed.as_bytes()) {
        return Err(Flaw::Signature);
    }
    let header = jwt.header().ok_or(Flaw::Malformed)?;
    if header.alg != "HS256" || !header.is_plain() {
        return Err(Flaw::Header);
    }
    let claims: Claims = jwt.claims().ok_or(Flaw::Malformed)?;
    check_claims(&claims, expected)?;
    Ok(Person { subject: claims.sub, name: claims.name })
}

fn check_claims(claims: &Claims, expected: &Expected<'_>) -> Result<(), Flaw> {
    if !claims.aud.has(expected.audience) {
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
    if !is_subject(&claims.sub) {
        return Err(Flaw::Subject);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
