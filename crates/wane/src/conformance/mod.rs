//! The contract as a test suite that any store can run.
//!
//! A backend brings a [`Harness`]; every case then runs against it. Cases take fresh partitions,
//! so that they share a store without meeting. Time passes through [`Harness::outlive`]: a manual
//! clock is moved, a server that keeps its own time is really waited for.

mod model;

pub use model::{ModelCursor, ModelStore};

use crate::clock::ManualClock;
use crate::store::{Store, StoreError, Ttl};

/// How the suite reaches a store: the one thing a backend brings to be tested.
pub trait Harness: Send + Sync + 'static {
    /// The store under test. A clone is a second handle on the same store.
    type Store: Store + Clone;

    /// What the store under test is called in reports, such as `memory` or `watched(file)`.
    fn name(&self) -> &str;

    /// A handle on the store under test, the same store each time.
    fn store(&self) -> Self::Store;

    /// Returns once a record written before with this life has expired.
    fn outlive(&self, ttl: Ttl) -> impl Future<Output = ()> + Send;

    /// The clock, where tests can move it. Cases that are exact to the millisecond need it.
    fn clock(&self) -> Option<&ManualClock>;

    /// Closes the store and opens it again, or returns `false` where it keeps nothing.
    fn reopen(&self) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Bytes that the store occupies (memory or disk), where that can be told.
    fn footprint(&self) -> Option<u64>;
}
