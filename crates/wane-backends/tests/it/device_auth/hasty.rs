//! A store that lets others run before each call, so that racers of one task meet; counts the swaps
//! that it says were made; and swaps in two steps when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};

/// A store, and what its clones share.
#[derive(Debug, Clone)]
pub(super) struct Hasty<S> {
    inner: S,
    swaps: Arc<Swaps>,
}

#[derive(Debug, Default)]
pub(super) struct Swaps {
    in_two_steps: AtomicBool,
    made: AtomicUsize,
}

impl Swaps {
    /// From here on a swap looks, lets others run, and writes whatever stands there then.
    pub(super) fn make_in_two_steps(&self) {
        self.in_two_steps.store(true, Ordering::SeqCst);
    }

    /// How many were made since this was last asked.
    pub(super) fn made(&self) -> usize {
        self.made.swap(0, Ordering::SeqCst)
    }
}

impl<S: Store> Hasty<S> {
    pub(super) fn new(inner: S, swaps: &Arc<Swaps>) -> Self {
        Self { inner, swaps: Arc::clone(swaps) }
    }

    async fn swap_in_two_steps(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let found = self.inner.get(key).await?;
        if found.as_ref().is_none_or(|record| *record.value != *expected) {
            return Ok(Outcome::Refused { current: found });
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        match self.inner.get(key).await? {
            Some(now) => self.inner.compare_and_swap(key, &now.value, write).await,
            None if write.life == Life::Keep => Ok(Outcome::Refused { current: None }),
            None => self.inner.put(key, write).await,
        }
    }
}

impl<S: Store> Store for Hasty<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        tokio::task::yield_now().await;
        self.inner.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        tokio::task::yield_now().await;
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
        tokio::task::yield_now().await;
        self.inner.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        tokio::task::yield_now().await;
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        self.inner.insert_if_not_exists(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        let told = if self.swaps.in_two_steps.load(Ordering::SeqCst) {
            self.swap_in_two_steps(key, expected, write).await
        } else {
            self.inner.compare_and_swap(key, expected, write).await
        };
        let is_made = told.as_ref().is_ok_and(Outcome::is_applied);
        self.swaps.made.fetch_add(usize::from(is_made), Ordering::SeqCst);
        told
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        self.inner.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(key).await
    }
}
