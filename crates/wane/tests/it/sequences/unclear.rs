//! Swaps that fail, that others overtake, or whose outcome nobody told.

use std::iter::repeat_n;

use wane::services::sequences::{AppSequences, Block, Sequences, SequencesError};
use wane::store::{Fence, StoreError};

use super::scripted::{Act, ScriptedStore};
use super::{APP, assert_gapless, block, blocks, joined, key, setup, spawned};
use crate::gated::Gate;
use crate::{inner_store, manual_clock};

/// A sequence that five numbers were taken from, and what happens to the writes that follow.
async fn played(
    acts: impl IntoIterator<Item = Act>,
) -> (AppSequences<ScriptedStore>, ScriptedStore) {
    let (_, clock) = manual_clock();
    let store = ScriptedStore::new(inner_store(clock.clone()), clock.clone());
    let sequences = Sequences::new(store.clone(), clock).of(APP);
    assert_eq!(sequences.next("s", 5, None).await.expect("it answers"), block(1, 5));
    store.play(acts);
    (sequences, store)
}

/// What a caller without a key and one with a key are given by one round.
async fn two_callers(sequences: &AppSequences<ScriptedStore>) -> [Block; 2] {
    let calls = [spawned(sequences, 2, None), spawned(sequences, 3, Some(key("k")))];
    let blocks = blocks(joined(calls).await);
    blocks.try_into().expect("two callers")
}

fn is_unknown(error: &SequencesError) -> bool {
    matches!(error, SequencesError::Store(StoreError::Unknown { .. }))
}

#[tokio::test]
async fn a_lost_answer_is_looked_for_and_leaves_no_gap() {
    let it = setup();
    it.gate.set(Gate::LoseAnswer);
    let mut given = Vec::new();
    for _ in 0..3 {
        let calls: Vec<_> = (0..8).map(|_| spawned(&it.sequences, 1, None)).collect();
        given.extend(blocks(joined(calls).await));
    }
    assert_gapless(given, 25);
    assert_eq!(it.swaps(), 3);
}

#[tokio::test]
async fn a_swap_that_never_arrives_is_tried_again_and_leaves_no_gap() {
    let (sequences, store) = played([Act::Lost, Act::Lost]).await;
    assert_eq!(two_callers(&sequences).await, [block(6, 2), block(8, 3)]);
    assert_eq!(store.writes(), 4);
}

/// The one thing that leaves a gap, and not for who has a key.
#[tokio::test]
async fn a_swap_that_was_applied_and_overtaken_unseen_leaves_a_gap_to_those_without_a_key() {
    let (sequences, _) = played([Act::UnansweredThenOvertaken]).await;
    assert_eq!(
        two_callers(&sequences).await,
        [block(16, 2), block(8, 3)],
        "11..16 are the other's"
    );
    assert_eq!(sequences.show("s").await.unwrap(), Some(18));
}

#[tokio::test]
async fn a_swap_that_arrives_late_gives_no_number_twice() {
    let (sequences, store) = played([Act::Late]).await;
    assert_eq!(two_callers(&sequences).await, [block(11, 2), block(8, 3)]);
    assert_eq!(store.writes(), 4, "the late one, the one it refused, and the one after");
}

#[tokio::test]
async fn a_late_swap_that_was_overtaken_does_nothing() {
    let (sequences, _) = played([Act::Late, Act::Overtaken(Fence::NONE)]).await;
    assert_eq!(
        two_callers(&sequences).await,
        [block(11, 2), block(13, 3)],
        "6..11 are the other's"
    );
    assert_eq!(sequences.show("s").await.unwrap(), Some(16), "no gap");
}

#[tokio::test]
async fn a_swap_that_stays_unclear_is_unknown_to_each_caller() {
    let (sequences, store) = played(repeat_n(Act::Lost, 1_000)).await;
    let calls = [None, Some(key("k")), None].map(|key| spawned(&sequences, 1, key));
    for answer in joined(calls).await {
        let error = answer.unwrap_err();
        assert!(is_unknown(&error), "{error:?}");
        assert!(error.to_string().contains("no answer came"), "the cause is told: {error}");
    }
    assert!(store.writes() < 100, "it ends: {}", store.writes());
    store.play([]);
    assert_eq!(sequences.next("s", 1, None).await.unwrap(), block(6, 1));
}

#[tokio::test]
async fn a_swap_that_cannot_be_looked_for_is_unknown_and_a_key_finds_it() {
    let (sequences, store) = played([Act::LostUnseen]).await;
    let unseen = sequences.next("s", 1, None).await.unwrap_err();
    assert!(is_unknown(&unseen), "{unseen:?}");
    assert_eq!(store.writes(), 2, "nothing is tried again in the dark");
    assert_eq!(sequences.next("s", 1, None).await.unwrap(), block(6, 1));
}

#[tokio::test]
async fn an_unavailable_store_is_told_to_each_caller_as_what_it_is() {
    let (sequences, store) = played([Act::Unavailable]).await;
    let calls: Vec<_> = (0..5).map(|_| spawned(&sequences, 1, None)).collect();
    for answer in joined(calls).await {
        let error = answer.unwrap_err();
        let is_right = matches!(
            error,
            SequencesError::Store(StoreError::Unavailable { backend: "scripted", .. })
        );
        assert!(is_right, "{error:?}");
        assert_eq!(error.to_string(), "scripted is unavailable: nobody is there");
    }
    assert_eq!(store.writes(), 2, "no hidden retries");
    assert_eq!(sequences.next("s", 1, None).await.unwrap(), block(6, 1), "none was taken");
}

/// "Unavailable" says that nothing was applied, and the try before may have been.
#[tokio::test]
async fn unavailable_after_an_unclear_try_is_unknown() {
    let (sequences, _) = played([Act::Late, Act::Unavailable]).await;
    let error = sequences.next("s", 1, Some(key("k"))).await.unwrap_err();
    assert!(is_unknown(&error), "{error:?}");
    assert_eq!(sequences.next("s", 1, Some(key("k"))).await.unwrap(), block(6, 1));
    assert_eq!(sequences.next("s", 1, None).await.unwrap(), block(7, 1));
}

#[tokio::test]
async fn a_refused_swap_goes_on_from_what_the_refusal_tells() {
    let it = setup();
    let other = it.other_node();
    it.gate.set(Gate::HoldBefore);
    let calls: Vec<_> = (0..4).map(|_| spawned(&it.sequences, 1, None)).collect();
    super::settled().await;
    assert_eq!(other.next("s", 10, None).await.unwrap(), block(1, 10));
    it.gate.set(Gate::Open);
    assert_eq!(blocks(joined(calls).await)[0], block(11, 1));
    assert_eq!((it.reads(), it.swaps()), (1, 2));
}

#[tokio::test]
async fn a_sequence_that_others_never_leave_alone_is_contended() {
    let (sequences, store) = played(repeat_n(Act::Overtaken(Fence::NONE), 1_000)).await;
    let calls = [spawned(&sequences, 1, None), spawned(&sequences, 1, Some(key("k")))];
    for answer in joined(calls).await {
        let error = answer.unwrap_err();
        assert!(matches!(error, SequencesError::Contended), "{error:?}");
    }
    let tries = store.writes() - 1;
    assert!((10..1_000).contains(&tries), "{tries} tries");
    store.play([]);
    let given = sequences.next("s", 1, None).await.unwrap();
    assert_eq!(given.first, 6 + 5 * tries, "only the other node has taken any");
}

#[tokio::test]
async fn a_few_refusals_are_borne() {
    let (sequences, _) = played(repeat_n(Act::Overtaken(Fence::NONE), 20)).await;
    assert_eq!(two_callers(&sequences).await, [block(106, 2), block(108, 3)]);
}
