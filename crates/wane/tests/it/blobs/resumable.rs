//! Resumable uploads: the offset that was kept is where it goes on, whoever appends, and the BLOB
//! is the same as if it had come in one go.

use std::time::Duration;

use wane::services::blobs::{
    Append, BlobLimits, Blobs, BlobsError, Created, Keeping, NewBlob, Sha256Sum, UploadProgress,
};

use super::tapped::{Tap, Tapped, as_far_as_it_goes, until_idle};
use super::{APP, CHUNK, SIZES, Setup, WORKSPACE, assert_invalid, content, download, setup};
use crate::InnerStore;

fn announced(bytes: &[u8]) -> NewBlob {
    NewBlob { length: Some(bytes.len() as u64), ..NewBlob::default() }
}

async fn created(setup: &Setup, bytes: &[u8]) -> Created {
    setup.blobs.create(WORKSPACE, announced(bytes)).await.expect("it is taken")
}

async fn append(setup: &Setup, upload: &Created, offset: usize) -> Append<Tapped<InnerStore>> {
    let keeping = Keeping::AsItComes;
    let append = setup.blobs.append(WORKSPACE, upload.id, offset as u64, keeping).await;
    append.expect("it goes on").expect("there is such an upload")
}

async fn offset(setup: &Setup, upload: &Created) -> u64 {
    let progress = setup.blobs.resume(WORKSPACE, upload.id).await.expect("it answers");
    progress.expect("there is such an upload").offset
}

/// Sends `bytes` in appends of `step` bytes, each in pieces of `piece`.
async fn send(
    setup: &Setup,
    upload: &Created,
    bytes: &[u8],
    step: usize,
    piece: usize,
) -> Option<UploadProgress> {
    let (mut at, mut last) = (0, None);
    for part in bytes.chunks(step) {
        let mut append = append(setup, upload, at).await;
        for piece in part.chunks(piece) {
            append.write(piece).await.expect("it is taken");
        }
        at += part.len();
        assert_eq!(append.offset(), at as u64);
        let progress = append.keep().await.expect("it is kept");
        assert_eq!((progress.offset, progress.length), (at as u64, bytes.len() as u64));
        last = Some(progress);
    }
    last
}

#[tokio::test]
async fn appends_of_any_size_make_the_same_blob() {
    let setup = setup();
    for size in SIZES.into_iter().chain([3 * CHUNK + 17]) {
        for (step, piece) in [(size.max(1), 65_537), (70_001, 16_384), (CHUNK, 1 << 20)] {
            let bytes = content(size, 1);
            let upload = created(&setup, &bytes).await;
            let last = send(&setup, &upload, &bytes, step, piece).await;
            assert!(last.is_none_or(|progress| progress.is_complete));
            let back = download(&setup.blobs, upload.id).await.unwrap();
            assert!(back.is_some_and(|back| back == bytes), "{size} in appends of {step}");
            let info = setup.blobs.info(WORKSPACE, upload.id).await.unwrap().unwrap();
            assert_eq!(info.sha256, Sha256Sum::of(&bytes));
            assert!(setup.blobs.terminate(WORKSPACE, upload.id).await.unwrap());
            setup.assert_empty().await;
        }
    }
}

#[tokio::test]
async fn nothing_is_readable_before_the_last_byte() {
    let setup = setup();
    let bytes = content(CHUNK * 2, 2);
    let upload = created(&setup, &bytes).await;
    let mut one = append(&setup, &upload, 0).await;
    one.write(&bytes[..CHUNK * 2 - 1]).await.unwrap();
    assert!(!one.keep().await.unwrap().is_complete);
    assert!(!setup.is_there(upload.id).await);
    assert!(!setup.blobs.delete(WORKSPACE, upload.id).await.unwrap(), "it is no BLOB yet");
    let mut two = append(&setup, &upload, CHUNK * 2 - 1).await;
    two.write(&bytes[CHUNK * 2 - 1..]).await.unwrap();
    assert!(two.keep().await.unwrap().is_complete);
    assert!(setup.is_there(upload.id).await);
    let progress = setup.blobs.resume(WORKSPACE, upload.id).await.unwrap().unwrap();
    assert!(progress.is_complete && progress.offset == bytes.len() as u64);
    let more = setup.blobs.append(WORKSPACE, upload.id, progress.offset, Keeping::AsItComes).await;
    assert!(more.unwrap().is_none(), "a BLOB takes no more");
}

#[tokio::test]
async fn another_offset_than_the_kept_one_is_refused() {
    let setup = setup();
    let bytes = content(1_000, 3);
    let upload = created(&setup, &bytes).await;
    let mut first = append(&setup, &upload, 0).await;
    first.write(&bytes[..600]).await.unwrap();
    first.keep().await.unwrap();
    for wrong in [0, 599, 601, 1_000, u64::MAX] {
        let refused = setup.blobs.append(WORKSPACE, upload.id, wrong, Keeping::AsItComes).await;
        assert!(matches!(refused, Err(BlobsError::OffsetMismatch { offset: 600 })), "{wrong}");
    }
    assert_eq!(offset(&setup, &upload).await, 600);
}

#[tokio::test]
async fn more_than_was_announced_is_refused_and_the_rest_can_still_come() {
    let setup = setup();
    let bytes = content(CHUNK + 10, 4);
    let upload = created(&setup, &bytes).await;
    let mut long = append(&setup, &upload, 0).await;
    let over = long.write(&content(CHUNK + 11, 4)).await;
    assert!(matches!(over, Err(BlobsError::LengthMismatch { .. })), "{over:?}");
    assert!(matches!(long.keep().await, Err(BlobsError::Ended)));
    send(&setup, &upload, &bytes, CHUNK, CHUNK).await;
    assert!(download(&setup.blobs, upload.id).await.unwrap().unwrap() == bytes);
}

/// Bytes that are only good together leave nothing where they are dropped, and others what was kept
/// on the way.
#[tokio::test]
async fn a_dropped_append_keeps_what_its_kind_says() {
    let bytes = content(CHUNK * 60, 5);
    for (keeping, kept) in [(Keeping::AllOrNothing, 0), (Keeping::AsItComes, CHUNK * 50)] {
        let setup = setup();
        let upload = created(&setup, &bytes).await;
        let append = setup.blobs.append(WORKSPACE, upload.id, 0, keeping).await.unwrap();
        let mut append = append.unwrap();
        for piece in bytes[..CHUNK * 55].chunks(CHUNK / 2) {
            append.write(piece).await.unwrap();
        }
        drop(append);
        let chunks = setup.rows().await.len() - 2;
        assert_eq!(offset(&setup, &upload).await, kept as u64);
        assert_eq!(chunks, kept / CHUNK, "what was not kept is removed");
    }
}

/// The server dies between two appends: what was acknowledged is there for the next one.
#[tokio::test]
async fn what_was_acknowledged_survives_a_crash() {
    let setup = setup();
    let bytes = content(CHUNK * 2 + 50, 6);
    let upload = created(&setup, &bytes).await;
    let mut first = append(&setup, &upload, 0).await;
    first.write(&bytes[..CHUNK + 20]).await.unwrap();
    first.keep().await.unwrap();
    let restarted = Blobs::new(setup.store.clone(), setup.shared_clock());
    let blobs = restarted.of(APP, BlobLimits::default());
    let progress = blobs.resume(WORKSPACE, upload.id).await.unwrap().unwrap();
    assert_eq!(progress.offset, (CHUNK + 20) as u64);
    let keeping = Keeping::AsItComes;
    let append = blobs.append(WORKSPACE, upload.id, progress.offset, keeping).await.unwrap();
    let mut append = append.unwrap();
    append.write(&bytes[CHUNK + 20..]).await.unwrap();
    assert!(append.keep().await.unwrap().is_complete);
    assert!(download(&blobs, upload.id).await.unwrap().unwrap() == bytes);
}

/// Two clients, or one that reconnects while its old connection lives: the later append has the
/// upload, and bytes of the earlier one never get in, however late they come.
#[tokio::test(start_paused = true)]
async fn an_append_that_was_overtaken_changes_nothing() {
    let setup = setup();
    let (right, wrong) = (content(CHUNK * 3, 7), content(CHUNK * 3, 8));
    let upload = created(&setup, &right).await;
    let mut earlier = append(&setup, &upload, 0).await;
    setup.store.turn(Tap::Hang { from: 0, after: false });
    earlier.write(&wrong[..CHUNK * 2]).await.unwrap();
    until_idle().await;
    assert_eq!(setup.store.calls(), 2, "two chunks are on their way");
    setup.store.hold_only_those();
    let mut later = append(&setup, &upload, 0).await;
    later.write(&right).await.unwrap();
    assert!(later.keep().await.unwrap().is_complete);
    setup.store.turn(Tap::Nothing);
    until_idle().await;
    let late = earlier.write(&wrong[CHUNK * 2..]).await;
    let end = earlier.keep().await;
    assert!(late.is_err() || end.is_err(), "{late:?} {end:?}");
    setup.service.settle().await;
    assert!(download(&setup.blobs, upload.id).await.unwrap().unwrap() == right);
}

#[tokio::test(start_paused = true)]
async fn an_append_that_is_dropped_in_any_call_can_be_resumed() {
    let bytes = content(CHUNK * 2 + 9, 9);
    for after in [false, true] {
        for from in 0..9 {
            let setup = setup();
            let upload = created(&setup, &bytes).await;
            let mut begin = append(&setup, &upload, 0).await;
            begin.write(&bytes[..CHUNK + 3]).await.unwrap();
            begin.keep().await.unwrap();
            setup.store.turn(Tap::Hang { from, after });
            let rest = async {
                let mut rest = append(&setup, &upload, CHUNK + 3).await;
                rest.write(&bytes[CHUNK + 3..]).await.unwrap();
                rest.keep().await.unwrap();
            };
            let done = as_far_as_it_goes(rest).await;
            setup.store.turn(Tap::Nothing);
            until_idle().await;
            setup.service.settle().await;
            let progress = setup.blobs.resume(WORKSPACE, upload.id).await.unwrap().unwrap();
            assert!(progress.offset >= (CHUNK + 3) as u64);
            if !progress.is_complete {
                assert!(done.is_none());
                let mut rest = append(&setup, &upload, progress.offset as usize).await;
                rest.write(&bytes[progress.offset as usize..]).await.unwrap();
                assert!(rest.keep().await.unwrap().is_complete);
            }
            let back = download(&setup.blobs, upload.id).await.unwrap().unwrap();
            assert!(back == bytes, "cut in call {from}, after: {after}");
        }
    }
}

#[tokio::test]
async fn another_sum_than_announced_removes_the_upload() {
    let setup = setup();
    let bytes = content(CHUNK + 1, 10);
    let blob = NewBlob { sha256: Some(Sha256Sum::of(b"other")), ..announced(&bytes) };
    let upload = setup.blobs.create(WORKSPACE, blob).await.unwrap();
    let mut append = append(&setup, &upload, 0).await;
    append.write(&bytes).await.unwrap();
    let refused = append.keep().await;
    assert!(matches!(refused, Err(BlobsError::DigestMismatch { .. })), "{refused:?}");
    setup.assert_empty().await;
}

/// The control of the sum: a chunk that the store lost is noticed before the upload is a BLOB.
#[tokio::test]
async fn a_chunk_that_was_lost_keeps_the_upload_from_being_a_blob() {
    let setup = setup();
    let bytes = content(CHUNK * 2, 11);
    let upload = created(&setup, &bytes).await;
    setup.store.turn(Tap::Drop(0));
    let mut append = append(&setup, &upload, 0).await;
    append.write(&bytes).await.unwrap();
    assert!(matches!(append.keep().await, Err(BlobsError::Broken { .. })));
    assert!(!setup.is_there(upload.id).await);
}

#[tokio::test]
async fn an_upload_that_is_terminated_or_expires_is_gone() {
    let setup = setup();
    let bytes = content(CHUNK * 3, 12);
    let upload = created(&setup, &bytes).await;
    let mut first = append(&setup, &upload, 0).await;
    first.write(&bytes[..CHUNK * 2]).await.unwrap();
    first.keep().await.unwrap();
    assert!(setup.blobs.terminate(WORKSPACE, upload.id).await.unwrap());
    assert!(setup.blobs.resume(WORKSPACE, upload.id).await.unwrap().is_none());
    assert!(!setup.blobs.terminate(WORKSPACE, upload.id).await.unwrap());
    setup.assert_empty().await;

    let upload = created(&setup, &bytes).await;
    let mut late = append(&setup, &upload, 0).await;
    late.write(&bytes[..CHUNK]).await.unwrap();
    setup.clock.advance(Duration::from_secs(86_400));
    assert!(matches!(late.write(b"x").await, Err(BlobsError::Expired)));
    assert!(setup.blobs.resume(WORKSPACE, upload.id).await.unwrap().is_none());
    setup.assert_empty().await;
}

#[tokio::test]
async fn an_upload_without_a_length_cannot_be_resumed() {
    let setup = setup();
    assert_invalid(setup.blobs.create(WORKSPACE, NewBlob::default()).await, "length");
}
