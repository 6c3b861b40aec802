//! DynamoDB: the contract, the layout of its items, opening, and answers that go astray.

mod blobs;
mod front;
mod layout;
mod opening;
mod throttled;
mod unclear;

use std::sync::Arc;

use parking_lot::Mutex;
use wane::clock::{Clock, ManualClock, SystemClock};
use wane::conformance::differential::{Trials, compare_with_model};
use wane::conformance::run_all;

use crate::harness::dynamodb::{Dynamodb, Server, with_real_pauses};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_keeps_the_contract() {
    let Some(server) = Server::listed() else { return };
    let harness = Dynamodb::new(server).await;
    let report = run_all(&harness).await;
    report.announce();
    report.assert_passed();
    harness.server.remove_table().await;
}

/// One caller, random operations: DynamoDB answers what the model answers.
#[test]
fn dynamodb_answers_as_the_model_does() {
    if Server::listed().is_none() {
        return;
    }
    let servers = Mutex::new(Vec::new());
    let make = async |clock: Arc<ManualClock>| {
        // A table for each case. The clock comes to the present, where nothing is cleaned up yet.
        let server = Server::listed().expect("it was listed before");
        servers.lock().push(server.clone());
        clock.never_before(SystemClock::shared().now());
        server.connect(with_real_pauses(clock)).await
    };
    let trials = Trials::seeded(1);
    let trials = Trials { cases: trials.cases.min(48), shrink: 200, ..trials };
    let compared = compare_with_model(trials, make);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for server in servers.into_inner() {
        runtime.block_on(server.remove_table());
    }
    if let Err(difference) = compared {
        panic!("{difference}");
    }
}
