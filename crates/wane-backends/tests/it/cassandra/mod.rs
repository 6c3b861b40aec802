//! The contract on Cassandra, and what only Cassandra can get wrong.
//!
//! One node and three run the whole suite. The rest needs one, except what is about several
//! processes: there three nodes show more, as Paxos has replicas to disagree.

mod lost_answers;
mod mistakes;
mod opening;
mod tap;
#[cfg(feature = "cassandra-tls")]
mod tls;
mod two_processes;

use std::sync::Arc;

use wane::clock::{ManualClock, SystemClock};
use wane::conformance::differential::{Trials, compare_with_model};
use wane::conformance::history::{Plan, Time, check_histories};
use wane::conformance::run_all;
use wane_backends::cassandra::Replication;

use crate::harness::cassandra::{Cassandra, Place};

async fn assert_conforms(replication: Replication) {
    let Some(place) = Place::new(replication) else { return };
    let harness = Cassandra::new(place).await;
    let report = run_all(&harness).await;
    report.announce();
    report.assert_passed();
    harness.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cas1_keeps_the_contract() {
    assert_conforms(Replication::Cas1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cas3_keeps_the_contract() {
    assert_conforms(Replication::Cas3).await;
}

/// Eight callers at once on one store, lives of a few milliseconds: some order explains every
/// answer, and a write that is under way while its record expires contradicts no reader.
async fn assert_linearizable(replication: Replication, histories: u64) {
    let Some(place) = Place::new(replication) else { return };
    let time = Time::Real(SystemClock::shared());
    let store = Arc::new(place.connect(time.clock()).await);
    let make = |_| (Arc::clone(&store), time.clone());
    let checked = check_histories(0..histories, &Plan::default(), make).await;
    let tally = checked.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.linearizable > 0 && tally.undecided <= tally.linearizable, "{tally:?}");
    assert!(tally.absent_answers > tally.linearizable, "hardly anything expired: {tally:?}");
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cas1_is_linearizable_in_real_time() {
    assert_linearizable(Replication::Cas1, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cas3_is_linearizable_in_real_time() {
    assert_linearizable(Replication::Cas3, 3).await;
}

/// One caller, random operations: Cassandra answers what the model answers. Each case begins with
/// tables that were emptied, which is faster than new ones.
#[test]
fn cas1_answers_as_the_model_does() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let trials = Trials { cases: 12, shrink: 100, ..Trials::seeded(1) };
    let make = async |clock: Arc<ManualClock>| {
        let store = place.connect(clock).await;
        place.empty().await;
        store
    };
    if let Err(difference) = compare_with_model(trials, make) {
        panic!("{difference}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(place.remove());
}
