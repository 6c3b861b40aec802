//! A store that trips over one of its calls, or over every swap.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trip {
    Nothing,
    /// Call number so and so is carried out, and its answer is lost.
    LosesAnswer(usize),
    /// Call number so and so is lost, and nobody knows.
    LosesRequest(usize),
    /// Call number so and so fails, and says so.
    Fails(usize),
    /// Call number so and so hangs for ever, before it takes effect or after.
    Hangs {
        at: usize,
        after: bool,
    },
    /// A swap looks, lets others run, then writes whatever it was going to.
    CarelessSwap,
}

#[derive(Debug, Clone)]
pub(super) struct Tripped<S> {
    inner: S,
    parts: Arc<(Mutex<Trip>, AtomicUsize)>,
}

fn unknown() -> StoreError {
    StoreError::Unknown { backend: "tripped", source: "no answer came".into() }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { backend: "tripped", source: "nobody is there".into() }
}

impl<S: Store> Tripped<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, parts: Arc::new((Mutex::new(Trip::Nothing), AtomicUsize::new(0))) }
    }

    /// Sets what goes wrong from here on, and counts calls anew.
    pub(super) fn set(&self, trip: Trip) {
        *self.parts.0.lock() = trip;
        self.parts.1.store(0, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> usize {
        self.parts.1.load(Ordering::SeqCst)
    }

    async fn call<T: Send>(
        &self,
        lost: fn() -> StoreError,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let number = self.parts.1.fetch_add(1, Ordering::SeqCst);
        let trip = *self.parts.0.lock();
        match trip {
            Trip::LosesAnswer(at) if at == number => request.await.and(Err(lost())),
            Trip::LosesRequest(at) if at == number => Err(lost()),
            Trip::Fails(at) if at == number => Err(unavailable()),
            Trip::Hangs { at, after } if at == number => {
                if after {
                    drop(request.await);
                }
                std::future::pending().await
            }
            Trip::Nothing
            | Trip::LosesAnswer(_)
            | Trip::LosesRequest(_)
            | Trip::Fails(_)
            | Trip::Hangs { .. }
            | Trip::CarelessSwap => request.await,
        }
    }
}

impl<S: Store> Store for Tripped<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.call(unavailable, self.inner.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.call(unavailable, self.inner.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.call(unavailable, self.inner.read(partition, range, limit)).await
    }

    async fn scan(
        &self,
        after: Option<S::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<S::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.call(unknown, self.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.call(unknown, self.inner.put_batch(writes)).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.call(unknown, self.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        if *self.parts.0.lock() != Trip::CarelessSwap {
            return self.call(unknown, self.inner.compare_and_swap(key, expected, write)).await;
        }
        match self.inner.get(key).await? {
            Some(record) if &*record.value == expected => {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                let kept = record.expires_at.map_or(Life::Permanent, Life::Until);
                let life = if write.life == Life::Keep { kept } else { write.life };
                self.inner.put(key, Write { life, ..write }).await
            }
            current => Ok(Outcome::Refused { current }),
        }
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.call(unknown, self.inner.compare_and_delete(key, expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.call(unavailable, self.inner.query_ttl(key)).await
    }
}
