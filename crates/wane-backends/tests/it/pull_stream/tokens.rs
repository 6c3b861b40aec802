//! A token is answered the same on every node: again, at once, and while keys are rotated.

use wane::services::pull_stream::Refusal;

use super::stage::{
    Stage, fresh_ispb, ids, keys, live_keys, many, on_every_backend, single, unhurried,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_on_another_node_is_given_the_same_bytes() {
    on_every_backend(a_retry_elsewhere_is_alike).await;
}

pub(super) async fn a_retry_elsewhere_is_alike(it: &Stage) {
    let (ispb, [one, other]) = (fresh_ispb(), it.two());
    it.take_in(&[one.clone(), other.clone()], ispb, 45).await;
    let (many, single) = (many(), single());
    let first = it.insist(async || one.start(ispb, &many).await).await;
    let second = it.insist(async || one.next(ispb, &first.next, &many).await).await;
    assert_eq!(ids(&second).len(), 10, "{}", it.backend);
    let newcomer = it.node(1, &keys("a", None), unhurried());
    for retried in [&other, &newcomer, &one, &other] {
        let again = it.insist(async || retried.next(ispb, &first.next, &single).await).await;
        assert_eq!(again, second, "{}: the same messages, form and token", it.backend);
        let bodies = [&again, &second].map(|pulled| pulled.batch.as_ref().map(|b| b.body()));
        assert_eq!(bodies[0], bodies[1], "{}: byte by byte", it.backend);
    }
    let third = it.insist(async || other.next(ispb, &second.next, &single).await).await;
    assert_eq!(ids(&third).len(), 1, "{}", it.backend);
    for node in [&one, &other] {
        let old = it.answer(async || node.next(ispb, &first.next, &many).await).await;
        assert_eq!(old, Err(Refusal::OutOfOrder), "{}", it.backend);
        let forged = format!("{}A", third.next);
        let forged = it.answer(async || node.next(ispb, &forged, &many).await).await;
        assert_eq!(forged, Err(Refusal::Tampered), "{}", it.backend);
        let foreign = it.answer(async || node.next(fresh_ispb(), &third.next, &many).await).await;
        assert_eq!(foreign, Err(Refusal::Foreign), "{}", it.backend);
    }
    let again = it.insist(async || one.next(ispb, &second.next, &many).await).await;
    assert_eq!(again, third, "{}: the stream is where it was", it.backend);
    it.audited(&[one, other], ispb, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_used_at_once_on_two_nodes_has_one_answer() {
    on_every_backend(a_raced_token_has_one_answer).await;
}

pub(super) async fn a_raced_token_has_one_answer(it: &Stage) {
    let rounds = if it.is_slow { 8 } else { 40 };
    let (ispb, [one, other]) = (fresh_ispb(), it.two());
    // A lost start keeps the first batch for itself.
    it.take_in(&[one.clone(), other.clone()], ispb, 10 * (rounds + 4)).await;
    let (many, single) = (many(), single());
    let mut pulled = it.insist(async || one.start(ispb, &many).await).await;
    for round in 0..rounds {
        let (mine, theirs) = tokio::join!(
            it.insist(async || one.next(ispb, &pulled.next, &many).await),
            it.insist(async || other.next(ispb, &pulled.next, &single).await),
        );
        assert!(mine.batch.is_some(), "{}: nothing in round {round}", it.backend);
        assert_eq!(mine, theirs, "{}: round {round}", it.backend);
        assert_ne!(ids(&mine), ids(&pulled), "{}: and it went on", it.backend);
        pulled = mine;
    }
    it.audited(&[one, other], ispb, rounds + 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_in_flight_survive_a_rotation_from_node_to_node() {
    on_every_backend(async |it| rotated(it, true).await).await;
}

/// Rotates the keys of two nodes while a reader goes to and fro between them. The new key is known
/// everywhere before any node signs with it, unless it is not `announced`.
pub(super) async fn rotated(it: &Stage, announced: bool) {
    let ispb = fresh_ispb();
    let sources = [keys("a", None), keys("a", None)];
    let nodes = [0, 1].map(|number| it.node(number, &sources[number], unhurried()));
    it.take_in(&nodes, ispb, 100).await;
    let (many, single) = (many(), single());
    let mut pulled = it.insist(async || nodes[0].start(ispb, &many).await).await;
    let announcing = [("a", Some("b"), 0), ("a", Some("b"), 1)];
    let steps = [("b", Some("a"), 0), ("b", Some("a"), 1)];
    let steps = announcing.into_iter().filter(|_| announced).chain(steps);
    for (step, (current, previous, at)) in steps.enumerate() {
        let before =
            it.insist(async || nodes[step % 2].next(ispb, &pulled.next, &many).await).await;
        sources[at].replace(live_keys(current, previous));
        // What was answered before is answered the same, and what was issued before is good.
        for node in &nodes {
            let again = it.insist(async || node.next(ispb, &pulled.next, &single).await).await;
            assert_eq!(again, before, "{}: signed as before", it.backend);
        }
        // What the one signs that was just told is good on the other.
        let [told, other] = [&nodes[at], &nodes[1 - at]];
        let signed = it.insist(async || told.next(ispb, &before.next, &single).await).await;
        pulled = it.insist(async || other.next(ispb, &signed.next, &single).await).await;
        assert_eq!(ids(&pulled).len(), 1, "{}", it.backend);
    }
    // Once its key is gone, a token is nobody's.
    let old = it.insist(async || nodes[0].start(ispb, &single).await).await;
    for source in &sources {
        source.replace(live_keys("d", Some("c")));
    }
    let gone = it.answer(async || nodes[1].next(ispb, &old.next, &single).await).await;
    assert_eq!(gone, Err(Refusal::Tampered), "{}", it.backend);
}
