//! [`DeadlineStore`]: no call waits longer for the store it wraps than a given time.
//!
//! A read that is not answered in time is [`StoreError::Unavailable`]; a write is
//! [`StoreError::Unknown`], for it may have been applied, or may yet be. An answer that is there is
//! always taken, however late it is looked at.
//!
//! The time runs from the first moment that the store makes its caller wait. A call that is answered
//! at once, as on memory, therefore reads no clock, sets no timer and allocates nothing.
//!
//! A call that is late is dropped. The contract allows that (a dropped write is applied whole or not
//! at all), and the caller is told nothing that depends on which: to let it run on would take a task
//! and the memory of the write for every caller of a store that hangs, and nobody would hear the
//! answer.
//!
//! Not here: ending a call that blocks its thread, or trying again.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::{
    BoxError, ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};
use crate::clock::{SharedClock, Sleep};

/// A [`Store`] that answers in time, if only to say that the one it wraps does not.
#[derive(Debug, Clone)]
pub struct DeadlineStore<S> {
    inner: S,
    backend: &'static str,
    deadline: Duration,
    clock: SharedClock,
}

impl<S> DeadlineStore<S> {
    /// Gives every call of `inner` until `deadline`; errors name it as `backend`.
    ///
    /// With the system clock, waiting needs a tokio runtime with timers.
    pub fn new(inner: S, backend: &'static str, deadline: Duration, clock: SharedClock) -> Self {
        Self { inner, backend, deadline, clock }
    }

    async fn read_in_time<T>(
        &self,
        request: Pin<&mut (impl Future<Output = Result<T, StoreError>> + Send)>,
    ) -> Result<T, StoreError> {
        let backend = self.backend;
        self.in_time(request, |source| StoreError::Unavailable { backend, source }).await
    }

    async fn write_in_time<T>(
        &self,
        request: Pin<&mut (impl Future<Output = Result<T, StoreError>> + Send)>,
    ) -> Result<T, StoreError> {
        let backend = self.backend;
        self.in_time(request, |source| StoreError::Unknown { backend, source }).await
    }

    /// The request comes pinned where it was made: moved in here, every future would hold it twice.
    async fn in_time<T>(
        &self,
        mut request: Pin<&mut (impl Future<Output = Result<T, StoreError>> + Send)>,
        late: impl Fn(BoxError) -> StoreError + Send,
    ) -> Result<T, StoreError> {
        let mut timer: Option<Sleep> = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(answer) = request.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            let timer = timer.get_or_insert_with(|| self.clock.sleep(self.deadline));
            let passed = timer.as_mut().poll(context);
            passed.map(|()| {
                let reason = format!("no answer within the deadline of {:?}", self.deadline);
                Err(late(reason.into()))
            })
        })
        .await
    }
}

impl<S: Store> Store for DeadlineStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.read_in_time(pin!(self.inner.get(key))).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.read_in_time(pin!(self.inner.get_batch(keys))).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.read_in_time(pin!(self.inner.read(partition, range, limit))).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.read_in_time(pin!(self.inner.scan(after, limit))).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write_in_time(pin!(self.inner.put(key, write))).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.write_in_time(pin!(self.inner.put_batch(writes))).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write_in_time(pin!(self.inner.insert_if_not_exists(key, write))).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.write_in_time(pin!(self.inner.compare_and_swap(key, expected, write))).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.write_in_time(pin!(self.inner.compare_and_delete(key, expected, fence))).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.read_in_time(pin!(self.inner.query_ttl(key))).await
    }
}
