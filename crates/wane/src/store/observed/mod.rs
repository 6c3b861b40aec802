//! [`ObservedStore`]: counts and times every operation of the store it wraps.
//!
//! Each operation has a counter per [`Answer`], a histogram of its duration, and a gauge of the
//! calls under way. All are atomics of fixed number: watching takes no lock and no memory that
//! grows. A call whose future is dropped leaves the gauge too, and counts as cancelled.
//!
//! Flow: a [`Call`](meter::Call) begins with the operation and ends with its answer; `metrics`
//! turns what was counted into a snapshot, and snapshots into text for Prometheus.

mod meter;
mod metrics;

pub use metrics::{Answer, Metrics, Operation, OperationMetrics, prometheus_text};

use std::sync::Arc;

use super::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};
use crate::clock::SharedClock;
use meter::Meters;

/// A [`Store`] that counts and times what is asked of the one it wraps.
#[derive(Debug, Clone)]
pub struct ObservedStore<S> {
    inner: S,
    meters: Arc<Meters>,
}

impl<S> ObservedStore<S> {
    /// Observes `inner`; `backend` becomes the label that tells its numbers from others'.
    pub fn new(inner: S, backend: &'static str, clock: SharedClock) -> Self {
        Self { inner, meters: Arc::new(Meters::new(backend, clock)) }
    }

    /// What was counted so far, by this handle and its clones.
    pub fn metrics(&self) -> Metrics {
        self.meters.snapshot()
    }

    async fn observe<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, StoreError>> + Send,
        answer: impl FnOnce(&T) -> Answer + Send,
    ) -> Result<T, StoreError> {
        let call = self.meters.begin(operation);
        let result = request.await;
        call.end(result.as_ref().map_or_else(Answer::of_error, answer));
        result
    }
}

impl<S: Store> Store for ObservedStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let found = |record: &Option<Record>| Answer::found(record.is_some());
        self.observe(Operation::Get, self.inner.get(key), found).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let found = |records: &Vec<_>| Answer::found(records.iter().any(Option::is_some));
        self.observe(Operation::GetBatch, self.inner.get_batch(keys), found).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let found = |page: &Page| Answer::found(!page.rows.is_empty());
        self.observe(Operation::Read, self.inner.read(partition, range, limit), found).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        let found = |page: &ScanPage<_>| Answer::found(!page.rows.is_empty());
        self.observe(Operation::Scan, self.inner.scan(after, limit), found).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.observe(Operation::Put, self.inner.put(key, write), Answer::of_write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let applied = |outcomes: &Vec<_>| Answer::applied(outcomes.iter().all(Outcome::is_applied));
        self.observe(Operation::PutBatch, self.inner.put_batch(writes), applied).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let request = self.inner.insert_if_not_exists(key, write);
        self.observe(Operation::InsertIfNotExists, request, Answer::of_write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let request = self.inner.compare_and_swap(key, expected, write);
        self.observe(Operation::CompareAndSwap, request, Answer::of_write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let request = self.inner.compare_and_delete(key, expected, fence);
        self.observe(Operation::CompareAndDelete, request, Answer::of_write).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        let found = |remaining: &Remaining| Answer::found(*remaining != Remaining::Absent);
        self.observe(Operation::QueryTtl, self.inner.query_ttl(key), found).await
    }
}
