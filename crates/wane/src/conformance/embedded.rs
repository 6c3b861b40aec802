//! The harness of a store that lives in this process, on a clock that the suite moves.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::{ErasedStore, Harness, Report, run_all};
use crate::clock::{Clock, ManualClock, SharedClock};
use crate::store::{
    BoxedStore, DeadlineStore, Faults, FaultyStore, ObservedStore, Store, StoreError, Ttl,
    WatchedStore,
};

/// A store in this process. It keeps nothing across a restart: a durable one brings a harness of
/// its own for those cases.
pub struct Embedded {
    name: String,
    clock: Arc<ManualClock>,
    store: ErasedStore,
    footprint: Box<dyn Fn() -> Option<u64> + Send + Sync>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Moves the clock past a life, also while it slews.
pub fn outlive(clock: &ManualClock, ttl: Ttl) {
    let end = clock.now().after(ttl);
    while clock.now() < end {
        clock.advance(clock.now().until(end).max(Duration::from_millis(1)));
    }
}

impl Embedded {
    /// A harness for `store`, which lives by `clock`.
    pub fn new(
        name: impl Into<String>,
        clock: Arc<ManualClock>,
        store: impl Store,
        footprint: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        let (name, store) = (name.into(), ErasedStore::new(store));
        Self { name, clock, store, footprint: Box::new(footprint) }
    }

    /// Runs the whole suite, says on standard error how that went, and panics if a case failed.
    pub async fn assert_conforms(&self) {
        let report = run_all(self).await;
        report.announce();
        report.assert_passed();
    }
}

impl Harness for Embedded {
    type Store = ErasedStore;

    fn name(&self) -> &str {
        &self.name
    }

    fn store(&self) -> ErasedStore {
        self.store.clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn footprint(&self) -> Option<u64> {
        (self.footprint)()
    }
}

/// Runs the suite over each wrapper around a store of its own, and over all of them at once.
///
/// `make` gives the store to wrap and its footprint.
pub async fn assert_wrappers_conform<S, F>(name: &str, make: impl Fn(SharedClock) -> (S, F))
where
    S: Store,
    F: Fn() -> Option<u64> + Send + Sync + 'static,
{
    type Wrap<S> = fn(S, SharedClock) -> ErasedStore;
    let wraps: [(&str, Wrap<S>); 6] = [
        ("deadline", |below, clock| ErasedStore::new(in_time(below, clock))),
        ("observed", |below, clock| ErasedStore::new(ObservedStore::new(below, "tests", clock))),
        ("boxed", |below, _| ErasedStore::new(BoxedStore::new(below))),
        ("watched", |below, clock| ErasedStore::new(WatchedStore::new(below, clock))),
        ("faulty", |below, clock| {
            ErasedStore::new(FaultyStore::new(below, Faults::NONE, 1, clock))
        }),
        ("watched(deadline(observed(faulty", |below, clock| {
            let faulty = FaultyStore::new(below, Faults::NONE, 1, clock.clone());
            let observed = ObservedStore::new(faulty, "tests", clock.clone());
            ErasedStore::new(WatchedStore::new(in_time(observed, clock.clone()), clock))
        }),
    ];
    for (wrapper, wrap) in wraps {
        let clock = ManualClock::seeded(1);
        let (below, footprint) = make(clock.clone());
        let closing = ")".repeat(1 + wrapper.matches('(').count());
        let store = wrap(below, clock.clone());
        let harness = Embedded::new(format!("{wrapper}({name}{closing}"), clock, store, footprint);
        harness.assert_conforms().await;
    }
}

/// A deadline that no case reaches, though some let years pass beside calls under way.
fn in_time<S: Store>(below: S, clock: SharedClock) -> DeadlineStore<S> {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    DeadlineStore::new(below, "tests", CENTURY, clock)
}

impl Report {
    /// Says on standard error how many cases ran on which store, past any capture of test output,
    /// and appends what became of each to the file that `WANE_TEST_MATRIX` names.
    pub fn announce(&self) {
        // Nobody to read it is no reason to fail.
        drop(writeln!(std::io::stderr(), "{self}"));
        if let Some(path) = std::env::var_os("WANE_TEST_MATRIX") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
            let written = file.and_then(|mut file| file.write_all(self.lines().as_bytes()));
            written.unwrap_or_else(|error| panic!("WANE_TEST_MATRIX={path:?}: {error}"));
        }
    }

    /// A line for each case: store, case and outcome, with tabs between.
    fn lines(&self) -> String {
        let passed = self.passed.iter().map(|case| (*case, "passed"));
        let failed = self.failed.iter().map(|failure| (failure.case, "failed"));
        let others = self.not_applicable.iter().map(|(case, _)| (*case, "not applicable"));
        let each = passed.chain(failed).chain(others);
        each.map(|(case, outcome)| format!("{}\t{case}\t{outcome}\n", self.store)).collect()
    }
}
