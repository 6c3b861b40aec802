//! [`AnyStore`]: whichever backend was asked for, as one type.
//!
//! For programs that learn the backend when they start. A call is one match and one allocation: its
//! future is a pointer, not room for the largest call of all backends. And as the functions that make
//! these futures are of no type but this one, drivers are compiled here, beside what is built above
//! them and not with it.
//!
//! Not for callers in memory: whoever knows the backend opens it by its own type.

use std::pin::Pin;

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

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The same call on whichever store it is.
macro_rules! on_each {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => Box::pin($call),
            #[cfg(feature = "file")]
            AnyStore::File($store) => Box::pin($call),
            #[cfg(feature = "redis")]
            AnyStore::Redis($store) => Box::pin($call),
            #[cfg(feature = "cassandra")]
            AnyStore::Cassandra($store) => Box::pin($call),
            #[cfg(feature = "dynamodb")]
            AnyStore::Dynamodb($store) => Box::pin($call),
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
            Some(_) => return Box::pin(std::future::ready(Err(foreign_cursor()))),
        };
        Box::pin(async move {
            let page = $store.scan(after, $limit).await?;
            Ok(ScanPage { rows: page.rows, next: page.next.map(AnyScanCursor::$variant) })
        })
    }};
}

#[cfg(any(feature = "file", feature = "redis", feature = "cassandra", feature = "dynamodb"))]
fn foreign_cursor() -> StoreError {
    let reason = "it belongs to a scan of another backend; begin a new one".into();
    StoreError::Invalid { field: "after", reason }
}

/// The calls, boxed.
impl AnyStore {
    fn boxed_get<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Record>> {
        on_each!(self, store => store.get(key))
    }

    fn boxed_get_batch<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Record>>> {
        on_each!(self, store => store.get_batch(keys))
    }

    fn boxed_read<'a>(
        &'a self,
        partition: &'a Partition,
        range: &'a ClusteringRange,
        limit: PageLimit,
    ) -> Answer<'a, Page> {
        on_each!(self, store => store.read(partition, range, limit))
    }

    fn boxed_scan(
        &self,
        after: Option<AnyScanCursor>,
        limit: PageLimit,
    ) -> Answer<'_, ScanPage<AnyScanCursor>> {
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

    fn boxed_put<'a>(&'a self, key: &'a Key, write: Write) -> Answer<'a, Outcome> {
        on_each!(self, store => store.put(key, write))
    }

    fn boxed_put_batch(&self, writes: Vec<(Key, Write)>) -> Answer<'_, Vec<Outcome>> {
        on_each!(self, store => store.put_batch(writes))
    }

    fn boxed_insert<'a>(&'a self, key: &'a Key, write: Write) -> Answer<'a, Outcome> {
        on_each!(self, store => store.insert_if_not_exists(key, write))
    }

    fn boxed_swap<'a>(
        &'a self,
        key: &'a Key,
        expected: &'a [u8],
        write: Write,
    ) -> Answer<'a, Outcome> {
        on_each!(self, store => store.compare_and_swap(key, expected, write))
    }

    fn boxed_delete<'a>(
        &'a self,
        key: &'a Key,
        expected: &'a [u8],
        fence: Fence,
    ) -> Answer<'a, Outcome> {
        on_each!(self, store => store.compare_and_delete(key, expected, fence))
    }

    fn boxed_query_ttl<'a>(&'a self, key: &'a Key) -> Answer<'a, Remaining> {
        on_each!(self, store => store.query_ttl(key))
    }
}

impl Store for AnyStore {
    type ScanCursor = AnyScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.boxed_get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.boxed_get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.boxed_read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<AnyScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<AnyScanCursor>, StoreError> {
        self.boxed_scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.boxed_put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.boxed_put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.boxed_insert(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.boxed_swap(key, expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.boxed_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.boxed_query_ttl(key).await
    }
}
