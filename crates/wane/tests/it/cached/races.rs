//! Calls that overlap: what one of them saw must not come back after the other was answered.
//!
//! Each race is one function over any store, driven step by step. It answers what a get shows in the
//! end; "new" was acknowledged or may have been applied before. The naive cache is the control.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use wane::store::{Fence, Outcome, Store, StoreError};

use super::naive::NaiveCache;
use super::{fenced, put, setup, shown};
use crate::gated::{Gate, GatedStore};
use crate::{InnerStore, inner_store, key, manual_clock, permanent};

const NO_FAULT: &str = "no fault was asked for";

type Below = GatedStore<InnerStore>;

/// Lets a call go as far as it can.
fn step<T>(call: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Lets a call go as far as it can, which must not be to its end.
#[track_caller]
fn hold<T>(call: Pin<&mut impl Future<Output = T>>) {
    assert!(step(call).is_none(), "the gate holds nothing");
}

/// A read is answered by the store, then a write is sent and answered, then the read's answer comes.
async fn read_around_a_write(store: &impl Store, below: &Below) -> Option<String> {
    put(store, "a", permanent("old")).await;
    below.set(Gate::HoldReads);
    let key = key("a");
    let mut read = pin!(store.get(&key));
    hold(read.as_mut());
    put(store, "a", permanent("new")).await;
    below.set(Gate::Open);
    let late = read.await.expect(NO_FAULT).expect("it was written");
    assert_eq!(&*late.value, b"old", "the read came too late for this race");
    shown(store, "a").await
}

/// The read's answer comes while the write is on its way.
async fn read_ends_within_a_write(store: &impl Store, below: &Below) -> Option<String> {
    put(store, "a", permanent("old")).await;
    let key = key("a");
    below.set(Gate::HoldReads);
    let mut read = pin!(store.get(&key));
    hold(read.as_mut());
    below.set(Gate::HoldBefore);
    let mut write = pin!(store.put(&key, permanent("new")));
    hold(write.as_mut());
    assert!(step(read.as_mut()).is_some(), "nothing holds the read");
    below.set(Gate::Open);
    assert!(write.await.expect(NO_FAULT).is_applied());
    shown(store, "a").await
}

/// The read is sent and answered by the store while the write is on its way, and ends after it.
async fn read_begins_within_a_write(store: &impl Store, below: &Below) -> Option<String> {
    put(store, "a", permanent("old")).await;
    let key = key("a");
    below.set(Gate::HoldBefore);
    let mut write = pin!(store.put(&key, permanent("new")));
    hold(write.as_mut());
    below.set(Gate::HoldReads);
    let mut read = pin!(store.get(&key));
    hold(read.as_mut());
    assert!(write.await.expect(NO_FAULT).is_applied());
    below.set(Gate::Open);
    assert_eq!(&*read.await.expect(NO_FAULT).expect("it was written").value, b"old");
    shown(store, "a").await
}

/// Of two writes the first to be applied is the last to be answered.
async fn answers_of_writes_cross(store: &impl Store, below: &Below) -> Option<String> {
    let key = key("a");
    below.set(Gate::HoldAfter);
    let mut first = pin!(store.put(&key, fenced("old")));
    hold(first.as_mut());
    let mut second = pin!(store.put(&key, fenced("new")));
    hold(second.as_mut());
    below.set(Gate::Open);
    assert!(second.await.expect(NO_FAULT).is_applied());
    assert!(first.await.expect(NO_FAULT).is_applied());
    shown(store, "a").await
}

/// A write is applied and its answer lost.
async fn answer_is_lost(store: &impl Store, below: &Below) -> Option<String> {
    put(store, "a", permanent("old")).await;
    assert_eq!(shown(store, "a").await.as_deref(), Some("old"));
    below.set(Gate::LoseAnswer);
    let unclear = store.put(&key("a"), permanent("new")).await;
    assert!(matches!(unclear, Err(StoreError::Unknown { .. })), "{unclear:?}");
    below.set(Gate::Open);
    shown(store, "a").await
}

/// A write is applied and its caller gone.
async fn caller_goes_away(store: &impl Store, below: &Below) -> Option<String> {
    put(store, "a", permanent("old")).await;
    assert_eq!(shown(store, "a").await.as_deref(), Some("old"));
    below.set(Gate::HoldAfter);
    let key = key("a");
    {
        let mut write = pin!(store.put(&key, permanent("new")));
        hold(write.as_mut());
    }
    below.set(Gate::Open);
    shown(store, "a").await
}

/// A batch is written around a read of one of its keys.
async fn read_around_a_batch(store: &impl Store, below: &Below) -> Option<String> {
    put(store, "a", permanent("old")).await;
    let key = key("a");
    below.set(Gate::HoldReads);
    let mut read = pin!(store.get(&key));
    hold(read.as_mut());
    let rows = vec![(crate::key("b"), permanent("new")), (key.clone(), permanent("new"))];
    let outcomes = store.put_batch(rows).await.expect(NO_FAULT);
    assert!(outcomes.iter().all(Outcome::is_applied));
    below.set(Gate::Open);
    assert!(read.await.expect(NO_FAULT).is_some());
    shown(store, "a").await
}

macro_rules! races {
    ($($race:ident),+ $(,)?) => {
        #[tokio::test]
        async fn a_cache_never_falls_behind_its_own_node() {
            $({
                let setup = setup();
                let shown = $race(&setup.store, &setup.below).await;
                assert_eq!(shown.as_deref(), Some("new"), stringify!($race));
            })+
        }

        /// Races in which the naive cache shows what is gone.
        async fn naive_fails() -> Vec<&'static str> {
            let mut failed = Vec::new();
            $({
                let (_, clock) = manual_clock();
                let below = GatedStore::new(inner_store(clock));
                let shown = $race(&NaiveCache::new(below.clone()), &below).await;
                if shown.as_deref() != Some("new") {
                    failed.push(stringify!($race));
                }
            })+
            failed
        }
    };
}

races![
    read_around_a_write,
    read_ends_within_a_write,
    read_begins_within_a_write,
    answers_of_writes_cross,
    answer_is_lost,
    caller_goes_away,
    read_around_a_batch,
];

#[tokio::test]
async fn the_races_catch_a_naive_cache() {
    let failed = naive_fails().await;
    let must = [
        "read_around_a_write",
        "read_begins_within_a_write",
        "answer_is_lost",
        "caller_goes_away",
        "read_around_a_batch",
    ];
    assert_eq!(failed, must);
}

/// What another node wrote between two reads is not shown and then taken back.
#[tokio::test]
async fn of_two_reads_at_once_the_older_answer_does_not_stay() {
    for newer_ends_first in [true, false] {
        let setup = setup();
        let (store, name) = (&setup.store, key("a"));
        put(&setup.other, "a", permanent("old")).await;
        setup.below.set(Gate::HoldReads);
        let mut older = pin!(store.get(&name));
        hold(older.as_mut());
        put(&setup.other, "a", permanent("new")).await;
        let mut newer = pin!(store.get(&name));
        hold(newer.as_mut());
        setup.below.set(Gate::Open);
        if newer_ends_first {
            assert_eq!(&*newer.await.unwrap().unwrap().value, b"new");
            assert_eq!(&*older.await.unwrap().unwrap().value, b"old");
        } else {
            assert_eq!(&*older.await.unwrap().unwrap().value, b"old");
            assert_eq!(&*newer.await.unwrap().unwrap().value, b"new");
        }
        assert_eq!(shown(store, "a").await.as_deref(), Some("new"));
    }
}

/// A write that was overtaken by another node's does not hide what a read beside it has shown.
#[tokio::test]
async fn a_read_of_what_came_after_a_write_is_not_taken_back() {
    for read_ends_first in [true, false] {
        let setup = setup();
        let (store, name) = (&setup.store, key("a"));
        setup.below.set(Gate::HoldAfter);
        let mut write = pin!(store.put(&name, fenced("mine")));
        hold(write.as_mut());
        put(&setup.other, "a", permanent("theirs")).await;
        setup.below.set(Gate::HoldReads);
        let mut read = pin!(store.get(&name));
        hold(read.as_mut());
        setup.below.set(Gate::Open);
        if read_ends_first {
            assert_eq!(&*read.await.unwrap().unwrap().value, b"theirs");
            assert!(write.await.unwrap().is_applied());
        } else {
            assert!(write.await.unwrap().is_applied());
            assert_eq!(&*read.await.unwrap().unwrap().value, b"theirs");
        }
        assert_eq!(shown(store, "a").await.as_deref(), Some("theirs"));
    }
}

/// Otherwise a stream of writes would leave nothing cached for good.
#[tokio::test]
async fn a_key_is_cached_again_after_every_kind_of_race() {
    let setup = setup();
    let store = &setup.store;
    read_around_a_write(store, &setup.below).await;
    answers_of_writes_cross(store, &setup.below).await;
    answer_is_lost(store, &setup.below).await;
    caller_goes_away(store, &setup.below).await;
    let before = shown(store, "a").await;
    put(&setup.other, "a", permanent("theirs").fenced(Fence(9))).await;
    assert_eq!(shown(store, "a").await, before, "nothing is cached any more");
}

/// Handles share one cache, whichever of them writes or reads.
#[tokio::test]
async fn a_clone_and_an_uncached_handle_keep_the_cache_right() {
    let setup = setup();
    let (store, clone, exact) = (&setup.store, setup.store.clone(), setup.store.uncached());
    put(store, "a", permanent("1")).await;
    assert_eq!(shown(&clone, "a").await.as_deref(), Some("1"));
    put(&exact, "a", permanent("2")).await;
    assert_eq!(shown(store, "a").await.as_deref(), Some("2"));
    put(&setup.other, "a", permanent("3")).await;
    assert_eq!(shown(store, "a").await.as_deref(), Some("2"), "not cached");
    assert_eq!(shown(&exact, "a").await.as_deref(), Some("3"), "the exact handle was served");
}
