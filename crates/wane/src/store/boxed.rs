//! [`BoxedStore`]: calls whose futures are one pointer, whatever is below.
//!
//! A future holds the futures of all that it may wait for. Through a few wrappers over several
//! backends that is kilobytes for each call, in the future of each request that is waiting, also where
//! it waits for something else; and the compiler goes through all of it for each caller. Where one
//! allocation a call is nothing, as beside a request over a network, this ends both.
//!
//! Not for callers in memory: there the allocation is most of a read.

use std::pin::Pin;

use super::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A [`Store`] whose calls are allocated.
#[derive(Debug, Clone)]
pub struct BoxedStore<S>(S);

impl<S> BoxedStore<S> {
    /// Boxes every call of `inner`.
    pub fn new(inner: S) -> Self {
        Self(inner)
    }
}

/// The future of a call, of which only the answer is known.
fn boxed<'a, T>(call: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Answer<'a, T> {
    Box::pin(call)
}

impl<S: Store> Store for BoxedStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        boxed(self.0.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        boxed(self.0.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        boxed(self.0.read(partition, range, limit)).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        boxed(self.0.scan(after, limit)).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        boxed(self.0.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        boxed(self.0.put_batch(writes)).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        boxed(self.0.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        boxed(self.0.compare_and_swap(key, expected, write)).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        boxed(self.0.compare_and_delete(key, expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        boxed(self.0.query_ttl(key)).await
    }
}
