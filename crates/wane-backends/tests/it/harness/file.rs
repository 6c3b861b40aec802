//! The file backend in a directory of its own, on a clock that the suite moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock};
use wane::conformance::{Harness, outlive};
use wane::store::{StoreError, Ttl};
use wane_backends::file::FileStore;

pub(crate) struct File {
    clock: Arc<ManualClock>,
    directory: TempDir,
    /// None only while the store is reopened.
    store: Mutex<Option<FileStore>>,
}

impl File {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::seeded(1);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = FileStore::create(directory.path(), clock.clone()).expect("a new store");
        Self { clock, directory, store: Mutex::new(Some(store)) }
    }
}

impl Harness for File {
    type Store = FileStore;

    fn name(&self) -> &str {
        "file"
    }

    fn store(&self) -> FileStore {
        self.store.lock().clone().expect("the store is open")
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        let mut store = self.store.lock();
        *store = None;
        let opened = FileStore::open(self.directory.path(), self.clock.clone());
        *store = Some(opened.expect("the store opens again"));
        Ok(true)
    }

    fn footprint(&self) -> Option<u64> {
        self.store().size_on_disk().ok()
    }
}

/// Room for many stores.
pub(crate) struct SharedDirectory {
    directory: TempDir,
    stores: AtomicUsize,
}

impl SharedDirectory {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { directory, stores: AtomicUsize::new(0) }
    }

    /// A store of its own.
    pub(crate) fn create_store(&self, clock: SharedClock) -> FileStore {
        let number = self.stores.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.path().join(number.to_string());
        FileStore::create(&path, clock).expect("a new store")
    }
}
