//! Redis behind the proxy. Its own clock decides, asked when a script runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use wane::clock::SystemClock;
use wane::conformance::history::{Plan, number_from_env};
use wane::conformance::linearizability::Allowance;
use wane_backends::redis::{RedisSettings, RedisStore};

use super::histories::Trouble;
use super::liar::Guess;
use super::load::Load;
use super::{Ground, Patience, unclear_cases};
use crate::harness::listed::settings_of;
use crate::harness::redis::{Redis, fresh_settings};
use crate::harness::redis_server::Server;

const PATIENCE: Patience = Patience {
    request: Duration::from_secs(2),
    call: Duration::from_secs(6),
    delete_reads_first: false,
};

const TROUBLE: Trouble = Trouble {
    spell: Duration::from_millis(8),
    delay: Duration::from_millis(15),
    silence_one_in: 8,
};

/// Histories within which a lie must come to light.
const LIARS_PATIENCE: u64 = 50;

/// How often the server is killed under load, and the writes that show that work goes on.
const KILLS: usize = 5;
const SOME: u64 = 300;

unclear_cases!(on_redis);

async fn on_redis(case: impl AsyncFnOnce(&Ground<RedisStore>)) {
    let Some(harness) = Redis::new().await else { return };
    let server: SocketAddr = harness.settings().hosts[0].parse().expect("an address");
    let ground = Ground::new("redis", server, PATIENCE, 0, async |address, clock| {
        let hosts = vec![address.to_string()];
        let settings = RedisSettings { hosts, ..harness.settings().clone() };
        RedisStore::connect(settings, clock).await.expect("the server answers")
    });
    case(&ground.await).await;
}

/// The server's clock is the machine's; ours follows it and is read in whole milliseconds.
fn plan() -> Plan {
    let allowance = Allowance::skew(Duration::from_millis(5));
    Plan { allowance, rest: Duration::from_millis(1), ..Plan::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_linearizable_under_faults() {
    let count = number_from_env("WANE_TEST_REDIS_HISTORIES", 50);
    on_redis(async |ground| ground.assert_linearizable(count, &plan(), TROUBLE).await).await;
}

async fn assert_caught(guess: Guess) {
    let caught = async |ground: &Ground<_>| {
        ground.assert_caught(guess, LIARS_PATIENCE, &plan(), TROUBLE).await;
    };
    on_redis(caught).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_unclear_writes_for_applied_is_caught() {
    assert_caught(Guess::Applied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_sends_unclear_writes_again_is_caught() {
    assert_caught(Guess::SendAgain).await;
}

/// What callers say after a server with these options was killed and restarted under them.
async fn account_after_kills(options: &[&str]) -> Result<u64, String> {
    let mut server = Server::start(options);
    let (settings, clock) = (fresh_settings(&server.url()), SystemClock::shared());
    let store = RedisStore::connect(settings, Arc::clone(&clock)).await;
    let store = Arc::new(store.expect("the server answers"));
    let load = Load::begin(&store, &clock, 8);
    for _ in 0..KILLS {
        load.goes_on(SOME).await;
        let before = load.unclear();
        tokio::task::block_in_place(|| server.kill());
        clock.sleep(Duration::from_millis(100)).await;
        load.has_unclear(before + 1).await;
        tokio::task::block_in_place(|| server.restart());
        if load.has_stopped() {
            break;
        }
    }
    load.settle(&*store).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_syncs_loses_no_acknowledged_write_when_killed() {
    if settings_of("redis").is_none() {
        return;
    }
    let acknowledged = account_after_kills(&[]).await.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(acknowledged >= KILLS as u64 * SOME);
}

/// The control: the same account of a server that keeps nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_keeps_nothing_is_caught() {
    if settings_of("redis").is_none() {
        return;
    }
    let wrong = account_after_kills(&["--appendonly", "no"]).await;
    println!("{}", wrong.expect_err("the loss must be caught"));
}
