//! [`AnyStore`]: whichever backend was asked for, as one type.
//!
//! For programs that learn the backend when they start. A call is one match; those that go to a
//! server are boxed, so that their size is not that of every call in memory.

use wane::store::{
    ClusteringRange, Fence, Key, MemoryScanCursor, MemoryStore, Outcome, Page, PageLimit,
    Partition, Record, Remaining, ScanPage, Store, StoreError, Write,
};

#[cfg(any(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
use crate::ClockGuarded;
#[cfg(feature = "cassandra")]
use crate::cassandra::{CassandraScanCursor, CassandraStore};
#[cfg(feature = "dynamodb")]
use crate::dynamodb::{DynamodbScanCursor, DynamodbStore};
#[cfg(feature = "file")]
use crate::file::{FileScanCursor, FileStore};
#[cfg(feature = "redis")]
use crate::redis::{RedisScanCursor, RedisStore};

/// A store on any backend. A clone is a second handle on the same one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AnyStore {
    /// In memory.
    Memory(MemoryStore),
    /// In an embedded file.
    #[cfg(feature = "file")]
    File(FileStore),
    /// On Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(ClockGuarded<RedisStore>),
    /// On Cassandra or ScyllaDB.
    #[cfg(feature = "cassandra")]
    Cassandra(ClockGuarded<CassandraStore>),
    /// On DynamoDB.
    #[cfg(feature = "dynamodb")]
    Dynamodb(ClockGuarded<DynamodbStore>),
}

impl AnyStore {
    /// The name of the backend, as settings and metrics have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "mem",
            #[cfg(feature = "file")]
            Self::File(_) => "file",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
            #[cfg(feature = "cassandra")]
            Self::Cassandra(store) => store.unguarded().name(),
            #[cfg(feature = "dynamodb")]
            Self::Dynamodb(_) => "dynamodb",
        }
    }
}

/// Where a scan of any backend goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyScanCursor {
    /// In memory.
    Memory(MemoryScanCursor),
    /// In an embedded file.
    #[cfg(feature = "file")]
    File(FileScanCursor),
    /// On Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(RedisScanCursor),
    /// On Cassandra or ScyllaDB.
    #[cfg(feature = "cassandra")]
    Cassandra(CassandraScanCursor),
    /// On DynamoDB.
    #[cfg(feature = "dynamodb")]
    Dynamodb(DynamodbScanCursor),
}

/// The same call on whichever store it is.
macro_rules! on_each {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call.await,
            #[cfg(feature = "file")]
            AnyStore::File($store) => $call.await,
            #[cfg(feature = "redis")]
            AnyStore::Redis($store) => Box::pin($call).await,
            #[cfg(feature = "cassandra")]
            AnyStore::Cassandra($store) => Box::pin($call).await,
            #[cfg(feature = "dynamodb")]
            AnyStore::Dynamodb($store) => Box::pin($call).await,
        }
    };
}

/// A page of a scan of one backend, as one of any.
macro_rules! scan_on {
    ($variant:ident, $store:expr, $after:expr, $limit:expr) => {{
        let after = match $after {
            Some(AnyScanCursor::$variant(cursor)) => Some(cursor),
            None => None,
            #[cfg(any(
                feature = "file",
                feature = "redis",
                feature = "cassandra",
                feature = "dynamodb"
            ))]
            Some(_) => return Err(foreign_cursor()),
        };
        let page = Box::pin($store.scan(after, $limit)).await?;
        Ok(ScanPage { rows: page.rows, next: page.next.map(AnyScanCursor::$variant) })
    }};
}

#[cfg(any(feature = "file", feature = "redis", feature = "cassandra", feature = "dynamodb"))]
fn foreign_cursor() -> StoreError {
    let reason = "it belongs to a scan of another backend; begin a new one".into();
    StoreError::Invalid { field: "after", reason }
}

impl Store for AnyStore {
    type ScanCursor = AnyScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        on_each!(self, store => store.get(key))
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        on_each!(self, store => store.get_batch(keys))
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        on_each!(self, store => store.read(partition, range, limit))
    }

    async fn scan(
        &self,
        after: Option<AnyScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<AnyScanCursor>, StoreError> {
        match self {
            Self::Memory(store) => scan_on!(Memory, store, after, limit),
            #[cfg(feature = "file")]
            Self::File(store) => scan_on!(File, store, after, limit),
            #[cfg(feature = "redis")]
            Self::Redis(store) => scan_on!(Redis, store, after, limit),
            #[cfg(feature = "cassandra")]
            Self::Cassandra(store) => scan_on!(Cassandra, store, after, limit),
            #[cfg(feature = "dynamodb")]
            Self::Dynamodb(store) => scan_on!(Dynamodb, store, after, limit),
        }
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        on_each!(self, store => store.put(key, write))
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        on_each!(self, store => store.put_batch(writes))
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        on_each!(self, store => store.insert_if_not_exists(key, write))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        on_each!(self, store => store.compare_and_swap(key, expected, write))
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        on_each!(self, store => store.compare_and_delete(key, expected, fence))
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        on_each!(self, store => store.query_ttl(key))
    }
}
