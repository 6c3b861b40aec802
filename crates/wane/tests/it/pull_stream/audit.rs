//! The audit: each transition once, whatever dies in between. What shows damage is in `damaged`.

use super::metered::{Metered, Op, Quirk};
use super::tripped::{Trip, Tripped};
use super::*;
use wane::services::pull_stream::{Action, Chain, Policy, Verdict};
use wane::store::{Keyspace, Ttl};

/// Hashes of all tokens that the chain says were issued.
async fn issued<S: Store>(node: &PullStream<S>) -> Vec<String> {
    let (mut issued, mut from) = (Vec::new(), Some(0));
    while let Some(row) = from {
        let page = node.audit(ispb(), Chain::Transitions, row).await.expect("nothing fails here");
        issued.extend(page.entries.iter().filter_map(|entry| entry.issued_hash()));
        from = page.next;
    }
    issued
}

#[tokio::test(start_paused = true)]
async fn each_token_is_in_the_chain_once_whatever_dies_on_the_way() {
    for at in 0..16 {
        for after in [false, true] {
            let setup = setup();
            let store = Tripped::new(setup.store.clone());
            let node = setup.node_over(store.clone(), PullStreamSettings::default());
            ingest(&node, 60).await;
            true_sleep(SECOND * 2).await;
            store.set(Trip::Hangs { at, after });
            let mut tokens = Vec::new();
            let reading = async {
                tokens.push(node.start(ispb(), &many()).await.unwrap().next);
                for _ in 0..3 {
                    let last = tokens.last().unwrap();
                    let next = node.next(ispb(), last, &many()).await.unwrap().next;
                    tokens.push(next);
                }
            };
            tokio::select! {
                () = reading => {}
                () = true_sleep(SECOND) => {}
            }
            drop(node);
            let other = setup.node();
            let last = other.start(ispb(), &many()).await.unwrap();
            other.end(ispb(), &last.next, &Client::default()).await.unwrap();
            tokens.push(last.next);
            true_sleep(SECOND).await;
            let issued = issued(&other).await;
            for token in &tokens {
                let times = issued.iter().filter(|hash| **hash == token_hash(token)).count();
                assert_eq!(times, 1, "call {at}, after: {after}");
            }
            let check = other.verify_audit(ispb(), Chain::Transitions).await.unwrap();
            assert!(check.entries > tokens.len() as u64);
        }
    }
}

/// Entries of the last rounds may have come while others were on their way.
#[tokio::test(start_paused = true)]
async fn a_stream_that_rests_has_all_its_entries_in_the_chain() {
    let setup = setup();
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    ingest(&node, 20).await;
    store.set(Quirk::Slow(Op::Insert, Keyspace::Audit, Duration::from_millis(50)));
    let first = node.start(ispb(), &many()).await.unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    node.end(ispb(), &second.next, &Client::default()).await.unwrap();
    true_sleep(SECOND).await;
    assert_eq!(issued(&node).await, [token_hash(&first.next), token_hash(&second.next)]);
    let check = node.verify_audit(ispb(), Chain::Transitions).await.unwrap();
    assert_eq!(check.entries, 3, "the end, too");
    let calls = store.calls(Op::Insert, Keyspace::Audit);
    assert_eq!(calls as u64, check.rows, "and none was carried there twice");
}

#[tokio::test(start_paused = true)]
async fn rejections_and_retries_of_two_nodes_are_one_chain() {
    let setup = setup();
    let nodes = [setup.node(), setup.node()];
    ingest(&nodes[0], 20).await;
    let first = nodes[0].start(ispb(), &many()).await.unwrap();
    nodes[0].next(ispb(), &first.next, &many()).await.unwrap();
    let reader = many();
    let calls = (0..40).map(|number| {
        let token = if number % 4 == 0 { &first.next[..] } else { "none of ours" };
        nodes[number % 2].next(ispb(), token, &reader)
    });
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    true_sleep(SECOND).await;
    let check = setup.node().verify_audit(ispb(), Chain::Remarks).await.unwrap();
    assert_eq!(check.entries, 40);
    assert!(check.rows < 40, "those that came together share rows: {}", check.rows);
    assert_eq!(nodes[0].remarks_lost() + nodes[1].remarks_lost(), 0);
}

/// So many calls that are refused one after the other: each is a row.
async fn rejections<S: Store>(node: &PullStream<S>, count: usize) {
    for _ in 0..count {
        refusal(node.next(ispb(), "none of ours", &many()).await);
    }
}

/// Rows of other nodes, and those before a restart, are not read one by one.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_remarks_is_noted_while_they_come_and_found_in_few_steps() {
    let setup = setup();
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    let looks = || -> usize {
        [Op::Get, Op::Ttl, Op::Insert].iter().map(|op| store.calls(*op, Keyspace::Audit)).sum()
    };
    rejections(&node, 1).await;
    rejections(&setup.node(), 200).await;
    store.set(Quirk::None);
    rejections(&node, 1).await;
    assert!(looks() < 30, "{} looks to catch up", looks());

    store.set(Quirk::None);
    rejections(&node, 200).await;
    let notes = store.calls(Op::Put, Keyspace::PullStreamState);
    assert!((3..10).contains(&notes), "{notes} notes of 200 rows");
    store.set(Quirk::Fails(Op::Put, Keyspace::PullStreamState));
    rejections(&node, 300).await;
    drop(node);
    let fresh = setup.node_over(store.clone(), PullStreamSettings::default());
    store.set(Quirk::None);
    rejections(&fresh, 1).await;
    assert!(looks() < 30, "{} looks to find the end", looks());
    let check = fresh.verify_audit(ispb(), Chain::Remarks).await.unwrap();
    assert_eq!(check.entries, 1 + 200 + 1 + 200 + 300 + 1);
}

/// Anybody with a certificate can call for any institution.
#[tokio::test(start_paused = true)]
async fn strangers_fill_neither_the_audit_nor_the_line_before_it() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    node.next(ispb(), &first.next, &many()).await.unwrap();
    let stranger = Client::new("stranger").unwrap();
    let retrying = single();
    let calls = (0..5_000).map(|_| node.turned_away(ispb(), &stranger));
    let (told, retried) = tokio::join!(
        futures_util::future::join_all(calls),
        node.next(ispb(), &first.next, &retrying),
    );
    assert!(told.iter().all(Result::is_ok));
    retried.unwrap();
    true_sleep(SECOND).await;
    node.turned_away(ispb(), &stranger).await.unwrap();
    let page = node.audit(ispb(), Chain::Remarks, 0).await.unwrap();
    let noted: Vec<_> = page.entries.iter().map(|entry| (entry.verdict, entry.unnoted)).collect();
    let expected = [(Verdict::Foreign, 0), (Verdict::Replayed, 0), (Verdict::Foreign, 4_999)];
    assert_eq!(noted, expected);
}

/// Actions and verdicts of both chains, those of transitions first.
async fn noted<S: Store>(node: &PullStream<S>) -> Vec<(Action, Verdict)> {
    let mut noted = Vec::new();
    for chain in [Chain::Transitions, Chain::Remarks] {
        let page = node.audit(ispb(), chain, 0).await.expect("nothing fails here");
        noted.extend(page.entries.into_iter().map(|entry| (entry.action, entry.verdict)));
    }
    noted
}

/// A retry that prolongs the lease changes the record, which then tells of it.
#[tokio::test(start_paused = true)]
async fn each_retry_is_noted_once() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    node.next(ispb(), &first.next, &many()).await.unwrap();
    for _ in 0..2 {
        node.next(ispb(), &first.next, &many()).await.unwrap();
        true_sleep(LEASE / 2 + SECOND).await;
    }
    let noted = noted(&node).await;
    let retries = noted.iter().filter(|(_, verdict)| *verdict == Verdict::Replayed).count();
    assert_eq!(retries, 2, "{noted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_whose_messages_have_expired_is_noted_as_refused() {
    let setup = setup();
    let node = setup.node();
    ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    node.next(ispb(), &first.next, &many()).await.unwrap();
    setup.store_clock.advance(SECOND * 31 * 86_400);
    let other = setup.node();
    assert_eq!(refusal(other.next(ispb(), &first.next, &many()).await), Refusal::Expired);
    assert_eq!(noted(&other).await.last(), Some(&(Action::Next, Verdict::Expired)));
}

/// The audit tells of what was done, not of what was going to be.
#[tokio::test(start_paused = true)]
async fn a_policy_is_noted_once_it_holds() {
    let setup = setup();
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    let policy = Policy { retention: Ttl::MAX, max_readers: 3 };
    store.set(Quirk::Fails(Op::Insert, Keyspace::PullStreamState));
    assert!(node.set_policy(ispb(), policy, &Client::default()).await.is_err());
    assert_eq!(noted(&node).await, []);
    store.set(Quirk::Fails(Op::Insert, Keyspace::Audit));
    let told = node.set_policy(ispb(), policy, &Client::default()).await.unwrap_err();
    assert!(told.to_string().contains("the policy holds"), "{told}");
    assert_eq!(setup.node().policy(ispb()).await.unwrap(), policy);
    store.set(Quirk::None);
    node.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    assert_eq!(noted(&node).await, [(Action::Policy, Verdict::Done)]);
}
