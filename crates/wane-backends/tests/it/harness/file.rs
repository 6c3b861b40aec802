//! The file backend in a directory of its own, on a clock that the suite moves.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use wane::clock::{Clock, ManualClock};
use wane::conformance::Harness;
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

    /// Moves the clock past a life, also while it slews.
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
