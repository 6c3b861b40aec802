//! FaultyStore: what it loses, what it never claims, and that a seed says all.

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock};
use wane::store::{
    ClusteringRange, Faults, FaultyStore, Fence, Life, ObservedStore, Operation, Outcome,
    PageLimit, Partition, Store, StoreError, Write,
};

use crate::{InnerStore, inner_store, key, manual_clock, permanent, value};

type Faulty = FaultyStore<InnerStore>;

const LOST_ANSWER: Faults = Faults { lost_answer: 1.0, ..Faults::NONE };
const LOST_REQUEST: Faults = Faults { lost_request: 1.0, ..Faults::NONE };
const LATE: Faults = Faults { late: 1.0, ..Faults::NONE };
const ERROR: Faults = Faults { error: 1.0, ..Faults::NONE };

const MIXED: Faults =
    Faults { lost_answer: 0.2, lost_request: 0.2, late: 0.2, error: 0.1, ..Faults::NONE };

fn faulty(faults: Faults, seed: u64) -> (Faulty, Arc<ManualClock>) {
    let (manual, clock) = manual_clock();
    (over(clock, faults, seed), manual)
}

fn over(clock: SharedClock, faults: Faults, seed: u64) -> Faulty {
    FaultyStore::new(inner_store(Arc::clone(&clock)), faults, seed, clock)
}

fn is_unknown<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unknown { .. }))
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable { .. }))
}

#[tokio::test]
async fn without_faults_every_answer_is_that_of_the_store_below() {
    let (store, _) = faulty(Faults::NONE, 1);
    let applied = store.insert_if_not_exists(&key("a"), permanent("v")).await.unwrap();
    assert_eq!(applied, Outcome::Applied { expires_at: None });
    let refused = store.insert_if_not_exists(&key("a"), permanent("w")).await.unwrap();
    let current = store.get(&key("a")).await.unwrap();
    assert_eq!(current.as_ref().unwrap().value, value("v"));
    assert_eq!(refused, Outcome::Refused { current });
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_applied_and_reported_unknown() {
    let (store, _) = faulty(LOST_ANSWER, 1);
    assert!(is_unknown(&store.put(&key("a"), permanent("v")).await));
    assert_eq!(store.inner().get(&key("a")).await.unwrap().unwrap().value, value("v"));
    assert!(is_unknown(&store.compare_and_delete(&key("a"), b"v", Fence::NONE).await));
    assert_eq!(store.inner().get(&key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_refusal_whose_answer_is_lost_is_reported_unknown() {
    let (store, _) = faulty(LOST_ANSWER, 1);
    let answer = store.compare_and_swap(&key("absent"), b"x", permanent("y")).await;
    assert!(is_unknown(&answer), "{answer:?}");
}

#[tokio::test]
async fn a_lost_request_is_never_applied_and_reported_both_ways() {
    let (store, _) = faulty(LOST_REQUEST, 1);
    let (mut unknown, mut unavailable) = (0, 0);
    for number in 0..100 {
        let answer = store.put(&key(&number.to_string()), permanent("v")).await;
        unknown += usize::from(is_unknown(&answer));
        unavailable += usize::from(is_unavailable(&answer));
    }
    store.settle().await;
    assert_eq!(unknown + unavailable, 100);
    assert!(unknown > 20 && unavailable > 20, "{unknown} unknown, {unavailable} unavailable");
    assert_eq!(rows(&store).await, 0);
}

#[tokio::test]
async fn a_late_write_is_unknown_first_and_applied_after_its_delay() {
    let (store, clock) = faulty(LATE, 1);
    assert!(is_unknown(&store.put(&key("a"), permanent("v")).await));
    tokio::task::yield_now().await;
    assert_eq!(store.inner().get(&key("a")).await.unwrap(), None);
    clock.advance(LATE.longest_delay);
    tokio::task::yield_now().await;
    assert!(store.inner().get(&key("a")).await.unwrap().is_some());
}

#[tokio::test]
async fn settling_brings_every_late_write_in_without_time_passing() {
    let (store, _) = faulty(LATE, 1);
    for number in 0..50 {
        assert!(is_unknown(&store.put(&key(&number.to_string()), permanent("v")).await));
    }
    assert_eq!(rows(&store).await, 0);
    store.settle().await;
    assert_eq!(rows(&store).await, 50);
}

#[tokio::test]
async fn a_late_write_meets_the_condition_when_it_arrives_not_when_it_was_sent() {
    let (store, _) = faulty(LATE, 1);
    assert!(is_unknown(&store.insert_if_not_exists(&key("a"), permanent("late")).await));
    let other = store.inner().insert_if_not_exists(&key("a"), permanent("first")).await.unwrap();
    assert!(other.is_applied());
    store.settle().await;
    assert_eq!(store.inner().get(&key("a")).await.unwrap().unwrap().value, value("first"));
}

#[tokio::test]
async fn a_plain_error_says_unavailable_and_applies_nothing() {
    let (store, _) = faulty(ERROR, 1);
    assert!(is_unavailable(&store.put(&key("a"), permanent("v")).await));
    store.settle().await;
    assert_eq!(rows(&store).await, 0);
}

#[tokio::test]
async fn reads_fail_only_as_unavailable() {
    for faults in [LOST_ANSWER, LOST_REQUEST, LATE, ERROR] {
        let (store, _) = faulty(faults, 1);
        let partition = Partition::new("tests").unwrap();
        for _ in 0..20 {
            assert!(is_unavailable(&store.get(&key("a")).await));
            assert!(is_unavailable(&store.get_batch(&[key("a")]).await));
            let page = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await;
            assert!(is_unavailable(&page));
            assert!(is_unavailable(&store.scan(None, PageLimit::MAX).await));
            assert!(is_unavailable(&store.query_ttl(&key("a")).await));
        }
    }
}

#[tokio::test]
async fn an_illegal_request_is_invalid_whatever_the_faults() {
    let keep = || Write::new(value("v"), Life::Keep);
    for faults in [LOST_ANSWER, LOST_REQUEST, LATE, ERROR] {
        let (store, _) = faulty(faults, 1);
        let answers = [
            store.put(&key("a"), keep()).await,
            store.insert_if_not_exists(&key("a"), keep()).await,
        ];
        assert!(answers.iter().all(|a| matches!(a, Err(StoreError::Invalid { .. }))));
        let batch = store.put_batch(vec![(key("a"), keep())]).await;
        assert!(matches!(batch, Err(StoreError::Invalid { .. })));
    }
}

#[tokio::test]
async fn a_delayed_call_waits_for_the_clock() {
    let (store, clock) = faulty(Faults { delay: 1.0, ..Faults::NONE }, 1);
    let write = tokio::spawn({
        let store = store.clone();
        async move { store.put(&key("a"), permanent("v")).await }
    });
    tokio::task::yield_now().await;
    assert!(!write.is_finished());
    assert_eq!(rows(&store).await, 0);
    clock.advance(Faults::NONE.longest_delay);
    assert!(write.await.unwrap().unwrap().is_applied());
}

/// Counted by an observer below the faults: a call reaches the store once if it was applied, never
/// if it was said not to be, and at most once if nobody knows.
#[tokio::test]
async fn nothing_is_applied_twice_nor_after_it_was_said_not_to_be() {
    let (_, clock) = manual_clock();
    let observed = ObservedStore::new(inner_store(Arc::clone(&clock)), "below", Arc::clone(&clock));
    let store = FaultyStore::new(observed.clone(), MIXED, 5, clock);
    let arrived = || observed.metrics().of(Operation::Put).timed();
    for number in 0..1_000 {
        let before = arrived();
        let answer = store.put(&key("a"), permanent(&number.to_string())).await;
        store.settle().await;
        let times = arrived() - before;
        match answer {
            Ok(outcome) => assert_eq!((outcome.is_applied(), times), (true, 1)),
            Err(StoreError::Unknown { .. }) => assert!(times <= 1, "{times}"),
            Err(error) => assert_eq!(times, 0, "{error}"),
        }
    }
}

/// A hundred increments by swap under every fault: the number stored says how many were applied,
/// and it lies between the acknowledged and the acknowledged plus the unknown.
#[tokio::test]
async fn what_was_acknowledged_is_there_and_nothing_beyond_the_unknown() {
    for seed in 0..200 {
        let (store, _) = faulty(MIXED, seed);
        assert!(store.inner().put(&key("n"), permanent("0")).await.unwrap().is_applied());
        let (mut applied, mut unknown) = (0_u32, 0_u32);
        for _ in 0..100 {
            let before = store.inner().get(&key("n")).await.unwrap().unwrap().value;
            let next = std::str::from_utf8(&before).unwrap().parse::<u32>().unwrap() + 1;
            match store.compare_and_swap(&key("n"), &before, permanent(&next.to_string())).await {
                Ok(Outcome::Applied { .. }) => applied += 1,
                Ok(Outcome::Refused { current }) => panic!("refused by {current:?}, seed {seed}"),
                Err(StoreError::Unknown { .. }) => unknown += 1,
                Err(StoreError::Unavailable { .. }) => {}
                Err(error) => panic!("{error}, seed {seed}"),
            }
        }
        store.settle().await;
        let last = store.inner().get(&key("n")).await.unwrap().unwrap().value;
        let last = std::str::from_utf8(&last).unwrap().parse::<u32>().unwrap();
        assert!((applied..=applied + unknown).contains(&last), "{last}, seed {seed}");
    }
}

#[tokio::test]
async fn the_same_seed_and_calls_meet_the_same_faults() {
    assert_eq!(history(11).await, history(11).await);
    assert_ne!(history(11).await, history(12).await);
}

async fn history(seed: u64) -> Vec<String> {
    let (store, clock) = faulty(Faults { delay: 0.0, ..MIXED }, seed);
    let mut answers = Vec::new();
    for number in 0..200 {
        let key = key(&(number % 5).to_string());
        answers.push(format!("{:?}", store.put(&key, permanent(&number.to_string())).await));
        answers.push(format!("{:?}", store.get(&key).await));
        clock.advance(Duration::from_millis(1));
        // Late writes that have become due arrive before the next call.
        tokio::task::yield_now().await;
    }
    answers
}

async fn rows(store: &Faulty) -> usize {
    store.inner().scan(None, PageLimit::MAX).await.expect("the store below works").rows.len()
}
