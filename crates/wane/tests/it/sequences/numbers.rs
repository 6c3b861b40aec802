//! Numbers and limits: where they start and end, and what is refused untouched.

use std::sync::Arc;

use wane::services::ClusterAppId;
use wane::services::sequences::{
    IdempotencyKey, LIMIT, MAX_COUNT, MAX_NAME, Sequences, SequencesError,
};
use wane::store::{PageLimit, Remaining, Store, StoreError};

use super::{APP, block, blocks, joined, key, setup, spawned, stored_at, stored_key};
use crate::{inner_store, manual_clock};

#[tokio::test]
async fn numbers_start_at_one_and_blocks_follow_each_other() {
    let it = setup();
    assert_eq!(it.next(1).await, block(1, 1));
    assert_eq!(it.next(100).await, block(2, 100));
    assert_eq!(it.next(1).await.numbers(), 102..103);
    assert_eq!(it.sequences.show("s").await.unwrap(), Some(103));
}

#[tokio::test]
async fn showing_a_sequence_takes_nothing() {
    let it = setup();
    assert_eq!(it.sequences.show("s").await.unwrap(), None, "nobody took from it");
    it.next(1).await;
    for _ in 0..2 {
        assert_eq!(it.sequences.show("s").await.unwrap(), Some(2));
    }
    assert_eq!(it.swaps(), 1);
}

#[tokio::test]
async fn names_counts_and_keys_beyond_the_limits_are_refused_untouched() {
    let it = setup();
    let invalid = |result: Result<_, SequencesError>, says: &str| {
        let error = result.map(|_| ()).unwrap_err();
        assert!(matches!(error, SequencesError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    };
    for name in ["", &"n".repeat(MAX_NAME + 1), "\0name"] {
        invalid(it.sequences.next(name, 1, None).await, "name: give 1 to 1024 bytes");
        assert!(it.sequences.show(name).await.is_err());
    }
    for count in [0, MAX_COUNT + 1, u64::MAX] {
        invalid(it.sequences.next("s", count, None).await, "outside of 1 to 1000000");
        invalid(it.sequences.next("s", count, Some(key("k"))).await, "count:");
    }
    for text in ["", " ", "a b", "tab\t", "line\n", "\u{e9}", "\u{7f}", &"k".repeat(256)] {
        let error = IdempotencyKey::new(text).unwrap_err();
        assert!(error.to_string().contains("Idempotency-Key: give 1 to 255 bytes"), "{error}");
    }
    assert_eq!((it.reads(), it.swaps(), it.all.at_work()), (0, 0, 0));
}

#[tokio::test]
async fn the_limits_themselves_are_legal() {
    let it = setup();
    let longest = "n".repeat(MAX_NAME);
    let taken = it.sequences.next(&longest, MAX_COUNT, Some(key(&"~".repeat(255)))).await.unwrap();
    assert_eq!(taken, block(1, MAX_COUNT));
    assert_eq!(it.sequences.show(&longest).await.unwrap(), Some(MAX_COUNT + 1));
    assert_eq!(it.sequences.next("!", 1, Some(key("!"))).await.unwrap(), block(1, 1));
}

#[tokio::test]
async fn sequences_of_other_names_and_applications_are_others() {
    let (_, clock) = manual_clock();
    let store = inner_store(Arc::clone(&clock));
    let all = Sequences::new(store.clone(), clock);
    for app in [1, 2] {
        for name in ["a", "b"] {
            let taken = all.of(ClusterAppId(app)).next(name, 7, None).await.unwrap();
            assert_eq!(taken, block(1, 7));
        }
    }
    let rows = store.scan(None, PageLimit::MAX).await.unwrap().rows;
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.key.partition()[..4] == [0, 0, 0, 11]));
}

#[tokio::test]
async fn the_record_is_permanent_and_numbers_go_on_after_a_restart() {
    let it = setup();
    it.next(5).await;
    let life = it.gate.inner.query_ttl(&stored_key("s")).await.unwrap();
    assert_eq!(life, Remaining::Permanent);
    let restarted = Sequences::new(it.below.clone(), it.clock.clone()).of(APP);
    assert_eq!(restarted.next("s", 1, None).await.unwrap(), block(6, 1));
    assert_eq!(it.next(1).await, block(7, 1), "the first one takes note");
}

#[tokio::test]
async fn the_last_number_is_the_last() {
    let it = setup();
    it.put(stored_at(LIMIT - 5)).await;
    let exhausted = it.sequences.next("s", 6, None).await.unwrap_err();
    assert!(matches!(exhausted, SequencesError::Exhausted { count: 6 }), "{exhausted}");
    assert_eq!(it.swaps(), 0, "nothing was taken");
    assert_eq!(it.next(5).await.numbers(), LIMIT - 5..LIMIT);
    let exhausted = it.sequences.next("s", 1, Some(key("k"))).await.unwrap_err();
    assert!(exhausted.to_string().contains("another name"), "it says what to do: {exhausted}");
    assert_eq!(it.sequences.show("s").await.unwrap(), Some(LIMIT));
}

#[tokio::test]
async fn who_asks_for_more_than_is_left_does_not_fail_others() {
    let it = setup();
    it.put(stored_at(LIMIT - 5)).await;
    let calls = [6, 4, 2, 1].map(|count| spawned(&it.sequences, count, None));
    let answers: Vec<_> = joined(calls).await.into_iter().map(Result::ok).collect();
    assert_eq!(answers, [None, Some(block(LIMIT - 5, 4)), None, Some(block(LIMIT - 1, 1))]);
    assert_eq!(it.swaps(), 1);
}

#[tokio::test]
async fn a_record_that_is_no_sequence_is_corrupt_to_everyone() {
    let it = setup();
    for bytes in [&b""[..], b"not one", &[1; 25], &stored_at(LIMIT + 1), &[2; 30]] {
        it.put(bytes.to_vec()).await;
        let is_corrupt = |error: &SequencesError| {
            matches!(error, SequencesError::Store(StoreError::Corrupt { key, .. })
                if *key == stored_key("s"))
        };
        for answer in joined((0..3).map(|_| spawned(&it.sequences, 1, None))).await {
            assert!(is_corrupt(answer.as_ref().unwrap_err()), "{answer:?}");
        }
        assert!(is_corrupt(&it.sequences.show("s").await.unwrap_err()));
    }
    assert_eq!(it.swaps(), 0, "nothing is written over what cannot be read");
    it.put(stored_at(50)).await;
    assert_eq!(blocks(joined([spawned(&it.sequences, 1, None)]).await), [block(50, 1)]);
}
