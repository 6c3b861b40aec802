//! [`CachedStore`]: reads of single records from memory, never older than a bound.
//!
//! For stores that other nodes write to and that are a network away. Each answer about a key, also
//! that it is absent, may be given again for `max_stale`, counted by the monotonic clock from before
//! the call that brought it was sent. With a bound of zero there is no cache and the contract holds
//! to the letter. With another one it holds for what this node does, and other nodes' writes are
//! seen up to `max_stale` late:
//!
//! - This node sees its own writes at once, through every clone. A write drops what is known of its
//!   key before it is sent, and nothing read beside it is remembered: not a read that began before
//!   the write had ended, not the value of a write that another one may have overtaken. A write
//!   without an answer leaves nothing behind.
//! - Single records never go back in time here: once this node was told of a newer state, through a
//!   read of the record, a refusal or a write, it does not show the older one.
//! - A record that has expired by the clock is not answered from memory.
//! - A write that is refused, and one whose record is fully known, leaves what it saw for the next
//!   read. Records are copied for it, so that none keeps a larger buffer of a driver alive.
//!
//! `get`, `get_batch` and `query_ttl` are served; ranges and scans always ask the store, and so may
//! show more than a single read does. What must be exact takes a handle that reads through:
//! [`CachedStore::uncached`].
//!
//! Flow: `entries` holds what is known, bounded by bytes; `turns` says who may add to it.
//! Not here: time while the machine sleeps, which the monotonic clock does not count.

mod cache;
mod entries;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use self::cache::{Cache, Seen};
use super::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Timestamp, Value, Write,
};
use crate::clock::SharedClock;

/// How a cache is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSettings {
    /// How old an answer may be. Zero means that there is no cache.
    pub max_stale: Duration,
    /// Bytes that keys, values and what holds them may take. Records of over about half of it, or
    /// of over 2 MiB where it is larger, are not cached.
    pub max_bytes: u64,
}

/// What became of reads, and what is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Keys answered from memory.
    pub hits: u64,
    /// Keys that the store was asked for.
    pub misses: u64,
    /// Keys of which something is known, however old.
    pub entries: u64,
    /// Bytes that these take.
    pub bytes: u64,
}

/// A [`Store`] that may answer from memory. A clone shares what is cached.
#[derive(Debug, Clone)]
pub struct CachedStore<S> {
    inner: S,
    cache: Option<Arc<Cache>>,
    /// Whether reads are answered from the cache. Writes keep it right in any case.
    serves: bool,
}

impl<S: Store> CachedStore<S> {
    /// Caches reads of `inner` within `settings`; without them, and with bounds of zero, everything
    /// passes through. `clock` must be the one that `inner` goes by.
    pub fn new(inner: S, settings: Option<CacheSettings>, clock: SharedClock) -> Self {
        let bounded = settings.filter(|it| it.max_stale > Duration::ZERO && it.max_bytes > 0);
        let cache = bounded.map(|settings| Arc::new(Cache::new(settings, clock)));
        Self { inner, cache, serves: true }
    }

    /// A handle on the same store whose reads always ask it. Its writes are seen by cached handles
    /// as those of a clone are.
    #[must_use]
    pub fn uncached(&self) -> Self
    where
        S: Clone,
    {
        Self { serves: false, ..self.clone() }
    }

    /// What was counted so far by all handles, unless there is no cache.
    pub fn stats(&self) -> Option<CacheStats> {
        self.cache.as_ref().map(|cache| cache.stats())
    }

    fn serving(&self) -> Option<&Cache> {
        self.cache.as_deref().filter(|_| self.serves)
    }

    /// Sends a write; `written` is the record that it leaves when applied, as far as that is known.
    async fn write(
        &self,
        key: &Key,
        request: impl Future<Output = Result<Outcome, StoreError>> + Send,
        written: impl FnOnce(Option<Timestamp>) -> Seen + Send,
    ) -> Result<Outcome, StoreError> {
        let Some(cache) = &self.cache else { return request.await };
        let writing = cache.begin_write(key);
        let outcome = request.await?;
        writing.end(&match &outcome {
            Outcome::Applied { expires_at } => written(*expires_at),
            Outcome::Refused { current } => Seen::Record(current.clone()),
        });
        Ok(outcome)
    }
}

/// The record that a write leaves. Without a fence of its own it keeps one that nobody told us.
fn left_by(value: Value, fence: Fence) -> impl FnOnce(Option<Timestamp>) -> Seen + Send {
    move |expires_at| match fence {
        Fence::NONE => Seen::Unsaid,
        fence => Seen::Record(Some(Record { value, expires_at, fence })),
    }
}

impl<S: Store> Store for CachedStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let Some(cache) = self.serving() else { return self.inner.get(key).await };
        if let Some(entry) = cache.find(key) {
            return Ok(entry.record.clone());
        }
        let reading = cache.begin_read(key);
        let record = self.inner.get(key).await?;
        cache.end_read(key, reading, &Seen::Record(record.clone()));
        Ok(record)
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let Some(cache) = self.serving() else { return self.inner.get_batch(keys).await };
        let mut records = vec![None; keys.len()];
        let (mut missing, mut readings) = (Vec::new(), Vec::new());
        for (position, (key, record)) in keys.iter().zip(&mut records).enumerate() {
            match cache.find(key) {
                Some(entry) => record.clone_from(&entry.record),
                None => {
                    missing.push(key.clone());
                    readings.push((position, cache.begin_read(key)));
                }
            }
        }
        if missing.is_empty() {
            return Ok(records);
        }
        let read = self.inner.get_batch(&missing).await?;
        for (record, (position, reading)) in read.into_iter().zip(readings) {
            cache.end_read(&keys[position], reading, &Seen::Record(record.clone()));
            records[position] = record;
        }
        Ok(records)
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.inner.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let left = left_by(write.value.clone(), write.fence);
        self.write(key, self.inner.put(key, write), left).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let Some(cache) = &self.cache else { return self.inner.put_batch(writes).await };
        let keys: Vec<_> = writes.iter().map(|(key, _)| key.clone()).collect();
        // What a batch wrote is dropped: it is as a rule more than anyone is about to read.
        let _writing: Vec<_> = keys.iter().map(|key| cache.begin_write(key)).collect();
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        // Where nothing was there is no older fence either.
        let (value, fence) = (write.value.clone(), write.fence);
        let left = |expires_at| Seen::Record(Some(Record { value, expires_at, fence }));
        self.write(key, self.inner.insert_if_not_exists(key, write), left).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let left = left_by(write.value.clone(), write.fence);
        self.write(key, self.inner.compare_and_swap(key, expected, write), left).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let request = self.inner.compare_and_delete(key, expected, fence);
        self.write(key, request, |_| Seen::Record(None)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        let Some(cache) = self.serving() else { return self.inner.query_ttl(key).await };
        if let Some(remaining) = cache.find_remaining(key) {
            return Ok(remaining);
        }
        let reading = cache.begin_read(key);
        let remaining = self.inner.query_ttl(key).await?;
        let seen = match remaining {
            Remaining::Absent => Seen::Record(None),
            Remaining::Permanent | Remaining::For(_) => Seen::Unsaid,
        };
        cache.end_read(key, reading, &seen);
        Ok(remaining)
    }
}
