//! Guarded calls: the swap carries the leader's fence, and a leader that was replaced gets nothing.

use wane::services::sequences::{LIMIT, Sequences, SequencesError};
use wane::store::Fence;

use super::scripted::{Act, ScriptedStore};
use super::{
    APP, Answer, assert_gapless, block, blocks, joined, key, settled, setup, spawned, stored_at,
};
use crate::gated::Gate;
use crate::{inner_store, manual_clock};

#[track_caller]
fn assert_fenced(answer: Answer, ours: u64, theirs: u64) {
    let error = answer.expect_err("it is fenced");
    let SequencesError::Fenced { fence, newer } = error else { panic!("{error:?}") };
    assert_eq!((fence, newer), (Fence(ours), Fence(theirs)));
}

#[tokio::test]
async fn a_guarded_call_stamps_the_sequence_and_shuts_lower_fences_out() {
    let it = setup();
    let guarded = async |fence| it.sequences.next_fenced("s", 1, None, Fence(fence)).await;
    assert_eq!(guarded(5).await.unwrap(), block(1, 1));
    assert_eq!(it.stamp().await, Some(Fence(5)));
    let swaps = it.swaps();
    assert_fenced(guarded(4).await, 4, 5);
    assert_eq!(it.swaps(), swaps, "it was seen before it was sent");
    assert_eq!(guarded(5).await.unwrap(), block(2, 1), "an equal fence passes");
    assert_eq!(guarded(6).await.unwrap(), block(3, 1), "a higher one passes");
    assert_eq!(it.stamp().await, Some(Fence(6)));
    assert_fenced(guarded(5).await, 5, 6);
    assert_eq!(it.sequences.show("s").await.unwrap(), Some(4));
}

#[tokio::test]
async fn calls_without_a_guard_pass_any_stamp_and_leave_it() {
    let it = setup();
    it.sequences.next_fenced("s", 1, None, Fence(5)).await.unwrap();
    assert_eq!(it.next(1).await, block(2, 1));
    assert_eq!(it.next_keyed(1, "k").await, block(3, 1));
    assert_eq!(it.stamp().await, Some(Fence(5)));
    let restarted = it.other_node();
    assert_fenced(restarted.next_fenced("s", 1, None, Fence(4)).await, 4, 5);
}

#[tokio::test]
async fn a_lower_fence_is_told_so_whatever_else_is_wrong() {
    let it = setup();
    it.put(stored_at(LIMIT - 8)).await;
    it.sequences.next_fenced("s", 7, Some(key("k")), Fence(5)).await.unwrap();
    // Remembered, used with another count, more than is left, and nothing else.
    for (count, text) in [(7, Some("k")), (8, Some("k")), (2, None), (1, None)] {
        let late = it.sequences.next_fenced("s", count, text.map(key), Fence(4)).await;
        assert_fenced(late, 4, 5);
    }
}

#[tokio::test]
async fn a_guarded_call_with_a_key_gives_the_same_block_again() {
    let it = setup();
    let guarded =
        async |fence| it.sequences.next_fenced("s", 3, Some(key("k")), Fence(fence)).await;
    assert_eq!(guarded(5).await.unwrap(), block(1, 3));
    assert_eq!(guarded(5).await.unwrap(), block(1, 3));
    assert_eq!(guarded(6).await.unwrap(), block(1, 3), "also to the next leader");
    assert_eq!(it.stamp().await, Some(Fence(5)), "nothing was written for it");
    assert_eq!(it.next_keyed(3, "k").await, block(1, 3));
}

#[tokio::test]
async fn guarded_calls_are_combined_with_no_other() {
    let it = setup();
    it.gate.set(Gate::HoldBefore);
    let first = spawned(&it.sequences, 1, None);
    settled().await;
    let calls: Vec<_> = (0..12)
        .map(|place| match place % 3 {
            0 => {
                let sequences = it.sequences.clone();
                tokio::spawn(async move { sequences.next_fenced("s", 1, None, Fence(5)).await })
            }
            _ => spawned(&it.sequences, 1, None),
        })
        .collect();
    settled().await;
    it.gate.set(Gate::Open);
    let given = blocks(joined([first].into_iter().chain(calls)).await);
    assert!(given.is_sorted_by_key(|block| block.first), "in the order in which they came");
    assert_gapless(given, 14);
    assert_eq!(it.swaps(), 1 + 4 + 4, "four guarded ones, and four pairs between them");
}

#[tokio::test]
async fn who_is_fenced_fails_nobody_else() {
    let it = setup();
    it.sequences.next_fenced("s", 1, None, Fence(5)).await.unwrap();
    let sequences = it.sequences.clone();
    let late = tokio::spawn(async move { sequences.next_fenced("s", 1, None, Fence(4)).await });
    let calls = [spawned(&it.sequences, 1, None), late, spawned(&it.sequences, 1, None)];
    let mut answers = joined(calls).await;
    assert_fenced(answers.remove(1), 4, 5);
    assert_eq!(blocks(answers), [block(2, 1), block(3, 1)]);
}

/// The swap is on its way when the later leader takes numbers: told by the refusal, and not tried
/// again.
#[tokio::test]
async fn a_guarded_call_that_a_later_leader_overtakes_is_told_so_at_once() {
    let (_, clock) = manual_clock();
    let store = ScriptedStore::new(inner_store(clock.clone()), clock.clone());
    let sequences = Sequences::new(store.clone(), clock).of(APP);
    sequences.next_fenced("s", 1, None, Fence(4)).await.unwrap();
    store.play([Act::Overtaken(Fence(5))]);
    assert_fenced(sequences.next_fenced("s", 1, None, Fence(4)).await, 4, 5);
    assert_eq!(store.writes(), 2);
    store.play([Act::Overtaken(Fence(6))]);
    let later = sequences.next_fenced("s", 1, None, Fence(6)).await.unwrap();
    assert_eq!(later, block(12, 1), "an equal one goes on after it");
}
