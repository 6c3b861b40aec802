//! One absolute expiry for every part, on the backend's real time; and nothing stays of an upload
//! that did not become a BLOB.

use std::time::Duration;

use wane::services::blobs::{BlobsError, NewBlob, Sha256Sum, Usage};

use super::stage::{RECOUNT, Stage, left, on_every_backend, side_by_side};
use super::{CHUNK, LONG, WORKSPACE, content, download, living, upload};

/// Waits until the store of every node must have dropped what expired at this instant.
async fn outlive(it: &Stage, expires_at: wane::store::Timestamp) {
    let rest = it.clock.now().until(expires_at);
    it.clock.sleep(rest + it.max_skew + Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_is_there_up_to_its_expiry_and_then_nothing_of_it_is() {
    side_by_side(async |it| {
        let bytes = content(CHUNK * 3, 1);
        let uploaded = it.upload_as(living("6s"), &bytes).await;
        let expires_at = uploaded.expires_at;
        let parts = it.left().await;
        assert_eq!(parts.len(), 5, "{}: chunks, state and row of the index", it.backend);
        assert!(parts.iter().all(|(_, part)| part.expires_at == Some(expires_at)));
        let late = it.ok(it.node(1).open(WORKSPACE, uploaded.id).await).expect("it is there");
        let mut reading = late.read_all();
        assert!(it.ok(reading.next().await).is_some(), "{}", it.backend);
        let mut seen = 0;
        loop {
            let back = download(&it.node(1), uploaded.id).await;
            match back {
                Ok(Some(back)) => assert!(back == bytes, "{}", it.backend),
                // The life may end while it is read, and not before.
                Ok(None) | Err(BlobsError::Expired) => break,
                Err(error) => panic!("{}: {error:?}", it.backend),
            }
            seen += 1;
            it.clock.sleep(Duration::from_millis(100)).await;
        }
        let ahead = it.clock.now().until(expires_at);
        assert!(ahead <= it.max_skew, "{}: gone {ahead:?} too early", it.backend);
        assert!(seen > 2, "{}: it was there only {seen} times", it.backend);
        outlive(it, expires_at).await;
        assert!(!it.is_there(uploaded.id).await, "{}", it.backend);
        assert!(matches!(reading.next().await, Err(BlobsError::Expired)), "{}", it.backend);
        assert!(!it.ok(it.node(0).delete(WORKSPACE, uploaded.id).await), "expired is absent");
        it.assert_nothing_left("an expiry").await;
        assert_eq!(it.ok(it.node(0).usage().await), Usage::default(), "{}", it.backend);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_upload_does_not_outlive_its_expiry() {
    side_by_side(async |it| {
        let mut slow = it.ok(it.node(0).begin(WORKSPACE, living("4s")).await);
        it.ok(slow.write(&content(CHUNK * 2, 2)).await);
        let mut late = it.ok(it.node(0).begin(WORKSPACE, living("4s")).await);
        it.ok(late.write(b"in time").await);
        outlive(it, late.expires_at()).await;
        let ended = slow.write(b"late").await;
        assert!(matches!(ended, Err(BlobsError::Expired)), "{}: {ended:?}", it.backend);
        let ended = late.finish().await;
        assert!(matches!(ended, Err(BlobsError::Expired)), "{}: {ended:?}", it.backend);
        it.assert_nothing_left("a slow upload").await;
    })
    .await;
}

/// Aborted, dropped, cut short, of another length or with another sum than announced.
pub(super) async fn what_fails_leaves_nothing(it: &Stage) {
    let (blobs, bytes) = (it.node(0), content(CHUNK * 6 + 7, 3));
    for ended in ["abort", "drop"] {
        let mut upload = it.ok(blobs.begin(WORKSPACE, living(LONG)).await);
        it.ok(upload.write(&bytes).await);
        if ended == "abort" {
            upload.abort().await;
            let keys = it.notes.keys();
            assert!(!keys.is_empty(), "{}: nothing was written", it.backend);
            let left = left(&it.stores[1].inner, &keys).await;
            assert!(left.is_empty(), "{}: {} rows after an abort", it.backend, left.len());
        } else {
            drop(upload);
        }
        it.assert_nothing_left(ended).await;
    }
    let cut = async {
        let mut upload = it.ok(blobs.begin(WORKSPACE, living(LONG)).await);
        it.ok(upload.write(&bytes).await);
        it.ok(upload.write(&bytes).await);
    };
    // Dropped in the middle of a write, as a client that goes away does.
    drop(tokio::time::timeout(Duration::from_millis(3), cut).await);
    it.assert_nothing_left("a write that was cut short").await;
    let announced = NewBlob { sha256: Some(Sha256Sum::of(b"other")), ..living(LONG) };
    let refused = upload(&blobs, announced, &bytes, CHUNK).await;
    assert!(matches!(refused, Err(BlobsError::DigestMismatch { .. })), "{refused:?}");
    let announced = NewBlob { length: Some(bytes.len() as u64 + 1), ..living(LONG) };
    let refused = upload(&blobs, announced, &bytes, CHUNK).await;
    assert!(matches!(refused, Err(BlobsError::LengthMismatch { .. })), "{refused:?}");
    it.assert_nothing_left("what was not as announced").await;
    // What other nodes have removed is counted anew after this.
    it.clock.sleep(RECOUNT).await;
    for node in [0, 1] {
        assert_eq!(it.ok(it.node(node).usage().await), Usage::default(), "{}", it.backend);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_fails_leaves_nothing() {
    on_every_backend(what_fails_leaves_nothing).await;
}
