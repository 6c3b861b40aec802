//! The suite on memory and on the model, and its control: every flaw of the catalogue is noticed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{Clock, ManualClock};
use wane::conformance::{Flaw, FlawedModel, Harness, ModelStore, first_failure, run_all};
use wane::store::{MemoryStore, StoreError, Ttl};

/// Moves the clock past a life, also while it slews.
fn outlive(clock: &ManualClock, ttl: Ttl) {
    let end = clock.now().after(ttl);
    while clock.now() < end {
        clock.advance(clock.now().until(end).max(Duration::from_millis(1)));
    }
}

struct Sound {
    clock: Arc<ManualClock>,
    store: ModelStore,
}

impl Sound {
    fn new() -> Self {
        let clock = ManualClock::seeded(1);
        Self { store: ModelStore::new(clock.clone()), clock }
    }
}

impl Harness for Sound {
    type Store = ModelStore;

    fn name(&self) -> &str {
        "model"
    }

    fn store(&self) -> ModelStore {
        self.store.clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    /// The model never closes, so that the cases about restarts can run on it.
    async fn reopen(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn footprint(&self) -> Option<u64> {
        Some(self.store.footprint())
    }
}

struct Memory {
    clock: Arc<ManualClock>,
    store: MemoryStore,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::seeded(1);
        let store = MemoryStore::new(clock.clone()).expect("a thread for the sweeper");
        Self { store, clock }
    }
}

impl Harness for Memory {
    type Store = MemoryStore;

    fn name(&self) -> &str {
        "memory"
    }

    fn store(&self) -> MemoryStore {
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
        Some(self.store.allocated_bytes() as u64)
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
    let report = run_all(&Memory::new()).await;
    println!("{report}");
    report.assert_passed();
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
