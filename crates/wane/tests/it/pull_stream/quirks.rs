//! Stores that are within their contract and yet unlike the one in memory: pages without rows, answers
//! that come late, calls that fail while somebody waits.

use super::metered::{Metered, Op, Quirk};
use super::*;
use crate::gated::{Gate, GatedStore};
use wane::services::pull_stream::{Chain, Policy};
use wane::store::{Keyspace, StoreError, Ttl};

type Node = PullStream<Metered<InnerStore>>;

fn metered(setup: &Setup) -> (Metered<InnerStore>, Node) {
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    (store, node)
}

/// Some backends filter rows after they counted them: a page may be empty, and not the last one.
#[tokio::test(start_paused = true)]
async fn pages_without_rows_are_gone_beyond() {
    let setup = setup();
    let (store, node) = metered(&setup);
    let known = ingest(&node, 25).await;
    store.set(Quirk::EmptyPages);
    let read = drain(&node).await;
    assert_eq!(read.len(), known.len());
    assert_eq!(node.status(ispb()).await.unwrap().lag, Duration::ZERO);
    true_sleep(SECOND).await;
    let page = node.audit(ispb(), Chain::Transitions, 0).await.unwrap();
    assert!(!page.entries.is_empty());
    let check = node.verify_audit(ispb(), Chain::Transitions).await.unwrap();
    assert_eq!(check.entries, page.entries.len() as u64);
}

/// An insert takes effect at once and is answered late, and its message is read meanwhile: what the
/// producer is told, and what readers are given after that.
async fn answered_late(
    by: Duration,
    is_acknowledged: bool,
) -> (Result<(), PullStreamError>, Pulled) {
    let setup = setup();
    let (store, node) = metered(&setup);
    let other = setup.node();
    store.set(Quirk::Slow(Op::Insert, Keyspace::PullStreamLog, by));
    let producing = tokio::spawn(async move { node.ingest(ispb(), batch([1])).await.map(drop) });
    true_sleep(SECOND).await;
    let mut pulled = other.start(ispb(), &many()).await.expect("nothing fails here");
    assert_eq!(ids(&pulled).len(), 1, "it is in the log already");
    let began = setup.machine.elapsed();
    while setup.machine.elapsed() < began + by {
        if is_acknowledged {
            pulled = other.next(ispb(), &pulled.next, &many()).await.expect("nothing fails here");
            assert_eq!(pulled.batch, None);
        } else {
            true_sleep(SECOND).await;
        }
    }
    let told = producing.await.expect("no task panics");
    (told, other.next(ispb(), &pulled.next, &many()).await.expect("nothing fails here"))
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_insert_was_answered_late_is_not_inserted_twice() {
    for by in [15, 25] {
        for is_acknowledged in [true, false] {
            let (told, after) = answered_late(SECOND * by, is_acknowledged).await;
            told.unwrap();
            assert_eq!(after.batch, None, "{by} s, acknowledged: {is_acknowledged}");
        }
    }
    // So late, it cannot be told from a place that was used before; but nothing comes twice.
    let (told, after) = answered_late(SECOND * 60, true).await;
    assert!(matches!(told, Err(PullStreamError::Store(StoreError::Unknown { .. }))), "{told:?}");
    assert_eq!(after.batch, None);
    let (told, after) = answered_late(SECOND * 60, false).await;
    told.unwrap();
    assert_eq!(after.batch, None, "held by a reader, it was not passed over");
}

/// The place that an insert was sent to was used by another node, read, and has expired by the time
/// that it is applied: nobody will look there.
#[tokio::test(start_paused = true)]
async fn an_insert_behind_the_head_is_not_told_to_have_succeeded() {
    let setup = setup();
    let store = GatedStore::new(setup.store.clone());
    let (node, other) =
        (setup.node_over(store.clone(), PullStreamSettings::default()), setup.node());
    let policy = Policy { retention: Ttl::from_secs(60).unwrap(), max_readers: 6 };
    other.set_policy(ispb(), policy, &Client::default()).await.unwrap();
    store.set(Gate::HoldBefore);
    let late = tokio::spawn(async move { node.ingest(ispb(), batch([1])).await });
    true_sleep(SECOND).await;
    other.ingest(ispb(), batch([2])).await.unwrap();
    assert_eq!(drain(&other).await.len(), 1);
    true_sleep(SECOND * 61).await;
    setup.store_clock.advance(SECOND * 61);
    store.set(Gate::Open);
    let told = late.await.unwrap();
    assert!(matches!(told, Err(PullStreamError::Store(StoreError::Unknown { .. }))), "{told:?}");
    let after = other.ingest(ispb(), batch([3])).await.unwrap();
    assert_eq!(drain(&other).await.into_keys().collect::<Vec<_>>(), after);
}

/// A start that waits has a slot. Told of a hiccup of the store, its reader would never know.
#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_is_told_its_token_though_the_store_fails_meanwhile() {
    let setup = setup();
    let (store, node) = metered(&setup);
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { node.start(ispb(), &many()).await }
    });
    true_sleep(SECOND).await;
    store.set(Quirk::Fails(Op::GetBatch, Keyspace::PullStreamState));
    let known = setup.node().ingest(ispb(), batch([1])).await.unwrap();
    let told = waiting.await.unwrap().unwrap();
    assert_eq!(told.batch, None);
    assert!(node.next(ispb(), &told.next, &many()).await.is_err(), "who waits for nothing is told");
    store.set(Quirk::None);
    assert_eq!(node.status(ispb()).await.unwrap().live_readers, 1);
    assert_eq!(ids(&node.next(ispb(), &told.next, &many()).await.unwrap()), known);
}

/// Until it knows the key, a node says that it cannot repeat the answer, and leaves it as it was.
#[tokio::test(start_paused = true)]
async fn a_retry_on_a_node_whose_keys_are_behind_is_told_to_try_again() {
    let (setup, mut behind) = (setup(), setup());
    behind.store = setup.store.clone();
    let (node, other) = (setup.node(), behind.node());
    ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    setup.keys.rotate(token_key("b")).unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    let told = other.next(ispb(), &first.next, &many()).await;
    let is_unavailable =
        matches!(told, Err(PullStreamError::Store(StoreError::Unavailable { .. })));
    assert!(is_unavailable, "{told:?}");
    behind.keys.rotate(token_key("b")).unwrap();
    assert_eq!(other.next(ispb(), &first.next, &many()).await.unwrap(), second);
    assert_eq!(node.next(ispb(), &first.next, &many()).await.unwrap(), second);
}

/// An end is written, its answer is lost, and another node has written before anybody looks.
#[tokio::test(start_paused = true)]
async fn an_end_that_was_carried_out_is_not_told_that_it_came_too_late() {
    for is_forgotten in [false, true] {
        let setup = setup();
        let (store, node) = metered(&setup);
        let other = setup.node();
        ingest(&node, 40).await;
        let first = node.start(ispb(), &many()).await.unwrap();
        true_sleep(SECOND).await;
        store.set(Quirk::Loses(Op::Swap, Keyspace::PullStreamState, SECOND * 3));
        let (ending, token) = (node.clone(), first.next.clone());
        let ended =
            tokio::spawn(async move { ending.end(ispb(), &token, &Client::default()).await });
        true_sleep(Duration::from_millis(500)).await;
        let mut pulled = other.start(ispb(), &many()).await.unwrap();
        if is_forgotten {
            true_sleep(Duration::from_millis(100)).await;
            pulled = other.next(ispb(), &pulled.next, &many()).await.unwrap();
        }
        assert_eq!(ids(&pulled).len(), 10);
        let told = ended.await.unwrap();
        if is_forgotten {
            let is_unknown =
                matches!(told, Err(PullStreamError::Store(StoreError::Unknown { .. })));
            assert!(is_unknown, "its entry is in the chain by now: {told:?}");
        } else {
            told.unwrap();
        }
        store.set(Quirk::None);
        let again = node.end(ispb(), &first.next, &Client::default()).await;
        assert_eq!(refusal(again), Refusal::Gone);
    }
}

/// Producers hold memory while they wait: by bytes, not only by their number.
#[tokio::test(start_paused = true)]
async fn producers_of_a_store_that_hangs_hold_a_bounded_number_of_bytes() {
    let setup = setup();
    let (store, node) = metered(&setup);
    store.set(Quirk::Slow(Op::Insert, Keyspace::PullStreamLog, SECOND));
    let long = |_| Message::new(vec![b'x'; 200 * 1_024]).unwrap();
    let all = Batch::new((0..10).map(long).collect()).unwrap();
    let calls = (0..40).map(|_| node.ingest(ispb(), all.clone()));
    let told = futures_util::future::join_all(calls).await;
    let busy = told.iter().filter(|told| matches!(told, Err(PullStreamError::Busy))).count();
    assert_eq!(busy, 40 - 16, "16 of 2,000 KiB are within 32 MiB");
    assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 16);
    store.set(Quirk::None);
    node.ingest(ispb(), all).await.unwrap();
}
