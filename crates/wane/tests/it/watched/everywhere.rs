//! The contract over a store of which every key is watched.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use wane::clock::SharedClock;
use wane::conformance::Embedded;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Watch, WatchedStore, Write,
};

use crate::{InnerStore, inner_footprint, inner_store, manual_clock};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_store_conforms_while_every_key_is_watched() {
    let (clock, shared) = manual_clock();
    let below = inner_store(shared.clone());
    let store = WatchedEverywhere::new(below.clone(), shared);
    let footprint = move || inner_footprint(&below);
    Embedded::new("watched everywhere", clock, store, footprint).assert_conforms().await;
}

/// A watched store that begins to watch a partition before the first write to it.
#[derive(Debug, Clone)]
struct WatchedEverywhere {
    store: WatchedStore<InnerStore>,
    watches: Arc<Mutex<HashMap<Vec<u8>, Watch>>>,
}

impl WatchedEverywhere {
    fn new(below: InnerStore, clock: SharedClock) -> Self {
        Self { store: WatchedStore::new(below, clock), watches: Arc::default() }
    }

    async fn watch(&self, key: &Key) -> Result<(), StoreError> {
        let mut watches = self.watches.lock().await;
        if !watches.contains_key(key.partition()) {
            let partition = Partition::new(key.partition().to_vec())?;
            let watch = self.store.watch(&partition, ClusteringRange::ALL).await?;
            watches.insert(key.partition().to_vec(), watch);
        }
        Ok(())
    }
}

impl Store for WatchedEverywhere {
    type ScanCursor = <InnerStore as Store>::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.store.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.store.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.store.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.watch(key).await?;
        self.store.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        for (key, _) in &writes {
            self.watch(key).await?;
        }
        self.store.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.watch(key).await?;
        self.store.insert_if_not_exists(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.watch(key).await?;
        self.store.compare_and_swap(key, expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.watch(key).await?;
        self.store.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.store.query_ttl(key).await
    }
}
