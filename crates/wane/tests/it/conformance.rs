//! The suite on memory and on the model, and its control: every flaw of the catalogue is noticed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wane::clock::{ManualClock, SharedClock};
use wane::conformance::{
    Embedded, Flaw, FlawedModel, Harness, ModelStore, assert_wrappers_conform, cases,
    first_failure, outlive, run_all,
};
use wane::store::{MemoryStore, StoreError, Ttl};

/// A memory store, and what it occupies.
fn memory(clock: SharedClock) -> (MemoryStore, impl Fn() -> Option<u64> + Send + Sync) {
    let store = MemoryStore::new(clock).expect("a thread for the sweeper");
    (store.clone(), move || Some(store.allocated_bytes() as u64))
}

struct Sound {
    clock: Arc<ManualClock>,
    store: ModelStore,
    /// Whether the harness can only let time pass.
    bare: bool,
    /// Whether the next handle is asked for in vain.
    panics: AtomicBool,
}

impl Sound {
    fn new() -> Self {
        let clock = ManualClock::seeded(1);
        let store = ModelStore::new(clock.clone());
        Self { store, clock, bare: false, panics: AtomicBool::new(false) }
    }
}

impl Harness for Sound {
    type Store = ModelStore;

    fn name(&self) -> &str {
        "model"
    }

    fn store(&self) -> ModelStore {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "no store today");
        self.store.clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        (!self.bare).then_some(&self.clock)
    }

    /// The model never closes, so that the cases about restarts can run on it.
    async fn reopen(&self) -> Result<bool, StoreError> {
        Ok(!self.bare)
    }

    fn footprint(&self) -> Option<u64> {
        (!self.bare).then(|| self.store.footprint())
    }
}

struct Flawed {
    clock: Arc<ManualClock>,
    store: FlawedModel,
    name: String,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        let clock = ManualClock::seeded(1);
        let name = format!("{flaw:?}");
        Self { store: ModelStore::flawed(clock.clone(), flaw), clock, name }
    }
}

impl Harness for Flawed {
    type Store = FlawedModel;

    fn name(&self) -> &str {
        &self.name
    }

    fn store(&self) -> FlawedModel {
        self.store.clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        self.store.restart();
        Ok(true)
    }

    fn footprint(&self) -> Option<u64> {
        Some(self.store.footprint())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sound_model_passes_every_case() {
    let report = run_all(&Sound::new()).await;
    println!("{report}");
    report.assert_passed();
    assert_eq!(report.not_applicable, [], "the model can do everything a case may need");
    let names: BTreeSet<_> = report.passed.iter().collect();
    assert_eq!(names.len(), report.passed.len(), "cases share partitions where they share a name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_keeps_the_contract() {
    let clock = ManualClock::seeded(1);
    let (store, footprint) = memory(clock.clone());
    Embedded::new("memory", clock, store, footprint).assert_conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wrapper_over_memory_keeps_the_contract() {
    assert_wrappers_conform("memory", memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_that_a_harness_cannot_run_are_counted_apart() {
    let report = run_all(&Sound { bare: true, ..Sound::new() }).await;
    report.assert_passed();
    let (passed, apart) = (report.passed.len(), report.not_applicable.len());
    assert_eq!(passed + apart, cases::<Sound>().len());
    assert_eq!(
        report.to_string(),
        format!(
            "conformance: {} cases on model: {passed} passed, 0 failed, \
             {apart} not applicable (manual clock, restart, footprint)",
            passed + apart
        ),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_one_case_does_not_stop_the_others() {
    let report = run_all(&Sound { panics: AtomicBool::new(true), ..Sound::new() }).await;
    assert_eq!(report.failed.len(), 1, "{report}");
    assert_eq!(report.passed.len(), cases::<Sound>().len() - 1);
    assert!(report.to_string().contains("panicked: no store today"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_fails_a_case() {
    let mut unnoticed = Vec::new();
    for flaw in Flaw::ALL {
        match first_failure(&Flawed::new(*flaw)).await {
            Some(failure) => println!("{flaw:?}: {}", failure.case),
            None => unnoticed.push(flaw),
        }
    }
    assert!(unnoticed.is_empty(), "passed every case: {unnoticed:?}");
}

/// The other direction: a case that no flaw fails might check nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_fails_on_some_flaw() {
    let mut unfailed: BTreeSet<_> = cases::<Flawed>().iter().map(|case| case.name).collect();
    for flaw in Flaw::ALL {
        let report = run_all(&Flawed::new(*flaw)).await;
        println!("{report}");
        unfailed.retain(|case| report.failed.iter().all(|failure| failure.case != *case));
    }
    assert!(unfailed.is_empty(), "no flaw fails these cases: {unfailed:#?}");
}
