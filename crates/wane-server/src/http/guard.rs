//! Guarded writes: the header that names an election and the token of its leader.
//!
//! `Wane-Guard: {election, percent-encoded};{token}`. The election is asked right before the write,
//! which then carries the token as its fence.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use wane::services::elections::{Guard, Token};
use wane::store::Fence;

use super::caller::Caller;
use super::path::check_escapes;
use super::problem::Problem;
use crate::wiring::Services;

/// The header.
const NAME: &str = "wane-guard";

/// What a write stands on, if anything.
#[derive(Debug)]
pub(super) struct Guarded(Option<Guard>);

impl<S: Send + Sync> FromRequestParts<S> for Guarded {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut given = parts.headers.get_all(NAME).iter();
        let Some(value) = given.next() else { return Ok(Self(None)) };
        let value = value.to_str().ok().filter(|_| given.next().is_none());
        let guard = value.and_then(|value| value.rsplit_once(';'));
        let (election, token) = guard.ok_or_else(|| invalid("give it once, as ELECTION;TOKEN"))?;
        check_escapes("Wane-Guard", election)?;
        let election = percent_decode_str(election).decode_utf8();
        let election = election.map_err(|_| invalid("the election is not UTF-8"))?.into_owned();
        let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
        let token = token.parse().ok().filter(|_| is_number).and_then(Token::new);
        let token = token.ok_or_else(|| invalid("give the token that the campaign answered"))?;
        Ok(Self(Some(Guard { election, token })))
    }
}

fn invalid(reason: &str) -> Problem {
    Problem::invalid("Wane-Guard", reason)
}

impl Guarded {
    /// The fence that a write shall carry; refused unless the token is the newest of its election.
    pub(super) async fn fence(
        &self,
        services: &Services,
        caller: &Caller,
    ) -> Result<Fence, Problem> {
        match &self.0 {
            None => Ok(Fence::NONE),
            Some(guard) => Ok(services.elections(caller).fence(guard).await?),
        }
    }
}
