//! Numbered downloads: taken before the first byte, never more of them, and then the BLOB is gone.

use std::time::Duration;

use tokio::task::JoinSet;
use wane::services::ClusterAppId;
use wane::services::blobs::{Blob, BlobLimits, Blobs, NewBlob, Suuid};
use wane::store::Store;

use super::tapped::{Tap, as_far_as_it_goes, until_idle};
use super::{APP, CHUNK, Setup, WORKSPACE, content, download, inner_store, setup, upload};
use crate::gated::{Gate, GatedStore};
use crate::manual_clock;

fn times(downloads: u32) -> NewBlob {
    NewBlob { downloads: Some(downloads), ..NewBlob::default() }
}

async fn read<S: Store>(blob: Blob<S>) -> Vec<u8> {
    let (mut reading, mut bytes) = (blob.read_all(), Vec::new());
    while let Some(piece) = reading.next().await.expect("it is read to its end") {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

async fn uploaded(setup: &Setup, downloads: u32, bytes: &[u8]) -> Suuid {
    upload(&setup.blobs, times(downloads), bytes, CHUNK).await.expect("it is taken").id
}

#[tokio::test]
async fn a_one_time_blob_is_had_once_and_then_removed() {
    let setup = setup();
    let bytes = content(CHUNK * 3, 1);
    let id = uploaded(&setup, 1, &bytes).await;
    assert!(setup.blobs.info(WORKSPACE, id).await.unwrap().is_some(), "asking takes nothing");
    assert!(download(&setup.blobs, id).await.unwrap().unwrap() == bytes);
    assert!(!setup.is_there(id).await);
    setup.assert_empty().await;
    assert_eq!(setup.blobs.usage().await.unwrap().blobs, 0);
}

#[tokio::test]
async fn a_transfer_that_breaks_is_spent() {
    let setup = setup();
    let id = uploaded(&setup, 1, &content(CHUNK * 9, 2)).await;
    let mut reading = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap().read_all();
    reading.next().await.unwrap();
    assert!(!setup.is_there(id).await, "from before the first byte on");
    drop(reading);
    setup.assert_empty().await;
    let id = uploaded(&setup, 1, b"abc").await;
    drop(setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap());
    setup.assert_empty().await;
}

#[tokio::test]
async fn downloads_count_down() {
    let setup = setup();
    let id = uploaded(&setup, 3, b"abc").await;
    for left in (0..3).rev() {
        let blob = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
        assert_eq!(blob.info().downloads_left, Some(left));
        assert_eq!(read(blob).await, b"abc");
    }
    assert!(!setup.is_there(id).await);
    setup.assert_empty().await;
}

/// The last download ends before an earlier one: the earlier one still gets every byte.
#[tokio::test]
async fn the_last_download_does_not_take_the_bytes_from_earlier_ones() {
    let setup = setup();
    let bytes = content(CHUNK * 12, 3);
    let id = uploaded(&setup, 2, &bytes).await;
    let first = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
    let last = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
    assert!(read(last).await == bytes);
    setup.service.settle().await;
    assert!(read(first).await == bytes);
    setup.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_opens_exactly_as_many_as_there_are_downloads_win() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    store.set(Gate::GiveWay);
    let service = Blobs::new(store, clock);
    let blobs = service.of(APP, BlobLimits::default());
    for downloads in [1, 1, 1, 3] {
        for racers in [2, 16] {
            let id = upload(&blobs, times(downloads), b"abc", 3).await.unwrap().id;
            let mut opens = JoinSet::new();
            for _ in 0..racers {
                let blobs = blobs.clone();
                opens.spawn(async move {
                    match blobs.open(WORKSPACE, id).await.expect("it answers") {
                        Some(blob) => u32::from(read(blob).await == b"abc"),
                        None => 0,
                    }
                });
            }
            let won: u32 = opens.join_all().await.into_iter().sum();
            assert_eq!(won, downloads.min(racers), "{racers} for {downloads}");
        }
    }
}

/// A download that was looked at first, as by HTTP, asks the store no more than any other.
#[tokio::test]
async fn what_was_found_is_opened_without_another_read() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let service = Blobs::new(store.clone(), clock);
    let blobs = service.of(APP, BlobLimits::default());
    let id = upload(&blobs, NewBlob::default(), b"abc", 3).await.unwrap().id;
    let found = blobs.find(WORKSPACE, id).await.unwrap().expect("it is there");
    assert_eq!(found.info().size, 3);
    let other = service.of(ClusterAppId(APP.0 + 1), BlobLimits::default());
    assert!(other.open_found(found.clone()).await.unwrap().is_none(), "another application's");
    store.set(Gate::HoldReads);
    let opened = tokio::time::timeout(Duration::from_secs(20), blobs.open_found(found)).await;
    let blob = opened.expect("it reads nothing").unwrap().expect("it is there");
    store.set(Gate::Open);
    assert_eq!(read(blob).await, b"abc");
}

/// One of two that found the same last download is told that it is gone.
#[tokio::test]
async fn what_was_found_by_two_is_claimed_by_one() {
    let (_, clock) = manual_clock();
    let service = Blobs::new(inner_store(clock.clone()), clock);
    let blobs = service.of(APP, BlobLimits::default());
    let id = upload(&blobs, times(1), b"abc", 3).await.unwrap().id;
    let found = blobs.find(WORKSPACE, id).await.unwrap().expect("it is there");
    let first = blobs.open_found(found.clone()).await.unwrap().expect("one is left");
    assert!(blobs.open_found(found).await.unwrap().is_none(), "none is left");
    assert_eq!(read(first).await, b"abc");
}

/// An answer that was lost does not lose the download: the claim recognises itself.
#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_taken_once() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let service = Blobs::new(store.clone(), clock);
    let blobs = service.of(APP, BlobLimits::default());
    let id = upload(&blobs, times(1), b"abc", 3).await.unwrap().id;
    store.set(Gate::LoseAnswer);
    let blob = blobs.open(WORKSPACE, id).await.unwrap().expect("its own claim stands there");
    store.set(Gate::Open);
    assert!(blobs.open(WORKSPACE, id).await.unwrap().is_none());
    assert_eq!(read(blob).await, b"abc");
}

/// The same for the commit: every answer is lost, and the upload knows its own record.
#[tokio::test]
async fn an_upload_whose_answers_are_lost_knows_its_own_record() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let service = Blobs::new(store.clone(), clock);
    let blobs = service.of(APP, BlobLimits::default());
    let mut upload = blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    upload.write(b"abc").await.unwrap();
    store.set(Gate::LoseAnswer);
    let id = upload.finish().await.expect("it finds what it wrote").id;
    assert!(blobs.delete(WORKSPACE, id).await.expect("it finds nothing any more"));
    store.set(Gate::Open);
    assert!(blobs.info(WORKSPACE, id).await.unwrap().is_none());
}

/// Where no request arrives nothing is promised, and nothing is left.
#[tokio::test]
async fn an_upload_whose_requests_are_lost_fails() {
    let (_, clock) = manual_clock();
    let store = GatedStore::new(inner_store(clock.clone()));
    let service = Blobs::new(store.clone(), clock);
    let blobs = service.of(APP, BlobLimits::default());
    let mut upload = blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    upload.write(b"abc").await.unwrap();
    store.set(Gate::LoseRequest);
    assert!(upload.finish().await.is_err());
    store.set(Gate::Open);
    service.settle().await;
    assert!(super::live_rows(&store.inner).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_open_that_is_dropped_takes_one_download_at_most() {
    for after in [false, true] {
        for from in 0..2 {
            let setup = setup();
            let id = uploaded(&setup, 2, b"abc").await;
            setup.store.turn(Tap::Hang { from, after });
            let open = setup.blobs.open(WORKSPACE, id);
            assert!(as_far_as_it_goes(open).await.is_none(), "call {from} hangs");
            setup.store.turn(Tap::Nothing);
            until_idle().await;
            let info = setup.blobs.info(WORKSPACE, id).await.unwrap().unwrap();
            assert!(matches!(info.downloads_left, Some(1 | 2)), "{info:?}");
            assert_eq!(download(&setup.blobs, id).await.unwrap().unwrap(), b"abc");
            setup.clock.advance(Duration::from_secs(86_400));
            setup.assert_empty().await;
        }
    }
}

/// The last download is taken and nobody gets it: the BLOB goes all the same, and at once.
#[tokio::test(start_paused = true)]
async fn an_open_of_the_last_download_that_is_dropped_leaves_a_whole_blob_or_nothing() {
    for after in [false, true] {
        for from in 0..3 {
            let setup = setup();
            let id = uploaded(&setup, 1, b"abc").await;
            setup.store.turn(Tap::Hang { from, after });
            let open = setup.blobs.open(WORKSPACE, id);
            assert!(as_far_as_it_goes(open).await.is_none(), "call {from} hangs");
            setup.store.turn(Tap::Nothing);
            until_idle().await;
            match download(&setup.blobs, id).await.unwrap() {
                Some(bytes) => assert_eq!(bytes, b"abc", "call {from}"),
                None => setup.assert_empty().await,
            }
        }
    }
}

/// A store that is away when the first bytes are asked for costs nobody a download.
#[tokio::test(start_paused = true)]
async fn bytes_that_cannot_be_had_take_no_download() {
    let setup = setup();
    let id = uploaded(&setup, 1, b"abc").await;
    let place = setup.rows().await.into_iter().find(|row| &*row.record.value == b"abc").unwrap();
    let chunk = setup.store.inner.get(&place.key).await.unwrap().unwrap();
    let fence = chunk.fence;
    let gone = setup.store.inner.compare_and_delete(&place.key, b"abc", fence).await.unwrap();
    assert!(gone.is_applied());
    assert!(setup.blobs.open(WORKSPACE, id).await.is_err());
    let info = setup.blobs.info(WORKSPACE, id).await.unwrap().unwrap();
    assert_eq!(info.downloads_left, Some(1));
}
