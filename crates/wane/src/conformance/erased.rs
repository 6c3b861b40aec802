//! A store whose type is forgotten, so that the suite is compiled once for all of them.
//!
//! The suite is generic, and compiling it anew for each wrapper over each backend takes longer
//! than running it. Boxed futures cost nothing that a test would notice.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Any store, behind a pointer.
#[derive(Debug, Clone)]
pub struct ErasedStore(Arc<dyn AnyStore>);

impl ErasedStore {
    /// Forgets the type of `store`.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }
}

/// A cursor of some store.
pub struct ErasedCursor(Box<dyn Any + Send>);

impl fmt::Debug for ErasedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErasedCursor")
    }
}

/// [`Store`] in a form that can be a trait object. The suite needs no more than one write.
trait AnyStore: fmt::Debug + Send + Sync {
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Record>>;

    fn get_batch<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Record>>>;

    fn read<'a>(
        &'a self,
        partition: &'a Partition,
        range: &'a ClusteringRange,
        limit: PageLimit,
    ) -> Answer<'a, Page>;

    fn scan(&self, after: Option<ErasedCursor>, limit: PageLimit) -> Answer<'_, ErasedPage>;

    fn put<'a>(&'a self, key: &'a Key, write: Write) -> Answer<'a, Outcome>;

    fn put_batch(&self, writes: Vec<(Key, Write)>) -> Answer<'_, Vec<Outcome>>;

    fn insert<'a>(&'a self, key: &'a Key, write: Write) -> Answer<'a, Outcome>;

    fn swap<'a>(&'a self, key: &'a Key, expected: &'a [u8], write: Write) -> Answer<'a, Outcome>;

    fn delete<'a>(&'a self, key: &'a Key, expected: &'a [u8], fence: Fence) -> Answer<'a, Outcome>;

    fn query_ttl<'a>(&'a self, key: &'a Key) -> Answer<'a, Remaining>;
}

type ErasedPage = ScanPage<ErasedCursor>;

impl<S: Store> AnyStore for S {
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Record>> {
        Box::pin(Store::get(self, key))
    }

    fn get_batch<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Record>>> {
        Box::pin(Store::get_batch(self, keys))
    }

    fn read<'a>(
        &'a self,
        partition: &'a Partition,
        range: &'a ClusteringRange,
        limit: PageLimit,
    ) -> Answer<'a, Page> {
        Box::pin(Store::read(self, partition, range, limit))
    }

    fn scan(&self, after: Option<ErasedCursor>, limit: PageLimit) -> Answer<'_, ErasedPage> {
        Box::pin(async move {
            let own = |cursor: ErasedCursor| cursor.0.downcast().expect("a cursor of this store");
            let page = Store::scan(self, after.map(own).map(|cursor| *cursor), limit).await?;
            let next = page.next.map(|cursor| ErasedCursor(Box::new(cursor)));
            Ok(ScanPage { rows: page.rows, next })
        })
    }

    fn put<'a>(&'a self, key: &'a Key, write: Write) -> Answer<'a, Outcome> {
        Box::pin(Store::put(self, key, write))
    }

    fn put_batch(&self, writes: Vec<(Key, Write)>) -> Answer<'_, Vec<Outcome>> {
        Box::pin(Store::put_batch(self, writes))
    }

    fn insert<'a>(&'a self, key: &'a Key, write: Write) -> Answer<'a, Outcome> {
        Box::pin(Store::insert_if_not_exists(self, key, write))
    }

    fn swap<'a>(&'a self, key: &'a Key, expected: &'a [u8], write: Write) -> Answer<'a, Outcome> {
        Box::pin(Store::compare_and_swap(self, key, expected, write))
    }

    fn delete<'a>(&'a self, key: &'a Key, expected: &'a [u8], fence: Fence) -> Answer<'a, Outcome> {
        Box::pin(Store::compare_and_delete(self, key, expected, fence))
    }

    fn query_ttl<'a>(&'a self, key: &'a Key) -> Answer<'a, Remaining> {
        Box::pin(Store::query_ttl(self, key))
    }
}

impl Store for ErasedStore {
    type ScanCursor = ErasedCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.0.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.0.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<ErasedCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<ErasedCursor>, StoreError> {
        self.0.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.0.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.0.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.0.insert(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.0.swap(key, expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.0.delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.0.query_ttl(key).await
    }
}
