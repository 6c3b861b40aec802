//! The contract as a test suite that any store can run.
//!
//! A backend brings a [`Harness`]; [`run_all`] then runs every case against it and returns a
//! [`Report`]. Cases take fresh partitions, so that they share a store without meeting, and run
//! one after the other, because some of them move the clock. Time passes through
//! [`Harness::outlive`]: a manual clock is moved, a server that keeps its own time is really
//! waited for.
//!
//! Needs a multi-threaded tokio runtime with time enabled: the races are real.
//!
//! Reading order: `conditional_writes` for what a case looks like, one file per part of the
//! contract beside it, `check` for the words the cases assert with, `model` for a store that
//! passes and `flawed` for the mistakes that the suite is known to notice.
//!
//! Two checks need no cases: `differential` compares answers with the model's, `linearizability`
//! looks for an order that explains what concurrent clients were told.
//! Not here: unclear answers and the creation of stores, which each backend tests on its own.

pub mod differential;
pub mod history;
pub mod linearizability;

mod case;
mod check;
mod embedded;
mod erased;
mod flaw;
mod flawed;
mod flawed_ranges;
mod flawed_writes;
mod model;
mod report;
mod sample;

mod batches;
mod cleaning;
mod conditional_writes;
mod expiry;
mod fences;
mod limits;
mod races;
mod ranges;
mod reads;
mod restart;
mod scan;

pub use case::{Case, Need, Part, Trial};
pub use check::{CaseError, CaseResult};
pub use embedded::{Embedded, assert_wrappers_conform, outlive};
pub use erased::{ErasedCursor, ErasedStore};
pub use flaw::Flaw;
pub use flawed::FlawedModel;
pub use model::{ModelCursor, ModelStore};
pub use report::{Failure, Report, first_failure, run_all};

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
    ///
    /// Handles taken before are not used again.
    fn reopen(&self) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Bytes that the store occupies (memory or disk), where that can be told.
    fn footprint(&self) -> Option<u64>;

    /// Whether a scan shows the store as it was when the scan began. The contract asks it of
    /// memory and file; elsewhere answer `false`.
    fn consistent_scan(&self) -> bool {
        true
    }
}

/// Every case of the suite, in the order of the contract.
pub fn cases<H: Harness>() -> Vec<Case<H>> {
    [
        limits::cases(),
        reads::cases(),
        ranges::cases(),
        scan::cases(),
        conditional_writes::cases(),
        expiry::cases(),
        fences::cases(),
        batches::cases(),
        races::cases(),
        restart::cases(),
        cleaning::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
