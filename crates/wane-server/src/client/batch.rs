//! Batches: up to a hundred operations in one exchange, each with its own answer.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use wane::services::app_ttl::Renewal;
use wane::store::Timestamp;

use super::app_ttl::{EntryForm, Json, WrittenForm, instant, put_bytes, put_renewal, put_ttl};
use super::exchange::{Call, Effect, LONG, ProblemForm};
use super::{AppTtl, ClientError, Entry};

/// An operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the call of the same name")]
pub enum BatchOperation {
    /// See [`AppTtl::get`].
    Get { key: String },
    /// See [`AppTtl::insert`].
    Insert { key: String, value: Bytes, ttl: Duration },
    /// See [`AppTtl::swap`].
    Swap { key: String, expected: Bytes, new: Bytes, renewal: Renewal },
    /// See [`AppTtl::delete`], and [`AppTtl::compare_and_delete`] where a value is expected.
    Delete { key: String, expected: Option<Bytes> },
}

/// What became of an operation that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchAnswer {
    /// What was read.
    Entry(Entry),
    /// It was written, and expires then; `None` for never.
    Written(Option<Timestamp>),
    /// It was deleted.
    Deleted,
}

impl BatchOperation {
    fn effect(&self) -> Effect {
        match self {
            Self::Get { .. } => Effect::Read,
            Self::Insert { .. } | Self::Swap { .. } | Self::Delete { .. } => Effect::Write,
        }
    }

    fn form(&self) -> Json {
        let mut form = Json::new();
        let (op, key) = match self {
            Self::Get { key } => ("get", key),
            Self::Insert { key, value, ttl } => {
                put_bytes(&mut form, "value", value);
                put_ttl(&mut form, *ttl);
                ("insert", key)
            }
            Self::Swap { key, expected, new, renewal } => {
                put_bytes(&mut form, "expectedValue", expected);
                put_bytes(&mut form, "newValue", new);
                put_renewal(&mut form, *renewal);
                ("swap", key)
            }
            Self::Delete { key, expected } => {
                if let Some(expected) = expected {
                    put_bytes(&mut form, "expectedValue", expected);
                }
                ("delete", key)
            }
        };
        form.insert("op".into(), op.into());
        form.insert("key".into(), key.as_str().into());
        form
    }

    /// What the result of this operation means.
    fn meaning(&self, result: ResultForm) -> Result<BatchAnswer, ClientError> {
        let ResultForm { status, body } = result;
        let wrong = |reason: String| match self.effect() {
            Effect::Read => ClientError::Protocol { reason },
            Effect::Write => ClientError::UnknownOutcome { source: reason.into() },
        };
        if !(200..300).contains(&status) {
            let problem: ProblemForm = serde_json::from_value(body)
                .map_err(|_| wrong(format!("status {status} without a problem that says why")))?;
            return Err(problem.meaning(status, None));
        }
        match self {
            Self::Get { .. } => {
                let form: EntryForm =
                    serde_json::from_value(body).map_err(|error| wrong(error.to_string()))?;
                form.meaning().map(BatchAnswer::Entry).map_err(wrong)
            }
            Self::Insert { .. } | Self::Swap { .. } => {
                let form: WrittenForm =
                    serde_json::from_value(body).map_err(|error| wrong(error.to_string()))?;
                Ok(BatchAnswer::Written(instant(form.expires_at)))
            }
            Self::Delete { .. } => Ok(BatchAnswer::Deleted),
        }
    }
}

#[derive(Deserialize)]
struct BatchForm {
    results: Vec<ResultForm>,
}

#[derive(Deserialize)]
struct ResultForm {
    status: u16,
    #[serde(default)]
    body: Value,
}

impl AppTtl {
    /// Does the operations in order, each on its own, and answers each in its place.
    pub async fn batch(
        &self,
        operations: &[BatchOperation],
    ) -> Result<Vec<Result<BatchAnswer, ClientError>>, ClientError> {
        let forms = operations.iter().map(|operation| Value::Object(operation.form())).collect();
        let body = Json::from_iter([("operations".to_owned(), Value::Array(forms))]);
        let is_read = operations.iter().all(|operation| operation.effect() == Effect::Read);
        let effect = if is_read { Effect::Read } else { Effect::Write };
        let call = Call::new(Method::POST, format!("{}:batch", self.path), effect);
        let answer = self.client.exchange(call.json(body).up_to(LONG)).await?;
        answer.read_as(|batch: BatchForm| {
            let (asked, answered) = (operations.len(), batch.results.len());
            if asked != answered {
                return Err(format!("{asked} operations have {answered} results"));
            }
            let pairs = operations.iter().zip(batch.results);
            Ok(pairs.map(|(operation, result)| operation.meaning(result)).collect())
        })
    }
}
