//! DynamoDB behind the proxy. Each node's clock decides, and a request brings its time along.

use std::net::SocketAddr;
use std::time::Duration;

use wane::conformance::history::{Plan, number_from_env};
use wane::conformance::linearizability::Allowance;
use wane_backends::dynamodb::{DynamodbSettings, DynamodbStore};

use super::histories::Trouble;
use super::liar::Guess;
use super::{Ground, Patience, unclear_cases};
use crate::harness::dynamodb::Server;

/// A write is sent once and looked for up to four times.
const PATIENCE: Patience = Patience {
    request: Duration::from_secs(2),
    call: Duration::from_secs(12),
    delete_reads_first: false,
};

const TROUBLE: Trouble = Trouble {
    spell: Duration::from_millis(30),
    delay: Duration::from_millis(40),
    silence_one_in: 8,
};

/// How far the clock of the second node is ahead, in milliseconds.
const AHEAD: u64 = 20;

/// Histories within which a lie must come to light.
const LIARS_PATIENCE: u64 = 30;

unclear_cases!(on_dynamodb);

async fn on_dynamodb(case: impl AsyncFnOnce(&Ground<DynamodbStore>)) {
    let Some(server) = Server::listed() else { return };
    let place = server.endpoint.strip_prefix("http://").expect("a plain endpoint");
    let place: SocketAddr = place.parse().expect("an address");
    let ahead = AHEAD as i64;
    let ground = Ground::new("dynamodb", place, PATIENCE, ahead, async |address, clock| {
        let url = server.url(&format!("http://{address}"));
        let mut settings = DynamodbSettings::from_url(&url).expect("a legal URL");
        settings.timeout = PATIENCE.request;
        DynamodbStore::connect(settings, clock).await.expect("the server answers")
    });
    case(&ground.await).await;
    server.remove_table().await;
}

fn plan() -> Plan {
    let allowance = Allowance::skew(Duration::from_millis(AHEAD)).dated();
    Plan { longest_ttl: 120, allowance, rest: Duration::from_millis(5), ..Plan::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_is_linearizable_under_faults() {
    let count = number_from_env("WANE_TEST_DYNAMODB_HISTORIES", 20);
    on_dynamodb(async |ground| ground.assert_linearizable(count, &plan(), TROUBLE).await).await;
}

async fn assert_caught(guess: Guess) {
    let caught = async |ground: &Ground<_>| {
        ground.assert_caught(guess, LIARS_PATIENCE, &plan(), TROUBLE).await;
    };
    on_dynamodb(caught).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_unclear_writes_for_applied_is_caught() {
    assert_caught(Guess::Applied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_sends_unclear_writes_again_is_caught() {
    assert_caught(Guess::SendAgain).await;
}
