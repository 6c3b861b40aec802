//! Every byte and the sum come back, whatever the size and the pieces, in any range.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use wane::services::ClusterAppId;
use wane::services::blobs::{BlobLimits, BlobTtl, BlobsError, NewBlob, Sha256Sum, Suuid};
use wane::services::sequencer::WorkspaceId;

use super::tapped::Tap;
use super::{
    APP, CHUNK, SIZES, Setup, WORKSPACE, assert_invalid, content, download, is_chunk, setup, upload,
};

/// Uploads, and looks at what comes back and at what lies in the store.
async fn goes_through(setup: &Setup, bytes: &[u8], piece: usize) {
    let blob = NewBlob { name: "a".into(), length: Some(bytes.len() as u64), ..NewBlob::default() };
    let uploaded = upload(&setup.blobs, blob, bytes, piece).await.expect("it is taken");
    assert_eq!(uploaded.size, bytes.len() as u64);
    assert_eq!(uploaded.sha256, Sha256Sum::of(bytes));
    let info = setup.blobs.info(WORKSPACE, uploaded.id).await.expect("it answers");
    let info = info.expect("it is there");
    assert_eq!((info.size, info.sha256), (uploaded.size, uploaded.sha256));
    let back = download(&setup.blobs, uploaded.id).await.expect("it is whole");
    assert!(back.as_deref() == Some(bytes), "{} bytes in pieces of {piece}", bytes.len());

    let mut lengths: Vec<_> = setup.rows().await;
    lengths.retain(|row| is_chunk(row.key.partition()));
    lengths.sort_by(|one, two| one.key.clustering().cmp(two.key.clustering()));
    let lengths: Vec<_> = lengths.iter().map(|row| row.record.value.len()).collect();
    let expected: Vec<_> = bytes.chunks(CHUNK).map(<[u8]>::len).collect();
    assert_eq!(lengths, expected, "all chunks but the last are full");

    assert!(setup.blobs.delete(WORKSPACE, uploaded.id).await.expect("it answers"));
    setup.assert_empty().await;
}

#[tokio::test]
async fn every_byte_comes_back_at_every_border() {
    let setup = setup();
    for size in SIZES {
        for piece in [16_384, 65_537, CHUNK, 1 << 20] {
            goes_through(&setup, &content(size, 1), piece).await;
        }
    }
}

#[tokio::test]
async fn bytes_that_come_one_by_one_make_the_same_blob() {
    let setup = setup();
    for size in [0, 1, 1_000, CHUNK + 1] {
        goes_through(&setup, &content(size, 2), 1).await;
    }
}

#[tokio::test]
async fn twenty_mebibytes_cross_buckets() {
    let setup = setup();
    let bytes = content(20 << 20, 3);
    for piece in [16_384, 65_537] {
        goes_through(&setup, &bytes, piece).await;
    }
}

#[tokio::test]
async fn ranges_at_all_borders_are_exact() {
    let setup = setup();
    let bytes = content(3 * CHUNK + 5, 4);
    let id = setup.upload(&bytes).await.id;
    let borders = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK, 3 * CHUNK + 4];
    let borders: Vec<_> = borders.into_iter().chain([bytes.len()]).collect();
    for (place, start) in borders.iter().copied().enumerate() {
        for end in borders[place..].iter().copied() {
            let blob = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
            let mut reading = blob.read(start as u64..end as u64).unwrap();
            let mut back = Vec::new();
            while let Some(piece) = reading.next().await.unwrap() {
                back.extend_from_slice(&piece);
            }
            assert!(back == bytes[start..end], "{start}..{end}");
        }
    }
}

#[tokio::test]
async fn a_range_beyond_the_end_is_refused() {
    let setup = setup();
    let id = setup.upload(b"abc").await.id;
    for range in [0..4, 4..4, 4..5, u64::MAX..u64::MAX] {
        let blob = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
        assert_invalid(blob.read(range), "range");
    }
    let blob = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
    assert_invalid(blob.read(Range { start: 2, end: 1 }), "range");
}

#[tokio::test]
async fn what_was_said_of_a_blob_comes_back() {
    let setup = setup();
    let blob = NewBlob {
        name: "\u{fc}ber \"alles\".pdf".into(),
        content_type: "application/pdf".into(),
        ttl: "15m".parse::<BlobTtl>().unwrap(),
        downloads: Some(3),
        ..NewBlob::default()
    };
    let uploaded = upload(&setup.blobs, blob.clone(), b"abc", 2).await.unwrap();
    let info = setup.blobs.info(WORKSPACE, uploaded.id).await.unwrap().unwrap();
    assert_eq!((info.name, info.content_type), (blob.name, blob.content_type));
    assert_eq!((info.downloads_left, info.expires_at), (Some(3), uploaded.expires_at));
    let life = info.created_at.until(info.expires_at);
    assert_eq!(life.as_secs(), 15 * 60);
}

#[tokio::test]
async fn other_workspaces_and_applications_see_nothing() {
    let setup = setup();
    let uploaded = setup.upload(b"abc").await;
    let (id, elsewhere) = (uploaded.id, WorkspaceId(WORKSPACE.0 + 1));
    let other_app = setup.service.of(ClusterAppId(APP.0 + 1), BlobLimits::default());
    for (blobs, workspace) in [(&setup.blobs, elsewhere), (&other_app, WORKSPACE)] {
        assert!(blobs.info(workspace, id).await.unwrap().is_none());
        assert!(blobs.open(workspace, id).await.unwrap().is_none());
        assert!(blobs.resume(workspace, id).await.unwrap().is_none());
        assert!(!blobs.delete(workspace, id).await.unwrap());
        assert!(!blobs.delete_with(workspace, id, &uploaded.delete_secret).await.unwrap());
        assert!(!blobs.terminate(workspace, id).await.unwrap());
    }
    assert_eq!(other_app.usage().await.unwrap().blobs, 0);
    assert!(setup.is_there(id).await, "and none of it touched the BLOB");
}

#[tokio::test]
async fn the_delete_secret_removes_and_another_one_does_not() {
    let setup = setup();
    let (one, two) = (setup.upload(b"abc").await, setup.upload(b"abc").await);
    let removed = setup.blobs.delete_with(WORKSPACE, one.id, &two.delete_secret).await;
    assert!(!removed.unwrap());
    assert!(setup.is_there(one.id).await);
    let secret = one.delete_secret.reveal().parse().unwrap();
    assert!(setup.blobs.delete_with(WORKSPACE, one.id, &secret).await.unwrap());
    assert!(!setup.is_there(one.id).await);
    assert!(!setup.blobs.delete_with(WORKSPACE, one.id, &secret).await.unwrap(), "it is gone");
    assert!(setup.blobs.delete(WORKSPACE, two.id).await.unwrap());
    setup.assert_empty().await;
}

#[tokio::test]
async fn what_was_announced_must_come() {
    let setup = setup();
    let length = |length| NewBlob { length: Some(length), ..NewBlob::default() };
    let short = upload(&setup.blobs, length(4), b"abc", 3).await;
    assert!(matches!(short, Err(BlobsError::LengthMismatch { expected: 4, got: 3 })));
    let long = upload(&setup.blobs, length(2), b"abc", 3).await;
    assert!(matches!(long, Err(BlobsError::LengthMismatch { expected: 2, got: 3 })));
    let sum = |bytes| NewBlob { sha256: Some(Sha256Sum::of(bytes)), ..NewBlob::default() };
    let bytes = content(CHUNK * 2, 5);
    let other = upload(&setup.blobs, sum(b"other"), &bytes, CHUNK).await;
    assert!(matches!(other, Err(BlobsError::DigestMismatch { .. })));
    setup.assert_empty().await;
    assert!(upload(&setup.blobs, sum(&bytes), &bytes, CHUNK).await.is_ok());
}

/// B3: an id is drawn from all 256 bits, and no output shows one whole.
#[tokio::test]
async fn ids_are_unguessable_and_not_shown() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    upload.write(b"abc").await.unwrap();
    let shown_before = format!("{upload:?}");
    let uploaded = upload.finish().await.unwrap();
    let blob = setup.blobs.open(WORKSPACE, uploaded.id).await.unwrap().unwrap();
    let shown = format!("{shown_before} {uploaded:?} {blob:?}");
    let shown = format!("{shown} {:?}", blob.read_all());
    let (id, secret) = (uploaded.id.to_string(), uploaded.delete_secret.reveal());
    for start in 0..id.len() - 8 {
        assert!(!shown.contains(&id[start..start + 8]), "part of the id is shown");
        assert!(!shown.contains(&secret[start..start + 8]), "part of the secret is shown");
    }
    let mut seen = [[false; 2]; 256];
    let mut ids = Vec::new();
    for _ in 0..64 {
        let id = setup.upload(b"").await.id;
        let bytes = URL_SAFE_NO_PAD.decode(id.to_string()).unwrap();
        for (bit, seen) in seen.iter_mut().enumerate() {
            seen[usize::from((bytes[bit / 8] >> (bit % 8)) & 1)] = true;
        }
        ids.push(id);
    }
    assert!(seen.iter().all(|bit| *bit == [true, true]), "every bit is drawn");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 64);
}

/// The errors of a broken state record name no id.
#[tokio::test]
async fn a_broken_state_is_an_error_that_names_no_id() {
    let setup = setup();
    let id = setup.upload(b"abc").await.id;
    for row in setup.rows().await.iter().filter(|row| super::is_state(row)) {
        let outcome = super::broken_put(&setup.store.inner, row).await;
        assert!(outcome.is_applied());
    }
    let error = setup.blobs.info(WORKSPACE, id).await.unwrap_err();
    assert!(matches!(error, BlobsError::Broken { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains(&id.to_string()[..8]));
}

#[tokio::test]
async fn an_id_that_nobody_has_is_absent() {
    let setup = setup();
    let id: Suuid = "A".repeat(43).parse().unwrap();
    assert!(!setup.is_there(id).await);
    assert!(!setup.blobs.delete(WORKSPACE, id).await.unwrap());
}

/// The controls of all these: what the store loses, mixes up, cuts or lengthens is noticed.
#[tokio::test]
async fn a_store_that_lies_about_chunks_is_caught() {
    for lie in [Tap::Drop(1), Tap::Shuffle(0, 1), Tap::Shorten(2), Tap::Lengthen(1)] {
        let setup = setup();
        setup.store.turn(lie);
        let bytes = content(CHUNK * 2 + 9, 6);
        let uploaded = setup.upload(&bytes).await;
        let back = download(&setup.blobs, uploaded.id).await;
        assert!(matches!(back, Err(BlobsError::Broken { .. })), "{lie:?}: {back:?}");
        let blob = setup.blobs.open(WORKSPACE, uploaded.id).await.unwrap().unwrap();
        let mut reading = blob.read_all();
        let mut handed_out = 0;
        while let Ok(piece) = reading.next().await {
            handed_out += piece.expect("it never says that it is done").len();
        }
        assert!(handed_out < bytes.len(), "{lie:?}");
        assert!(matches!(reading.next().await, Err(BlobsError::Ended)), "{lie:?}");
    }
}
