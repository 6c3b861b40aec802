//! What errors mean, and what became of a write whose answer was lost.
//!
//! A write that was not sent, or that the server refused before it began, was not applied. Of any
//! other the record is asked: each carries the id of the operation that wrote it, and a deleted one
//! leaves its trace for a minute. Our id there means applied. Anything else means nothing: the write
//! may have been followed by another, or may still be on its way.

use std::time::Duration;

use redis::{ServerError, Value as Reply};
use wane::store::{BoxError, Key, Outcome, StoreError, Timestamp};

use super::Inner;
use super::layout::Place;
use super::link::Fault;
use super::record::{OperationId, applied_by, outcome};
use super::reply::{STRANGE, bytes};
use super::scripts;

/// How long a lost answer is looked for.
const READ_BACK: Duration = Duration::from_millis(1_500);

/// The pause before it is looked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// Errors with which a server refuses a script before its first step.
const NOT_APPLIED: [&str; 15] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// An error, and at which servers.
#[derive(Debug, thiserror::Error)]
#[error("at {address}: {source}")]
struct At {
    address: String,
    source: BoxError,
}

impl Inner {
    /// The outcome of a write, by its answer or by what stands at its row.
    pub(super) async fn settle(
        &self,
        key: &Key,
        place: &Place,
        operation: &OperationId,
        answer: Result<Reply, Fault>,
    ) -> Result<Outcome, StoreError> {
        let source = match answer {
            Ok(reply) => match outcome(key, reply) {
                Some(outcome) => return outcome,
                None => STRANGE.into(),
            },
            Err(Fault::Unclear(error)) => error.into(),
            Err(fault) => return Err(self.unwritten(fault, key)),
        };
        let rows = [(key.clustering(), *operation)];
        match self.read_back(place, &rows).await.as_deref() {
            Some([Some(expires_at)]) => Ok(Outcome::Applied { expires_at: *expires_at }),
            _ => Err(self.unknown(source)),
        }
    }

    /// For each row the expiry that its operation would have been told, or `None` where another one
    /// wrote last. `None` for all where the server does not answer in time.
    pub(super) async fn read_back(
        &self,
        place: &Place,
        rows: &[(&[u8], OperationId)],
    ) -> Option<Vec<Option<Option<Timestamp>>>> {
        let asking = async {
            loop {
                let reply = self.run(&scripts::READ_BACK, place, 1, |call| {
                    for (row, _) in rows {
                        call.arg(*row);
                    }
                });
                if let Ok(Reply::Array(headers)) = reply.await {
                    break headers;
                }
                self.clock.sleep(PAUSE).await;
            }
        };
        let headers = tokio::time::timeout(READ_BACK, asking).await.ok()?;
        let found = rows.iter().zip(headers).map(|((_, operation), header)| {
            bytes(header).and_then(|header| applied_by(operation, &header))
        });
        Some(found.collect())
    }

    /// The error of a write that has none but this.
    pub(super) fn unwritten(&self, fault: Fault, key: &Key) -> StoreError {
        match &fault {
            Fault::Answered(error) if is_foreign(error) => self.foreign(key.clone()),
            Fault::Answered(error) if !NOT_APPLIED.contains(&error.code()) => {
                self.unknown(fault.into())
            }
            Fault::Unclear(_) => self.unknown(fault.into()),
            Fault::Answered(_) | Fault::NotSent(_) => self.unavailable(fault.into()),
        }
    }

    /// The error of a read in `partition`.
    pub(super) fn unread(&self, fault: Fault, partition: &[u8]) -> StoreError {
        match (&fault, Key::stored(partition, b"")) {
            (Fault::Answered(error), Ok(key)) if is_foreign(error) => self.foreign(key),
            _ => self.unavailable(fault.into()),
        }
    }

    /// The server answered a read with what no script answers.
    pub(super) fn unreadable(&self) -> StoreError {
        self.unavailable(STRANGE.into())
    }

    pub(super) fn unavailable(&self, source: BoxError) -> StoreError {
        StoreError::Unavailable { backend: "redis", source: self.at(source) }
    }

    pub(super) fn unknown(&self, source: BoxError) -> StoreError {
        StoreError::Unknown { backend: "redis", source: self.at(source) }
    }

    fn at(&self, source: BoxError) -> BoxError {
        Box::new(At { address: self.address.clone(), source })
    }

    fn foreign(&self, key: Key) -> StoreError {
        let [records, ..] = self.layout.place(key.partition()).keys;
        let reason =
            format!("a key of its partition, such as {records}, is not of the kind it was");
        StoreError::Corrupt { key, reason }
    }
}

/// Whether a key of ours has become something else.
fn is_foreign(error: &ServerError) -> bool {
    error.code() == "WRONGTYPE"
}
