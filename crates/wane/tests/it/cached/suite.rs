//! The conformance kit, the model and recorded histories over caches.
//!
//! One node sees its own writes only, so that with one cache every rule of the contract holds,
//! whatever the bound.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use wane::clock::{ManualClock, SharedClock};
use wane::conformance::Embedded;
use wane::conformance::differential::{Trials, compare_with_model};
use wane::conformance::history::{Failure, Plan, Tally, Time, check_histories, histories_to_check};
use wane::store::{
    CacheSettings, CachedStore, Faults, FaultyStore, SpreadStore, Store, WatchedStore,
};

use super::naive::NaiveCache;
use crate::gated::{Gate, GatedStore};
use crate::{InnerStore, inner_footprint, inner_store};

const HOUR: Duration = Duration::from_secs(3_600);

fn cached<S: Store>(below: S, max_stale: Duration, clock: SharedClock) -> CachedStore<S> {
    CachedStore::new(below, Some(CacheSettings { max_stale, max_bytes: 4 << 20 }), clock)
}

async fn assert_conforms<W: Store>(name: &str, wrap: impl Fn(InnerStore, SharedClock) -> W) {
    let clock = ManualClock::seeded(1);
    let below = inner_store(clock.clone());
    let store = wrap(below.clone(), clock.clone());
    let footprint = move || inner_footprint(&below);
    Embedded::new(name, clock, store, footprint).assert_conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_without_a_bound_keeps_the_contract() {
    assert_conforms("cached 0(memory)", |below, clock| cached(below, Duration::ZERO, clock)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_of_an_hour_on_one_node_keeps_the_contract() {
    assert_conforms("cached 1 h(memory)", |below, clock| cached(below, HOUR, clock)).await;
}

/// The order in which a server wraps a shared store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_between_other_wrappers_keeps_the_contract() {
    assert_conforms("watched(cached 1 h(spread 16(memory)))", |below, clock| {
        let spread = SpreadStore::open(below, 16).now_or_never().expect("memory answers at once");
        let spread = spread.expect("the number is new");
        WatchedStore::new(cached(spread, HOUR, clock.clone()), clock)
    })
    .await;
}

#[test]
fn a_cache_answers_as_the_model_does() {
    for max_stale in [Duration::ZERO, Duration::from_millis(5), HOUR] {
        let make =
            async |clock: Arc<ManualClock>| cached(inner_store(clock.clone()), max_stale, clock);
        if let Err(difference) = compare_with_model(Trials::seeded(1), make) {
            panic!("{max_stale:?}: {difference}");
        }
    }
}

/// Histories over what `wrap` makes of a store whose calls give way to others within.
async fn histories<W: Store>(
    count: u64,
    faults: Faults,
    wrap: impl Fn(GatedStore<FaultyStore<InnerStore>>, SharedClock) -> W,
) -> Result<Tally, Failure> {
    check_histories(0..count, &Plan::default(), |seed| {
        let time = Time::manual(seed);
        let below = FaultyStore::new(inner_store(time.clock()), faults, seed, time.clock());
        let below = GatedStore::new(below);
        below.set(Gate::GiveWay);
        (Arc::new(wrap(below, time.clock())), time)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_on_one_node_is_linearizable() {
    let wrap = |below, clock| cached(below, HOUR, clock);
    let tally = histories(histories_to_check(), Faults::NONE, wrap).await;
    let tally = tally.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.linearizable > tally.undecided * 100, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_over_lost_messages_is_linearizable() {
    let faults = Faults { lost_answer: 0.05, lost_request: 0.05, error: 0.02, ..Faults::NONE };
    let wrap = |below, clock| cached(below, HOUR, clock);
    let tally = histories(histories_to_check(), faults, wrap).await;
    let tally = tally.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.linearizable > tally.undecided * 100, "{tally:?}");
    assert!(tally.unknown_answers > 0, "{tally:?}");
}

/// The control.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_catches_a_naive_cache() {
    let checked = histories(50, Faults::NONE, |below, _| NaiveCache::new(below)).await;
    println!("{}", checked.expect_err("it serves what was replaced"));
}
