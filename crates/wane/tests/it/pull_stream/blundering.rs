//! A store through which the record of a stream is written wrong: the control of models and worlds.
//!
//! Each blunder is what the service would do with one of its rules left out, seen from the record:
//! whoever wrote it finds out at its next swap, and goes on from what stands there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value as Json;
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Value, Write,
};

/// Which rule is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blunder {
    /// A swap does not compare: it writes over whatever stands there.
    SwapsBlindly,
    /// What was in flight on a slot that ended is not requeued.
    ForgetsRequeued,
    /// One write in so many moves the head past a row that nobody was given.
    SkipsRows(u64),
    /// A failover changes the map alone: the record goes on naming the region that it named.
    KeepsRegions,
}

/// A store and the blunder that its clones share.
#[derive(Debug, Clone)]
pub(super) struct Blundering<S> {
    inner: S,
    blunder: Blunder,
    writes: Arc<AtomicU64>,
}

impl<S: Store> Blundering<S> {
    pub(super) fn new(inner: S, blunder: Blunder) -> Self {
        Self { inner, blunder, writes: Arc::default() }
    }

    /// The write as it is made.
    fn twisted(&self, key: &Key, before: &[u8], write: Write) -> Result<Write, StoreError> {
        if !is_state(key) || self.blunder == Blunder::SwapsBlindly {
            return Ok(write);
        }
        let mut state: Json = serde_json::from_slice(&write.value).expect("the record is JSON");
        match self.blunder {
            Blunder::SwapsBlindly => {}
            Blunder::ForgetsRequeued => state["requeued"] = Json::Array(Vec::new()),
            Blunder::SkipsRows(one_in) => {
                let is_due = self.writes.fetch_add(1, Ordering::Relaxed) % one_in == one_in - 1;
                let row = state["head"]["row"].as_u64().expect("a row");
                if is_due && state["head"]["index"] == 0 {
                    state["head"]["row"] = (row + 1).into();
                }
            }
            Blunder::KeepsRegions => {
                let before: Json = serde_json::from_slice(before).expect("the record is JSON");
                if before.get("regions").is_some() {
                    for name in ["regions", "regionEpoch"] {
                        state[name] = before[name].clone();
                    }
                }
            }
        }
        let json = serde_json::to_vec(&state).expect("it was JSON before");
        Ok(Write { value: Value::new(json)?, ..write })
    }
}

fn is_state(key: &Key) -> bool {
    let is_stream = Keyspace::of(key.partition()) == Some(Keyspace::PullStreamState);
    is_stream && key.clustering() == b"state"
}

impl<S: Store> Store for Blundering<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.inner.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<S::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<S::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.insert_if_not_exists(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let write = self.twisted(key, expected, write)?;
        if self.blunder == Blunder::SwapsBlindly && is_state(key) {
            return self.inner.put(key, write).await;
        }
        self.inner.compare_and_swap(key, expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.inner.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(key).await
    }
}
