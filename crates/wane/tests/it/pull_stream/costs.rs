//! What calls cost the store, counted: the numbers that the documentation promises.

use super::metered::{Metered, Op, Quirk};
use super::*;
use wane::services::pull_stream::Chain;
use wane::store::Keyspace;

type Node = PullStream<Metered<InnerStore>>;

fn metered(setup: &Setup) -> (Metered<InnerStore>, Node) {
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    (store, node)
}

/// Rows of several rounds come with one page.
#[tokio::test(start_paused = true)]
async fn a_reader_that_catches_up_reads_the_log_once_in_a_few_rounds() {
    let setup = setup();
    let (store, node) = metered(&setup);
    ingest(&node, 320).await;
    store.set(Quirk::None);
    assert_eq!(drain(&node).await.len(), 320);
    let pages = store.calls(Op::Read, Keyspace::PullStreamLog);
    assert!(pages <= 8, "{pages} pages for 32 rows");
}

/// Entries of several rounds go to the audit in one row, and none waits for long.
#[tokio::test(start_paused = true)]
async fn the_audit_has_a_row_for_several_rounds() {
    let setup = setup();
    let (store, node) = metered(&setup);
    ingest(&node, 250).await;
    store.set(Quirk::None);
    let mut pulled = node.start(ispb(), &many()).await.unwrap();
    for _ in 0..23 {
        pulled = node.next(ispb(), &pulled.next, &many()).await.unwrap();
    }
    true_sleep(Duration::from_millis(60)).await;
    let rows = store.calls(Op::Insert, Keyspace::Audit);
    assert!(rows <= 6, "{rows} rows for 24 rounds");
    let check = node.verify_audit(ispb(), Chain::Transitions).await.unwrap();
    assert_eq!(check.entries, 24, "all of them within 60 ms");
}

/// What was seen with the last write still stands: that is looked at, and nothing else again.
#[tokio::test(start_paused = true)]
async fn an_empty_read_after_another_call_looks_once() {
    let setup = setup();
    let (store, node) = metered(&setup);
    node.end_holds();
    let first = node.start(ispb(), &many()).await.unwrap();
    store.set(Quirk::None);
    let again = node.next(ispb(), &first.next, &many()).await.unwrap();
    assert_eq!(again, first);
    let calls = |op, keyspace| store.calls(op, keyspace);
    assert_eq!(calls(Op::GetBatch, Keyspace::PullStreamState), 1);
    assert_eq!(calls(Op::Read, Keyspace::PullStreamLog), 1);
    assert_eq!(calls(Op::Swap, Keyspace::PullStreamState), 0);

    // Another node has written meanwhile: what it wrote is gone by.
    let other = setup.node();
    other.end_holds();
    other.end(ispb(), &first.next, &Client::default()).await.unwrap();
    assert_eq!(refusal(node.next(ispb(), &first.next, &many()).await), Refusal::Expired);
}
