//! Writes whose outcome nobody knows: reported as they are seen, or as a gap.

use std::sync::Arc;

use wane::store::{
    ClusteringRange, EventKind, Faults, FaultyStore, Fence, Store, StoreError, WatchedStore,
};

use super::{applied, expect, expect_gap, expect_silence, partition, settle, setup};
use crate::gated::Gate;
use crate::{inner_store, key, lasting, manual_clock, permanent};

fn is_unknown<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unknown { .. }))
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_reported_as_it_is_seen() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.below.set(Gate::LoseAnswer);
    let (store, name) = (&setup.store, key("a"));
    assert!(is_unknown(&store.insert_if_not_exists(&name, lasting("1", 100)).await));
    assert!(is_unknown(&store.compare_and_swap(&name, b"1", lasting("2", 100)).await));
    assert!(is_unknown(&store.put(&name, lasting("3", 100)).await));
    assert!(is_unknown(&store.put_batch(vec![(name.clone(), lasting("4", 100))]).await));
    assert!(is_unknown(&store.compare_and_delete(&name, b"4", Fence::NONE).await));
    assert!(is_unknown(&store.put(&name, lasting("5", 100)).await));
    expect(&mut watch, EventKind::Inserted, "a", "1").await;
    expect(&mut watch, EventKind::Swapped, "a", "2").await;
    expect(&mut watch, EventKind::Put, "a", "3").await;
    expect(&mut watch, EventKind::Put, "a", "4").await;
    expect(&mut watch, EventKind::Deleted, "a", "4").await;
    expect(&mut watch, EventKind::Put, "a", "5").await;
    setup.advance(100);
    expect(&mut watch, EventKind::Expired, "a", "5").await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_write_that_is_not_seen_is_a_gap_for_it_may_yet_arrive() {
    let setup = setup();
    setup.put("a", lasting("old", 100)).await;
    let mut watch = setup.watch().await;
    setup.below.set(Gate::LoseRequest);
    assert!(is_unknown(&setup.store.put(&key("a"), lasting("new", 500)).await));
    expect_gap(&mut watch).await;
    expect_silence(&mut watch).await;
    setup.below.set(Gate::Open);
    // It arrives after all. At the old expiry the new value is found and followed.
    applied(setup.below.inner.put(&key("a"), lasting("new", 500)).await);
    setup.advance(100);
    expect(&mut watch, EventKind::Put, "a", "new").await;
    expect_silence(&mut watch).await;
    setup.advance(400);
    expect(&mut watch, EventKind::Expired, "a", "new").await;
}

/// The value intended stands there already, so that seeing it shows nothing.
#[tokio::test]
async fn a_lost_write_of_the_value_that_stands_is_a_gap_and_no_false_event() {
    let setup = setup();
    setup.put("a", lasting("v", 100)).await;
    let mut watch = setup.watch().await;
    setup.below.set(Gate::LoseRequest);
    assert!(is_unknown(&setup.store.insert_if_not_exists(&key("a"), lasting("v", 500)).await));
    expect_gap(&mut watch).await;
    assert!(is_unknown(&setup.store.compare_and_delete(&key("b"), b"v", Fence::NONE).await));
    expect_gap(&mut watch).await;
    setup.below.set(Gate::Open);
    setup.advance(50);
    // Once the delete must be decided, whoever looked at the first gap has to look again.
    expect_gap(&mut watch).await;
    setup.advance(50);
    expect(&mut watch, EventKind::Expired, "a", "v").await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_write_that_cannot_be_looked_up_is_a_gap() {
    let (_, clock) = manual_clock();
    let below = FaultyStore::new(inner_store(Arc::clone(&clock)), Faults::NONE, 1, clock.clone());
    let store = WatchedStore::new(below.clone(), clock);
    let mut watch = store.watch(&partition(), ClusteringRange::ALL).await.unwrap();
    below.set_faults(Faults { lost_answer: 1.0, ..Faults::NONE });
    assert!(is_unknown(&store.put(&key("a"), permanent("v")).await));
    expect_gap(&mut watch).await;
    below.set_faults(Faults { error: 1.0, ..Faults::NONE });
    assert!(store.put(&key("a"), permanent("v")).await.is_err());
    expect_silence(&mut watch).await; // Unavailable says that nothing was applied.
}

#[tokio::test]
async fn an_expiry_that_cannot_be_confirmed_is_reported_once_it_can() {
    let (manual, clock) = manual_clock();
    let below = FaultyStore::new(inner_store(Arc::clone(&clock)), Faults::NONE, 1, clock.clone());
    let store = WatchedStore::new(below.clone(), clock);
    let mut watch = store.watch(&partition(), ClusteringRange::ALL).await.unwrap();
    applied(store.put(&key("a"), lasting("v", 100)).await);
    expect(&mut watch, EventKind::Put, "a", "v").await;
    below.set_faults(Faults { error: 1.0, ..Faults::NONE });
    manual.advance(std::time::Duration::from_millis(100));
    expect_silence(&mut watch).await;
    below.set_faults(Faults::NONE);
    manual.advance(std::time::Duration::from_millis(50));
    expect(&mut watch, EventKind::Expired, "a", "v").await;
}

#[tokio::test]
async fn a_write_whose_future_is_dropped_is_a_gap_and_its_record_is_followed() {
    for held in [Gate::HoldBefore, Gate::HoldAfter] {
        let setup = setup();
        let mut watch = setup.watch().await;
        setup.below.set(held);
        let write = tokio::spawn({
            let store = setup.store.clone();
            async move { store.put(&key("a"), lasting("v", 100)).await }
        });
        settle().await;
        write.abort();
        assert!(write.await.unwrap_err().is_cancelled());
        expect_gap(&mut watch).await;
        setup.below.set(Gate::Open);
        // Once the write must be decided, whoever looked at the first gap has to look again.
        expect_gap(&mut watch).await;
        setup.advance(100);
        if held == Gate::HoldAfter {
            expect(&mut watch, EventKind::Expired, "a", "v").await;
        }
        expect_silence(&mut watch).await;
        setup.put("a", permanent("next")).await;
        expect(&mut watch, EventKind::Put, "a", "next").await;
    }
}

#[tokio::test]
async fn a_gap_is_replayed_to_those_who_resume() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", permanent("v")).await;
    let seen = expect(&mut watch, EventKind::Put, "a", "v").await;
    setup.below.set(Gate::LoseRequest);
    assert!(is_unknown(&setup.store.put(&key("a"), permanent("lost")).await));
    setup.below.set(Gate::Open);
    setup.put("a", permanent("w")).await;
    let mut again = setup.watch_from(seen.id).await;
    expect_gap(&mut again).await;
    // The lost one is decided when another is: whoever looked at the first gap may have been too early.
    expect_gap(&mut again).await;
    expect(&mut again, EventKind::Put, "a", "w").await;
}
