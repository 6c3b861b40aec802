//! Replays over a store that fails: whoever asks again loses nothing and is given nothing twice, and
//! the audit tells of every batch.

use super::*;
use crate::gated::{Gate, GatedStore};
use crate::pull_stream::tripped::{Trip, Tripped};
use wane::store::{Faults, FaultyStore, StoreError};

/// Asks again as long as the store fails, as readers do.
async fn insist<T>(attempts: usize, mut ask: impl AsyncFnMut() -> Result<T, PullStreamError>) -> T {
    for _ in 0..attempts {
        match ask().await {
            Ok(answer) => return answer,
            Err(PullStreamError::Store(
                StoreError::Unavailable { .. } | StoreError::Unknown { .. },
            )) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the call failed {attempts} times");
}

/// A replay from its order to its end.
async fn life<S: Store>(node: &PullStream<S>, attempts: usize) -> Vec<ResourceId> {
    let started = insist(attempts, async || replay(node, ever()).await).await;
    let (mut read, mut token) = (Vec::new(), started.token);
    loop {
        let ask = async || node.replay_next(ispb(), &token, &many()).await;
        let pulled = insist(attempts, ask).await;
        read.extend(ids(&pulled));
        if pulled.batch.is_none() {
            return read;
        }
        token = pulled.next;
    }
}

fn audited(entries: &[AuditEntry]) -> u64 {
    let delivered = |entry: &&AuditEntry| entry.verdict == Verdict::Delivered;
    entries.iter().filter(delivered).map(|entry| entry.messages).sum()
}

#[tokio::test(start_paused = true)]
async fn a_replay_loses_nothing_whichever_call_is_lost_or_fails() {
    let mut calls = 1;
    let mut at = 0;
    while at < calls {
        for trip in [Trip::LosesAnswer(at), Trip::LosesRequest(at), Trip::Fails(at)] {
            let setup = setup();
            let store = Tripped::new(setup.store.clone());
            let node = setup.node_over(store.clone(), PullStreamSettings::default());
            let known = ingest(&node, 35).await;
            true_sleep(SECOND * 2).await;
            store.set(trip);
            assert_eq!(life(&node, 4).await, known, "{trip:?}");
            calls = calls.max(store.calls());
            true_sleep(SECOND * 2).await;
            store.set(Trip::Nothing);
            let entries = remarks(&node).await;
            let again = entries.iter().filter(|entry| entry.verdict == Verdict::Replayed);
            let told = audited(&entries) + again.map(|entry| entry.messages).sum::<u64>();
            assert!((35..=45).contains(&told), "{trip:?}: the audit tells of {told}");
        }
        at += 1;
    }
    assert!((15..80).contains(&calls), "{calls} calls");
}

#[tokio::test(start_paused = true)]
async fn a_replay_over_a_bad_network_is_whole() {
    for seed in 0..20 {
        let setup = setup();
        let faults = Faults {
            lost_answer: 0.05,
            lost_request: 0.05,
            late: 0.05,
            error: 0.05,
            delay: 0.2,
            longest_delay: Duration::from_millis(200),
        };
        let clock = setup.machine.clock();
        let store = FaultyStore::new(setup.store.clone(), Faults::NONE, seed, clock);
        let node = setup.node_over(store.clone(), PullStreamSettings::default());
        let known = ingest(&node, 125).await;
        true_sleep(SECOND * 2).await;
        store.set_faults(faults);
        assert_eq!(life(&node, 30).await, known, "seed {seed}");
        store.set_faults(Faults::NONE);
        store.settle().await;
        remarks(&node).await;
    }
}

/// Two calls with one token at once, on two nodes and in two forms: one answer.
#[tokio::test(start_paused = true)]
async fn two_readers_of_one_token_get_the_same_answer() {
    let setup = setup();
    let store = GatedStore::new(setup.store.clone());
    store.set(Gate::GiveWay);
    let nodes = [(); 2].map(|()| setup.node_over(store.clone(), PullStreamSettings::default()));
    let known = ingest(&nodes[0], 200).await;
    let started = replay(&nodes[0], ever()).await.unwrap();
    let (mut token, mut read) = (started.token, Vec::new());
    while read.len() < known.len() {
        let (many, single) = (many(), single());
        let (one, two) = tokio::join!(
            nodes[0].replay_next(ispb(), &token, &many),
            nodes[1].replay_next(ispb(), &token, &single),
        );
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one, two);
        read.extend(ids(&one));
        token = one.next;
    }
    assert_eq!(read, known);
    let entries = remarks(&nodes[0]).await;
    assert_eq!(audited(&entries), 200, "each message was delivered once");
}

/// The control: over a store whose swaps do not look, two readers both go on, and the check above
/// finds it.
#[tokio::test(start_paused = true)]
async fn over_a_store_without_conditions_two_readers_are_found_out() {
    let mut differ = 0;
    for _ in 0..20 {
        let setup = setup();
        let store = Tripped::new(setup.store.clone());
        let nodes = [(); 2].map(|()| setup.node_over(store.clone(), PullStreamSettings::default()));
        ingest(&nodes[0], 40).await;
        let started = replay(&nodes[0], ever()).await.unwrap();
        store.set(Trip::CarelessSwap);
        let (many, single) = (many(), single());
        let (one, two) = tokio::join!(
            nodes[0].replay_next(ispb(), &started.token, &many),
            nodes[1].replay_next(ispb(), &started.token, &single),
        );
        differ += usize::from(one.unwrap() != two.unwrap());
    }
    assert!(differ > 0);
}
