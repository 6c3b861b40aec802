//! Random operations against the model: memory agrees with it, and its flaws come to light.
//!
//! `WANE_TEST_DIFFERENTIAL_CASES` sets how many cases the sound model is run with.

use std::sync::Arc;

use wane::clock::ManualClock;
use wane::conformance::differential::{Step, Trials, compare_with_model};
use wane::conformance::{Flaw, ModelStore};
use wane::store::MemoryStore;

const SEED: u64 = 1;

/// Flaws that one caller with one handle and few rows cannot meet, or meets too seldom: races, a
/// second handle, restarts, sweeping, writes between pages, and large pages and batches. The
/// cases of the suite cover them.
const BEYOND: &[Flaw] = &[
    Flaw::InsertInTwoSteps,
    Flaw::SwapInTwoSteps,
    Flaw::DeleteInTwoSteps,
    Flaw::PutInTwoSteps,
    Flaw::PutIsTorn,
    Flaw::AbandonedReadBlocks,
    Flaw::RestLostWithItsRow,
    Flaw::PageBeyondBytes,
    Flaw::AbsenceCached,
    Flaw::BatchReadsFirst100,
    Flaw::BatchWritesFirst25,
    Flaw::ScanRepeats,
    Flaw::ScanMovesOn,
    Flaw::ScanBeyondBytes,
    Flaw::NeverSweeps,
    Flaw::SweepsLiveRecords,
    Flaw::RestartForgetsRecords,
    Flaw::RestartForgetsBatches,
    Flaw::RestartForgetsExpiries,
    Flaw::RestartRenewsLives,
    Flaw::RestartForgetsFences,
    Flaw::RestartRevivesDeleted,
];

#[test]
fn the_model_agrees_with_itself() {
    let make = async |clock: Arc<ManualClock>| ModelStore::new(clock);
    if let Err(difference) = compare_with_model(Trials::seeded(SEED), make) {
        panic!("{difference}");
    }
}

#[test]
fn memory_answers_as_the_model_does() {
    let make =
        async |clock: Arc<ManualClock>| MemoryStore::new(clock).expect("a thread for the sweeper");
    if let Err(difference) = compare_with_model(Trials::seeded(SEED), make) {
        panic!("{difference}");
    }
}

#[test]
fn a_flaw_of_a_single_caller_is_caught() {
    let trials = Trials { cases: 512, seed: SEED, shrink: 0 };
    let missed = |flaw: &&Flaw| {
        let make = async |clock: Arc<ManualClock>| ModelStore::flawed(clock, **flaw);
        compare_with_model(trials, make).is_ok()
    };
    let reachable = Flaw::ALL.iter().filter(|flaw| !BEYOND.contains(flaw));
    let missed: Vec<_> = reachable.filter(missed).collect();
    assert!(missed.is_empty(), "missed: {missed:?}");
}

/// Whoever reads the report of a long run depends on this.
#[test]
fn a_difference_is_shrunk_to_the_steps_that_matter() {
    let make = async |clock: Arc<ManualClock>| ModelStore::flawed(clock, Flaw::ExpiredMatchesSwap);
    let trials = Trials { cases: 512, seed: SEED, shrink: 20_000 };
    let difference = compare_with_model(trials, make).expect_err("the flaw must be caught");
    let [Step::Put(..) | Step::Insert(..), Step::Advance(_), Step::Swap(..)] =
        &difference.steps[..]
    else {
        panic!("a write, its expiry and a swap suffice: {difference}");
    };
    assert!(difference.to_string().contains("seed 1"), "{difference}");
}
