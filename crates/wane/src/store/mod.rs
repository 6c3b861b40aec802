//! The store contract: records that expire, changed one atomic step at a time.
//!
//! [`Store`] is the promise, `conformance` its executable form. Types carry the limits: a
//! [`Key`], a [`Value`] or a [`Ttl`] that exists is legal everywhere, so backends check none of
//! them again.
//!
//! Reading order: this file, `record`, `key`, `ttl`, then `change` for the rules that decide a
//! write, then `memory` for the shortest way to keep them. Wrappers have the same trait as what
//! they wrap. Not here: drivers and files, which live in `wane-backends`.

mod barrier;
mod boxed;
mod cached;
mod change;
mod deadline;
mod error;
#[cfg(feature = "testing")]
mod faulty;
mod inline;
mod key;
mod keyspace;
mod memory;
mod observed;
mod record;
mod rows;
mod spread;
mod ttl;
mod watched;

pub(crate) use barrier::outwait;
pub use boxed::BoxedStore;
pub use cached::{CacheSettings, CacheStats, CachedStore};
pub use change::{Change, Condition, Current, Effect, Step};
pub use deadline::DeadlineStore;
pub use error::{BoxError, StoreError};
#[cfg(feature = "testing")]
pub use faulty::{Faults, FaultyStore};
pub use key::{
    ClusteringRange, Key, MAX_CLUSTERING, MAX_PARTITION, MAX_STORED_PARTITION, Partition,
};
pub use keyspace::Keyspace;
pub use memory::{MemoryScanCursor, MemoryStore};
pub use observed::{Answer, Metrics, ObservedStore, Operation, OperationMetrics, prometheus_text};
pub use record::{
    Fence, MAX_VALUE, Outcome, PAGE_BYTES, Page, PageFill, PageLimit, Record, Row, ScanPage, Value,
    Write,
};
pub use rows::for_each_row;
pub use spread::{SpreadError, SpreadStore};
pub use ttl::{Life, Remaining, Timestamp, Ttl};
pub use watched::{Event, EventKind, Notice, Watch, WatchLimits, WatchedStore};

use std::fmt::Debug;

/// A partitioned key-value store whose records may expire.
///
/// This is the contract every backend meets; `conformance` is its executable form. Services are
/// generic over it and may rely on everything written here, and on nothing else.
///
/// - **Conditional writes are one step.** Of any number of racing calls that expect the same
///   state, exactly one is applied.
/// - **Expired is absent.** From the instant of its expiry on, every method behaves as if the
///   record had never been written, whether or not the backend has removed it yet. What was once
///   reported gone does not come back by itself, not even when a clock is set back.
/// - **A refusal carries what stood in the way**, so that the caller needs no second read.
/// - **No hidden retries.** A write that failed may still have been applied; backends then return
///   [`StoreError::Unknown`], because only the caller knows whether to ask again. A write whose
///   future is dropped may or may not be applied, but never half.
/// - **Acknowledged survives** whatever the backend promises to survive.
/// - **Expired data leaves** by itself, in bounded steps that no writer waits long for. A record
///   that was renewed or written anew is never removed by its old expiry.
/// - **Fences.** A write with a fence below the record's is refused; at or above, it stamps its
///   own. A write without one leaves the stamp. An absent record has none.
/// - **Ranges are half-open and ordered by bytes.** Every byte string of a legal length is legal,
///   and an empty clustering is a row like any other.
pub trait Store: Debug + Send + Sync + 'static {
    /// Where a scan goes on. It may hold resources of the backend: drop it when done.
    type ScanCursor: Debug + Send + 'static;

    /// Returns the live record at `key`.
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Returns the live record of each position, duplicates included.
    fn get_batch(
        &self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Record>>, StoreError>> + Send;

    /// Returns a page of the partition's live rows in `range`, ascending by clustering.
    ///
    /// [`for_each_row`] walks all pages.
    fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Returns a page of the whole store in the backend's own order: for backup and migration.
    ///
    /// Memory and file show the store as it was when the scan began; elsewhere every record that
    /// lives throughout is seen at least once.
    fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> impl Future<Output = Result<ScanPage<Self::ScanCursor>, StoreError>> + Send;

    /// Writes over whatever is there. Refused only by a higher fence.
    fn put(
        &self,
        key: &Key,
        write: Write,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Puts each row and returns when all are as durable as the backend promises.
    ///
    /// The rows are independent puts in no promised order, except that of two writes to one key
    /// the last one stands. Answers come by position. An invalid write fails the whole call
    /// before anything is applied.
    fn put_batch(
        &self,
        writes: Vec<(Key, Write)>,
    ) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send;

    /// Writes where no live record is. Refused with the one that is.
    fn insert_if_not_exists(
        &self,
        key: &Key,
        write: Write,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Replaces a live `expected` by `write`. Refused with what stands there.
    ///
    /// An absent record never matches, not even an empty `expected`.
    fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Removes a live `expected`. Refused with what stands there, or by a fence above `fence`.
    fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Returns what is left of the record's life. A live record never reads as absent.
    fn query_ttl(&self, key: &Key) -> impl Future<Output = Result<Remaining, StoreError>> + Send;
}
