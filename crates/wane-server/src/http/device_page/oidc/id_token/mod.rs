//! Whether an ID token is good, and whom it is about: the rules of OpenID Connect Core 1.0, 3.1.3.7.
//!
//! The signature comes first: what a token claims is not read before an issuer's key vouches for it.

use std::time::Duration;

use serde::Deserialize;
use wane::store::Timestamp;

use super::keys::{Judged, Keys};
use crate::http::device_page::jwt::{Audience, Jwt, is_subject};
use crate::http::device_page::session::Person;

/// The longest ID token that is looked at, in bytes. Some list the groups that somebody is in.
const LONGEST: usize = 32 << 10;

/// How old an ID token may be.
const OLDEST: Duration = Duration::from_secs(600);

/// How far the clocks of issuer and server may differ.
const DRIFT: Duration = Duration::from_secs(60);

/// What is wrong with an ID token. For the log: none of it names what was in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::http::device_page) enum Flaw {
    #[error("there is none")]
    Missing,
    #[error("it is longer than 32 KiB")]
    TooLong,
    #[error("it is not three parts of base64url with JSON in the first two")]
    Malformed,
    #[error("its typ is not JWT, or its header names what must be understood")]
    Header,
    #[error("its signature is of a kind that is not taken")]
    Algorithm,
    #[error("its signature is by no key of the issuer")]
    Signature,
    #[error("a claim is missing or of the wrong type")]
    Claims,
    #[error("it is of another issuer")]
    Issuer,
    #[error("it is for somebody else")]
    Audience,
    #[error("its nonce is not ours")]
    Nonce,
    #[error("it has expired")]
    Expired,
    #[error("it was not issued just now")]
    NotRecent,
    #[error("its sub is empty, longer than 255 bytes, or has control characters")]
    Subject,
}

/// What an ID token must be about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    /// Seconds since 1970, of which RFC 7519 allows parts.
    exp: f64,
    iat: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    azp: Option<String>,
    #[serde(default)]
    preferred_username: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

/// Whom the token vouches for.
pub(super) fn check(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Person, Flaw> {
    if token.len() > LONGEST {
        return Err(Flaw::TooLong);
    }
    let jwt = Jwt::split(token).ok_or(Flaw::Malformed)?;
    let header = jwt.header().ok_or(Flaw::Malformed)?;
    if !header.is_plain() {
        return Err(Flaw::Header);
    }
    match keys.judge(&header, &jwt) {
        Judged::Good => {}
        Judged::NotTaken => return Err(Flaw::Algorithm),
        Judged::Unexplained => return Err(Flaw::Signature),
    }
    let claims: Claims = jwt.claims().ok_or(Flaw::Claims)?;
    check_parties(&claims, expected)?;
    check_times(&claims, expected.now)?;
    if !is_subject(&claims.sub) {
        return Err(Flaw::Subject);
    }
    Ok(Person { subject: claims.sub, name: claims.preferred_username.or(claims.name) })
}

fn check_parties(claims: &Claims, expected: &Expected<'_>) -> Result<(), Flaw> {
    if claims.iss != expected.issuer {
        return Err(Flaw::Issuer);
    }
    // Of others whom it is for we know none, and so trust none.
    let is_ours = claims.azp.as_deref().is_none_or(|azp| azp == expected.client_id);
    if !is_ours || !claims.aud.is_only(expected.client_id) {
        return Err(Flaw::Audience);
    }
    // It came from the issuer itself: there is nobody who could time the comparison.
    if expected.nonce.is_empty() || claims.nonce.as_deref() != Some(expected.nonce) {
        return Err(Flaw::Nonce);
    }
    Ok(())
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), Flaw> {
    let now = Duration::from_millis(now.as_unix_millis()).as_secs_f64();
    let (drift, oldest) = (DRIFT.as_secs_f64(), OLDEST.as_secs_f64());
    if claims.exp <= now - drift {
        return Err(Flaw::Expired);
    }
    let is_recent = (now - oldest..=now + drift).contains(&claims.iat);
    if !is_recent || claims.nbf.is_some_and(|begin| begin > now + drift) {
        return Err(Flaw::NotRecent);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
