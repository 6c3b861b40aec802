//! Quotas: exact under concurrency, freed by expiry to the millisecond, and never lost track of.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::unconstrained;
use tokio::time::timeout;
use wane::clock::Clock;
use wane::services::ClusterAppId;
use wane::services::app_ttl::{AppTtl, AppTtlError, AppTtlStorage, Quota, Renewal, Size};
use wane::store::{Faults, FaultyStore, Store, StoreError};

use super::{MINUTE, inner_store, manual_clock, page};
use crate::gated::{Gate, GatedStore};

const APP: ClusterAppId = ClusterAppId(7);

/// By when a test that would wait for ever has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn keys(limit: u64) -> Quota {
    Quota { keys: Some(limit), bytes: None }
}

fn is_over(error: &AppTtlError) -> bool {
    matches!(error, AppTtlError::OverQuota { .. })
}

/// What a count of every live entry gives.
async fn counted<S: Store>(storage: &AppTtlStorage<S>) -> Size {
    let entries = storage.scan("", None, page(10_000)).await.expect("no fault is on").entries;
    let bytes = entries.iter().map(|(key, entry)| key.len() + entry.value.len()).sum::<usize>();
    Size { keys: entries.len() as u64, bytes: bytes as u64 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_inserts_fill_the_quota_and_never_pass_it() {
    let (_, clock) = manual_clock();
    let storage = AppTtl::new(inner_store(clock.clone()), clock).of(APP, keys(100));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let storage = storage.clone();
            tokio::spawn(async move {
                let mut inserted = 0;
                for number in 0..50 {
                    let key = format!("{task}:{number}");
                    match storage.insert_if_not_exists(&key, "v", MINUTE).await {
                        Ok(outcome) => inserted += u64::from(outcome.is_applied()),
                        Err(error) => assert!(is_over(&error), "{error}"),
                    }
                }
                inserted
            })
        })
        .collect();
    let mut inserted = 0;
    for task in tasks {
        inserted += task.await.unwrap();
    }
    assert_eq!(inserted, 100, "neither one more nor one less");
    assert_eq!(counted(&storage).await.keys, 100);
}

#[tokio::test]
async fn expiry_gives_room_at_its_millisecond() {
    let (hand, clock) = manual_clock();
    let storage = AppTtl::new(inner_store(clock.clone()), clock).of(APP, keys(2));
    assert!(storage.set("a", "v", Duration::from_millis(100)).await.unwrap().is_applied());
    assert!(storage.set("b", "v", MINUTE).await.unwrap().is_applied());
    hand.advance(Duration::from_millis(99));
    assert!(is_over(&storage.set("c", "v", MINUTE).await.unwrap_err()));
    assert!(
        storage.set("b", "longer than before", MINUTE).await.unwrap().is_applied(),
        "no new key"
    );
    hand.advance(Duration::from_millis(1));
    assert!(storage.set("c", "v", MINUTE).await.unwrap().is_applied());
}

#[tokio::test]
async fn bytes_count_keys_and_values_and_a_smaller_value_always_fits() {
    let (_, clock) = manual_clock();
    let quota = Quota { keys: None, bytes: Some(10) };
    let storage = AppTtl::new(inner_store(clock.clone()), clock).of(APP, quota);
    assert!(storage.set("k", "123456789", MINUTE).await.unwrap().is_applied(), "10 bytes");
    let error = storage.set("k", "1234567890", MINUTE).await.unwrap_err();
    assert!(is_over(&error), "{error}");
    assert_eq!(
        error.to_string(),
        "the application may hold 10 bytes and holds 10; delete some or raise the limit"
    );
    let shorter = storage.compare_and_swap("k", "123456789", "1", Renewal::Keep).await.unwrap();
    assert!(shorter.is_applied());
    assert_eq!(storage.usage().await.unwrap(), Size { keys: 1, bytes: 2 });
    assert!(storage.delete("k").await.unwrap());
    assert_eq!(storage.usage().await.unwrap(), Size::default());
}

#[tokio::test]
async fn what_was_there_before_is_counted() {
    let (_, clock) = manual_clock();
    let store = inner_store(clock.clone());
    let before = AppTtl::new(store.clone(), clock.clone()).of(APP, Quota::default());
    assert!(before.set("a", "v", MINUTE).await.unwrap().is_applied());
    let storage = AppTtl::new(store, clock).of(APP, keys(1));
    assert!(is_over(&storage.set("b", "v", MINUTE).await.unwrap_err()));
}

#[tokio::test]
async fn a_shared_store_is_counted_anew_at_the_interval() {
    let (hand, clock) = manual_clock();
    let store = inner_store(clock.clone());
    let interval = Duration::from_secs(10);
    let here = AppTtl::recounting(store.clone(), clock.clone(), interval).of(APP, keys(2));
    let elsewhere = AppTtl::recounting(store, clock, interval).of(APP, keys(2));
    assert!(here.set("a", "v", MINUTE).await.unwrap().is_applied());
    assert!(elsewhere.set("b", "v", MINUTE).await.unwrap().is_applied());
    assert!(
        here.set("c", "v", MINUTE).await.unwrap().is_applied(),
        "the slack: not yet known here"
    );
    hand.advance(interval);
    assert!(is_over(&here.set("d", "v", MINUTE).await.unwrap_err()), "known now");
}

/// Whoever waits for a store that does not answer is told so with the first who gave it up, and not one
/// after the other.
#[tokio::test]
async fn a_store_that_fails_is_waited_for_once() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let storage = AppTtl::new(store.clone(), clock).of(APP, keys(100));
    store.set(Gate::LoseAnswer);
    let unheard = storage.set("unheard", "v", MINUTE).await.unwrap_err();
    assert!(matches!(unheard, AppTtlError::Store(StoreError::Unknown { .. })), "{unheard}");

    store.set(Gate::HoldBefore);
    let names: Vec<_> = (0..10).map(|number| format!("k{number}")).collect();
    let mut waiting: Vec<_> =
        names.iter().map(|name| Box::pin(storage.set(name, "v", MINUTE))).collect();
    assert!(waiting.iter_mut().all(|write| write.now_or_never().is_none()), "one asks, all wait");
    store.set(Gate::LoseRequest);
    let is_told = |told: Option<Result<_, _>>| {
        matches!(told, Some(Err(AppTtlError::Store(StoreError::Unavailable { .. }))))
    };
    assert!(is_told((&mut waiting[0]).now_or_never()), "whoever asked");
    store.set(Gate::HoldBefore);
    let told = timeout(PATIENCE, join_all(waiting.drain(1..))).await.expect("none asks again");
    assert!(told.into_iter().map(Some).all(is_told));
    store.set(Gate::Open);
    assert!(storage.set("later", "v", MINUTE).await.unwrap().is_applied());
    assert_eq!(storage.usage().await.unwrap(), counted(&storage).await);
}

/// What comes of it without waiting, however much the test has done before.
fn at_once<F: Future>(work: F) -> Option<F::Output> {
    unconstrained(work).now_or_never()
}

/// One application that is counted holds up no other, whatever keys they write to.
#[tokio::test]
async fn writers_of_one_application_wait_for_no_count_of_another() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let storages = AppTtl::new(store.clone(), clock);
    let counted = storages.of(APP, keys(10_000));
    assert!(counted.set("first", "v", MINUTE).await.unwrap().is_applied());
    store.set(Gate::HoldPages);
    let other = storages.of(ClusterAppId(8), keys(10_000));
    let names: Vec<_> = (0..1_000).map(|number| format!("k{number}")).collect();
    let mut waiting: Vec<_> =
        names.iter().map(|name| Box::pin(other.set(name, "v", MINUTE))).collect();
    assert!(waiting.iter_mut().all(|write| at_once(write).is_none()), "it is being counted");
    for name in &names {
        let written = at_once(counted.set(name, "v", MINUTE));
        assert!(written.is_some_and(|written| written.unwrap().is_applied()), "{name}");
    }
}

/// A write that is given up while another one to its key waits for its turn is looked at before that.
#[tokio::test]
async fn what_a_write_left_is_known_to_the_next_one_that_waited_for_it() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let storage = AppTtl::new(store.clone(), clock).of(APP, keys(100));
    assert!(storage.set("other", "v", MINUTE).await.unwrap().is_applied());
    store.set(Gate::HoldAfter);
    let mut given_up = Box::pin(storage.set("k", "longer", MINUTE));
    assert!((&mut given_up).now_or_never().is_none(), "applied, and its answer held");
    let mut next = Box::pin(storage.set("k", "v", MINUTE));
    assert!((&mut next).now_or_never().is_none(), "it is not its turn");
    drop(given_up);
    store.set(Gate::Open);
    assert!(next.await.unwrap().is_applied());
    assert_eq!(storage.usage().await.unwrap(), counted(&storage).await);
}

/// Random operations with lost answers, lost requests and dropped futures: whenever the faults stop,
/// the ledger is what a count gives.
#[tokio::test]
async fn a_ledger_agrees_with_a_count_after_any_faults() {
    let (hand, clock) = manual_clock();
    let faults = Faults { lost_answer: 0.1, lost_request: 0.1, error: 0.05, ..Faults::NONE };
    let store = FaultyStore::new(inner_store(clock.clone()), Faults::NONE, 5, clock.clone());
    let storage = AppTtl::new(store.clone(), clock).of(APP, keys(30));
    for round in 0..40 {
        store.set_faults(faults);
        for _ in 0..50 {
            step(&storage, &*hand).await;
        }
        store.set_faults(Faults::NONE);
        // A ledger in doubt is counted by whoever comes next.
        let usage = storage.usage().await.unwrap();
        assert_eq!(usage, counted(&storage).await, "round {round}");
        assert!(usage.keys <= 30);
        hand.advance(Duration::from_millis(hand.random_u64() % 400));
        assert_eq!(storage.usage().await.unwrap(), counted(&storage).await, "round {round}, later");
    }
}

async fn step<S: Store>(storage: &AppTtlStorage<S>, chance: &dyn Clock) {
    let key = format!("k{}", chance.random_u64() % 50);
    let value = "v".repeat((chance.random_u64() % 20) as usize);
    let ttl = Duration::from_millis(1 + chance.random_u64() % 1_000);
    // What comes back does not matter here; errors are what the faults are for.
    match chance.random_u64() % 6 {
        0 => drop(storage.insert_if_not_exists(&key, &value, ttl).await),
        1 => drop(storage.set(&key, &value, ttl).await),
        2 => drop(storage.touch(&key, ttl).await),
        3 => drop(storage.delete(&key).await),
        4 => {
            if let Ok(Some(entry)) = storage.ttl_get(&key).await {
                let renewal = Renewal::Keep;
                drop(storage.compare_and_swap(&key, &*entry.value, &value, renewal).await);
            }
        }
        _ => {
            // Polled once and dropped: nobody learns what became of it.
            let mut given_up = Box::pin(storage.set(&key, &value, ttl));
            let waker = std::task::Waker::noop();
            drop(given_up.as_mut().poll(&mut std::task::Context::from_waker(waker)));
        }
    }
}
