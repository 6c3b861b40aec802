//! What calls cost the store, counted: the numbers that the documentation promises.

use super::metered::{Metered, Op, Quirk};
use super::*;
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
