//! The contract on every backend of this crate, and on each wrapper over it.

use std::sync::Arc;

use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::conformance::differential::{Trials, compare_with_model};
use wane::conformance::history::{Plan, Tally, Time, check_histories, histories_to_check};
use wane::conformance::{Harness, assert_wrappers_conform, run_all};
use wane_backends::file::FileStore;

use crate::harness::any::Any;
use crate::harness::file::{File, SharedDirectory};

async fn assert_conforms(harness: &impl Harness) {
    let report = run_all(harness).await;
    report.announce();
    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_keeps_the_contract() {
    assert_conforms(&File::new()).await;
}

/// What the server has: a backend that is known once the program runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_store_over_memory_keeps_the_contract() {
    assert_conforms(&Any::memory().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_store_over_file_keeps_the_contract() {
    assert_conforms(&Any::file().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wrapper_over_file_keeps_the_contract() {
    let directory = SharedDirectory::new();
    let make = |clock: SharedClock| {
        let store = directory.create_store(clock);
        (store.clone(), move || store.size_on_disk().ok())
    };
    assert_wrappers_conform("file", make).await;
}

/// One caller, random operations: file answers what the model answers.
#[test]
fn file_answers_as_the_model_does() {
    let directory = SharedDirectory::new();
    let make = async |clock: Arc<ManualClock>| directory.create_store(clock);
    if let Err(difference) = compare_with_model(Trials::seeded(1), make) {
        panic!("{difference}");
    }
}

#[track_caller]
fn assert_sound(tally: &Tally) {
    assert!(tally.undecided * 100 <= tally.linearizable, "too many undecided: {tally:?}");
    assert!(tally.absent_answers > tally.linearizable, "hardly anything expired: {tally:?}");
}

/// Eight callers at once on one store: some order explains every answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_is_linearizable_in_real_time() {
    let directory = SharedDirectory::new();
    let time = Time::Real(SystemClock::shared());
    let store: Arc<FileStore> = Arc::new(directory.create_store(time.clock()));
    let make = |_| (Arc::clone(&store), time.clone());
    let checked = check_histories(0..histories_to_check(), &Plan::default(), make).await;
    assert_sound(&checked.unwrap_or_else(|failure| panic!("{failure}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_is_linearizable_on_a_clock_that_clients_move() {
    let directory = SharedDirectory::new();
    let make = |seed| {
        let time = Time::manual(seed);
        (Arc::new(directory.create_store(time.clock())), time)
    };
    let checked = check_histories(0..histories_to_check(), &Plan::default(), make).await;
    assert_sound(&checked.unwrap_or_else(|failure| panic!("{failure}")));
}
