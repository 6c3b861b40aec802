//! Idempotency keys: the same block for the same key, while it is among the last sixteen.

use wane::services::sequences::{Block, REMEMBERED, SequencesError};
use wane::store::Store;

use super::{assert_gapless, block, blocks, joined, key, settled, setup, spawned, stored_key};
use crate::gated::Gate;

#[tokio::test]
async fn a_key_used_again_gives_the_same_block_without_a_swap() {
    let it = setup();
    let first = it.next_keyed(10, "k").await;
    it.next(1).await;
    let swaps = it.swaps();
    for _ in 0..3 {
        assert_eq!(it.next_keyed(10, "k").await, first);
    }
    let calls = (0..20).map(|_| spawned(&it.sequences, 10, Some(key("k"))));
    assert!(blocks(joined(calls).await).iter().all(|block| *block == first));
    assert_eq!(it.swaps(), swaps);
    assert_eq!(it.other_node().next("s", 10, Some(key("k"))).await.unwrap(), first, "elsewhere");
    assert_eq!(it.next(1).await, block(12, 1));
}

#[tokio::test]
async fn a_key_used_again_with_another_count_is_refused() {
    let it = setup();
    it.next_keyed(10, "k").await;
    for count in [9, 11] {
        let reused = it.sequences.next("s", count, Some(key("k"))).await.unwrap_err();
        assert!(matches!(reused, SequencesError::KeyReused { count: 10 }), "{reused:?}");
        assert!(reused.to_string().contains("use another key"), "{reused}");
    }
    assert_eq!(it.sequences.show("s").await.unwrap(), Some(11), "nothing was taken");
    assert_eq!(it.sequences.next("other", 9, Some(key("k"))).await.unwrap(), block(1, 9));
}

#[tokio::test]
async fn the_last_sixteen_keys_are_remembered() {
    let it = setup();
    for number in 0..=16 {
        it.next_keyed(1, &number.to_string()).await;
        it.next(1).await;
    }
    for number in 1..=16 {
        assert_eq!(it.next_keyed(1, &number.to_string()).await, block(2 * number + 1, 1));
    }
    assert_eq!(it.next_keyed(1, "0").await, block(35, 1), "pushed out by the seventeenth");
    assert_eq!(it.next_keyed(1, "2").await, block(5, 1));
    assert_eq!(it.next_keyed(1, "1").await, block(36, 1), "pushed out in turn");
}

#[tokio::test]
async fn callers_with_one_key_share_a_block_of_one_swap() {
    let it = setup();
    let mut calls: Vec<_> = (0..10).map(|_| spawned(&it.sequences, 3, Some(key("k")))).collect();
    calls.push(spawned(&it.sequences, 1, None));
    let mut expected = vec![block(1, 3); 10];
    expected.push(block(4, 1));
    assert_eq!(blocks(joined(calls).await), expected);
    assert_eq!(it.swaps(), 1);
}

#[tokio::test]
async fn one_key_with_two_counts_in_one_round_is_refused_to_the_second() {
    let it = setup();
    let calls = [3, 4, 3].map(|count| spawned(&it.sequences, count, Some(key("k"))));
    let answers = joined(calls).await;
    let is_reused =
        |error: &SequencesError| matches!(error, SequencesError::KeyReused { count: 3 });
    assert_eq!(answers[0].as_ref().unwrap(), &block(1, 3));
    assert!(is_reused(answers[1].as_ref().unwrap_err()), "{answers:?}");
    assert_eq!(answers[2].as_ref().unwrap(), &block(1, 3));
    assert_eq!(it.swaps(), 1);
}

/// Else a key could be forgotten before its caller has had a chance to ask again.
#[tokio::test]
async fn no_key_is_pushed_out_by_its_own_swap() {
    let it = setup();
    let keyed = |number: u64| spawned(&it.sequences, 1, Some(key(&number.to_string())));
    for number in 100..116 {
        it.next_keyed(1, &number.to_string()).await;
    }
    let before = it.swaps();
    let calls: Vec<_> = (0..40).map(keyed).chain([spawned(&it.sequences, 1, None)]).collect();
    let given = blocks(joined(calls).await);
    assert_eq!(it.swaps() - before, 3, "16, 16 and 8 keyed callers");
    let mine = (0..16).map(|number| block(number + 1, 1)).collect::<Vec<_>>();
    assert_gapless([mine, given.clone()].concat(), 58);
    for number in (40 - REMEMBERED as u64)..40 {
        assert_eq!(it.next_keyed(1, &number.to_string()).await, given[number as usize]);
    }
}

/// Sixteen are remembered, the oldest asks again beside a new one: it was among the last sixteen
/// when it asked.
#[tokio::test]
async fn a_key_is_not_pushed_out_by_those_it_shares_a_swap_with() {
    let it = setup();
    for number in 0..16 {
        it.next_keyed(1, &number.to_string()).await;
    }
    let calls = ["new", "0", "newer", "1"].map(|text| spawned(&it.sequences, 1, Some(key(text))));
    let expected = [block(17, 1), block(1, 1), block(18, 1), block(2, 1)];
    assert_eq!(blocks(joined(calls).await), expected);
}

#[tokio::test]
async fn callers_without_a_key_ride_along_in_any_number() {
    let it = setup();
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let key = (number % 20 == 0).then(|| key(&number.to_string()));
            spawned(&it.sequences, 2, key)
        })
        .collect();
    let given: Vec<Block> = blocks(joined(calls).await);
    assert_gapless(given, 401);
    assert_eq!(it.swaps(), 1);
}

#[tokio::test]
async fn two_nodes_give_one_block_for_one_key() {
    let it = setup();
    it.next(1).await;
    let (here, there) = (it.sequences.clone(), it.other_node());
    for round in 0..20 {
        let text = format!("round {round}").replace(' ', "-");
        let calls = [spawned(&here, 5, Some(key(&text))), spawned(&there, 5, Some(key(&text)))];
        let given = blocks(joined(calls).await);
        assert_eq!(given[0], given[1], "round {round}");
    }
    assert_eq!(it.sequences.show("s").await.unwrap(), Some(102));
}

/// A node that remembers more than the record does must not answer from that: the key may have been
/// used again elsewhere since.
#[tokio::test]
async fn a_key_is_given_what_the_record_says_and_not_what_a_node_remembers() {
    let it = setup();
    it.gate.set(Gate::HoldAfter);
    let [first, again] = [(); 2].map(|()| spawned(&it.sequences, 1, Some(key("k"))));
    settled().await;
    let late = spawned(&it.sequences, 1, Some(key("k")));
    let other = it.other_node();
    for number in 0..16 {
        other.next("s", 1, Some(key(&number.to_string()))).await.unwrap();
    }
    let anew = other.next("s", 1, Some(key("k"))).await.unwrap();
    assert_eq!(anew, block(18, 1), "pushed out, and used again");
    it.gate.set(Gate::Open);
    assert_eq!(blocks(joined([first, again, late]).await), [block(1, 1), block(1, 1), anew]);
}

#[tokio::test]
async fn the_record_does_not_tell_the_keys() {
    let it = setup();
    it.next_keyed(1, "secret-customer-name").await;
    let record = it.gate.inner.get(&stored_key("s")).await.unwrap().expect("just taken from");
    let text = String::from_utf8_lossy(&record.value).into_owned();
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(record.value.len(), 25 + 28);
}
