//! [`SpreadStore`]: the rows of one partition in many partitions of the backend.
//!
//! Some backends decide the conditional writes of a partition one after the other. A keyspace whose
//! rows are independent of each other gains from lying in many partitions, so the spread appends a
//! bucket to the partition: two bytes, big-endian, the hash of the clustering modulo the number of
//! buckets. With one bucket nothing is appended. Other partitions pass through as they are.
//!
//! - Nobody above sees a bucket: keys that come back, in rows and in errors, are without it.
//! - Ordered reads merge the buckets (`merge`) in memory that does not depend on their number. A
//!   merged page shows each bucket at an instant of the call, not all of them at the same one.
//! - The number is recorded in the store (`number`). A store is opened with the number that it was
//!   first opened with, or not at all: with another one, its records would be looked for elsewhere.
//!   The record is the spread's own: scans leave it out and writes to it are refused, so that a
//!   backup can be restored into a store with another number.
//!
//! The hash is SHA-256: fixed by a standard, so that it cannot change under the data with a library
//! or a platform, and even over any set of keys. It takes a fraction of a microsecond, the calls
//! that it spreads take hundreds. It has no secret: who chooses all keys of an application can put
//! them into one bucket, and is then no worse off than without the spread.

mod bucket;
mod merge;
mod number;

pub use number::SpreadError;

use self::bucket::Buckets;
use super::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, Row,
    ScanPage, Store, StoreError, Write,
};

/// A [`Store`] that spreads independent rows over buckets.
#[derive(Debug, Clone)]
pub struct SpreadStore<S> {
    inner: S,
    buckets: Buckets,
}

impl<S: Store> SpreadStore<S> {
    /// Opens the spread over `inner` with this many buckets, 1 to 65,535.
    ///
    /// The first opening of an empty store records the number; nodes that open it at once agree on
    /// one. A store with records and without a number was written without a spread: it has one
    /// bucket.
    pub async fn open(inner: S, buckets: u16) -> Result<Self, SpreadError> {
        let buckets = number::agree(&inner, buckets).await?;
        Ok(Self { inner, buckets })
    }

    /// The number of buckets.
    pub fn buckets(&self) -> u16 {
        self.buckets.number()
    }

    /// The key under which the backend holds `key`, for a write.
    fn writing(&self, key: &Key) -> Result<Key, StoreError> {
        number::check_writable(key)?;
        Ok(self.buckets.stored(key))
    }

    /// An error as it would be without buckets.
    fn error(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Corrupt { key, reason } => {
                StoreError::Corrupt { key: self.buckets.original(&key).unwrap_or(key), reason }
            }
            StoreError::Invalid { .. }
            | StoreError::Unavailable { .. }
            | StoreError::Unknown { .. } => error,
        }
    }

    /// A row of a scan as callers know it.
    fn scanned(&self, Row { key, record }: Row) -> Result<Row, StoreError> {
        match self.buckets.original(&key) {
            Some(key) => Ok(Row { key, record }),
            None => {
                let reason = "it lies outside of its bucket; it was not written through the \
                              spread, or with another number of buckets";
                Err(StoreError::Corrupt { key, reason: reason.into() })
            }
        }
    }
}

impl<S: Store> Store for SpreadStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(&self.buckets.stored(key)).await.map_err(|error| self.error(error))
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| self.buckets.stored(key)).collect();
        self.inner.get_batch(&keys).await.map_err(|error| self.error(error))
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let page = if self.buckets.spread(partition.as_bytes()) {
            let merge = merge::Merge::new(partition, range, limit, self.buckets.number());
            merge.read(&self.inner).await
        } else {
            self.inner.read(partition, range, limit).await
        };
        page.map_err(|error| self.error(error))
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        let page = self.inner.scan(after, limit).await.map_err(|error| self.error(error))?;
        let rows = page.rows.into_iter().filter(|row| !number::is_record(&row.key));
        let rows = rows.map(|row| self.scanned(row)).collect::<Result<_, _>>()?;
        Ok(ScanPage { rows, next: page.next })
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.inner.put(&self.writing(key)?, write).await.map_err(|error| self.error(error))
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let stored = |(key, write)| Ok((self.writing(&key)?, write));
        let writes = writes.into_iter().map(stored).collect::<Result<_, StoreError>>()?;
        self.inner.put_batch(writes).await.map_err(|error| self.error(error))
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let key = self.writing(key)?;
        self.inner.insert_if_not_exists(&key, write).await.map_err(|error| self.error(error))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let key = self.writing(key)?;
        let swapped = self.inner.compare_and_swap(&key, expected, write).await;
        swapped.map_err(|error| self.error(error))
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let key = self.writing(key)?;
        let deleted = self.inner.compare_and_delete(&key, expected, fence).await;
        deleted.map_err(|error| self.error(error))
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(&self.buckets.stored(key)).await.map_err(|error| self.error(error))
    }
}
