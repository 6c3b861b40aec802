//! The linearizability check over memory and the reference model, and over stores that lie.
//!
//! `WANE_TEST_HISTORIES` sets how many histories the sound stores are checked with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wane::clock::{OffClock, SharedClock, SystemClock};
use wane::conformance::ModelStore;
use wane::conformance::history::{
    Failure, Plan, Stage, Tally, Time, check_histories, check_staged_histories, histories_to_check,
    record,
};
use wane::conformance::linearizability::Allowance;
use wane::store::{Faults, FaultyStore, Key, MemoryStore, Store};

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

/// What a shared store is allowed in these tests.
const OFF: Allowance = Allowance::skew(Duration::from_millis(5));

async fn histories_of(lie: Lie, allowance: Allowance, count: u64) -> Result<Tally, Failure> {
    let plan = Plan { allowance, ..Plan::default() };
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
    assert_sound(histories_of(Lie::LosesMessages, Allowance::NONE, histories_to_check()).await);
}

macro_rules! caught {
    ($($name:ident: $lie:expr, $allowance:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let caught = histories_of($lie, $allowance, PATIENCE).await;
            println!("{}", caught.expect_err("the lie must be caught"));
        }
    )*};
}

caught! {
    a_check_and_a_write_in_two_steps_are_caught: Lie::ChecksThenWrites, Allowance::NONE;
    an_unknown_outcome_called_refused_is_caught: Lie::CallsUnknownRefused, Allowance::NONE;
    an_applied_write_called_unavailable_is_caught: Lie::CallsAppliedUnavailable, Allowance::NONE;
    a_write_applied_twice_is_caught: Lie::AppliesTwice, Allowance::NONE;
    an_expired_record_that_comes_back_is_caught: Lie::RevivesExpired, Allowance::NONE;
    a_lost_acknowledged_write_is_caught: Lie::LosesAcknowledged, Allowance::NONE;
    a_record_that_expires_early_is_caught: Lie::ExpiresEarly(1), Allowance::NONE;
}

/// An allowance for clocks excuses none of the lies.
mod within_an_allowance {
    use super::*;

    caught! {
        a_check_and_a_write_in_two_steps_are_caught: Lie::ChecksThenWrites, OFF;
        an_unknown_outcome_called_refused_is_caught: Lie::CallsUnknownRefused, OFF;
        an_applied_write_called_unavailable_is_caught: Lie::CallsAppliedUnavailable, OFF;
        a_write_applied_twice_is_caught: Lie::AppliesTwice, OFF;
        an_expired_record_that_comes_back_is_caught: Lie::RevivesExpired, OFF;
        a_lost_acknowledged_write_is_caught: Lie::LosesAcknowledged, OFF;
        a_record_that_expires_earlier_than_allowed_is_caught: Lie::ExpiresEarly(10), OFF;
        a_dated_check_and_write_in_two_steps_are_caught: Lie::ChecksThenWrites, OFF.dated();
        a_dated_write_applied_twice_is_caught: Lie::AppliesTwice, OFF.dated();
        a_dated_lost_write_is_caught: Lie::LosesAcknowledged, OFF.dated();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_record_that_expires_as_early_as_allowed_is_not_held_against_the_store() {
        assert_sound(histories_of(Lie::ExpiresEarly(1), OFF, histories_to_check() / 5).await);
    }
}

/// Histories of three nodes on one store: one clock is right, one ahead, one behind.
async fn histories_of_nodes(
    ahead: i64,
    allowance: Allowance,
    count: u64,
) -> Result<Tally, Failure> {
    let plan = Plan { allowance, ..Plan::default() };
    check_staged_histories(0..count, &plan, async |seed| {
        let time = Time::manual(seed);
        let node = ModelStore::new(time.clock());
        let off = |by| Arc::new(node.on_clock(Arc::new(OffClock::ahead_of(time.clock(), by))));
        Stage::with_handles(vec![off(0), off(ahead), off(-ahead)], time)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_clocks_apart_are_linearizable_within_their_skew() {
    assert_sound(histories_of_nodes(5, OFF, histories_to_check()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_clocks_further_apart_than_allowed_are_caught() {
    let exact = histories_of_nodes(5, Allowance::NONE, PATIENCE).await;
    println!("{}", exact.expect_err("without an allowance it must be caught"));
    let beyond = histories_of_nodes(7, OFF, PATIENCE).await;
    println!("{}", beyond.expect_err("beyond the allowance it must be caught"));
}

/// The control of faults beside the clients: what happens there happens while they call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_nobody_recorded_is_caught() {
    let plan = Plan::default();
    let checked = check_staged_histories(0..PATIENCE, &plan, async |seed| {
        let time = Time::manual(seed);
        let store = Arc::new(ModelStore::new(time.clock()));
        Stage::new(Arc::clone(&store), time).beside(meddle(store, seed))
    });
    println!("{}", checked.await.expect_err("the write must be caught"));
}

/// Writes to the history's key behind its back, again and again.
async fn meddle(store: Arc<ModelStore>, seed: u64) {
    let partition = format!("history {seed}");
    let key = Key::new(partition.as_bytes(), &0_u64.to_be_bytes()).expect("short parts");
    loop {
        drop(store.put(&key, crate::permanent("meddled")).await);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_beside_the_clients_ends_with_them() {
    let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    struct Ends(Arc<AtomicU64>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (begins, ends) = (Arc::clone(&begun), Ends(Arc::clone(&ended)));
    let time = Time::manual(1);
    let stage = Stage::new(Arc::new(ModelStore::new(time.clock())), time).beside(async move {
        begins.fetch_add(1, Ordering::SeqCst);
        let _ends = ends;
        std::future::pending::<()>().await;
    });
    let events = record(stage, 1, &Plan::default()).await;
    assert_eq!(events.len(), 400);
    assert_eq!(ended.load(Ordering::SeqCst), 1, "it goes on after the clients are done");
    assert_eq!(begun.load(Ordering::SeqCst), 1, "it never began");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "the fault plan failed")]
async fn a_panic_beside_the_clients_fails_the_history() {
    let time = Time::manual(1);
    let stage = Stage::new(Arc::new(ModelStore::new(time.clock())), time)
        .beside(async { panic!("the fault plan failed") });
    record(stage, 1, &Plan::default()).await;
}
