//! Two stores with nothing in common but the cluster: what two processes are to each other.
//!
//! Here callers do not queue for a partition, so Paxos may end a write without telling its fate. It
//! is then unknown, and the rules hold whichever way it went.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use wane::clock::SystemClock;
use wane::store::{Fence, Key, Life, Outcome, Store, StoreError, Value, Write};
use wane_backends::cassandra::{CassandraStore, Replication};

use crate::harness::cassandra::Place;

const ROUNDS: u32 = 24;

/// What became of a racer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Applied,
    Refused,
    Unknown,
    Unavailable,
}

fn fate(outcome: &Result<Outcome, StoreError>) -> Fate {
    match outcome {
        Ok(Outcome::Applied { .. }) => Fate::Applied,
        Ok(Outcome::Refused { .. }) => Fate::Refused,
        Err(StoreError::Unknown { .. }) => Fate::Unknown,
        Err(StoreError::Unavailable { .. }) => Fate::Unavailable,
        Err(error) => panic!("{error}"),
    }
}

fn write(text: impl Into<String>) -> Write {
    Write::new(Value::new(text.into()).expect("a short value"), Life::Permanent)
}

async fn fates(
    stores: &[CassandraStore],
    call: impl AsyncFn(CassandraStore, usize) -> Result<Outcome, StoreError>,
) -> Vec<Fate> {
    let calls = (0..2 * stores.len()).map(|racer| call(stores[racer % 2].clone(), racer));
    let outcomes = futures_util::future::join_all(calls).await;
    outcomes.iter().map(fate).collect()
}

async fn assert_one_winner(replication: Replication) {
    let Some(place) = Place::new(replication) else { return };
    let clock = SystemClock::shared();
    let stores = [place.connect(clock.clone()).await, place.connect(clock).await];
    let mut tally: BTreeMap<Fate, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let key = Key::new(&round.to_be_bytes(), b"").expect("a short key");
        let inserted = fates(&stores, async |store, racer| {
            store.insert_if_not_exists(&key, write(racer.to_string())).await
        })
        .await;
        assert_consistent(&inserted, stored(&stores, &key).await.as_deref());
        let Some(before) = stored(&stores, &key).await else { continue };
        let swapped = fates(&stores, async |store, racer| {
            store.compare_and_swap(&key, before.as_bytes(), write(format!("s{racer}"))).await
        })
        .await;
        let after = stored(&stores, &key).await;
        let won = after.as_deref().and_then(|value| value.strip_prefix('s'));
        assert_consistent(&swapped, won);
        for fate in inserted.into_iter().chain(swapped) {
            *tally.entry(fate).or_default() += 1;
        }
    }
    println!("{}: {tally:?}", replication.name());
    assert!(tally.get(&Fate::Applied).is_some_and(|applied| *applied > 0), "{tally:?}");
    place.remove().await;
}

/// At most one was told that it won; it did; and where nobody was, only an unknown one can have.
#[track_caller]
fn assert_consistent(fates: &[Fate], standing: Option<&str>) {
    let applied: Vec<usize> =
        (0..fates.len()).filter(|racer| fates[*racer] == Fate::Applied).collect();
    let winner = standing.map(|value| value.parse::<usize>().expect("the name of a racer"));
    match (applied.as_slice(), winner) {
        ([one], Some(winner)) => assert_eq!(*one, winner, "{fates:?}"),
        ([], Some(winner)) => assert_eq!(fates[winner], Fate::Unknown, "{fates:?}"),
        ([], None) => assert!(!fates.contains(&Fate::Refused), "refused by nothing: {fates:?}"),
        (applied, _) => panic!("{applied:?} were applied: {fates:?}, and {winner:?} stands"),
    }
}

async fn stored(stores: &[CassandraStore], key: &Key) -> Option<String> {
    let one = stores[0].get(key).await.expect("a read");
    let other = stores[1].get(key).await.expect("a read");
    assert_eq!(one, other, "two processes see different records");
    one.map(|record| String::from_utf8(record.value.to_vec()).expect("text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_in_two_processes_at_most_one_is_applied() {
    assert_one_winner(Replication::Cas1).await;
    assert_one_winner(Replication::Cas3).await;
}

/// Unknown increments are counted apart: the counter is between what was applied and that. They are
/// few because both processes ask the same replica; asking any, a fifth of them was unknown.
async fn assert_nothing_lost(replication: Replication) {
    let Some(place) = Place::new(replication) else { return };
    let clock = SystemClock::shared();
    let stores = [place.connect(clock.clone()).await, place.connect(clock).await];
    let key = Key::new(b"counter", b"").expect("a short key");
    assert!(stores[0].put(&key, write("0")).await.is_ok_and(|outcome| outcome.is_applied()));
    let mut racers = JoinSet::new();
    for store in stores.iter().cycle().take(4) {
        let (store, key) = (store.clone(), key.clone());
        racers.spawn(async move { increments(&store, &key, 20).await });
    }
    let (mut applied, mut unknown) = (0, 0);
    for (sure, unsure) in racers.join_all().await {
        applied += sure;
        unknown += unsure;
    }
    let counter = stored(&stores, &key).await.and_then(|text| text.parse::<u64>().ok());
    let counter = counter.expect("a number");
    assert!((applied..=applied + unknown).contains(&counter), "{counter}: {applied}, {unknown}");
    assert!(unknown * 16 < applied, "{unknown} unknown beside {applied}");
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_from_two_processes_lose_nothing() {
    assert_nothing_lost(Replication::Cas1).await;
    assert_nothing_lost(Replication::Cas3).await;
}

async fn increments(store: &CassandraStore, key: &Key, times: u64) -> (u64, u64) {
    let (mut applied, mut unknown) = (0, 0);
    while applied + unknown < times {
        let record = store.get(key).await.expect("a number").expect("the counter");
        let count: u64 =
            std::str::from_utf8(&record.value).expect("a number").parse().expect("a number");
        let swapped = store.compare_and_swap(key, &record.value, write((count + 1).to_string()));
        match fate(&swapped.await) {
            Fate::Applied => applied += 1,
            Fate::Unknown => unknown += 1,
            Fate::Refused | Fate::Unavailable => {}
        }
    }
    (applied, unknown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_process_writes_the_other_reads_at_once() {
    let Some(place) = Place::new(Replication::Cas3) else { return };
    let clock = SystemClock::shared();
    let one = Arc::new(place.connect(clock.clone()).await);
    let other = Arc::new(place.connect(clock).await);
    for round in 0..20_u32 {
        let key = Key::new(&round.to_be_bytes(), b"").unwrap();
        assert!(one.insert_if_not_exists(&key, write("a")).await.unwrap().is_applied());
        assert_eq!(&other.get(&key).await.unwrap().expect("a record").value[..], b"a");
        let swapped = other.compare_and_swap(&key, b"a", write("b")).await.unwrap();
        assert!(swapped.is_applied(), "{swapped:?}");
        assert_eq!(&one.get(&key).await.unwrap().expect("a record").value[..], b"b");
        let deleted = one.compare_and_delete(&key, b"b", Fence::NONE).await.unwrap();
        assert!(deleted.is_applied(), "{deleted:?}");
        assert_eq!(other.get(&key).await.unwrap(), None);
    }
    place.remove().await;
}
