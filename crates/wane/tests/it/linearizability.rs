//! The linearizability check over memory and the reference model, and over stores that lie.
//!
//! `WANE_TEST_HISTORIES` sets how many histories the sound stores are checked with.

use std::sync::Arc;

use wane::clock::{SharedClock, SystemClock};
use wane::conformance::ModelStore;
use wane::conformance::history::{Failure, Plan, Tally, Time, check_histories, histories_to_check};
use wane::store::{Faults, FaultyStore, MemoryStore};

use crate::lying_store::{Lie, LyingStore};

/// Within this many histories a lie must come to light.
const PATIENCE: u64 = 50;

fn memory(clock: SharedClock) -> MemoryStore {
    MemoryStore::new(clock).expect("a thread for the sweeper")
}

#[track_caller]
fn assert_sound(checked: Result<Tally, Failure>) {
    let tally = checked.unwrap_or_else(|failure| panic!("{failure}"));
    let histories = tally.linearizable + tally.undecided;
    assert!(tally.undecided * 100 <= histories, "too many undecided: {tally:?}");
    assert!(tally.absent_answers > histories, "hardly anything expired: {tally:?}");
    println!("{tally:?}");
}

async fn histories_of(lie: Lie, count: u64) -> Result<Tally, Failure> {
    let plan = Plan::default();
    let make = |seed| {
        let time = Time::manual(seed);
        (Arc::new(LyingStore::new(time.clock(), seed, lie)), time)
    };
    check_histories(0..count, &plan, make).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_linearizable_on_a_clock_that_clients_move() {
    let plan = Plan::default();
    let checked = check_histories(0..histories_to_check(), &plan, |seed| {
        let time = Time::manual(seed);
        (Arc::new(ModelStore::new(time.clock())), time)
    });
    assert_sound(checked.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_linearizable_in_real_time() {
    let plan = Plan::default();
    let time = Time::Real(SystemClock::shared());
    let store = Arc::new(ModelStore::new(time.clock()));
    let make = |_| (Arc::clone(&store), time.clone());
    assert_sound(check_histories(0..histories_to_check(), &plan, make).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_linearizable_on_a_clock_that_clients_move() {
    let plan = Plan::default();
    let checked = check_histories(0..histories_to_check(), &plan, |seed| {
        let time = Time::manual(seed);
        (Arc::new(memory(time.clock())), time)
    });
    assert_sound(checked.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_linearizable_in_real_time() {
    let plan = Plan::default();
    let time = Time::Real(SystemClock::shared());
    let store = Arc::new(memory(time.clock()));
    let make = |_| (Arc::clone(&store), time.clone());
    assert_sound(check_histories(0..histories_to_check(), &plan, make).await);
}

/// Lost answers are told from refusals by the wrapper that the other fault tests rest on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_behind_faults_is_linearizable() {
    let plan = Plan::default();
    let faults = Faults { lost_answer: 0.05, lost_request: 0.05, error: 0.02, ..Faults::NONE };
    let checked = check_histories(0..histories_to_check(), &plan, |seed| {
        let time = Time::manual(seed);
        let store = FaultyStore::new(memory(time.clock()), faults, seed, time.clock());
        (Arc::new(store), time)
    });
    assert_sound(checked.await);
}

/// Lost and late messages are no violation as long as the store says `Unknown`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_admits_to_losing_messages_is_linearizable() {
    assert_sound(histories_of(Lie::LosesMessages, histories_to_check()).await);
}

macro_rules! caught {
    ($($(#[$doc:meta])* $name:ident: $lie:ident;)*) => {$(
        $(#[$doc])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let caught = histories_of(Lie::$lie, PATIENCE).await;
            println!("{}", caught.expect_err("the lie must be caught"));
        }
    )*};
}

caught! {
    a_check_and_a_write_in_two_steps_are_caught: ChecksThenWrites;
    an_unknown_outcome_called_refused_is_caught: CallsUnknownRefused;
    an_applied_write_called_unavailable_is_caught: CallsAppliedUnavailable;
    a_write_applied_twice_is_caught: AppliesTwice;
    an_expired_record_that_comes_back_is_caught: RevivesExpired;
    a_lost_acknowledged_write_is_caught: LosesAcknowledged;
    a_record_that_expires_early_is_caught: ExpiresEarly;
}
