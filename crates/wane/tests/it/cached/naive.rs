//! The control: a read-through cache as it is often written. It keeps whatever a read brought,
//! whenever that comes, and drops it when a write was answered.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};

#[derive(Debug, Clone)]
pub(super) struct NaiveCache<S> {
    inner: S,
    known: Arc<Mutex<HashMap<Key, Option<Record>>>>,
}

impl<S: Store> NaiveCache<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, known: Arc::default() }
    }

    async fn write<T>(
        &self,
        keys: Vec<Key>,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let answer = request.await?;
        let mut known = self.known.lock();
        keys.iter().for_each(|key| drop(known.remove(key)));
        Ok(answer)
    }
}

impl<S: Store> Store for NaiveCache<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let known = self.known.lock().get(key).cloned();
        if let Some(record) = known {
            return Ok(record);
        }
        let record = self.inner.get(key).await?;
        self.known.lock().insert(key.clone(), record.clone());
        Ok(record)
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
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(vec![key.clone()], self.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let keys = writes.iter().map(|(key, _)| key.clone()).collect();
        self.write(keys, self.inner.put_batch(writes)).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(vec![key.clone()], self.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let request = self.inner.compare_and_swap(key, expected, write);
        self.write(vec![key.clone()], request).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let request = self.inner.compare_and_delete(key, expected, fence);
        self.write(vec![key.clone()], request).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(key).await
    }
}
