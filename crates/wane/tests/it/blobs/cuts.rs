//! Cut at every step: whatever call of the store an upload dies in, nothing of it is readable, and
//! nothing is left of it.

use std::time::Duration;

use wane::services::blobs::{BlobsError, Keeping, NewBlob};
use wane::store::Outcome;

use super::tapped::{Tap, as_far_as_it_goes, until_idle};
use super::{CHUNK, Setup, WORKSPACE, content, is_state, says, setup, upload};

/// Uploads in pieces, with more chunks than are written at once.
async fn upload_some(setup: &Setup) -> Result<(), BlobsError> {
    let bytes = content(CHUNK * 6 + 7, 1);
    upload(&setup.blobs, NewBlob::default(), &bytes, 65_537).await.map(drop)
}

/// Nothing is left but tombstones, and those go with the life that the BLOB would have had.
async fn assert_gone(setup: &Setup, when: &str) {
    for row in setup.rows().await {
        let is_tombstone = is_state(&row) && says(&row, "\"status\":\"removed\"");
        assert!(is_tombstone, "{when}: {:?} is left", row.record.value);
    }
    let usage = setup.blobs.usage().await.expect("it can be counted");
    assert_eq!(usage.bytes, 0, "{when}");
    setup.clock.advance(Duration::from_secs(86_400));
    setup.assert_empty().await;
}

/// The calls of an upload that is not cut.
async fn calls_of_an_upload() -> usize {
    let setup = setup();
    upload_some(&setup).await.expect("nothing is wrong");
    setup.store.calls()
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_dropped_in_any_call_leaves_nothing() {
    let calls = calls_of_an_upload().await;
    assert!(calls > 8, "chunks, index and state");
    for after in [false, true] {
        for from in 0..calls {
            let setup = setup();
            setup.store.turn(Tap::Hang { from, after });
            let done = as_far_as_it_goes(upload_some(&setup)).await;
            assert!(done.is_none(), "call {from} hangs");
            setup.store.turn(Tap::Nothing);
            until_idle().await;
            assert_gone(&setup, &format!("cut in call {from}, after: {after}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_loses_its_store_leaves_nothing_once_it_is_back() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    upload.write(&content(CHUNK * 3, 2)).await.unwrap();
    until_idle().await;
    setup.store.turn(Tap::Down);
    let mut failed = upload.write(&content(CHUNK, 2)).await;
    while failed.is_ok() {
        failed = upload.write(&content(CHUNK, 2)).await;
    }
    assert!(matches!(failed, Err(BlobsError::Store(_))), "{failed:?}");
    setup.service.settle().await;
    assert_eq!(setup.service.left_to_expiry(), 1, "it could not be removed either");
    setup.store.turn(Tap::Nothing);
    assert!(!setup.rows().await.is_empty());
    setup.clock.advance(Duration::from_secs(86_400));
    setup.assert_empty().await;
}

#[tokio::test]
async fn an_aborted_upload_is_gone_when_abort_returns() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    upload.write(&content(CHUNK * 7, 3)).await.unwrap();
    assert_eq!(setup.blobs.usage().await.unwrap().bytes, 7 * CHUNK as u64);
    upload.abort().await;
    assert!(super::live_rows(&setup.store.inner).await.is_empty());
    assert_eq!(setup.blobs.usage().await.unwrap().bytes, 0);
}

/// A caller that cuts one call short cannot go on as if the piece had been taken.
#[tokio::test(start_paused = true)]
async fn a_write_that_was_cut_short_ends_the_upload() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    setup.store.turn(Tap::Hang { from: 0, after: false });
    let bytes = content(CHUNK * 6, 4);
    assert!(as_far_as_it_goes(upload.write(&bytes)).await.is_none());
    setup.store.turn(Tap::Nothing);
    assert!(matches!(upload.write(b"more").await, Err(BlobsError::Ended)));
    assert!(matches!(upload.finish().await, Err(BlobsError::Ended)));
    setup.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_is_dropped_in_any_call_leaves_a_whole_blob_or_none() {
    for after in [false, true] {
        for from in 0..3 {
            let setup = setup();
            let bytes = content(CHUNK * 2, 5);
            let id = setup.upload(&bytes).await.id;
            setup.store.turn(Tap::Hang { from, after });
            let delete = setup.blobs.delete(WORKSPACE, id);
            assert!(as_far_as_it_goes(delete).await.is_none(), "call {from} hangs");
            setup.store.turn(Tap::Nothing);
            until_idle().await;
            match super::download(&setup.blobs, id).await.expect("whole or none") {
                Some(back) => assert!(back == bytes),
                None => setup.assert_empty().await,
            }
        }
    }
}

/// The commit was sent twice, and the first one arrives when the BLOB was removed, had for the last
/// time, or terminated as an upload: it must not bring it back.
#[tokio::test]
async fn a_commit_that_arrives_again_brings_nothing_back() {
    let once = NewBlob { downloads: Some(1), length: Some(3), ..NewBlob::default() };
    for way in 0..3 {
        let setup = setup();
        setup.store.turn(Tap::LateInsert);
        let id = if way == 2 {
            setup.blobs.create(WORKSPACE, once.clone()).await.unwrap().id
        } else {
            upload(&setup.blobs, once.clone(), b"abc", 3).await.unwrap().id
        };
        let is_gone = match way {
            0 => setup.blobs.delete(WORKSPACE, id).await.unwrap(),
            1 => super::download(&setup.blobs, id).await.unwrap().is_some(),
            _ => setup.blobs.terminate(WORKSPACE, id).await.unwrap(),
        };
        assert!(is_gone, "way {way}");
        setup.service.settle().await;
        let late = setup.store.deliver().await;
        assert!(matches!(late, Outcome::Refused { current: Some(_) }), "way {way}: {late:?}");
        assert!(!setup.is_there(id).await, "way {way}");
        assert!(setup.blobs.resume(WORKSPACE, id).await.unwrap().is_none(), "way {way}");
        setup.clock.advance(Duration::from_secs(86_400));
        setup.assert_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_is_dropped_in_any_call_leaves_nothing() {
    let blob = NewBlob { length: Some(CHUNK as u64 * 3), ..NewBlob::default() };
    let calls = {
        let setup = setup();
        setup.blobs.create(WORKSPACE, blob.clone()).await.unwrap();
        setup.store.calls()
    };
    assert!(calls >= 2, "index and state");
    for after in [false, true] {
        for from in 0..calls {
            let setup = setup();
            setup.store.turn(Tap::Hang { from, after });
            let create = setup.blobs.create(WORKSPACE, blob.clone());
            assert!(as_far_as_it_goes(create).await.is_none(), "call {from} hangs");
            setup.store.turn(Tap::Nothing);
            until_idle().await;
            assert_gone(&setup, &format!("cut in call {from}, after: {after}")).await;
        }
    }
}

#[tokio::test]
async fn an_upload_that_nobody_was_told_of_is_removed() {
    let setup = setup();
    let blob = NewBlob { length: Some(CHUNK as u64 * 3), ..NewBlob::default() };
    let (created, untold) = setup.blobs.create_untold(WORKSPACE, blob).await.unwrap();
    let append = setup.blobs.append(WORKSPACE, created.id, 0, Keeping::AsItComes).await;
    let mut append = append.unwrap().unwrap();
    append.write(&content(CHUNK * 2, 6)).await.unwrap();
    drop(untold);
    until_idle().await;
    assert!(matches!(append.keep().await, Err(BlobsError::Overtaken)));
    setup.service.settle().await;
    assert_gone(&setup, "untold").await;
}

/// The append writes the chunk in which the kept bytes end after the removal has removed it.
#[tokio::test]
async fn a_removal_during_an_append_leaves_nothing_of_either() {
    let setup = setup();
    let blob = NewBlob { length: Some(CHUNK as u64 * 3), ..NewBlob::default() };
    let id = setup.blobs.create(WORKSPACE, blob).await.unwrap().id;
    for (offset, len) in [(0, 50_000), (50_000, 10_000)] {
        let append = setup.blobs.append(WORKSPACE, id, offset, Keeping::AsItComes).await;
        let mut append = append.unwrap().unwrap();
        append.write(&content(len, 7)).await.unwrap();
        if offset > 0 {
            assert!(setup.blobs.terminate(WORKSPACE, id).await.unwrap());
            assert!(matches!(append.keep().await, Err(BlobsError::Overtaken)));
        } else {
            append.keep().await.unwrap();
        }
    }
    setup.service.settle().await;
    assert_gone(&setup, "removed").await;
}
