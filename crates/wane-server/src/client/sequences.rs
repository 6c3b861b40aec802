//! Calls of named sequences.

use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use wane::services::apps::AppName;
use wane::services::elections::Guard;
use wane::services::sequences::Block;

use super::app_ttl::{GUARD, Json, escaped, guard_value};
use super::exchange::{Call, Effect};
use super::{Client, ClientError};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The sequences of one application, over HTTP.
#[derive(Debug, Clone)]
pub struct Sequences {
    client: Client,
    path: String,
    guard: Option<HeaderValue>,
}

impl Sequences {
    pub(super) fn new(client: Client, app: &AppName) -> Self {
        let path = format!("/api/v2/apps/{}/{}/sequences", app.owner(), app.app());
        Self { client, path, guard: None }
    }

    /// The same sequences, whose calls stand on the token of a leader.
    #[must_use]
    pub fn guarded(self, guard: &Guard) -> Self {
        Self { guard: guard_value(guard), ..self }
    }

    /// Takes the next `count` numbers; with a key that the sequence remembers, the same again.
    pub async fn next(
        &self,
        name: &str,
        count: u64,
        key: Option<&str>,
    ) -> Result<Block, ClientError> {
        let path = format!("{}/next", self.at(name));
        let body = Json::from_iter([("count".to_owned(), count.into())]);
        let mut call = Call::new(Method::POST, path, Effect::Write).json(body);
        if let Some(key) = key {
            let value = HeaderValue::from_str(key).map_err(|_| ClientError::Problem {
                code: "invalid_request".into(),
                status: 400,
                detail: "the idempotency key has characters that no header has".into(),
                retry_after: None,
            })?;
            call = call.header(IDEMPOTENCY_KEY, value);
        }
        if let Some(guard) = &self.guard {
            call = call.header(GUARD, guard.clone());
        }
        let answer = self.client.exchange(call).await?;
        answer.read_as(|block: BlockForm| Ok(Block { first: block.first, count: block.count }))
    }

    /// The number that the next call is given.
    pub async fn show(&self, name: &str) -> Result<u64, ClientError> {
        let answer = self.client.exchange(Call::get(self.at(name), Effect::Read)).await?;
        answer.read_as(|sequence: SequenceForm| Ok(sequence.next))
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{}", self.path, escaped(name))
    }
}

/// A block as it is answered.
#[derive(Deserialize)]
struct BlockForm {
    first: u64,
    count: u64,
}

/// Where a sequence stands, as it is answered.
#[derive(Deserialize)]
struct SequenceForm {
    next: u64,
}
