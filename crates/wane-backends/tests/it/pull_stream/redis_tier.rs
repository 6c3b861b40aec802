//! The tier in Redis: what it shows, that older writes never replace newer ones, and that it is a view.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::cmd;
use wane::clock::{SharedClock, SystemClock};
use wane::services::pull_stream::{
    Client, Ispb, PullStreamSettings, SlotView, TokenView, token_hash,
};
use wane::store::Timestamp;
use wane_backends::redis::pull_stream::{RedisTier, TierError};

use super::doctored::Lie;
use super::stage::{PATIENCE, Stage, fresh_ispb, keys, many, unhurried};
use crate::harness::listed::is_listed;
use crate::harness::redis_server::Server;

fn started() -> Option<(Server, RedisTier, SharedClock)> {
    if !is_listed("redis") {
        return None;
    }
    let (server, clock) = (Server::start(&[]), SystemClock::shared());
    let tier = RedisTier::new(&server.url(), clock.clone()).expect("a legal URL");
    Some((server, tier, clock))
}

/// Waits until it is so.
async fn until(clock: &SharedClock, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = clock.monotonic();
    while !is_so() {
        assert!(clock.monotonic() - began < PATIENCE, "not in time: {what}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

fn fields(server: &Server, key: &str) -> HashMap<String, String> {
    cmd("HGETALL").arg(key).query(&mut server.connection()).expect("a hash")
}

fn life(server: &Server, key: &str) -> i64 {
    cmd("PTTL").arg(key).query(&mut server.connection()).expect("a life")
}

fn slot(token: &str, cursor_seq: u64, now: Timestamp) -> SlotView {
    let ahead = |by: u64| Timestamp::from_unix_millis(now.as_unix_millis() + by);
    SlotView {
        thread: 2,
        epoch: 7,
        client: Client::new("a \"client\"").expect("within the limits"),
        cursor_seq,
        token: Some(token_hash(token)),
        issued_at: now,
        in_flight: 3,
        expires_at: ahead(300_000),
        lease_until: ahead(30_000),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_is_shown_and_a_token_is_found_by_its_hash() {
    let Some((server, tier, clock)) = started() else { return };
    let it = Stage::memory(Lie::None).await;
    let settings = PullStreamSettings { view: Some(Arc::new(tier.clone())), ..unhurried() };
    let (ispb, node) = (fresh_ispb(), it.node(0, &keys("a", None), settings));
    it.take_in(std::slice::from_ref(&node), ispb, 30).await;
    let first = node.start(ispb, &many()).await.expect("nothing fails here");
    let second = node.next(ispb, &first.next, &many()).await.expect("nothing fails here");
    until(&clock, "both tokens are shown", || tier.counts().shown >= 2).await;

    let shown = tier.lookup(&second.next).await.expect("it answers").expect("it is shown");
    assert_eq!((&*shown.ispb, shown.thread_slot, shown.cursor_seq), (ispb.as_str(), 0, 2));
    let name = format!("cursor:token:{}", token_hash(&second.next));
    let token_life = life(&server, &name);
    assert!((1..=600_000).contains(&token_life), "{token_life} ms: as long as the token");
    assert_eq!(fields(&server, &name)["signature"], token_hash(&second.next));
    assert_eq!(tier.lookup("another").await.expect("it answers"), None);

    let slots = fields(&server, &format!("cursor:slot:{ispb}"));
    assert_eq!((slots.len(), &*slots["version"]), (2, "2"), "{slots:?}");
    for part in ["\"client_id\":\"tests\"", "\"last_seen\":", "\"reservation_id\":\"0-1\""] {
        assert!(slots["0"].contains(part), "{part} in {}", slots["0"]);
    }
    let slot_life = life(&server, &format!("cursor:slot:{ispb}"));
    assert!((1..=300_000).contains(&slot_life), "{slot_life} ms: as long as the lease");
    let entries: usize = cmd("XLEN")
        .arg(format!("cursor:lag:{ispb}"))
        .query(&mut server.connection())
        .expect("a stream");
    assert_eq!(entries, 2, "one for each delivery");

    node.end(ispb, &second.next, &many().client).await.expect("nothing fails here");
    until(&clock, "the end is shown", || tier.counts().shown >= 3).await;
    let slots = fields(&server, &format!("cursor:slot:{ispb}"));
    assert_eq!(slots.keys().collect::<Vec<_>>(), ["version"], "nobody reads");
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut server.connection()).expect("keys");
    let secret = |key: &String| first.next.contains(key.as_str()) || key.contains(&first.next);
    assert!(!keys.iter().any(secret), "no token is stored: {keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_write_never_replaces_a_newer_one() {
    let Some((server, near, clock)) = started() else { return };
    // Another node, which tells of an older write later.
    let far = RedisTier::new(&server.url(), clock.clone()).expect("a legal URL");
    let (ispb, now): (Ispb, _) = (fresh_ispb(), clock.now());
    near.show(ispb, 9, &[slot("nine", 9, now)]);
    until(&clock, "the newer one is shown", || near.counts().shown == 1).await;
    far.show(ispb, 8, &[slot("eight", 8, now)]);
    until(&clock, "the older one was sent", || far.counts().stale == 1).await;
    assert_eq!(fields(&server, &format!("cursor:slot:{ispb}"))["version"], "9");
    assert_eq!(near.lookup("eight").await.expect("it answers"), None);
    near.show(ispb, 10, &[]);
    until(&clock, "nobody reads", || near.counts().shown == 2).await;
    far.show(ispb, 9, &[slot("nine", 9, now)]);
    until(&clock, "the older one was sent", || far.counts().stale == 2).await;
    let slots = fields(&server, &format!("cursor:slot:{ispb}"));
    assert_eq!(slots.len(), 1, "a reader that has gone does not come back: {slots:?}");
    // The control: after a flush nothing is newer.
    server.flush();
    far.show(ispb, 9, &[slot("nine", 9, now)]);
    until(&clock, "it is shown", || far.counts().shown == 1).await;
}

/// Nobody waits for a server that hangs: what cannot be sent makes room for what is newer, and is
/// shown when the server goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tier_that_hangs_holds_nobody_up_and_shows_the_last_write_afterwards() {
    let Some((server, tier, clock)) = started() else { return };
    let (ispb, now): (Ispb, _) = (fresh_ispb(), clock.now());
    tier.show(ispb, 1, &[slot("1", 1, now)]);
    until(&clock, "the first is shown", || tier.counts().shown == 1).await;
    server.pause(true);
    let began = clock.monotonic();
    for version in 2..=10_000 {
        tier.show(ispb, version, &[slot(&version.to_string(), version, now)]);
    }
    for number in 0..5_000 {
        tier.show(format!("9{number:07}").parse().expect("eight digits"), 1, &[]);
    }
    let took = clock.monotonic() - began;
    assert!(took < Duration::from_secs(2), "15,000 updates took {took:?}");
    let counts = tier.counts();
    assert!(counts.superseded > 9_000, "{counts:?}");
    assert!(counts.dropped > 0, "there is room for so many only: {counts:?}");
    let told = tokio::time::timeout(Duration::from_secs(10), tier.lookup("1")).await;
    assert!(matches!(told, Ok(Err(TierError::Away { .. }))), "{told:?}");
    server.pause(false);
    let last = format!("cursor:slot:{ispb}");
    until(&clock, "the last write is shown", || {
        fields(&server, &last).get("version").is_some_and(|version| version == "10000")
    })
    .await;
}

#[tokio::test]
async fn a_cluster_or_a_prefix_is_no_tier() {
    for (url, told) in [
        ("redis://a,b", "one server"),
        ("redis://a?prefix=mine", "database"),
        ("http://a", "redis"),
    ] {
        let error = RedisTier::new(url, SystemClock::shared()).expect_err("it is refused");
        assert!(error.to_string().contains(told), "{url}: {error}");
    }
}
