//! A store that a test probes: it counts reads and writes, hangs at a given call, or swaps without
//! care, which is the control of what rests on swaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};

use crate::simulation::machine::true_sleep;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    Nothing,
    /// Call number so and so hangs for ever, before it takes effect or after.
    Hang {
        at: usize,
        after: bool,
    },
    /// A swap looks, lets others run for so long, then writes whatever it was going to.
    CarelessSwap(Duration),
    /// Nothing of a grant can be inserted.
    NoGrants,
}

#[derive(Debug, Clone)]
pub(super) struct Probed<S> {
    inner: S,
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    probe: Mutex<Probe>,
    calls: AtomicUsize,
    writes: AtomicUsize,
}

impl<S: Store> Probed<S> {
    pub(super) fn new(inner: S) -> Self {
        let parts = Parts {
            probe: Mutex::new(Probe::Nothing),
            calls: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
        };
        Self { inner, parts: Arc::new(parts) }
    }

    /// Sets what is wrong from here on, and counts anew.
    pub(super) fn set(&self, probe: Probe) {
        *self.parts.probe.lock() = probe;
        self.parts.calls.store(0, Ordering::SeqCst);
        self.parts.writes.store(0, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> usize {
        self.parts.calls.load(Ordering::SeqCst)
    }

    pub(super) fn writes(&self) -> usize {
        self.parts.writes.load(Ordering::SeqCst)
    }

    fn probe(&self) -> Probe {
        *self.parts.probe.lock()
    }

    async fn call<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        let number = self.parts.calls.fetch_add(1, Ordering::SeqCst);
        match self.probe() {
            Probe::Hang { at, after: false } if at == number => std::future::pending().await,
            Probe::Hang { at, after: true } if at == number => {
                drop(request.await);
                std::future::pending().await
            }
            Probe::Nothing | Probe::Hang { .. } | Probe::CarelessSwap(_) | Probe::NoGrants => {
                request.await
            }
        }
    }

    async fn write<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        self.parts.writes.fetch_add(1, Ordering::SeqCst);
        self.call(request).await
    }
}

/// Polls `work` until nothing moves any more, and drops it; what it returned, if it did.
pub(super) async fn as_far_as_it_goes<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = true_sleep(Duration::from_millis(1)) => None,
    }
}

impl<S: Store> Store for Probed<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.call(self.inner.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.call(self.inner.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.call(self.inner.read(partition, range, limit)).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(self.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.write(self.inner.put_batch(writes)).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        if self.probe() == Probe::NoGrants && key.clustering().starts_with(b"g") {
            return Err(StoreError::Unavailable { backend: "probed", source: "no grants".into() });
        }
        self.write(self.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let Probe::CarelessSwap(gap) = self.probe() else {
            return self.write(self.inner.compare_and_swap(key, expected, write)).await;
        };
        let found = self.inner.get(key).await?;
        if found.as_ref().is_none_or(|record| *record.value != *expected) {
            return Ok(Outcome::Refused { current: found });
        }
        if gap.is_zero() {
            tokio::task::yield_now().await;
        } else {
            true_sleep(gap).await;
        }
        let Some(now) = self.inner.get(key).await? else {
            return Ok(Outcome::Refused { current: None });
        };
        self.inner.compare_and_swap(key, &now.value, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.write(self.inner.compare_and_delete(key, expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.call(self.inner.query_ttl(key)).await
    }
}
