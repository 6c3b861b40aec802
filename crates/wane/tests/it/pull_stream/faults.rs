//! Every call of the store lost, failed or hanging: whoever asks again is told what became of it, and
//! every message is accounted for.

use super::tripped::{Trip, Tripped};
use super::*;
use wane::services::pull_stream::Chain;
use wane::store::StoreError;

type Node = PullStream<Tripped<InnerStore>>;

fn tripped(setup: &Setup) -> (Tripped<InnerStore>, Node) {
    let store = Tripped::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    (store, node)
}

/// Asks again as long as the store fails, as readers do.
async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T, PullStreamError>) -> T {
    for _ in 0..4 {
        match ask().await {
            Ok(answer) => return answer,
            Err(PullStreamError::Store(
                StoreError::Unavailable { .. } | StoreError::Unknown { .. },
            )) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the store failed once, the call again and again");
}

/// A reader's whole life: start, two batches, an end.
async fn life(node: &Node) -> Vec<ResourceId> {
    let first = insist(async || node.start(ispb(), &many()).await).await;
    let second = insist(async || node.next(ispb(), &first.next, &many()).await).await;
    let third = insist(async || node.next(ispb(), &second.next, &many()).await).await;
    let ended = async || match node.end(ispb(), &third.next, &Client::default()).await {
        // It was written, and the record has changed since.
        Err(PullStreamError::Refused(Refusal::Gone)) => Ok(()),
        other => other,
    };
    insist(ended).await;
    [ids(&first), ids(&second), ids(&third)].concat()
}

/// How many calls of the store it makes.
async fn calls_of(messages: usize) -> usize {
    let setup = setup();
    let (store, node) = tripped(&setup);
    ingest(&node, messages).await;
    true_sleep(SECOND * 2).await;
    store.set(Trip::Nothing);
    life(&node).await;
    true_sleep(SECOND * 2).await;
    store.calls()
}

#[tokio::test(start_paused = true)]
async fn a_reader_loses_nothing_whichever_call_is_lost_or_fails() {
    let calls = calls_of(30).await;
    assert!((4..60).contains(&calls), "{calls} calls");
    for at in 0..calls {
        for trip in [Trip::LosesAnswer(at), Trip::LosesRequest(at), Trip::Fails(at)] {
            let setup = setup();
            let (store, node) = tripped(&setup);
            let known = ingest(&node, 30).await;
            true_sleep(SECOND * 2).await;
            store.set(trip);
            let read = life(&node).await;
            true_sleep(SECOND * 2).await;
            store.set(Trip::Nothing);
            // A start whose answer was lost for good leaves a slot to its lease.
            true_sleep(LEASE).await;
            let mut rest = drain(&node).await.into_keys().collect::<Vec<_>>();
            rest.retain(|id| !read.contains(id));
            let mut all = [read, rest].concat();
            all.sort();
            all.dedup();
            let mut expected = known;
            expected.sort();
            assert_eq!(all, expected, "{trip:?}");
            true_sleep(SECOND).await;
            node.verify_audit(ispb(), Chain::Transitions).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_is_told_the_truth_whichever_call_is_lost_or_fails() {
    for at in 0..8 {
        for trip in [Trip::LosesAnswer(at), Trip::LosesRequest(at), Trip::Fails(at)] {
            let setup = setup();
            let (store, node) = tripped(&setup);
            store.set(trip);
            let mut told = BTreeMap::new();
            let (mut unknown, mut failed) = (0, 0);
            for number in 0..4 {
                match node.ingest(ispb(), batch([number])).await {
                    Ok(ids) => drop(told.insert(ids[0], message(number))),
                    Err(PullStreamError::Store(StoreError::Unknown { .. })) => unknown += 1,
                    Err(PullStreamError::Store(StoreError::Unavailable { .. })) => failed += 1,
                    Err(error) => panic!("{trip:?}: {error:?}"),
                }
                true_sleep(SECOND * 2).await;
            }
            store.set(Trip::Nothing);
            let read = drain(&node).await;
            assert!(unknown + failed <= 1, "{trip:?}: one call fails");
            assert!(told.iter().all(|(id, bytes)| read.get(id) == Some(bytes)), "{trip:?}");
            assert!(read.len() <= told.len() + unknown, "{trip:?}: unavailable is not written");
        }
    }
}

/// Ten messages in ten rows: once the first of them stands, nothing says that nothing was done.
#[tokio::test(start_paused = true)]
async fn a_producer_of_whose_messages_some_stand_is_not_told_that_none_does() {
    let mut half_done = 0;
    for at in 0..14 {
        let setup = setup();
        let (store, node) = tripped(&setup);
        store.set(Trip::Fails(at));
        let long = (0..10).map(|_| Message::new(vec![b'x'; 200 * 1_024]).unwrap()).collect();
        let told = node.ingest(ispb(), Batch::new(long).unwrap()).await;
        store.set(Trip::Nothing);
        true_sleep(SECOND * 2).await;
        let read = drain(&node).await.len();
        match told {
            Ok(_) => assert_eq!(read, 10, "call {at}"),
            Err(PullStreamError::Store(StoreError::Unknown { .. })) => half_done += 1,
            Err(PullStreamError::Store(StoreError::Unavailable { .. })) => {
                assert_eq!(read, 0, "call {at} failed");
            }
            Err(error) => panic!("call {at}: {error:?}"),
        }
    }
    assert_eq!(half_done, 9, "each row but the first may fail after another");
}

/// A node that dies in any call, before it takes effect or after: another goes on.
#[tokio::test(start_paused = true)]
async fn a_node_that_dies_in_any_call_leaves_nothing_behind() {
    let calls = calls_of(30).await;
    for at in 0..calls {
        for after in [false, true] {
            let setup = setup();
            let (store, node) = tripped(&setup);
            let other = setup.node();
            let known = ingest(&other, 30).await;
            true_sleep(SECOND * 2).await;
            store.set(Trip::Hangs { at, after });
            let mut read = Vec::new();
            let mut died = None;
            let mut token: Option<String> = None;
            for _ in 0..3 {
                let call = async {
                    match &token {
                        None => node.start(ispb(), &many()).await,
                        Some(token) => node.next(ispb(), token, &many()).await,
                    }
                };
                let answer = tokio::select! {
                    biased;
                    answer = call => answer.unwrap(),
                    () = true_sleep(SECOND) => {
                        died = Some(token.take());
                        break;
                    }
                };
                read.extend(ids(&answer));
                token = Some(answer.next);
            }
            drop(node);
            if let Some(Some(token)) = &died {
                // The reader asks the other node with the token that was not answered.
                let again = other.next(ispb(), token, &many()).await.unwrap();
                read.extend(ids(&again));
                other.end(ispb(), &again.next, &Client::default()).await.unwrap();
            } else if let Some(token) = &token {
                other.end(ispb(), token, &Client::default()).await.unwrap();
            }
            true_sleep(LEASE).await;
            let rest = drain(&other).await;
            let mut all: Vec<_> = read.into_iter().chain(rest.into_keys()).collect();
            let total = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), total, "acknowledged and read again: {at} {after}");
            assert_eq!(all.len(), known.len(), "{at} {after}");
            true_sleep(SECOND).await;
            other.verify_audit(ispb(), Chain::Transitions).await.unwrap();
        }
    }
}
