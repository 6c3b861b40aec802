//! A store that puts every partition into a keyspace of independent keys, so that checks which know
//! nothing of keyspaces reach the spread below.
//!
//! Partitions that begin with a keyspace stay as they are. Short ones get one put in front; of long
//! ones it replaces the first bytes. What each was before is remembered.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, MAX_PARTITION, Outcome, Page, PageLimit, Partition,
    Record, Remaining, Row, ScanPage, Store, StoreError, Write,
};

#[derive(Debug, Clone)]
pub(super) struct Keyspaced<S> {
    inner: S,
    /// Partitions as they were, by what became of them.
    before: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
}

impl<S: Store> Keyspaced<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, before: Arc::default() }
    }

    fn partition_inside(&self, partition: &[u8]) -> Vec<u8> {
        if Keyspace::of(partition).is_some() {
            return partition.to_vec();
        }
        let (short, long) = (Keyspace::Sequences.prefix(), Keyspace::AppTtl.prefix());
        let inside = match partition.len() + short.len() {
            0..=MAX_PARTITION => [&short, partition].concat(),
            _ => [&long, &partition[long.len()..]].concat(),
        };
        let before = self.before.lock().insert(inside.clone(), partition.to_vec());
        assert!(before.is_none_or(|before| before == partition), "two partitions became one");
        inside
    }

    fn inside(&self, key: &Key) -> Key {
        let partition = self.partition_inside(key.partition());
        Key::new(&partition, key.clustering()).expect("no longer than it may be")
    }

    fn outside(&self, rows: Vec<Row>) -> Vec<Row> {
        let before = self.before.lock();
        let outside = |Row { key, record }| match before.get(key.partition()) {
            None => Row { key, record },
            Some(partition) => {
                let key = Key::new(partition, key.clustering()).expect("it was a key before");
                Row { key, record }
            }
        };
        rows.into_iter().map(outside).collect()
    }
}

impl<S: Store> Store for Keyspaced<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(&self.inside(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| self.inside(key)).collect();
        self.inner.get_batch(&keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let partition = Partition::new(self.partition_inside(partition.as_bytes()))?;
        let page = self.inner.read(&partition, range, limit).await?;
        Ok(Page { rows: self.outside(page.rows), rest: page.rest })
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        let page = self.inner.scan(after, limit).await?;
        Ok(ScanPage { rows: self.outside(page.rows), next: page.next })
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.put(&self.inside(key), write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let inside = |(key, write)| (self.inside(&key), write);
        self.inner.put_batch(writes.into_iter().map(inside).collect()).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.insert_if_not_exists(&self.inside(key), write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.inner.compare_and_swap(&self.inside(key), expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.inner.compare_and_delete(&self.inside(key), expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(&self.inside(key)).await
    }
}
