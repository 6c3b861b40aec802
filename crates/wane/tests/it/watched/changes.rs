//! Changes: every applied write of a watched key is reported, and nothing else.

use wane::store::{
    ClusteringRange, EventKind, Faults, FaultyStore, Fence, Key, Life, Store, Timestamp,
    WatchedStore, Write,
};

use super::{applied, expect, expect_silence, partition, setup};
use crate::{inner_store, key, lasting, manual_clock, permanent, value};

#[tokio::test]
async fn every_kind_of_write_is_reported_with_its_value_and_expiry() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.insert("a", lasting("v1", 500)).await;
    setup.swap("a", "v1", permanent("v2")).await;
    setup.put("a", lasting("v3", 700)).await;
    setup.delete("a", "v3").await;
    applied(
        setup.store.put_batch(vec![(key("b"), permanent(""))]).await.map(|mut all| all.remove(0)),
    );
    let now = wane::clock::Clock::now(&*setup.clock).as_unix_millis();
    let after = |millis| Some(Timestamp::from_unix_millis(now + millis));

    let inserted = expect(&mut watch, EventKind::Inserted, "a", "v1").await;
    let swapped = expect(&mut watch, EventKind::Swapped, "a", "v2").await;
    let put = expect(&mut watch, EventKind::Put, "a", "v3").await;
    let deleted = expect(&mut watch, EventKind::Deleted, "a", "v3").await;
    let batch = expect(&mut watch, EventKind::Put, "b", "").await;
    let events = [inserted, swapped, put, deleted, batch];
    assert!(events.is_sorted_by(|a, b| a.id < b.id), "{events:?}");
    let expiries = events.map(|event| event.expires_at);
    assert_eq!(expiries, [after(500), None, after(700), after(700), None]);
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_refused_write_is_not_reported() {
    let setup = setup();
    setup.put("a", permanent("v").fenced(Fence(2))).await;
    let mut watch = setup.watch().await;
    let refused = [
        setup.store.insert_if_not_exists(&key("a"), permanent("w")).await,
        setup.store.compare_and_swap(&key("a"), b"x", permanent("w")).await,
        setup.store.compare_and_delete(&key("a"), b"x", Fence::NONE).await,
        setup.store.put(&key("a"), permanent("w").fenced(Fence(1))).await,
    ];
    assert!(refused.iter().all(|outcome| !outcome.as_ref().unwrap().is_applied()));
    assert!(setup.store.put(&key("a"), Write::new(value("w"), Life::Keep)).await.is_err());
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn only_keys_of_the_range_and_the_partition_are_reported() {
    let setup = setup();
    let mut watch = setup.watch_range(ClusteringRange::new("b", "d").unwrap()).await;
    for name in ["a", "b", "c", "d"] {
        setup.put(name, permanent("v")).await;
    }
    let elsewhere = Key::new(b"elsewhere", b"b").unwrap();
    applied(setup.store.put(&elsewhere, permanent("v")).await);
    expect(&mut watch, EventKind::Put, "b", "v").await;
    expect(&mut watch, EventKind::Put, "c", "v").await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn every_watch_of_a_key_hears_the_same_events() {
    let setup = setup();
    let mut wide = setup.watch().await;
    let mut narrow = setup.watch_range(ClusteringRange::prefix("a").unwrap()).await;
    setup.put("a", permanent("v")).await;
    let heard = expect(&mut wide, EventKind::Put, "a", "v").await;
    assert_eq!(expect(&mut narrow, EventKind::Put, "a", "v").await, heard);
    drop(wide);
    setup.delete("a", "v").await;
    expect(&mut narrow, EventKind::Deleted, "a", "v").await;
}

/// A range of one row is found another way than wider ones.
#[tokio::test]
async fn a_watch_of_one_row_hears_of_that_row_only() {
    let setup = setup();
    let one_row = |name: &str| ClusteringRange::new(name.to_owned(), format!("{name}\0")).unwrap();
    let mut empty = setup.watch_range(one_row("")).await;
    let mut watch = setup.watch_range(one_row("a")).await;
    for name in ["", "a", "a\0", "b"] {
        setup.put(name, permanent("v")).await;
    }
    expect(&mut empty, EventKind::Put, "", "v").await;
    let seen = expect(&mut watch, EventKind::Put, "a", "v").await;
    expect_silence(&mut empty).await;
    expect_silence(&mut watch).await;
    drop(watch);
    setup.delete("a", "v").await;
    let mut watch = setup.store.watch_from(&partition(), one_row("a"), seen.id).await.unwrap();
    expect(&mut watch, EventKind::Deleted, "a", "v").await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_batch_reports_its_watched_rows_and_the_last_of_two_writes_stands() {
    let setup = setup();
    let mut watch = setup.watch_range(ClusteringRange::prefix("in").unwrap()).await;
    let writes = [("in1", "first"), ("out", "v"), ("in2", "v"), ("in1", "last")];
    let writes = writes.map(|(name, text)| (key(name), permanent(text)));
    setup.store.put_batch(writes.to_vec()).await.unwrap();
    expect(&mut watch, EventKind::Put, "in1", "first").await;
    expect(&mut watch, EventKind::Put, "in2", "v").await;
    expect(&mut watch, EventKind::Put, "in1", "last").await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_watch_whose_range_cannot_be_read_fails_and_leaves_nothing_behind() {
    let (_, clock) = manual_clock();
    let error = Faults { error: 1.0, ..Faults::NONE };
    let below = FaultyStore::new(inner_store(clock.clone()), Faults::NONE, 1, clock.clone());
    let store = WatchedStore::new(below.clone(), clock);
    applied(store.put(&key("a"), lasting("v", 100)).await);
    below.set_faults(error);
    store.watch(&partition(), ClusteringRange::ALL).await.expect_err("the store below fails");
    super::settle().await;
    assert_eq!(store.followed(), 0);

    below.set_faults(Faults::NONE);
    applied(store.put(&key("b"), lasting("v", 100)).await);
    assert_eq!(store.followed(), 0, "nobody watches");
    let mut watch = store.watch(&partition(), ClusteringRange::ALL).await.unwrap();
    assert_eq!(store.followed(), 2);
    applied(store.put(&key("a"), permanent("w")).await);
    expect(&mut watch, EventKind::Put, "a", "w").await;
}

#[tokio::test]
async fn watches_end_with_the_last_handle_and_so_does_the_task() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", lasting("v", 100)).await;
    let clone = setup.store.clone();
    drop(setup.store);
    applied(clone.put(&key("b"), permanent("v")).await);
    drop(clone);
    expect(&mut watch, EventKind::Put, "a", "v").await;
    expect(&mut watch, EventKind::Put, "b", "v").await;
    assert_eq!(watch.next().await, None);
    super::settle().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test]
async fn closing_ends_every_watch_and_returns_after_the_task_has_ended() {
    let setup = setup();
    let mut watch = setup.watch().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 1);
    setup.store.close().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(watch.next().await, None);
    setup.put("a", permanent("v")).await;
    let mut again = setup.watch().await;
    setup.delete("a", "v").await;
    expect(&mut again, EventKind::Deleted, "a", "v").await;
}
