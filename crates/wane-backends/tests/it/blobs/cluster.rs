//! BLOBs on a cluster of Redis, where the parts of one lie on several masters.

use wane_backends::MAX_SKEW;

use super::downloads::as_many_win_as_there_are_downloads;
use super::life::what_fails_leaves_nothing;
use super::resumable::the_later_append_has_it;
use super::stage::Stage;
use super::whole::{every_border, passes};
use super::{CHUNK, WORKSPACE, content, download};
use crate::harness::urls::Address;
use crate::redis_cluster::cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_blobs_whole_over_its_masters() {
    let Some((servers, settings)) = cluster().await else { return };
    let url = format!("{}?prefix={}", servers[0].url(), settings.prefix);
    let it = Stage::shared(Address { backend: "redis cluster", url, max_skew: MAX_SKEW }).await;
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(it.upload(&content(CHUNK + number, number as u64)).await.id);
    }
    for server in &servers {
        let keys: u64 = redis::cmd("DBSIZE").query(&mut server.connection()).expect("an answer");
        assert!(keys > 3, "a master has only {keys} keys");
    }
    for (number, id) in ids.into_iter().enumerate() {
        let back = it.ok(download(&it.node(1), id).await).expect("it is there");
        assert!(back == content(CHUNK + number, number as u64));
        assert!(it.ok(it.node(1).delete(WORKSPACE, id).await));
    }
    // Two buckets of chunks and a bit.
    passes(&it, &content(201 * CHUNK, 1), &[65_537]).await;
    every_border(&it).await;
    as_many_win_as_there_are_downloads(&it).await;
    what_fails_leaves_nothing(&it).await;
    the_later_append_has_it(&it).await;
}
