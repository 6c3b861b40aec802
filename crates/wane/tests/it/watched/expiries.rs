//! Expiries: reported once, with the value, when the record is gone and not before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wane::clock::{Clock, SharedClock, SystemClock};
use wane::store::{ClusteringRange, EventKind, Life, Store, Timestamp, WatchedStore, Write};

use super::{applied, expect, expect_silence, next_event, partition, settle, setup};
use crate::gated::Gate;
use crate::{inner_store, key, lasting, permanent, value};

#[tokio::test]
async fn an_expiry_is_reported_at_its_instant_and_not_a_millisecond_before() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", lasting("v", 60_000)).await;
    let put = expect(&mut watch, EventKind::Put, "a", "v").await;
    setup.advance(59_999);
    expect_silence(&mut watch).await;
    setup.advance(1);
    let expired = expect(&mut watch, EventKind::Expired, "a", "v").await;
    assert_eq!(expired.expires_at, put.expires_at);
    setup.advance(120_000);
    expect_silence(&mut watch).await;
    assert_eq!(setup.store.followed(), 0);
}

#[tokio::test]
async fn records_written_before_the_watch_are_reported_when_they_expire() {
    let setup = setup();
    // More rows than the largest page holds.
    const ROWS: usize = 12_000;
    let rows = (0..ROWS).map(|row| (key(&format!("{row:05}")), lasting("v", 1_000)));
    setup.store.put_batch(rows.collect()).await.unwrap();
    setup.put("permanent", permanent("v")).await;
    let mut watch = setup.watch().await;
    assert_eq!(setup.store.followed(), ROWS);
    setup.advance(1_000);
    let mut names = std::collections::HashSet::new();
    for _ in 0..ROWS {
        let event = next_event(&mut watch).await;
        assert_eq!(event.kind, EventKind::Expired);
        assert!(names.insert(event.key));
    }
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_renewed_record_is_reported_at_its_new_expiry_only() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("longer", lasting("v", 100)).await;
    setup.put("shorter", lasting("v", 1_000)).await;
    setup.advance(50);
    setup.swap("longer", "v", lasting("v", 500)).await;
    setup.swap("shorter", "v", lasting("v", 200)).await;
    for _ in 0..4 {
        next_event(&mut watch).await;
    }
    setup.advance(50);
    expect_silence(&mut watch).await;
    setup.advance(150);
    expect(&mut watch, EventKind::Expired, "shorter", "v").await;
    expect_silence(&mut watch).await;
    setup.advance(300);
    expect(&mut watch, EventKind::Expired, "longer", "v").await;
    setup.advance(10_000);
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn what_was_deleted_or_made_permanent_does_not_expire() {
    let setup = setup();
    setup.put("deleted", lasting("v", 100)).await;
    setup.put("kept", lasting("v", 100)).await;
    let mut watch = setup.watch().await;
    setup.delete("deleted", "v").await;
    setup.put("kept", permanent("v")).await;
    expect(&mut watch, EventKind::Deleted, "deleted", "v").await;
    expect(&mut watch, EventKind::Put, "kept", "v").await;
    setup.advance(1_000);
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_write_that_has_expired_already_is_reported_and_then_its_expiry() {
    let setup = setup();
    let mut watch = setup.watch().await;
    let past = Timestamp::from_unix_millis(setup.clock.now().as_unix_millis() - 1);
    setup.put("a", Write::new(value("v"), Life::Until(past))).await;
    expect(&mut watch, EventKind::Put, "a", "v").await;
    expect(&mut watch, EventKind::Expired, "a", "v").await;
}

#[tokio::test]
async fn an_expiry_comes_before_the_write_that_found_the_record_gone() {
    let setup = setup();
    let mut watch = setup.watch().await;
    for name in ["insert", "put"] {
        setup.put(name, lasting("old", 100)).await;
        expect(&mut watch, EventKind::Put, name, "old").await;
    }
    // No await between the expiry and the writes: the task has no turn of its own.
    setup.advance(100);
    setup.insert("insert", permanent("new")).await;
    setup.put("put", permanent("new")).await;
    expect(&mut watch, EventKind::Expired, "insert", "old").await;
    expect(&mut watch, EventKind::Inserted, "insert", "new").await;
    expect(&mut watch, EventKind::Expired, "put", "old").await;
    expect(&mut watch, EventKind::Put, "put", "new").await;
    expect_silence(&mut watch).await;
}

/// The swap is applied in time and answered late: while its answer is under way the old expiry
/// passes, and whoever looked at the clock alone would report it.
#[tokio::test]
async fn an_expiry_is_not_reported_where_a_racing_swap_won() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", lasting("v", 100)).await;
    expect(&mut watch, EventKind::Put, "a", "v").await;
    setup.below.set(Gate::HoldAfter);
    let swap = tokio::spawn({
        let store = setup.store.clone();
        async move { store.compare_and_swap(&key("a"), b"v", lasting("w", 500)).await }
    });
    settle().await;
    setup.advance(100);
    expect_silence(&mut watch).await;
    setup.below.set(Gate::Open);
    applied(swap.await.unwrap());
    expect(&mut watch, EventKind::Swapped, "a", "w").await;
    expect_silence(&mut watch).await;
    setup.advance(400);
    expect(&mut watch, EventKind::Expired, "a", "w").await;
}

#[tokio::test]
async fn a_write_under_way_holds_up_only_the_expiries_that_share_its_lock() {
    let setup = setup();
    let mut watch = setup.watch().await;
    for number in 0..100 {
        setup.put(&number.to_string(), lasting("v", 100)).await;
        next_event(&mut watch).await;
    }
    setup.below.set(Gate::HoldBefore);
    let write = tokio::spawn({
        let store = setup.store.clone();
        async move { store.put(&key("0"), permanent("w")).await }
    });
    settle().await;
    setup.advance(100);
    // One of 512 locks is held: that more than ten of a hundred keys share it will not happen.
    for _ in 0..90 {
        assert_eq!(next_event(&mut watch).await.kind, EventKind::Expired);
    }
    assert!(!write.is_finished());
    setup.below.set(Gate::Open);
    applied(write.await.unwrap());
}

/// Nobody watches when the write begins, so it takes no lock; the watch must wait for it or its
/// record would expire unseen.
#[tokio::test]
async fn a_watch_waits_for_writes_that_began_before_it() {
    for held in [Gate::HoldBefore, Gate::HoldAfter] {
        let setup = setup();
        setup.below.set(held);
        let write = tokio::spawn({
            let store = setup.store.clone();
            async move { store.put(&key("a"), lasting("v", 100)).await }
        });
        settle().await;
        let watch = tokio::spawn({
            let store = setup.store.clone();
            async move { store.watch(&partition(), ClusteringRange::ALL).await }
        });
        settle().await;
        assert!(!watch.is_finished(), "{held:?}");
        setup.below.set(Gate::Open);
        applied(write.await.unwrap());
        let mut watch = watch.await.unwrap().unwrap();
        setup.advance(100);
        expect(&mut watch, EventKind::Expired, "a", "v").await;
    }
}

/// The page that a new watch reads is on its way while its records change: what was written
/// meanwhile counts, not what the page still says.
#[tokio::test]
async fn a_write_made_while_the_range_is_read_outdates_the_page() {
    let setup = setup();
    for name in ["deleted", "kept", "renewed"] {
        setup.put(name, lasting("v", 100)).await;
    }
    setup.below.set(Gate::HoldPages);
    let watch = tokio::spawn({
        let store = setup.store.clone();
        async move { store.watch(&partition(), ClusteringRange::ALL).await }
    });
    settle().await;
    setup.delete("deleted", "v").await;
    setup.put("kept", permanent("v")).await;
    setup.swap("renewed", "v", lasting("w", 500)).await;
    setup.below.set(Gate::Open);
    let mut watch = watch.await.unwrap().unwrap();
    expect(&mut watch, EventKind::Deleted, "deleted", "v").await;
    expect(&mut watch, EventKind::Put, "kept", "v").await;
    expect(&mut watch, EventKind::Swapped, "renewed", "w").await;
    assert_eq!(setup.store.followed(), 1);
    setup.advance(100);
    expect_silence(&mut watch).await;
    setup.advance(400);
    expect(&mut watch, EventKind::Expired, "renewed", "w").await;
}

/// A record lives by the store's steady time, so a machine clock that was set back delays the
/// report just as much as the expiry itself.
#[tokio::test]
async fn a_clock_set_back_delays_the_report_with_the_expiry() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", lasting("v", 10_000)).await;
    expect(&mut watch, EventKind::Put, "a", "v").await;
    setup.clock.set_back(Duration::from_secs(3_600));
    for _ in 0..10 {
        setup.advance(1_000);
        settle().await;
    }
    assert!(setup.store.get(&key("a")).await.unwrap().is_some(), "the clock is slower");
    expect_silence(&mut watch).await;
    setup.advance(1_000);
    expect(&mut watch, EventKind::Expired, "a", "v").await;
}

/// A bare timer runs beside the watch: what it is late by is the machine's doing, not ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_expiries_are_reported_within_100_ms_on_the_system_clock() {
    const RECORDS: u64 = 1_000;
    let clock: SharedClock = SystemClock::shared();
    let store = WatchedStore::new(inner_store(Arc::clone(&clock)), Arc::clone(&clock));
    let mut watch = store.watch(&partition(), ClusteringRange::ALL).await.unwrap();
    let stalled = Arc::new(AtomicU64::new(0));
    let timer = tokio::spawn(measure_stalls(Arc::clone(&clock), Arc::clone(&stalled)));
    for number in 0..RECORDS {
        // Half of them one by one, half of them all at once.
        let life = if number % 2 == 0 { 300 + number } else { 800 };
        applied(store.put(&key(&number.to_string()), lasting("v", life)).await);
    }
    let mut lateness = Vec::new();
    while (lateness.len() as u64) < RECORDS {
        let event = next_event(&mut watch).await;
        if event.kind == EventKind::Expired {
            let expiry = event.expires_at.expect("it expired");
            assert!(clock.now() >= expiry);
            lateness.push(expiry.until(clock.now()).as_millis() as u64);
        }
    }
    timer.abort();
    lateness.sort_unstable();
    let (middle, worst) = (lateness[lateness.len() / 2], lateness[lateness.len() - 1]);
    let stalled = stalled.load(Ordering::Relaxed);
    println!("{middle} ms late in the middle, {worst} ms at worst, a bare timer {stalled} ms");
    assert!(worst < 100 + stalled, "{worst} ms late, a bare timer {stalled} ms");
}

/// Keeps in `worst` how many milliseconds a sleep of one millisecond took too long.
async fn measure_stalls(clock: SharedClock, worst: Arc<AtomicU64>) {
    let pause = Duration::from_millis(1);
    loop {
        let began = clock.monotonic();
        clock.sleep(pause).await;
        let late = (clock.monotonic() - began).saturating_sub(pause);
        worst.fetch_max(late.as_millis() as u64, Ordering::Relaxed);
    }
}
