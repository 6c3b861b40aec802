//! Opening: what stands in the way is told in time, by name, and without secrets.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use wane::clock::SystemClock;
use wane_backends::OpenError;
use wane_backends::cassandra::{CassandraSettings, CassandraStore, Replication};

use crate::harness::cassandra::Place;

/// No cluster may hold up a start for longer.
const IN_TIME: Duration = Duration::from_secs(40);

async fn refusal(settings: CassandraSettings) -> OpenError {
    let opening = CassandraStore::connect(settings, SystemClock::shared());
    let opened = timeout(IN_TIME, opening).await.expect("an answer in time");
    opened.expect_err("it opens")
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_unreachable() {
    let url = "cas1://ann:canary@no-such-host.invalid/x";
    let error = refusal(CassandraSettings::from_url(url).unwrap()).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("no-such-host.invalid") && told.contains("host names"), "{told}");
    assert!(!told.contains("canary"), "{told}");
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_unreachable() {
    let error = refusal(CassandraSettings::from_url("cas1://127.0.0.1:1/x").unwrap()).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

/// A port that takes connections and says nothing.
#[tokio::test]
async fn a_port_that_does_not_answer_is_unreachable() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("cas1://{}/x", silent.local_addr().unwrap());
    let error = refusal(CassandraSettings::from_url(&url).unwrap()).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
}

/// Without the feature the build is told, with it the file.
#[tokio::test]
async fn authorities_that_cannot_be_used_are_told() {
    let url = "cas1://127.0.0.1:1/x?ca=/no/such/ca.pem";
    let error = refusal(CassandraSettings::from_url(url).unwrap()).await;
    let told = error.to_string();
    match cfg!(feature = "cassandra-tls") {
        true => assert!(told.contains("/no/such/ca.pem"), "{told}"),
        false => assert!(told.contains("--features cassandra-tls"), "{told}"),
    }
}

#[tokio::test]
async fn a_datacenter_that_does_not_exist_is_refused_with_those_that_do() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let datacenter = Some("atlantis".to_owned());
    let error = refusal(CassandraSettings { datacenter, ..place.settings.clone() }).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("atlantis") && told.contains("dc1"), "{told}");
}

/// cas3 needs the datacenters dc1 and dc2, and one node is in dc1.
#[tokio::test]
async fn a_cluster_without_the_datacenters_is_refused() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    let error =
        refusal(CassandraSettings { replication: Replication::Cas3, ..place.settings }).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("dc2"), "{error}");
}

#[tokio::test]
async fn a_store_of_another_layout_does_not_open() {
    let Some(place) = Place::new(Replication::Cas1) else { return };
    drop(place.connect(SystemClock::shared()).await);
    drop(place.connect(SystemClock::shared()).await);
    let other = CassandraSettings { replication: Replication::Cas3, ..place.settings.clone() };
    let error = refusal(other).await;
    assert!(matches!(error, OpenError::Mismatch { .. }), "{error}");
    let session = place.session().await;
    let keyspace = &place.settings.keyspace;
    let newer = format!("UPDATE {keyspace}.layout SET version = 9 WHERE name = 'store'");
    session.query_unpaged(newer, ()).await.unwrap();
    let error = refusal(place.settings.clone()).await;
    assert!(matches!(error, OpenError::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("layout 9"), "{error}");
    place.remove().await;
}

async fn opens_for_all_at_once(replication: Replication) {
    let Some(place) = Place::new(replication) else { return };
    let mut openings = JoinSet::new();
    for _ in 0..4 {
        let settings = place.settings.clone();
        openings.spawn(CassandraStore::connect(settings, SystemClock::shared()));
    }
    for opened in openings.join_all().await {
        opened.unwrap_or_else(|error| panic!("{error}"));
    }
    place.remove().await;
}

/// Nodes of a service are started together, and none of them was there before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_make_one_store() {
    opens_for_all_at_once(Replication::Cas1).await;
    opens_for_all_at_once(Replication::Cas3).await;
}
