//! The conformance kit, the model and recorded histories over spreads, and what they see below one.

use std::sync::Arc;

use futures_util::FutureExt;
use wane::clock::{ManualClock, SharedClock};
use wane::conformance::differential::{Trials, compare_with_model};
use wane::conformance::history::{Plan, Time, check_histories, histories_to_check};
use wane::conformance::{Embedded, Flaw, ModelStore, first_failure};
use wane::store::{ObservedStore, SpreadStore, Store, WatchedStore};

use super::keyspaced::Keyspaced;
use super::spread;
use crate::lying_store::{Lie, LyingStore};
use crate::{InnerStore, inner_footprint, inner_store};

const SEED: u64 = 1;

/// Runs the kit over a store that `wrap` makes of a spread.
async fn assert_conforms<W: Store>(
    name: &str,
    buckets: u16,
    wrap: impl Fn(SpreadStore<InnerStore>, SharedClock) -> W,
) {
    let clock = ManualClock::seeded(1);
    let below = inner_store(clock.clone());
    let store = wrap(spread(below.clone(), buckets).await, clock.clone());
    let footprint = move || inner_footprint(&below);
    Embedded::new(name, clock, Keyspaced::new(store), footprint).assert_conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bucket_over_memory_keeps_the_contract() {
    assert_conforms("spread 1(memory)", 1, |spread, _| spread).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_buckets_over_memory_keep_the_contract() {
    assert_conforms("spread 2(memory)", 2, |spread, _| spread).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_buckets_over_memory_keep_the_contract() {
    assert_conforms("spread 256(memory)", 256, |spread, _| spread).await;
}

/// The order in which a server wraps its store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spread_below_other_wrappers_keeps_the_contract() {
    assert_conforms("watched(observed(spread 16(memory)))", 16, |spread, clock| {
        WatchedStore::new(ObservedStore::new(spread, "tests", clock.clone()), clock)
    })
    .await;
}

#[test]
fn a_spread_answers_as_the_model_does() {
    for buckets in [2, 3, 256] {
        let make = async |clock: Arc<ManualClock>| {
            Keyspaced::new(spread(inner_store(clock), buckets).await)
        };
        if let Err(difference) = compare_with_model(Trials::seeded(SEED), make) {
            panic!("{buckets} buckets: {difference}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spread_is_linearizable() {
    let plan = Plan { keys: 3, ..Plan::default() };
    let checked = check_histories(0..histories_to_check(), &plan, |seed| {
        let time = Time::manual(seed);
        let opened = spread(inner_store(time.clock()), 256).now_or_never();
        (Arc::new(Keyspaced::new(opened.expect("memory answers at once"))), time)
    });
    let tally = checked.await.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.linearizable > tally.undecided * 100, "{tally:?}");
}

/// The control: what is wrong below a spread shows above it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kit_sees_flaws_below_a_spread() {
    for flaw in [Flaw::InsertInTwoSteps, Flaw::ExpiredInRead, Flaw::RestLostWithItsRow] {
        let clock = ManualClock::seeded(1);
        let below = ModelStore::flawed(clock.clone(), flaw);
        let store = Keyspaced::new(spread(below, 2).await);
        let harness = Embedded::new(format!("{flaw:?}"), clock, store, || None);
        assert!(first_failure(&harness).await.is_some(), "{flaw:?} was not noticed");
    }
}

/// The control of the histories. The lie spares the number of buckets, which does not expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_sees_a_lie_below_a_spread() {
    let plan = Plan::default();
    let checked = check_histories(0..50, &plan, |seed| {
        let time = Time::manual(seed);
        let below = LyingStore::new(time.clock(), seed, Lie::ExpiresEarly(1));
        let store = spread(below, 2).now_or_never().expect("it answers at once");
        (Arc::new(Keyspaced::new(store)), time)
    });
    checked.await.expect_err("the lie must be caught");
}
