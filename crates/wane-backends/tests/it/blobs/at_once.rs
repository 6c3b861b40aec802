//! Many uploads at once, and one that is large.
//!
//! `WANE_TEST_BLOB_MIB` sets how large.

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::task::JoinSet;
use wane::clock::{Clock as _, ManualClock};
use wane::conformance::history::number_from_env;
use wane::services::blobs::{BlobLimits, NewBlob, Usage};

use super::stage::{Stage, on_every_backend};
use super::{CHUNK, LONG, WORKSPACE, content, download, living, upload};

/// Bytes of each of many: three chunks.
const SIZE: usize = 300 << 10;

/// So many begin at once, on both nodes; each is whole, and all of it can be removed.
async fn all_are_whole(it: &Stage, count: usize, size: usize) {
    let began = it.clock.monotonic();
    let mut uploads = JoinSet::new();
    for number in 0..count {
        let node = it.node(number % 2);
        uploads.spawn(async move {
            let bytes = content(size, number as u64);
            (number, upload(&node, living(LONG), &bytes, 65_537).await)
        });
    }
    let uploaded: Vec<_> = uploads.join_all().await;
    let took = it.clock.monotonic() - began;
    println!("{}: {count} uploads of {size} bytes at once in {took:?}", it.backend);
    let ids = uploaded.into_iter().map(|(number, done)| (number, it.ok(done).id));
    let ids: Vec<_> = ids.collect();
    let held = it.ok(it.restarted().usage().await);
    assert_eq!(held, Usage { blobs: count as u64, bytes: (count * size) as u64 });
    let checked = stream::iter(ids).map(|(number, id)| async move {
        let back = it.ok(download(&it.node((number + 1) % 2), id).await);
        let is_whole = back.is_some_and(|back| back == content(size, number as u64));
        assert!(is_whole, "{}: {number} of {count}", it.backend);
        assert!(it.ok(it.node(number % 2).delete(WORKSPACE, id).await), "{}", it.backend);
    });
    checked.buffer_unordered(16).collect::<Vec<()>>().await;
    it.assert_nothing_left("removing them all").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_uploads_at_once_are_whole() {
    on_every_backend(async |it| all_are_whole(it, 100, SIZE).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_uploads_at_once_are_whole_on_one_machine() {
    for it in [Stage::memory().await, Stage::file().await] {
        all_are_whole(&it, 1_000, CHUNK + 1).await;
    }
}

/// Never more of it in memory than a piece, on this side either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_blob_streams_through_a_file() {
    const PIECE: usize = 1 << 20;
    let size = number_from_env("WANE_TEST_BLOB_MIB", 64) << 20;
    let it = Stage::file().await;
    let limits = BlobLimits { max_size: size, max_total_bytes: size, ..BlobLimits::default() };
    let blobs = it.limited(0, limits);
    let began = it.clock.monotonic();
    let source = ManualClock::seeded(1);
    let mut piece = vec![0; PIECE];
    let mut upload =
        it.ok(blobs.begin(WORKSPACE, NewBlob { length: Some(size), ..living(LONG) }).await);
    while upload.size() < size {
        source.fill_random(&mut piece);
        it.ok(upload.write(&piece).await);
    }
    let uploaded = it.ok(upload.finish().await);
    let sent = it.clock.monotonic();
    let again = ManualClock::seeded(1);
    let blob = it.ok(blobs.open(WORKSPACE, uploaded.id).await).expect("it is there");
    let (mut reading, mut expected, mut seen) = (blob.read_all(), Vec::new(), 0);
    while let Some(bytes) = it.ok(reading.next().await) {
        while expected.len() < bytes.len() {
            again.fill_random(&mut piece);
            expected.extend_from_slice(&piece);
        }
        assert!(expected.drain(..bytes.len()).eq(bytes.iter().copied()), "at {seen}");
        seen += bytes.len() as u64;
    }
    assert_eq!(seen, size);
    let took = it.clock.monotonic();
    println!("file: {} MiB up in {:?}, down in {:?}", size >> 20, sent - began, took - sent);
    assert!(it.ok(blobs.delete(WORKSPACE, uploaded.id).await));
    it.assert_nothing_left("removing it").await;
}
