//! [`FaultyStore`]: a network that loses, delays and gives up, drawn from a seed.
//!
//! Every call has a number, and seed and number decide what happens to it: the same calls in the
//! same order meet the same faults. What the wrapper reports is always allowed by the contract:
//! a write is applied at most once, `Applied` and `Refused` only ever come from the store below,
//! and a write that may yet arrive is reported [`StoreError::Unknown`]. Requests that break a
//! limit are refused as invalid before any fault, as they would never be sent.
//!
//! Late requests are carried by tasks that the store owns; [`FaultyStore::settle`] lets them
//! arrive and waits for them, and dropping the last handle loses them for good.

mod faults;

pub use faults::Faults;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{
    Change, ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};
use crate::clock::SharedClock;
use faults::{Fate, Loss};

/// The backend's name in the errors of this store.
const BACKEND: &str = "faulty";

/// A [`Store`] that fails as a network would. Its tasks need a tokio runtime.
#[derive(Debug)]
pub struct FaultyStore<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: Arc<S>,
    clock: SharedClock,
    seed: u64,
    faults: Mutex<Faults>,
    calls: AtomicU64,
    late: Mutex<JoinSet<()>>,
    /// Counts calls of `settle`: a late request arrives when its time is up, or when this grows.
    settled: watch::Sender<u64>,
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> FaultyStore<S> {
    /// Lets `inner` fail as `faults` and `seed` say.
    pub fn new(inner: S, faults: Faults, seed: u64, clock: SharedClock) -> Self {
        let shared = Shared {
            inner: Arc::new(inner),
            clock,
            seed,
            faults: Mutex::new(faults),
            calls: AtomicU64::new(0),
            late: Mutex::default(),
            settled: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Changes the faults from the next call on, for all handles.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock() = faults;
    }

    /// Lets every late request arrive now and returns once all have been applied.
    pub async fn settle(&self) {
        self.shared.settled.send_modify(|count| *count += 1);
        let mut late = std::mem::take(&mut *self.shared.late.lock());
        while late.join_next().await.is_some() {}
    }

    /// The store below, which does not fail: for looking at what really happened.
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    fn next_fate(&self) -> Fate {
        let call = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        self.shared.faults.lock().draw(self.shared.seed, call)
    }

    async fn read_through<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let fate = self.next_fate();
        if let Some(delay) = fate.delay {
            self.shared.clock.sleep(delay).await;
        }
        match fate.loss {
            None => request.await,
            Some(loss) => Err(unavailable(loss)),
        }
    }

    async fn write_through<T, F>(
        &self,
        request: impl FnOnce(Arc<S>) -> F + Send,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let fate = self.next_fate();
        if let Some(delay) = fate.delay {
            self.shared.clock.sleep(delay).await;
        }
        let request = request(Arc::clone(&self.shared.inner));
        match fate.loss {
            None => request.await,
            Some(loss @ (Loss::Error | Loss::Request { noticed: true })) => Err(unavailable(loss)),
            Some(loss @ Loss::Request { noticed: false }) => Err(unknown(loss)),
            Some(loss @ Loss::Answer) => request.await.and(Err(unknown(loss))),
            Some(loss @ Loss::Late { by }) => {
                self.send_late(request, by);
                Err(unknown(loss))
            }
        }
    }

    fn send_late<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
        by: Duration,
    ) {
        let sleep = self.shared.clock.sleep(by);
        let mut settled = self.shared.settled.subscribe();
        let mut late = self.shared.late.lock();
        while late.try_join_next().is_some() {}
        late.spawn(async move {
            tokio::select! {
                // In this order always: a seed makes the same faults again.
                biased;
                () = sleep => {}
                // Fails when the store is dropped, which ends this task too.
                _ = settled.changed() => {}
            }
            // Whoever sent it has given up: nobody is left to hear the answer.
            drop(request.await);
        });
    }
}

fn unavailable(loss: Loss) -> StoreError {
    StoreError::Unavailable { backend: BACKEND, source: loss.to_string().into() }
}

fn unknown(loss: Loss) -> StoreError {
    StoreError::Unknown { backend: BACKEND, source: loss.to_string().into() }
}

impl<S: Store> Store for FaultyStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.read_through(self.shared.inner.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.read_through(self.shared.inner.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.read_through(self.shared.inner.read(partition, range, limit)).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.read_through(self.shared.inner.scan(after, limit)).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        Change::put(write.clone(), || self.shared.clock.now())?;
        let key = key.clone();
        self.write_through(|inner| async move { inner.put(&key, write).await }).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        for (_, write) in &writes {
            Change::put(write.clone(), || self.shared.clock.now())?;
        }
        self.write_through(|inner| async move { inner.put_batch(writes).await }).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        Change::insert(write.clone(), || self.shared.clock.now())?;
        let key = key.clone();
        self.write_through(|inner| async move { inner.insert_if_not_exists(&key, write).await })
            .await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        Change::swap(expected, write.clone(), || self.shared.clock.now())?;
        let (key, expected) = (key.clone(), expected.to_vec());
        let request =
            |inner: Arc<S>| async move { inner.compare_and_swap(&key, &expected, write).await };
        self.write_through(request).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let (key, expected) = (key.clone(), expected.to_vec());
        let request =
            |inner: Arc<S>| async move { inner.compare_and_delete(&key, &expected, fence).await };
        self.write_through(request).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.read_through(self.shared.inner.query_ttl(key)).await
    }
}
