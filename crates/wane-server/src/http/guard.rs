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
use super::header;
use super::path::check_escapes;
use super::problem::Problem;
use crate::wiring::Services;

/// The header.
const NAME: &str = "Wane-Guard";

/// What a write stands on, if anything.
#[derive(Debug)]
pub(super) struct Guarded(Option<Guard>);

impl<S: Send + Sync> FromRequestParts<S> for Guarded {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = header::text(&parts.headers, NAME)? else { return Ok(Self(None)) };
        read(value).map(|guard| Self(Some(guard)))
    }
}

fn read(value: &str) -> Result<Guard, Problem> {
    let guard = value.rsplit_once(';');
    let (election, token) = guard.ok_or_else(|| invalid("give it as ELECTION;TOKEN"))?;
    check_escapes(NAME, election)?;
    let election = percent_decode_str(election).decode_utf8();
    let election = election.map_err(|_| invalid("the election is not UTF-8"))?.into_owned();
    let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
    let token = token.parse().ok().filter(|_| is_number).and_then(Token::new);
    let token = token.ok_or_else(|| invalid("give the token that the campaign answered"))?;
    Ok(Guard { election, token })
}

fn invalid(reason: &str) -> Problem {
    Problem::invalid(NAME, reason)
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

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    use super::*;
    use crate::campaigns::{assert_caught, assert_holds};

    const SEEDS: [&str; 4] = ["leader;17", "a%3Bb;9007199254740991", "%25;;1", "%C3%A9;02"];

    /// What is read comes back the same when it is written again, and never without a token.
    fn check(read: fn(&str) -> Option<Guard>, bytes: &[u8]) {
        let Some(guard) = std::str::from_utf8(bytes).ok().and_then(read) else { return };
        assert!(guard.token.get() > 0, "without a token");
        let election = utf8_percent_encode(&guard.election, NON_ALPHANUMERIC);
        let again = read(&format!("{election};{}", guard.token));
        assert_eq!(again, Some(guard), "does not come back");
    }

    #[test]
    fn a_guard_comes_back_as_it_was_read() {
        assert_holds(&SEEDS, |bytes| check(|text| read(text).ok(), bytes));
    }

    /// The control: a reader that decodes twice.
    #[test]
    fn a_reader_that_decodes_twice_is_caught() {
        fn twice(text: &str) -> Option<Guard> {
            let guard = read(text).ok()?;
            let election = percent_decode_str(&guard.election).decode_utf8().ok()?.into_owned();
            Some(Guard { election, ..guard })
        }
        assert_caught(&SEEDS, |bytes| check(twice, bytes), "does not come back");
    }
}
