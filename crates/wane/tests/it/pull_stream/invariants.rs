//! The invariants of the design, sections 2.1 and 2.6 of the seed, under their own names.

use super::*;
use wane::services::pull_stream::{Action, Chain, Verdict};

#[tokio::test(start_paused = true)]
async fn fresh_cursor_consumption() {
    let node = setup().node();
    let known = ingest(&node, 30).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(ids(&first), known[..10], "up to ten messages, in order");
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    assert_eq!(ids(&second), known[10..20], "the first use of a token is always good");
    assert_ne!(second.next, first.next, "and advances the cursor");
    let third = node.next(ispb(), &second.next, &many()).await.unwrap();
    assert_eq!(ids(&third), known[20..]);
}

#[tokio::test(start_paused = true)]
async fn expired_cursor_rejection() {
    let node = setup().node();
    let known = ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    true_sleep(TOKEN_LIFE + SECOND).await;
    let answer = node.next(ispb(), &first.next, &many()).await;
    let told = answer.as_ref().unwrap_err().to_string();
    assert!(told.contains("start again at stream/start"), "{told}");
    assert_eq!(refusal(answer), Refusal::Expired);
    let again = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(ids(&again), known[..10], "what was not acknowledged comes again, in order");
}

#[tokio::test(start_paused = true)]
async fn replay_after_failure() {
    let setup = setup();
    let (node, other) = (setup.node(), setup.node());
    ingest(&node, 25).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    for retried in [&node, &other, &setup.node()] {
        let again = retried.next(ispb(), &first.next, &single()).await.unwrap();
        assert_eq!(again, second, "the same messages in the same form, and the same token");
        let (one, two) = (again.batch.unwrap().body(), second.batch.as_ref().unwrap().body());
        assert_eq!(one, two, "byte by byte");
    }
    let third = node.next(ispb(), &second.next, &many()).await.unwrap();
    assert_eq!(ids(&third).len(), 5, "acknowledged by the next token");
    assert_eq!(refusal(node.next(ispb(), &first.next, &many()).await), Refusal::OutOfOrder);
}

#[tokio::test(start_paused = true)]
async fn concurrency_guardrail() {
    let setup = setup();
    let nodes = [setup.node(), setup.node()];
    ingest(&nodes[0], 70).await;
    for reader in 0..6 {
        assert_eq!(ids(&nodes[reader % 2].start(ispb(), &many()).await.unwrap()).len(), 10);
    }
    let before = nodes[0].status(ispb()).await.unwrap();
    for node in &nodes {
        let refused = refusal(node.start(ispb(), &many()).await);
        let Refusal::TooManyReaders { retry_after } = refused else { panic!("{refused:?}") };
        assert!(retry_after <= LEASE && !retry_after.is_zero());
    }
    assert_eq!(nodes[0].status(ispb()).await.unwrap(), before, "the cursor did not move");
    assert_eq!((before.live_readers, before.in_flight), (6, 60));
}

#[tokio::test(start_paused = true)]
async fn out_of_order_token_detection() {
    let node = setup().node();
    let known = ingest(&node, 50).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    let third = node.next(ispb(), &second.next, &many()).await.unwrap();
    let fourth = node.next(ispb(), &third.next, &many()).await.unwrap();
    assert_eq!(refusal(node.next(ispb(), &first.next, &many()).await), Refusal::OutOfOrder);
    assert_eq!(
        refusal(node.end(ispb(), &first.next, &Client::default()).await),
        Refusal::OutOfOrder
    );
    let fifth = node.next(ispb(), &fourth.next, &many()).await.unwrap();
    assert_eq!(ids(&fifth), known[40..], "and the stream goes on where it was");
}

#[tokio::test(start_paused = true)]
async fn expired_tokens_are_told_by_their_expiry_and_by_the_record() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 10).await;
    let by_time = node.start(ispb(), &many()).await.unwrap();
    true_sleep(TOKEN_LIFE + SECOND).await;
    assert_eq!(refusal(node.next(ispb(), &by_time.next, &many()).await), Refusal::Expired);
    let by_record = node.start(ispb(), &many()).await.unwrap();
    true_sleep(LEASE).await;
    for _ in 0..6 {
        // Whoever comes now takes the slots whose leases have ended.
        node.start(ispb(), &single()).await.unwrap();
    }
    assert_eq!(refusal(node.next(ispb(), &by_record.next, &many()).await), Refusal::Expired);
}

#[tokio::test(start_paused = true)]
async fn messages_stay_undelivered_until_the_next_token_is_used() {
    let node = setup().node();
    let known = ingest(&node, 10).await;
    let lost = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(node.status(ispb()).await.unwrap().in_flight, 10);
    true_sleep(LEASE).await;
    let found = node.start(ispb(), &many()).await.unwrap();
    assert_eq!(ids(&found), known, "to another reader, once the lease has ended");
    assert_eq!(refusal(node.next(ispb(), &lost.next, &many()).await), Refusal::Expired);
    node.end(ispb(), &found.next, &Client::default()).await.unwrap();
    let status = node.status(ispb()).await.unwrap();
    assert_eq!((status.in_flight, status.requeued, status.live_readers), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn every_token_that_is_issued_or_used_is_audited_with_hash_time_and_client() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    node.end(ispb(), &second.next, &Client::new("closer").unwrap()).await.unwrap();
    true_sleep(SECOND).await;
    let page = node.audit(ispb(), Chain::Transitions, 0).await.unwrap();
    let told: Vec<_> = page
        .entries
        .iter()
        .map(|entry| (entry.action, entry.verdict, entry.used_hash(), entry.issued_hash()))
        .collect();
    let (one, two) = (Some(token_hash(&first.next)), Some(token_hash(&second.next)));
    assert_eq!(
        told,
        [
            (Action::Start, Verdict::Delivered, None, one.clone()),
            (Action::Next, Verdict::Delivered, one, two.clone()),
            (Action::End, Verdict::Done, two, None),
        ]
    );
    assert_eq!(page.entries[2].who.as_str(), "closer");
    assert!(page.entries.iter().all(|entry| entry.at > 0));
}

/// Checked without the store: far under the 20 us of the design, and under the seed's 3 ms.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_ours_costs_no_read_and_is_one_verdict() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 10).await;
    let good = node.start(ispb(), &many()).await.unwrap().next;
    let state = node.status(ispb()).await.unwrap();
    let mut parts: Vec<&str> = good.split('.').collect();
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"PI-PULL-NEXT","kid":"a"}"#);
    let flipped = good.replacen('A', "B", 1);
    parts[0] = &header;
    let wrong = ["", "a.b.c", &good[1..], &good[..good.len() - 1], &flipped, &parts.join(".")];
    for token in wrong {
        assert_eq!(refusal(node.next(ispb(), token, &many()).await), Refusal::Tampered, "{token}");
        assert_eq!(
            refusal(node.end(ispb(), token, &Client::default()).await),
            Refusal::Tampered,
            "{token}"
        );
    }
    let other = "12345678".parse().unwrap();
    assert_eq!(refusal(node.next(other, &good, &many()).await), Refusal::Foreign);
    assert_eq!(node.status(ispb()).await.unwrap(), state, "nothing was changed");
    let remarks = node.audit(ispb(), Chain::Remarks, 0).await.unwrap();
    assert_eq!(remarks.entries.len(), 2 * wrong.len(), "each of them was remarked on");
}

#[tokio::test(start_paused = true)]
async fn tokens_in_flight_survive_a_rotation() {
    let setup = setup();
    let (node, other) = (setup.node(), setup.node());
    ingest(&node, 40).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    setup.keys.rotate(token_key("b")).unwrap();
    assert_eq!(other.next(ispb(), &first.next, &many()).await.unwrap(), second, "signed as before");
    let third = other.next(ispb(), &second.next, &many()).await.unwrap();
    setup.keys.rotate(token_key("c")).unwrap();
    assert_eq!(refusal(node.next(ispb(), &second.next, &many()).await), Refusal::Tampered);
    let fourth = node.next(ispb(), &third.next, &many()).await.unwrap();
    assert_eq!(ids(&fourth).len(), 10);
}
