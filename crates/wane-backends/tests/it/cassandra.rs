//! The contract on Cassandra, and what only Cassandra can get wrong.

use wane::conformance::run_all;
use wane_backends::cassandra::Replication;

use crate::harness::cassandra::{Cassandra, Place};

async fn assert_conforms(replication: Replication) {
    let Some(place) = Place::new(replication) else { return };
    let harness = Cassandra::new(place).await;
    let report = run_all(&harness).await;
    report.announce();
    report.assert_passed();
    harness.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cas1_keeps_the_contract() {
    assert_conforms(Replication::Cas1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cas3_keeps_the_contract() {
    assert_conforms(Replication::Cas3).await;
}
