//! DynamoDB: the contract, the layout of its items, opening, and answers that go astray.

mod front;
mod layout;
mod opening;
mod throttled;
mod unclear;

use crate::harness::dynamodb::{Dynamodb, Server};
use wane::conformance::run_all;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_keeps_the_contract() {
    let Some(server) = Server::listed() else { return };
    let harness = Dynamodb::new(server).await;
    let report = run_all(&harness).await;
    report.announce();
    report.assert_passed();
    harness.server.remove_table().await;
}
