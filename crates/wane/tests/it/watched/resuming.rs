//! Slow and returning watches: bounded memory, no event lost unsaid.

use std::time::Duration;

use wane::store::{ClusteringRange, EventKind, WatchLimits};

use super::{expect, expect_gap, expect_silence, partition, settle, setup, setup_with};
use crate::{lasting, permanent};

const SMALL: WatchLimits = WatchLimits {
    unread_notices: 4,
    unread_bytes: 1 << 20,
    recent_events: 8,
    recent_bytes: 1 << 20,
    linger: Duration::from_secs(60),
};

#[tokio::test]
async fn a_slow_watch_hears_of_a_gap_and_goes_on_after_it() {
    let setup = setup_with(SMALL);
    let mut slow = setup.watch().await;
    let mut quick = setup.watch().await;
    let mut ids = Vec::new();
    for number in 0..10 {
        setup.put("a", permanent(&number.to_string())).await;
        ids.push(expect(&mut quick, EventKind::Put, "a", &number.to_string()).await.id);
    }
    // Four fit; the fifth turns them into a gap, and the gap with four more into another.
    assert_eq!(expect_gap(&mut slow).await, ids[8]);
    assert_eq!(expect(&mut slow, EventKind::Put, "a", "9").await.id, ids[9]);
    expect_silence(&mut slow).await;
}

#[tokio::test]
async fn unread_bytes_are_bounded_like_unread_notices() {
    let setup = setup_with(WatchLimits { unread_notices: 1_000, unread_bytes: 10_000, ..SMALL });
    let mut watch = setup.watch().await;
    for _ in 0..3 {
        setup.put("a", permanent(&"x".repeat(4_000))).await;
    }
    expect_gap(&mut watch).await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn a_watch_resumes_after_the_event_it_names() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", permanent("1")).await;
    setup.put("b", permanent("2")).await;
    let seen = expect(&mut watch, EventKind::Put, "a", "1").await;
    drop(watch);
    // The range lingers: what happens while nobody watches is kept for whoever comes back.
    setup.put("c", lasting("3", 100)).await;
    setup.advance(100);
    settle().await;
    let mut watch = setup.watch_from(seen.id).await;
    expect(&mut watch, EventKind::Put, "b", "2").await;
    expect(&mut watch, EventKind::Put, "c", "3").await;
    let last = expect(&mut watch, EventKind::Expired, "c", "3").await;
    expect_silence(&mut watch).await;
    let mut watch = setup.watch_from(last.id).await;
    setup.put("d", permanent("4")).await;
    expect(&mut watch, EventKind::Put, "d", "4").await;
}

#[tokio::test]
async fn resuming_replays_only_the_range_asked_for() {
    let setup = setup();
    let mut wide = setup.watch().await;
    setup.put("first", permanent("v")).await;
    let seen = expect(&mut wide, EventKind::Put, "first", "v").await;
    setup.put("in", permanent("v")).await;
    setup.put("out", permanent("v")).await;
    let range = ClusteringRange::prefix("in").unwrap();
    let mut watch = setup.store.watch_from(&partition(), range, seen.id).await.unwrap();
    expect(&mut watch, EventKind::Put, "in", "v").await;
    expect_silence(&mut watch).await;
}

#[tokio::test]
async fn resuming_from_further_back_than_is_kept_is_a_gap() {
    let setup = setup_with(SMALL);
    let mut watch = setup.watch().await;
    setup.put("a", permanent("first")).await;
    let first = expect(&mut watch, EventKind::Put, "a", "first").await;
    for number in 0..8 {
        setup.put("a", permanent(&number.to_string())).await;
    }
    let mut kept = setup.watch_from(first.id).await;
    expect_gap(&mut kept).await; // Eight events are kept, and four unread ones.
    setup.put("a", permanent("last")).await;
    let mut watch = setup.watch_from(first.id).await;
    let newest = expect_gap(&mut watch).await;
    assert_eq!(newest, first.id + 9);
    setup.put("a", permanent("next")).await;
    assert_eq!(expect(&mut watch, EventKind::Put, "a", "next").await.id, newest + 1);
}

#[tokio::test]
async fn resuming_from_an_id_of_another_life_of_the_store_is_a_gap() {
    let setup = setup();
    let mut watch = setup.watch().await;
    setup.put("a", permanent("v")).await;
    let seen = expect(&mut watch, EventKind::Put, "a", "v").await;
    for id in [0, 1, seen.id + 1, u64::MAX] {
        expect_gap(&mut setup.watch_from(id).await).await;
    }
    expect_silence(&mut setup.watch_from(seen.id).await).await;
}

#[tokio::test]
async fn a_later_start_gives_higher_ids() {
    let first = setup();
    let mut watch = first.watch().await;
    first.put("a", permanent("v")).await;
    let before = expect(&mut watch, EventKind::Put, "a", "v").await.id;
    first.advance(1);
    let clock = first.clock.clone();
    let second = wane::store::WatchedStore::new(first.below.clone(), clock);
    let mut watch = second.watch(&partition(), ClusteringRange::ALL).await.unwrap();
    super::applied(wane::store::Store::put(&second, &crate::key("a"), permanent("w")).await);
    assert!(expect(&mut watch, EventKind::Put, "a", "w").await.id > before);
}

#[tokio::test]
async fn resuming_a_range_that_was_not_watched_all_the_time_is_a_gap() {
    let setup = setup();
    let narrow = ClusteringRange::prefix("a").unwrap();
    let mut watch = setup.watch_range(narrow).await;
    setup.put("a", permanent("v")).await;
    let seen = expect(&mut watch, EventKind::Put, "a", "v").await;
    setup.put("b", permanent("unseen")).await;
    let mut wide = setup.watch_from(seen.id).await;
    expect_gap(&mut wide).await;
    setup.put("b", permanent("seen")).await;
    expect(&mut wide, EventKind::Put, "b", "seen").await;
}

#[tokio::test]
async fn a_range_that_nobody_came_back_to_is_let_go() {
    let setup = setup();
    setup.put("a", lasting("v", 3_600_000)).await;
    let mut watch = setup.watch().await;
    setup.put("a", lasting("w", 3_600_000)).await;
    let seen = expect(&mut watch, EventKind::Put, "a", "w").await;
    drop(watch);
    settle().await;
    assert_eq!(setup.store.followed(), 1);
    setup.advance(59_999);
    settle().await;
    assert_eq!(setup.store.followed(), 1);
    setup.advance(1);
    settle().await;
    assert_eq!(setup.store.followed(), 0);
    expect_gap(&mut setup.watch_from(seen.id).await).await;
    assert_eq!(setup.store.followed(), 1, "read anew");
}
