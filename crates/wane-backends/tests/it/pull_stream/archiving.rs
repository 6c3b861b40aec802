//! Archiving on every backend: two nodes at once, rows that expire once they are archived, and what
//! comes back.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wane::services::pull_stream::{ArchivedRow, Client, Ispb, Policy, PullStreamSettings};
use wane::store::{Timestamp, Ttl};
use wane_backends::ObjectArchive;

use super::stage::{
    PATIENCE, Stage, Stream, fresh_ispb, keys, message, on_every_backend, unhurried,
};

const RETENTION: Duration = Duration::from_secs(6);

fn all_times() -> Range<Timestamp> {
    Timestamp::from_unix_millis(0)..Timestamp::from_unix_millis(u64::MAX)
}

/// Two nodes that archive to one directory, in small segments.
fn nodes(it: &Stage, directory: &TempDir) -> [Stream; 2] {
    let url = format!("dir:{}", directory.path().join("archive").display());
    let archive = ObjectArchive::open(&url, None).expect("it can be made");
    let (keys, archive) = (keys("a", None), Arc::new(archive));
    let settings = PullStreamSettings {
        archive: Some(archive),
        archive_segment: 1_000,
        archive_before: RETENTION,
        ..unhurried()
    };
    [0, 1].map(|number| it.node(number, &keys, settings.clone()))
}

async fn read_back(it: &Stage, node: &Stream, ispb: Ispb) -> Vec<ArchivedRow> {
    let mut rows: Vec<ArchivedRow> = Vec::new();
    loop {
        let from = rows.last().map_or(0, |last| last.row + 1);
        let more = it.insist(async || node.archived(ispb, all_times(), from).await).await;
        if more.is_empty() {
            return rows;
        }
        rows.extend(more);
    }
}

fn assert_all(it: &Stage, rows: &[ArchivedRow], count: usize) {
    let messages: Vec<_> = rows.iter().flat_map(|row| &row.messages).collect();
    assert_eq!(messages.len(), count, "{}", it.backend);
    for (number, message_of) in messages.iter().enumerate() {
        assert_eq!(message_of.bytes, message(number), "{}: message {number}", it.backend);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_archive_at_once_and_everything_comes_back_once() {
    on_every_backend(async |it| {
        let directory = tempfile::tempdir().expect("a directory");
        let (nodes, ispb) = (nodes(it, &directory), fresh_ispb());
        let count = if it.is_slow { 60 } else { 300 };
        it.take_in(&nodes, ispb, count).await;
        let who = Client::default();
        let archive = async |node: &Stream| {
            it.insist(async || node.archive(ispb, all_times(), u64::MAX, &who).await).await
        };
        let (one, other) = tokio::join!(archive(&nodes[0]), archive(&nodes[1]));
        assert!(one.is_done && other.is_done, "{}: {one:?}, {other:?}", it.backend);
        let segments = it.insist(async || nodes[1].segments(ispb, 0, usize::MAX).await).await;
        for pair in segments.windows(2) {
            assert!(pair[0].rows.end <= pair[1].rows.start, "{}: {pair:?}", it.backend);
        }
        assert!(segments.len() > 2, "{}: {}", it.backend, segments.len());
        assert_all(it, &read_back(it, &nodes[0], ispb).await, count);
        let known = it.insist(async || nodes[0].institutions().await).await;
        assert!(known.contains(&ispb), "{}: {known:?}", it.backend);
    })
    .await;
}

/// The archive has what the log has no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_near_their_end_are_archived_and_outlive_it_there() {
    on_every_backend(async |it| {
        let directory = tempfile::tempdir().expect("a directory");
        let (nodes, ispb) = (nodes(it, &directory), fresh_ispb());
        let retention = Ttl::from_millis(RETENTION.as_millis() as u64).expect("a legal life");
        let policy = Policy { retention, max_readers: 6 };
        it.insist(async || nodes[0].set_policy(ispb, policy, &Client::default()).await).await;
        it.clock.sleep(Duration::from_secs(1)).await;
        it.take_in(&nodes[..1], ispb, 30).await;
        let due = it.insist(async || nodes[1].archive_due(ispb, u64::MAX).await).await;
        assert_eq!((due.messages, due.gone), (30, 0), "{}", it.backend);
        it.clock.sleep(RETENTION + it.max_skew).await;
        let began = it.clock.monotonic();
        let lives = async || {
            let status = it.insist(async || nodes[0].status(ispb).await).await;
            !status.lag.is_zero()
        };
        while lives().await {
            assert!(it.clock.monotonic() - began < PATIENCE, "{}: it stays", it.backend);
            it.clock.sleep(Duration::from_millis(100)).await;
        }
        assert_all(it, &read_back(it, &nodes[0], ispb).await, 30);
        let status = it.insist(async || nodes[0].archive_status(ispb).await).await;
        assert_eq!((status.oldest, status.gone), (None, 0), "{}", it.backend);
    })
    .await;
}
