//! Stores that are within their contract and yet unlike the one in memory: pages without rows, answers
//! that come late, calls that fail while somebody waits.

use super::metered::{Metered, Quirk};
use super::*;
use wane::services::pull_stream::Chain;

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
