//! Whichever backend a URL names, on a clock that the suite moves.

use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;
use wane::clock::ManualClock;
use wane::conformance::{Harness, outlive};
use wane::store::{StoreError, Ttl};
use wane_backends::AnyStore;

pub(crate) struct Any {
    name: String,
    url: String,
    clock: Arc<ManualClock>,
    _directory: TempDir,
    /// None only while the store is reopened.
    store: Mutex<Option<AnyStore>>,
}

impl Any {
    pub(crate) async fn memory() -> Self {
        Self::new("any(memory)", |_| "mem:".to_owned()).await
    }

    pub(crate) async fn file() -> Self {
        Self::new("any(file)", |directory| format!("file:{}", directory.path().display())).await
    }

    async fn new(name: &str, url: impl FnOnce(&TempDir) -> String) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (clock, url) = (ManualClock::seeded(1), url(&directory));
        let store = wane_backends::open(&url, clock.clone()).await.expect("a new store");
        let store = Mutex::new(Some(store));
        Self { name: name.to_owned(), url, clock, _directory: directory, store }
    }
}

impl Harness for Any {
    type Store = AnyStore;

    fn name(&self) -> &str {
        &self.name
    }

    fn store(&self) -> AnyStore {
        self.store.lock().clone().expect("the store is open")
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        if matches!(self.store(), AnyStore::Memory(_)) {
            return Ok(false);
        }
        *self.store.lock() = None;
        let opened = wane_backends::open(&self.url, self.clock.clone()).await;
        *self.store.lock() = Some(opened.expect("the store opens again"));
        Ok(true)
    }

    fn footprint(&self) -> Option<u64> {
        if let AnyStore::File(store) = self.store() {
            return store.size_on_disk().ok();
        }
        let AnyStore::Memory(store) = self.store() else { return None };
        Some(store.allocated_bytes() as u64)
    }
}
