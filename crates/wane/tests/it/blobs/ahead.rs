//! Writing and reading ahead: a slow store does not serialise a transfer, and memory stays small.

use std::time::Duration;

use wane::conformance::ModelStore;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsSettings, NewBlob};

use super::tapped::{Tap, Tapped};
use super::{APP, CHUNK, content, download, upload};
use crate::simulation::machine::{Machine, Wall, begin};

const LATENCY: Duration = Duration::from_millis(10);
const CHUNKS: usize = 40;

/// Chunks under way at once, unless set otherwise.
const AHEAD: usize = 4;

/// BLOBs over a store on simulated time.
async fn slow() -> (AppBlobs<Tapped<ModelStore>>, Tapped<ModelStore>, Machine) {
    slow_with(BlobsSettings::default()).await
}

async fn slow_with(
    settings: BlobsSettings,
) -> (AppBlobs<Tapped<ModelStore>>, Tapped<ModelStore>, Machine) {
    begin().await;
    let machine = Machine::new(1.0, Wall::Monotonic, 1);
    let store = Tapped::new(ModelStore::new(machine.clock()));
    let blobs = Blobs::with_settings(store.clone(), machine.clock(), settings);
    let blobs = blobs.of(APP, BlobLimits::default());
    blobs.usage().await.expect("it can be counted");
    store.turn(Tap::Slow(LATENCY));
    (blobs, store, machine)
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_does_not_serialise_a_transfer() {
    let (blobs, store, machine) = slow().await;
    let bytes = content(CHUNK * CHUNKS, 1);
    let began = machine.elapsed();
    let id = upload(&blobs, NewBlob::default(), &bytes, 16_384).await.unwrap().id;
    let took = machine.elapsed() - began;
    assert_eq!(store.most_in_flight(), AHEAD);
    let rounds = (CHUNKS / AHEAD) as u32;
    assert!(took <= LATENCY * (rounds + 3), "{took:?} for {CHUNKS} chunks of {LATENCY:?}");

    store.turn(Tap::Slow(LATENCY));
    let began = machine.elapsed();
    assert!(download(&blobs, id).await.unwrap().unwrap() == bytes);
    let took = machine.elapsed() - began;
    assert_eq!(store.most_in_flight(), AHEAD);
    assert!(took <= LATENCY * (CHUNKS.div_ceil(AHEAD) as u32 + 3), "{took:?}");
}

/// Uploads share what they may write beyond their own chunks: one alone has all of it, and many
/// together take no more memory for it than one.
#[tokio::test(start_paused = true)]
async fn chunks_beyond_an_uploads_own_are_shared_by_all() {
    const SHARED: usize = 10;
    let settings = BlobsSettings { shared_ahead: SHARED, ..BlobsSettings::default() };
    let (blobs, store, _) = slow_with(settings).await;
    let bytes = content(CHUNK * CHUNKS, 3);
    upload(&blobs, NewBlob::default(), &bytes, CHUNK).await.unwrap();
    assert_eq!(store.most_in_flight(), AHEAD + SHARED);

    let (blobs, store, _) = slow_with(settings).await;
    let three = [(); 3].map(|()| upload(&blobs, NewBlob::default(), &bytes, CHUNK));
    for uploaded in futures_util::future::join_all(three).await {
        let found = download(&blobs, uploaded.unwrap().id).await.unwrap();
        assert!(found.is_some_and(|found| found == bytes));
    }
    assert_eq!(store.most_in_flight(), 3 * AHEAD + SHARED);
}

/// Memory per transfer is a few chunks: a reader that stops reading stops the reads.
#[tokio::test(start_paused = true)]
async fn a_reader_that_rests_has_few_chunks_read() {
    let (blobs, store, _) = slow().await;
    let bytes = content(CHUNK * CHUNKS, 2);
    let id = upload(&blobs, NewBlob::default(), &bytes, CHUNK).await.unwrap().id;
    let blob = blobs.open(super::WORKSPACE, id).await.unwrap().unwrap();
    store.turn(Tap::Slow(LATENCY));
    let mut reading = blob.read_all();
    assert!(reading.next().await.unwrap().is_some());
    super::tapped::until_idle().await;
    assert!(store.calls() <= AHEAD, "{} reads for one chunk", store.calls());
}

/// A store whose writes fail when they are joined ends the upload at the next piece or the end.
#[tokio::test(start_paused = true)]
async fn a_failed_write_ahead_is_not_forgotten() {
    let (blobs, store, _) = slow().await;
    let mut upload = blobs.begin(super::WORKSPACE, NewBlob::default()).await.unwrap();
    store.turn(Tap::Down);
    upload.write(&content(CHUNK, 3)).await.expect("it is on its way");
    super::tapped::until_idle().await;
    store.turn(Tap::Nothing);
    assert!(upload.finish().await.is_err(), "one chunk is missing");
}
