//! Every byte and the sum come back, whatever the size and the pieces, in any range, and from the
//! other node.

use wane::services::ClusterAppId;
use wane::services::blobs::{BlobLimits, BlobsError, NewBlob, Sha256Sum};
use wane::services::sequencer::WorkspaceId;

use super::stage::{Stage, on_every_backend};
use super::{CHUNK, LONG, WORKSPACE, announced, content, download, living, upload_in_turns};

const MEBIBYTE: f64 = 1_048_576.0;

/// Uploads to one node, downloads from the other, and removes; how long both transfers took.
pub(super) async fn passes(it: &Stage, bytes: &[u8], pieces: &[usize]) -> [f64; 2] {
    let began = it.clock.monotonic();
    let uploaded = it.ok(upload_in_turns(&it.node(0), announced(bytes), bytes, pieces).await);
    let sent = it.clock.monotonic();
    let what = format!("{}: {} bytes in pieces of {pieces:?}", it.backend, bytes.len());
    assert_eq!((uploaded.size, uploaded.sha256), (bytes.len() as u64, Sha256Sum::of(bytes)));
    let info = it.ok(it.node(1).info(WORKSPACE, uploaded.id).await).expect("it is there");
    assert_eq!((info.size, info.sha256), (uploaded.size, uploaded.sha256), "{what}");
    let asked = it.clock.monotonic();
    let back = it.ok(download(&it.node(1), uploaded.id).await);
    let took = it.clock.monotonic() - asked;
    assert!(back.as_deref() == Some(bytes), "{what}");
    assert!(it.ok(it.node(0).delete(WORKSPACE, uploaded.id).await), "{what}");
    assert!(!it.is_there(uploaded.id).await, "{what}");
    [(sent - began).as_secs_f64(), took.as_secs_f64()]
}

pub(super) async fn every_border(it: &Stage) {
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1] {
        for piece in [16_384, 65_537] {
            passes(it, &content(size, 1), &[piece]).await;
            it.assert_nothing_left("a removal").await;
        }
    }
    for size in [0, 1, 3_000] {
        passes(it, &content(size, 2), &[1]).await;
        it.assert_nothing_left("a removal").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_comes_back_at_every_border() {
    on_every_backend(every_border).await;
}

/// More than two buckets of chunks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_mebibytes_cross_buckets() {
    let bytes = content(20 << 20, 3);
    on_every_backend(async |it| {
        let took = passes(it, &bytes, &[16_384, 65_537]).await;
        let [up, down] = took.map(|took| bytes.len() as f64 / MEBIBYTE / took);
        println!("{}: 20 MiB: {up:.1} MiB/s up, {down:.1} down", it.backend);
        it.assert_nothing_left("a removal").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_at_all_borders_are_exact() {
    let bytes = content(2 * CHUNK + 5, 4);
    on_every_backend(async |it| {
        let id = it.upload(&bytes).await.id;
        let borders = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, bytes.len()];
        for (place, start) in borders.into_iter().enumerate() {
            for end in borders[place..].iter().copied() {
                let blob = it.ok(it.node(1).open(WORKSPACE, id).await).expect("it is there");
                let mut reading = it.ok(blob.read(start as u64..end as u64));
                let mut back = Vec::new();
                while let Some(piece) = it.ok(reading.next().await) {
                    back.extend_from_slice(&piece);
                }
                assert!(back == bytes[start..end], "{}: {start}..{end}", it.backend);
            }
        }
        let blob = it.ok(it.node(1).open(WORKSPACE, id).await).expect("it is there");
        let beyond = blob.read(0..bytes.len() as u64 + 1);
        assert!(matches!(beyond, Err(BlobsError::Invalid { field: "range", .. })));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_of_a_blob_comes_back_to_its_owner_only() {
    on_every_backend(async |it| {
        let blob = NewBlob {
            name: "\u{fc}ber \"alles\".pdf".into(),
            content_type: "application/pdf".into(),
            downloads: Some(3),
            ..living(LONG)
        };
        let uploaded = it.upload_as(blob.clone(), b"abc").await;
        let info = it.ok(it.node(1).info(WORKSPACE, uploaded.id).await).expect("it is there");
        assert_eq!((info.name, info.content_type), (blob.name, blob.content_type));
        assert_eq!((info.downloads_left, info.expires_at), (Some(3), uploaded.expires_at));
        let stranger = it.services[1].of(ClusterAppId(it.app.0 + 1_000), BlobLimits::default());
        let elsewhere = WorkspaceId(WORKSPACE.0 + 1);
        for (blobs, workspace) in [(it.node(1), elsewhere), (stranger, WORKSPACE)] {
            assert!(it.ok(blobs.info(workspace, uploaded.id).await).is_none(), "{}", it.backend);
            assert!(it.ok(blobs.open(workspace, uploaded.id).await).is_none(), "{}", it.backend);
            assert!(!it.ok(blobs.delete(workspace, uploaded.id).await), "{}", it.backend);
            let secret = &uploaded.delete_secret;
            assert!(!it.ok(blobs.delete_with(workspace, uploaded.id, secret).await));
        }
        assert!(it.is_there(uploaded.id).await, "{}: and none of it touched the BLOB", it.backend);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delete_secret_removes_and_another_one_does_not() {
    on_every_backend(async |it| {
        let (one, two) = (it.upload(b"abc").await, it.upload(b"abc").await);
        let other = it.node(1);
        assert!(!it.ok(other.delete_with(WORKSPACE, one.id, &two.delete_secret).await));
        assert!(it.is_there(one.id).await, "{}", it.backend);
        let secret = one.delete_secret.reveal().parse().expect("as it was handed out");
        assert!(it.ok(other.delete_with(WORKSPACE, one.id, &secret).await), "{}", it.backend);
        assert!(!it.is_there(one.id).await, "{}", it.backend);
        assert!(!it.ok(it.node(0).delete_with(WORKSPACE, one.id, &secret).await), "it is gone");
        assert!(it.ok(other.delete(WORKSPACE, two.id).await), "{}", it.backend);
        assert!(!it.ok(it.node(0).delete(WORKSPACE, two.id).await), "{}", it.backend);
        it.assert_nothing_left("a deletion by the other node").await;
    })
    .await;
}
