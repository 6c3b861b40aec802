//! Lost answers: a write that was applied is not called refused, and one that was not is not called
//! applied.

use wane::clock::SystemClock;
use wane::store::{Fence, Key, Life, Outcome, Store, StoreError, Value, Write};
use wane_backends::cassandra::{CassandraSettings, CassandraStore, Replication};

use super::tap::{Loss, Tap};
use crate::harness::cassandra::Place;

/// Bytes that stand in one request only.
const MARK: &str = "the-marked-value";

pub(super) fn write(text: &str) -> Write {
    Write::new(Value::copy_from_slice(text.as_bytes()).expect("a short value"), Life::Permanent)
}

pub(super) fn through(tap: &Tap, place: &Place) -> CassandraSettings {
    CassandraSettings { hosts: vec![tap.address.to_string()], ..place.settings.clone() }
}

async fn tapped(place: &Place) -> (Tap, CassandraStore) {
    let tap = Tap::before(&place.settings.hosts[0], None).await;
    let store = CassandraStore::connect(through(&tap, place), SystemClock::shared()).await;
    (tap, store.unwrap_or_else(|error| panic!("{error}")))
}

/// A driver that sent it again would be told that the condition no longer holds.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_found_by_its_operation() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let (tap, store) = tapped(&place).await;
    let row = |name: &str| Key::new(b"p", name.as_bytes()).unwrap();
    let (insert, swap, put, batch) = (row("insert"), row("swap"), row("put"), row("batch"));
    assert!(store.put(&swap, write("old")).await.unwrap().is_applied());

    tap.arm(MARK.as_bytes(), Loss::Answer);
    let outcome = store.insert_if_not_exists(&insert, write(MARK)).await;
    assert!(tap.struck() && outcome.as_ref().is_ok_and(Outcome::is_applied), "{outcome:?}");
    tap.arm(MARK.as_bytes(), Loss::Answer);
    let outcome = store.compare_and_swap(&swap, b"old", write(MARK)).await;
    assert!(tap.struck() && outcome.as_ref().is_ok_and(Outcome::is_applied), "{outcome:?}");
    tap.arm(MARK.as_bytes(), Loss::Answer);
    let outcome = store.put(&put, write(MARK)).await;
    assert!(tap.struck() && outcome.as_ref().is_ok_and(Outcome::is_applied), "{outcome:?}");
    tap.arm(MARK.as_bytes(), Loss::Answer);
    let rows = vec![(row("batch, too"), write("w")), (batch.clone(), write(MARK))];
    let outcomes = store.put_batch(rows).await;
    assert!(tap.struck(), "the batch went another way");
    assert!(outcomes.as_ref().is_ok_and(|all| all.iter().all(Outcome::is_applied)), "{outcomes:?}");

    for key in [&insert, &swap, &put, &batch] {
        assert_eq!(&store.get(key).await.unwrap().expect("a record").value[..], MARK.as_bytes());
    }
    // The row is named in the request that deletes it.
    tap.arm(b"insert", Loss::Answer);
    let read = store.get(&insert).await;
    assert!(tap.struck() && matches!(read, Err(StoreError::Unavailable { .. })), "{read:?}");
    place.remove().await;
}

#[tokio::test]
async fn a_delete_whose_answer_is_lost_is_found_by_its_operation() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let (tap, store) = tapped(&place).await;
    let key = Key::new(b"p", b"c").unwrap();
    assert!(store.put(&key, write("v")).await.unwrap().is_applied());
    let session = place.session().await;
    let select = format!("SELECT op FROM {}.records", place.settings.keyspace);
    let rows = session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
    let (op,) = rows.single_row::<(Vec<u8>,)>().unwrap();
    // The delete is bound to the operation that it saw.
    tap.arm(&op, Loss::Answer);
    let outcome = store.compare_and_delete(&key, b"v", Fence::NONE).await;
    assert!(tap.struck() && outcome.as_ref().is_ok_and(Outcome::is_applied), "{outcome:?}");
    assert_eq!(store.get(&key).await.unwrap(), None);
    place.remove().await;
}

#[tokio::test]
async fn a_write_that_never_arrives_is_not_called_applied() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let (tap, store) = tapped(&place).await;
    let key = Key::new(b"p", b"c").unwrap();
    tap.arm(MARK.as_bytes(), Loss::Request);
    let outcome = store.insert_if_not_exists(&key, write(MARK)).await;
    assert!(tap.struck() && matches!(outcome, Err(StoreError::Unknown { .. })), "{outcome:?}");
    assert_eq!(store.get(&key).await.unwrap(), None);
    assert!(store.insert_if_not_exists(&key, write("next")).await.unwrap().is_applied());
    place.remove().await;
}

/// The node took the request and its connection went dead: a deadline ends the waiting.
#[tokio::test]
async fn a_connection_that_falls_silent_costs_a_deadline_and_no_lie() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let (tap, store) = tapped(&place).await;
    let key = Key::new(b"p", b"c").unwrap();
    tap.arm(MARK.as_bytes(), Loss::Silence);
    let clock = SystemClock::shared();
    let before = clock.monotonic();
    let outcome = store.insert_if_not_exists(&key, write(MARK)).await;
    let took = clock.monotonic() - before;
    assert!(tap.struck() && took.as_secs() < 8, "{took:?}");
    // Looking for it may meet the dead connection again.
    let known = match &outcome {
        Ok(outcome) => outcome.is_applied(),
        Err(error) => matches!(error, StoreError::Unknown { .. }),
    };
    assert!(known, "{outcome:?}");
    let session = place.session().await;
    let select = format!("SELECT v FROM {}.records", place.settings.keyspace);
    let rows = session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
    assert_eq!(rows.single_row::<(Vec<u8>,)>().unwrap().0, MARK.as_bytes());
    place.remove().await;
}
