//! A store that counts its calls, and has a quirk that stores are allowed to have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};

use crate::simulation::machine::true_sleep;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Get,
    GetBatch,
    Read,
    Put,
    Insert,
    Swap,
    Ttl,
}

/// What is odd about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quirk {
    None,
    /// Every range begins with a page that has no rows and says where to go on.
    EmptyPages,
    /// Such calls take effect at once, and are answered so much later.
    Slow(Op, Keyspace, Duration),
    /// Such calls take effect at once, and their answers are lost, which is noticed so much later.
    Loses(Op, Keyspace, Duration),
    /// Such calls fail, and say so.
    Fails(Op, Keyspace),
}

#[derive(Debug, Clone)]
pub(super) struct Metered<S> {
    inner: S,
    quirk: Arc<Mutex<Quirk>>,
    calls: Arc<Mutex<HashMap<(Op, Keyspace), usize>>>,
}

impl<S: Store> Metered<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, quirk: Arc::new(Mutex::new(Quirk::None)), calls: Arc::default() }
    }

    /// Sets what is odd from here on, and counts calls anew.
    pub(super) fn set(&self, quirk: Quirk) {
        *self.quirk.lock() = quirk;
        self.calls.lock().clear();
    }

    pub(super) fn calls(&self, op: Op, keyspace: Keyspace) -> usize {
        self.calls.lock().get(&(op, keyspace)).copied().unwrap_or(0)
    }

    async fn call<T: Send>(
        &self,
        op: Op,
        partition: &[u8],
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let keyspace = Keyspace::of(partition).expect("a partition of ours");
        *self.calls.lock().entry((op, keyspace)).or_default() += 1;
        let quirk = *self.quirk.lock();
        match quirk {
            Quirk::Fails(failing, at) if (failing, at) == (op, keyspace) => {
                Err(StoreError::Unavailable {
                    backend: "metered",
                    source: "nobody is there".into(),
                })
            }
            Quirk::Slow(slow, at, by) if (slow, at) == (op, keyspace) => {
                let answer = request.await;
                true_sleep(by).await;
                answer
            }
            Quirk::Loses(lost, at, after) if (lost, at) == (op, keyspace) => {
                let answer = request.await;
                true_sleep(after).await;
                let source = "no answer came".into();
                answer.and(Err(StoreError::Unknown { backend: "metered", source }))
            }
            Quirk::None
            | Quirk::EmptyPages
            | Quirk::Slow(..)
            | Quirk::Loses(..)
            | Quirk::Fails(..) => request.await,
        }
    }
}

impl<S: Store> Store for Metered<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.call(Op::Get, key.partition(), self.inner.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.call(Op::GetBatch, keys[0].partition(), self.inner.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let begins = *self.quirk.lock() == Quirk::EmptyPages && range.end().is_none();
        let request = async {
            if begins {
                let asked = self.calls.lock().values().sum::<usize>();
                assert!(asked < 10_000, "it goes on for ever");
                let rest = ClusteringRange::new(range.start().to_vec(), vec![0xFF; 16])?;
                return Ok(Page { rows: Vec::new(), rest: Some(rest) });
            }
            self.inner.read(partition, range, limit).await
        };
        self.call(Op::Read, partition.as_bytes(), request).await
    }

    async fn scan(
        &self,
        after: Option<S::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<S::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.call(Op::Put, key.partition(), self.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let request = self.inner.insert_if_not_exists(key, write);
        self.call(Op::Insert, key.partition(), request).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let request = self.inner.compare_and_swap(key, expected, write);
        self.call(Op::Swap, key.partition(), request).await
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
        self.call(Op::Ttl, key.partition(), self.inner.query_ttl(key)).await
    }
}
