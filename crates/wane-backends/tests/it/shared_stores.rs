//! What nodes of a shared store rely on: clocks that agree, and a cache that is late by no more than
//! it may be.

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, OffClock, SharedClock, SystemClock};
use wane::conformance::{Harness, run_all};
use wane::store::{
    CacheSettings, CachedStore, Fence, Key, Life, Store, StoreError, Ttl, Value, Write,
};
use wane_backends::cassandra::Replication;

use crate::harness::cassandra::Place;
use crate::harness::redis::Redis;
use crate::harness::urls::{Address, shared_stores};

fn key(name: &str) -> Key {
    Key::new(b"shared", name.as_bytes()).expect("legal")
}

fn permanent(value: &str) -> Write {
    Write::new(Value::copy_from_slice(value.as_bytes()).expect("legal"), Life::Permanent)
}

fn clock_ahead(millis: i64) -> SharedClock {
    Arc::new(OffClock::ahead_of(SystemClock::shared(), millis))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_off_is_refused_and_told_by_how_much() {
    for Address { url, max_skew, .. } in shared_stores() {
        let allowed = i64::try_from(max_skew.as_millis()).expect("a few seconds");
        // A second more than what a header that tells whole seconds may hide.
        for off in [allowed + 1_500, -allowed - 1_500] {
            let store = wane_backends::open(&url, clock_ahead(off)).await.expect("it opens");
            let refused = store.put(&key("k"), permanent("v")).await.expect_err("refused");
            assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
            let side = if off > 0 { "ahead of" } else { "behind" };
            for words in ["the clock of this node is", side, "are allowed", "NTP"] {
                assert!(refused.to_string().contains(words), "{words:?} is not in {refused}");
            }
            let unread = store.get(&key("k")).await.expect_err("refused");
            assert!(matches!(unread, StoreError::Unavailable { .. }), "{unread:?}");
        }
        let right = wane_backends::open(&url, clock_ahead(allowed / 4)).await.expect("it opens");
        assert_eq!(right.get(&key("k")).await.expect("it serves"), None, "nothing was applied");
        assert!(right.put(&key("k"), permanent("v")).await.expect("it serves").is_applied());
    }
}

const MAX_STALE: Duration = Duration::from_millis(400);

fn cached<S: Store>(store: S) -> CachedStore<S> {
    let settings = CacheSettings { max_stale: MAX_STALE, max_bytes: 1 << 20 };
    CachedStore::new(store, Some(settings), SystemClock::shared())
}

async fn value<S: Store>(store: &S, key: &Key) -> Option<String> {
    let record = store.get(key).await.expect("the store answers");
    record.map(|record| String::from_utf8(record.value.to_vec()).expect("text"))
}

/// Two nodes, each with a cache of its own: what one writes, the other sees within the bound.
async fn assert_stale_within_its_bound<S: Store + Clone>(one: S, other: S) {
    let (one, other, clock) = (cached(one), cached(other), SystemClock::shared());
    let key = key("stale");
    assert_eq!(value(&one, &key).await, None);
    assert!(
        other.insert_if_not_exists(&key, permanent("a")).await.expect("an answer").is_applied()
    );
    assert_eq!(value(&other, &key).await.as_deref(), Some("a"), "its own write, at once");
    clock.sleep(MAX_STALE).await;
    assert_eq!(value(&one, &key).await.as_deref(), Some("a"), "no absence beyond the bound");

    let seen = clock.monotonic();
    assert!(
        other.compare_and_swap(&key, b"a", permanent("b")).await.expect("an answer").is_applied()
    );
    let mut old = 0;
    while value(&one, &key).await.as_deref() == Some("a") {
        old += 1;
        let age = clock.monotonic() - seen;
        assert!(age < MAX_STALE + Duration::from_secs(2), "an old value after {age:?}");
    }
    assert!(old > 0, "the control: the cache answers");
    assert_eq!(value(&one, &key).await.as_deref(), Some("b"));
    assert_eq!(value(&one.uncached(), &key).await.as_deref(), Some("b"));

    assert!(
        other.compare_and_delete(&key, b"b", Fence::NONE).await.expect("an answer").is_applied()
    );
    let refused = one.compare_and_swap(&key, b"b", permanent("c")).await.expect("an answer");
    assert!(!refused.is_applied(), "writes are never decided by the cache");
    assert_eq!(value(&one, &key).await, None, "a refusal refreshes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_with_caches_on_redis_are_stale_within_their_bound() {
    let Some(harness) = Redis::new().await else { return };
    assert_stale_within_its_bound(harness.store(), harness.another().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_with_caches_on_cassandra_are_stale_within_their_bound() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let (one, other) =
        (place.connect(SystemClock::shared()).await, place.connect(SystemClock::shared()).await);
    assert_stale_within_its_bound(one, other).await;
    place.remove().await;
}

/// Redis behind a cache that may keep nothing.
struct CachedRedis(Redis);

impl Harness for CachedRedis {
    type Store = CachedStore<wane_backends::redis::RedisStore>;

    fn name(&self) -> &str {
        "cached(redis)"
    }

    fn store(&self) -> Self::Store {
        let settings = CacheSettings { max_stale: Duration::ZERO, max_bytes: 1 << 20 };
        CachedStore::new(self.0.store(), Some(settings), SharedClock::clone(self.0.clock()))
    }

    async fn outlive(&self, ttl: Ttl) {
        self.0.outlive(ttl).await;
    }

    fn clock(&self) -> Option<&ManualClock> {
        None
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        self.0.reopen().await
    }

    fn footprint(&self) -> Option<u64> {
        self.0.footprint()
    }

    fn consistent_scan(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_over_redis_that_keeps_nothing_keeps_the_contract() {
    let Some(redis) = Redis::new().await else { return };
    let report = run_all(&CachedRedis(redis)).await;
    report.announce();
    report.assert_passed();
}
