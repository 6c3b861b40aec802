//! The contract over the wrappers: a wrapped store is a store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use wane::clock::{Clock, ManualClock, SharedClock};
use wane::conformance::{Harness, run_all};
use wane::store::{
    ClusteringRange, Faults, FaultyStore, Fence, Key, ObservedStore, Outcome, Page, PageLimit,
    Partition, Record, Remaining, ScanPage, Store, StoreError, Ttl, Watch, WatchedStore, Write,
};

use crate::{InnerStore, inner_footprint, inner_store};

struct Wrapped<S> {
    name: &'static str,
    clock: Arc<ManualClock>,
    below: InnerStore,
    store: S,
}

impl<S: Store + Clone> Wrapped<S> {
    fn new(name: &'static str, wrap: impl FnOnce(InnerStore, SharedClock) -> S) -> Self {
        let clock = ManualClock::seeded(1);
        let below = inner_store(clock.clone());
        Self { name, store: wrap(below.clone(), clock.clone()), clock, below }
    }

    async fn assert_conforms(self) {
        let report = run_all(&self).await;
        report.assert_passed();
        assert!(report.passed.len() > 50, "the suite ran: {report}");
    }
}

impl<S: Store + Clone> Harness for Wrapped<S> {
    type Store = S;

    fn name(&self) -> &str {
        self.name
    }

    fn store(&self) -> S {
        self.store.clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        let end = self.clock.now().after(ttl);
        while self.clock.now() < end {
            self.clock.advance(self.clock.now().until(end).max(Duration::from_millis(1)));
        }
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn footprint(&self) -> Option<u64> {
        inner_footprint(&self.below)
    }
}

/// One run for all wrappers: the suite is compiled anew for each type under test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_all_wrappers_conforms() {
    let wrap = |below, clock: SharedClock| {
        let faulty = FaultyStore::new(below, Faults::NONE, 1, clock.clone());
        ObservedStore::new(WatchedStore::new(faulty, clock.clone()), "model", clock)
    };
    Wrapped::new("observed(watched(faulty))", wrap).assert_conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_store_conforms_while_every_key_is_watched() {
    Wrapped::new("watched everywhere", WatchedEverywhere::new).assert_conforms().await;
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
