//! What the backend itself holds of BLOBs that went: nothing, or what its own expiry takes away.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use wane::clock::SystemClock;
use wane_backends::AnyStore;
use wane_backends::cassandra::{CassandraSettings, Replication};

use super::stage::Stage;
use super::{CHUNK, LONG, WORKSPACE, content, living};
use crate::harness::cassandra::Place;
use crate::harness::dynamodb::Server;
use crate::harness::redis::{Keys, listed_url};
use crate::harness::urls::Address;

/// How much longer than a record its row may live on a server that expires by itself.
const SLACK_SECONDS: u64 = 60;

/// The life of the one that expires.
const SHORT_SECONDS: u64 = 4;

/// Three BLOBs: one expires, one is removed, one is an upload that was dropped.
async fn three_go(it: &Stage) {
    let bytes = content(CHUNK * 3 + 1, 1);
    let short = it.upload_as(living("4s"), &bytes).await;
    let deleted = it.upload(&bytes).await;
    assert!(it.ok(it.node(0).delete(WORKSPACE, deleted.id).await), "{}", it.backend);
    let mut dropped = it.ok(it.node(0).begin(WORKSPACE, living(LONG)).await);
    it.ok(dropped.write(&bytes).await);
    drop(dropped);
    it.settle().await;
    let rest = it.clock.now().until(short.expires_at);
    it.clock.sleep(rest + it.max_skew + Duration::from_millis(20)).await;
    it.assert_nothing_left("whatever goes").await;
}

/// Waits for a backend that sweeps by itself.
async fn until_swept(it: &Stage, held: impl AsyncFn() -> u64) {
    for _ in 0..200 {
        if held().await == 0 {
            return;
        }
        it.clock.sleep(Duration::from_millis(50)).await;
    }
    panic!("{}: {} are left", it.backend, held().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_holds_no_chunk_of_what_went() {
    let it = Stage::memory().await;
    let AnyStore::Memory(store) = it.stores[0].inner.clone() else { panic!("another backend") };
    let before = store.allocated_bytes();
    let kept = it.upload(&content(CHUNK * 2, 2)).await;
    assert!(store.allocated_bytes() > before + CHUNK, "the control: chunks are seen");
    assert!(it.ok(it.node(0).delete(WORKSPACE, kept.id).await));
    three_go(&it).await;
    let chunks = || store.allocated_bytes().saturating_sub(before) / CHUNK;
    until_swept(&it, async || chunks() as u64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_holds_no_record_of_what_went() {
    let it = Stage::file().await;
    let AnyStore::File(store) = it.stores[0].inner.clone() else { panic!("another backend") };
    let held = async || store.stored_records().await.expect("it is read");
    let kept = it.upload(&content(CHUNK * 2, 2)).await;
    assert!(held().await >= 4, "the control: records are seen");
    assert!(it.ok(it.node(0).delete(WORKSPACE, kept.id).await));
    three_go(&it).await;
    until_swept(&it, held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_holds_no_chunk_of_what_went() {
    let Some(url) = listed_url() else { return };
    let prefix = format!("blobs-{:016x}", SystemClock::shared().random_u64());
    let keys = Keys::new(&url, &prefix);
    let max_skew = wane_backends::MAX_SKEW;
    let url = format!("{url}?prefix={prefix}");
    let it = Stage::shared(Address { backend: "redis", url, max_skew }).await;
    let kept = it.upload(&content(CHUNK * 2, 2)).await;
    assert!(keys.bytes() > CHUNK as u64, "the control: chunks are seen");
    assert!(it.ok(it.node(0).delete(WORKSPACE, kept.id).await));
    three_go(&it).await;
    // A deletion is remembered for a while, by the id of its operation alone.
    until_swept(&it, async || keys.bytes() / 4_096).await;
    let now = it.clock.now().as_unix_millis();
    for due in keys.names().iter().filter(|name| name.ends_with(":due")) {
        let last: Vec<(Vec<u8>, u64)> = redis::cmd("ZRANGE")
            .arg(due)
            .arg(&["-1", "-1", "WITHSCORES"])
            .query(&mut keys.connection())
            .expect("when it is swept");
        assert!(last[0].1 <= now + SLACK_SECONDS * 1_000, "{due} stays until {}", last[0].1);
    }
    keys.remove();
}

/// Every row of what went has a native life that ends by itself, no later than the slack after the
/// life of the BLOB, and what was removed holds no bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cassandra_takes_away_by_itself_what_went() {
    let places = [Replication::Cas1, Replication::Cas3].into_iter().filter_map(Place::new);
    join_all(places.map(|place| async move {
        let CassandraSettings { replication, hosts, keyspace, datacenter, .. } = &place.settings;
        let (backend, hosts) = (replication.name(), hosts.join(","));
        let datacenter = datacenter.as_deref().unwrap_or("dc1");
        let url = format!("{backend}://{hosts}/{keyspace}?datacenter={datacenter}");
        let max_skew = wane_backends::MAX_SKEW;
        let it = Stage::shared(Address { backend, url, max_skew }).await;
        three_go(&it).await;
        let session = place.session().await;
        let rows = format!("SELECT v, TTL(op) FROM {keyspace}.records");
        let rows = session.query_unpaged(rows, ()).await.expect("rows");
        let rows = rows.into_rows_result().expect("rows");
        let (mut seen, mut bytes) = (0, 0);
        for row in rows.rows::<(Option<Vec<u8>>, Option<i32>)>().expect("typed rows") {
            let (value, life) = row.expect("a row");
            let Some(life) = life else { continue };
            assert!(
                life as u64 <= SHORT_SECONDS + SLACK_SECONDS,
                "{backend}: a row lives {life} s"
            );
            (seen, bytes) = (seen + 1, bytes + value.map_or(0, |value| value.len()));
        }
        assert!(seen >= 12, "{backend}: only {seen} rows were seen");
        assert!(bytes <= CHUNK * 3 + 2_000, "{backend}: {bytes} bytes are held");
        place.remove().await;
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_takes_away_by_itself_what_went() {
    let Some(server) = Server::listed() else { return };
    let max_skew = wane_backends::MAX_SKEW_DYNAMODB;
    let url = server.url(&server.endpoint);
    let it = Stage::shared(Address { backend: "dynamodb", url, max_skew }).await;
    three_go(&it).await;
    let found = server.client.scan().table_name(&server.table).consistent_read(true).send().await;
    let items = found.expect("the items").items.unwrap_or_default();
    let now = it.clock.now().as_unix_millis() / 1_000;
    let (mut seen, mut bytes) = (0, 0);
    for item in &items {
        let Some(AttributeValue::N(cleanup)) = item.get("ttl") else { continue };
        let cleanup: u64 = cleanup.parse().expect("seconds");
        assert!(cleanup <= now + 2 * SLACK_SECONDS, "an item stays until {cleanup}, it is {now}");
        let value = item.get("v").and_then(|value| value.as_b().ok());
        (seen, bytes) = (seen + 1, bytes + value.map_or(0, |value| value.as_ref().len()));
    }
    assert!(seen + 1 >= items.len() && seen >= 12, "{seen} of {} items go", items.len());
    assert!(bytes <= CHUNK * 3 + 2_000, "{bytes} bytes are held");
    server.remove_table().await;
}
