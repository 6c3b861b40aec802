//! Two nodes on one store: how old an answer may be, and what makes it new.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use wane::store::{Fence, Outcome, Record, Remaining, Store};

use super::{MAX_STALE, Setup, fenced, put, setup, setup_with, shown};
use crate::gated::Gate;
use crate::{key, lasting, permanent};

const NO_FAULT: &str = "no fault was asked for";

const MOMENT: Duration = Duration::from_millis(1);

/// Everything that a cache may serve, about one key.
async fn answers(setup: &Setup, name: &str) -> (Option<Record>, Option<Record>, Remaining) {
    let key = key(name);
    let one = setup.store.get(&key).await.expect(NO_FAULT);
    let batch = setup.store.get_batch(&[key.clone(), key.clone()]).await.expect(NO_FAULT);
    assert_eq!(batch[0], batch[1]);
    (one, batch[0].clone(), setup.store.query_ttl(&key).await.expect(NO_FAULT))
}

#[tokio::test]
async fn a_value_is_old_within_the_bound_and_never_beyond() {
    let setup = setup();
    put(&setup.other, "a", permanent("1")).await;
    for round in 1..10 {
        let (old, new) = (round.to_string(), (round + 1).to_string());
        assert_eq!(shown(&setup.store, "a").await, Some(old.clone()));
        put(&setup.other, "a", permanent(&new)).await;
        setup.clock.advance(MAX_STALE - MOMENT);
        assert_eq!(shown(&setup.store, "a").await, Some(old), "nothing was cached");
        setup.clock.advance(MOMENT);
        assert_eq!(shown(&setup.store, "a").await, Some(new), "older than it may be");
    }
}

/// "A cached absent without end."
#[tokio::test]
async fn an_absence_is_old_within_the_bound_and_never_beyond() {
    let setup = setup();
    assert_eq!(shown(&setup.store, "a").await, None);
    put(&setup.other, "a", permanent("new")).await;
    setup.clock.advance(MAX_STALE - MOMENT);
    assert_eq!(answers(&setup, "a").await, (None, None, Remaining::Absent), "nothing was cached");
    setup.clock.advance(MOMENT);
    let (one, batch, remaining) = answers(&setup, "a").await;
    assert!(one.is_some() && batch.is_some(), "an absence outlived its bound");
    assert_eq!(remaining, Remaining::Permanent);
}

#[tokio::test]
async fn a_delete_elsewhere_is_seen_within_the_bound() {
    let setup = setup();
    put(&setup.other, "a", permanent("1")).await;
    assert!(answers(&setup, "a").await.1.is_some());
    let deleted = setup.other.compare_and_delete(&key("a"), b"1", Fence::NONE).await;
    assert!(deleted.unwrap().is_applied());
    setup.clock.advance(MAX_STALE - MOMENT);
    assert_eq!(answers(&setup, "a").await.2, Remaining::Permanent, "nothing was cached");
    setup.clock.advance(MOMENT);
    assert_eq!(answers(&setup, "a").await, (None, None, Remaining::Absent));
}

/// The state that an answer tells of may be as old as the request.
#[tokio::test]
async fn age_counts_from_before_the_call_was_sent() {
    let setup = setup();
    put(&setup.other, "a", permanent("old")).await;
    setup.below.set(Gate::HoldReads);
    let name = key("a");
    let mut read = pin!(setup.store.get(&name));
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    put(&setup.other, "a", permanent("new")).await;
    setup.clock.advance(MAX_STALE);
    setup.below.set(Gate::Open);
    assert_eq!(&*read.await.unwrap().unwrap().value, b"old");
    assert_eq!(shown(&setup.store, "a").await.as_deref(), Some("new"));

    setup.below.set(Gate::HoldAfter);
    let mut write = pin!(setup.store.put(&name, fenced("mine")));
    assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    put(&setup.other, "a", permanent("theirs")).await;
    setup.clock.advance(MAX_STALE);
    setup.below.set(Gate::Open);
    assert!(write.await.unwrap().is_applied());
    assert_eq!(shown(&setup.store, "a").await.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn a_cached_record_expires_to_the_millisecond() {
    let setup = setup();
    let store = &setup.store;
    let inserted = store.insert_if_not_exists(&key("a"), lasting("v", 100)).await.unwrap();
    assert!(inserted.is_applied());
    setup.clock.advance(Duration::from_millis(99));
    let (one, batch, remaining) = answers(&setup, "a").await;
    assert!(one.is_some() && batch.is_some());
    assert_eq!(remaining, Remaining::For(MOMENT));
    assert_eq!(store.stats().unwrap().misses, 0, "the insert was not remembered");
    setup.clock.advance(MOMENT);
    assert_eq!(answers(&setup, "a").await, (None, None, Remaining::Absent));
}

/// Who loses a race needs no second read, and later reads know what the winner wrote.
#[tokio::test]
async fn every_refusal_refreshes() {
    let setup = setup();
    let (store, name) = (&setup.store, key("a"));
    for (round, theirs) in ["1", "2", "3", "4"].into_iter().enumerate() {
        // Known here before, and changed elsewhere with a fence that refuses the put.
        shown(store, "a").await;
        put(&setup.other, "a", permanent(theirs).fenced(Fence(9))).await;
        let refused = match round {
            0 => store.insert_if_not_exists(&name, permanent("x")).await,
            1 => store.compare_and_swap(&name, b"x", permanent("y")).await,
            2 => store.compare_and_delete(&name, b"x", Fence::NONE).await,
            _ => store.put(&name, permanent("y").fenced(Fence(2))).await,
        };
        assert!(matches!(refused.unwrap(), Outcome::Refused { current: Some(_) }));
        let misses = store.stats().unwrap().misses;
        assert_eq!(shown(store, "a").await.as_deref(), Some(theirs));
        assert_eq!(store.stats().unwrap().misses, misses, "the refusal was not remembered");
    }
}

/// A fence that an unfenced write leaves standing is not told to the writer.
#[tokio::test]
async fn a_cached_record_has_the_fence_that_the_store_has() {
    let setup = setup();
    let (store, name) = (&setup.store, key("a"));
    put(&setup.other, "a", permanent("1").fenced(Fence(7))).await;
    let stands = setup.other.get(&name).await.unwrap();
    assert_eq!(store.get(&name).await.unwrap(), stands);
    for write in [permanent("2"), permanent("3").fenced(Fence(8)), lasting("4", 50)] {
        put(store, "a", write).await;
        assert_eq!(store.get(&name).await.unwrap(), setup.other.get(&name).await.unwrap());
    }
    let swapped = store.compare_and_swap(&name, b"4", permanent("5")).await.unwrap();
    assert!(swapped.is_applied());
    assert_eq!(store.get(&name).await.unwrap(), setup.other.get(&name).await.unwrap());
}

#[tokio::test]
async fn without_a_bound_everything_asks_the_store() {
    for settings in [None, super::settings(Duration::ZERO)] {
        let setup = setup_with(settings);
        for text in ["1", "2"] {
            put(&setup.other, "a", permanent(text)).await;
            assert_eq!(shown(&setup.store, "a").await.as_deref(), Some(text));
        }
        assert_eq!(setup.store.stats(), None);
    }
}

/// The control of the tests above, which would pass on a store that caches nothing.
#[tokio::test]
async fn hits_and_misses_are_counted() {
    let setup = setup();
    put(&setup.other, "a", permanent("1")).await;
    for _ in 0..10 {
        shown(&setup.store, "a").await;
        shown(&setup.store, "absent").await;
    }
    setup.store.get_batch(&[key("a"), key("b"), key("absent")]).await.unwrap();
    let stats = setup.store.stats().unwrap();
    assert_eq!((stats.hits, stats.misses, stats.entries), (20, 3, 3));
}
