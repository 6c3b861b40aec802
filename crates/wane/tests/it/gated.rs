//! A store whose calls a test holds up, before or after they take effect, or whose answers it
//! loses.

use std::sync::Arc;

use tokio::sync::watch;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};

/// What happens to writes and to reads; pages are range reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// Lets other tasks run before and after a call takes effect.
    GiveWay,
    HoldBefore,
    HoldAfter,
    HoldPages,
    HoldReads,
    LoseRequest,
    LoseAnswer,
}

#[derive(Debug, Clone)]
pub(crate) struct GatedStore<S> {
    pub(crate) inner: S,
    gate: Arc<watch::Sender<Gate>>,
}

impl<S: Store> GatedStore<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, gate: Arc::new(watch::Sender::new(Gate::Open)) }
    }

    pub(crate) fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    async fn pass_unless(&self, held: Gate) {
        let mut gate = self.gate.subscribe();
        gate.wait_for(|gate| *gate != held).await.expect("the sender is in this store");
    }

    async fn give_way(&self) {
        if *self.gate.borrow() == Gate::GiveWay {
            tokio::task::yield_now().await;
        }
    }

    async fn answer<T>(&self, request: impl Future<Output = T> + Send) -> T {
        self.give_way().await;
        let answer = request.await;
        self.give_way().await;
        self.pass_unless(Gate::HoldReads).await;
        answer
    }

    async fn write<T: Send>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.pass_unless(Gate::HoldBefore).await;
        let lost = || StoreError::Unknown { backend: "gated", source: "lost".into() };
        let gate = *self.gate.borrow();
        if gate == Gate::LoseRequest {
            return Err(lost());
        }
        self.give_way().await;
        let result = request.await;
        self.give_way().await;
        if gate == Gate::LoseAnswer {
            return result.and(Err(lost()));
        }
        self.pass_unless(Gate::HoldAfter).await;
        result
    }
}

impl<S: Store> Store for GatedStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.answer(self.inner.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.answer(self.inner.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let page = self.answer(self.inner.read(partition, range, limit)).await;
        self.pass_unless(Gate::HoldPages).await;
        page
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.answer(self.inner.scan(after, limit)).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(self.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.write(self.inner.put_batch(writes)).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(self.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.write(self.inner.compare_and_swap(key, expected, write)).await
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
        self.answer(self.inner.query_ttl(key)).await
    }
}
