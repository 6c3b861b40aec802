//! Cassandra behind the proxy, and three nodes of which one dies or stops.
//!
//! Each of our nodes' clocks decides, and a statement brings its time along. The driver finds the
//! one node of `cas1` at its address and the port that it was given, which is the proxy's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::SystemClock;
use wane::conformance::history::{Plan, number_from_env};
use wane::conformance::linearizability::Allowance;
use wane_backends::cassandra::{CassandraSettings, CassandraStore, Replication};

use super::histories::Trouble;
use super::liar::Guess;
use super::load::Load;
use super::{Ground, Patience, unclear_cases};
use crate::harness::cassandra::Place;
use crate::harness::listed::settings_of;

const PATIENCE: Patience = Patience {
    request: Duration::from_secs(3),
    call: Duration::from_secs(12),
    delete_reads_first: true,
};

const TROUBLE: Trouble = Trouble {
    spell: Duration::from_millis(80),
    delay: Duration::from_millis(60),
    silence_one_in: 16,
};

/// How far the clock of the second node is ahead, in milliseconds.
const AHEAD: u64 = 40;

/// Histories within which a lie must come to light.
const LIARS_PATIENCE: u64 = 20;

/// Writes that show that work goes on.
const SOME: u64 = 200;

unclear_cases!(on_cassandra);

async fn on_cassandra(case: impl AsyncFnOnce(&Ground<CassandraStore>)) {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let server: SocketAddr = place.settings.hosts[0].parse().expect("an address");
    let ahead = AHEAD as i64;
    let ground = Ground::new("cas1", server, PATIENCE, ahead, async |address, clock| {
        let hosts = vec![address.to_string()];
        let settings = CassandraSettings { hosts, ..place.settings.clone() };
        CassandraStore::connect(settings, clock).await.expect("the node answers")
    });
    case(&ground.await).await;
    place.remove().await;
}

fn plan() -> Plan {
    let allowance = Allowance::skew(Duration::from_millis(AHEAD)).dated();
    let rest = Duration::from_millis(40);
    Plan { operations: 25, longest_ttl: 400, allowance, rest, ..Plan::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cassandra_is_linearizable_under_faults() {
    let count = number_from_env("WANE_TEST_CASSANDRA_HISTORIES", 10);
    on_cassandra(async |ground| ground.assert_linearizable(count, &plan(), TROUBLE).await).await;
}

async fn assert_caught(guess: Guess) {
    let caught = async |ground: &Ground<_>| {
        ground.assert_caught(guess, LIARS_PATIENCE, &plan(), TROUBLE).await;
    };
    on_cassandra(caught).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_unclear_writes_for_applied_is_caught() {
    assert_caught(Guess::Applied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_sends_unclear_writes_again_is_caught() {
    assert_caught(Guess::SendAgain).await;
}

/// Three nodes of a test's own, ended with it.
pub(crate) struct Cluster {
    directory: TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let cluster = Self { directory: tempfile::tempdir().expect("a temporary directory") };
        cluster.servers(&["start", "cas3"]);
        cluster
    }

    fn servers(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
        let mut command = Command::new(script);
        command.args(arguments).env("WANE_SERVERS_DIR", self.state());
        let done = command.env_remove("WANE_TEST_SERVERS_DIR").output();
        let done = done.expect("scripts/servers runs");
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "scripts/servers {arguments:?}: {told}");
        String::from_utf8(done.stdout).expect("scripts/servers prints text")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("servers")
    }

    pub(crate) fn settings(&self) -> CassandraSettings {
        let told = self.servers(&["env", "cas3"]);
        let value = |name: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            line.expect("scripts/servers tells it").trim_matches('\'').to_owned()
        };
        CassandraSettings {
            replication: Replication::Cas3,
            user: None,
            password: None,
            hosts: value("WANE_CASSANDRA_HOSTS").split(',').map(str::to_owned).collect(),
            keyspace: "outage".to_owned(),
            datacenter: Some(value("WANE_CASSANDRA_DATACENTER")),
            ca: None,
        }
    }

    /// Sends a signal to a node, counted from 0.
    pub(crate) fn signal(&self, signal: &str, node: usize) {
        let pids = self.servers(&["pids", "cas3"]);
        let pid = pids.split_whitespace().nth(node).expect("three nodes");
        let sent = Command::new("kill").args([signal, pid]).status().expect("kill runs");
        assert!(sent.success(), "node {node} takes no {signal}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.servers(&["stop", "cas3"]);
    }
}

/// A minority that is gone costs time, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_go_on_while_one_is_stopped_or_killed() {
    if settings_of("cas3").is_none() {
        return;
    }
    let cluster = Cluster::start();
    let clock = SystemClock::shared();
    let store = CassandraStore::connect(cluster.settings(), Arc::clone(&clock)).await;
    let store = Arc::new(store.expect("the cluster answers"));
    let load = Load::begin(&store, &clock, 8);
    let whole = load.goes_on(SOME).await;
    cluster.signal("-STOP", 1);
    let stopped = load.goes_on(SOME).await;
    cluster.signal("-CONT", 1);
    let woken = load.goes_on(SOME).await;
    cluster.signal("-KILL", 2);
    let killed = load.goes_on(SOME).await;
    cluster.servers(&["revive", "cas3"]);
    let revived = load.goes_on(SOME).await;
    let unclear = load.unclear();
    let acknowledged = load.settle(&*store).await.unwrap_or_else(|wrong| panic!("{wrong}"));
    println!(
        "{SOME} writes: all nodes {whole:?}, one stopped {stopped:?}, woken {woken:?}, one killed \
         {killed:?}, revived {revived:?}; {acknowledged} acknowledged, {unclear} unclear"
    );
}
