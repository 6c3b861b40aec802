//! Wane's own file store.

use std::path::Path;

use ::wane::clock::SystemClock;
use ::wane::store::{ClusteringRange, Key, PageLimit, Partition, Store, StoreError, Write};
use wane_backends::file::{FileStore, SlowDisk};

use crate::BoxError;
use crate::file::tasks::{TaskStore, Tasks};

/// A file store and the runtime of its callers.
pub(crate) type WaneFile = Tasks<FileStore>;

impl WaneFile {
    /// Opens the store in the directory, or creates it.
    pub(crate) fn open(directory: &Path) -> Result<Self, BoxError> {
        Self::start(|| Ok(FileStore::open_or_create(directory, SystemClock::shared())?))
    }

    /// The same on a disk whose syncs take longer.
    pub(crate) fn open_on_slow(disk: SlowDisk, directory: &Path) -> Result<Self, BoxError> {
        drop(Self::open(directory)?);
        Self::start(|| Ok(FileStore::open_on_slow(disk, directory, SystemClock::shared())?))
    }

    /// Records in the file, removed or not yet.
    pub(crate) fn stored_records(&self) -> Result<u64, BoxError> {
        Ok(self.runtime.block_on(self.store.stored_records())?)
    }
}

impl TaskStore for FileStore {
    const NAME: &'static str = "wane";

    async fn insert(&self, key: &Key, write: Write) -> Result<bool, StoreError> {
        Ok(self.insert_if_not_exists(key, write).await?.is_applied())
    }

    async fn swap(&self, key: &Key, expected: &[u8], write: Write) -> Result<bool, StoreError> {
        Ok(self.compare_and_swap(key, expected, write).await?.is_applied())
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<bool, StoreError> {
        let outcomes = Store::put_batch(self, writes).await?;
        Ok(outcomes.iter().all(|outcome| outcome.is_applied()))
    }

    async fn get(&self, key: &Key) -> Result<bool, StoreError> {
        Ok(std::hint::black_box(Store::get(self, key).await?).is_some())
    }

    async fn range(
        &self,
        partition: &Partition,
        start: &[u8],
        limit: PageLimit,
    ) -> Result<usize, StoreError> {
        let range = ClusteringRange::ALL.starting_at(start.to_vec());
        let page = self.read(partition, &range, limit).await?;
        Ok(std::hint::black_box(page).rows.len())
    }
}
