//! Resumable uploads: the offset that was kept is where it goes on, on whichever node, and the BLOB
//! is the same as if it had come in one go.

use wane::services::blobs::{
    AppBlobs, Append, BlobsError, Keeping, NewBlob, Sha256Sum, Suuid, UploadProgress,
};
use wane_backends::AnyStore;

use super::noted::Noted;
use super::stage::{Stage, on_every_backend};
use super::{CHUNK, WORKSPACE, announced, chunk_number, content, download};

type Node = AppBlobs<Noted<AnyStore>>;

async fn append(it: &Stage, node: &Node, id: Suuid, offset: usize) -> Append<Noted<AnyStore>> {
    let append = node.append(WORKSPACE, id, offset as u64, Keeping::AsItComes).await;
    it.ok(append).unwrap_or_else(|| panic!("{}: there is no such upload", it.backend))
}

/// Appends `bytes` at `offset` and keeps them.
async fn send(it: &Stage, node: &Node, id: Suuid, offset: usize, bytes: &[u8]) -> UploadProgress {
    let mut append = append(it, node, id, offset).await;
    for piece in bytes.chunks(16_384) {
        it.ok(append.write(piece).await);
    }
    it.ok(append.keep().await)
}

async fn offset(it: &Stage, node: &Node, id: Suuid) -> u64 {
    it.ok(node.resume(WORKSPACE, id).await).expect("there is such an upload").offset
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_from_node_to_node_make_the_same_blob() {
    on_every_backend(async |it| {
        for size in [0, 1, CHUNK, 3 * CHUNK + 17] {
            let bytes = content(size, 1);
            let id = it.ok(it.node(0).create(WORKSPACE, announced(&bytes)).await).id;
            for (turn, part) in bytes.chunks(70_001).enumerate() {
                let (node, at) = (it.node(turn % 2), turn * 70_001);
                assert!(it.ok(it.node(1).info(WORKSPACE, id).await).is_none(), "{}", it.backend);
                let wrong = node.append(WORKSPACE, id, at as u64 + 1, Keeping::AsItComes).await;
                let is_told = matches!(wrong, Err(BlobsError::OffsetMismatch { offset }) if offset == at as u64);
                assert!(is_told, "{}: {wrong:?}", it.backend);
                let progress = send(it, &node, id, at, part).await;
                assert_eq!(progress.offset, (at + part.len()) as u64, "{}", it.backend);
                assert_eq!(progress.is_complete, at + part.len() == size, "{}", it.backend);
            }
            let back = it.ok(download(&it.node(1), id).await);
            assert!(back.is_some_and(|back| back == bytes), "{}: {size}", it.backend);
            let info = it.ok(it.node(1).info(WORKSPACE, id).await).expect("it is there");
            assert_eq!(info.sha256, Sha256Sum::of(&bytes), "{}", it.backend);
            assert!(it.ok(it.node(1).terminate(WORKSPACE, id).await), "{}", it.backend);
            it.assert_nothing_left("a termination").await;
        }
    })
    .await;
}

/// The server dies between two appends, and in the middle of one: what was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_crash() {
    on_every_backend(async |it| {
        let bytes = content(CHUNK * 3 + 50, 2);
        let id = it.ok(it.node(0).create(WORKSPACE, announced(&bytes)).await).id;
        send(it, &it.node(0), id, 0, &bytes[..CHUNK + 20]).await;
        let mut crashed = append(it, &it.node(0), id, CHUNK + 20).await;
        it.ok(crashed.write(&content(CHUNK * 2, 3)).await);
        // Nothing of it runs any more, and what it wrote beyond the offset stays.
        std::mem::forget(crashed);
        let heir = it.restarted();
        let kept = offset(it, &heir, id).await as usize;
        assert_eq!(kept, CHUNK + 20, "{}", it.backend);
        assert!(send(it, &heir, id, kept, &bytes[kept..]).await.is_complete, "{}", it.backend);
        assert!(it.ok(download(&it.node(1), id).await).expect("it is there") == bytes);
    })
    .await;
}

/// Two clients, or one that reconnects while its old connection lives: the later append has the
/// upload, and bytes of the earlier one never get in.
pub(super) async fn the_later_append_has_it(it: &Stage) {
    let (right, wrong) = (content(CHUNK * 3, 4), content(CHUNK * 3, 5));
    let id = it.ok(it.node(0).create(WORKSPACE, announced(&right)).await).id;
    let mut earlier = append(it, &it.node(0), id, 0).await;
    it.ok(earlier.write(&wrong[..CHUNK / 2]).await);
    let mut later = append(it, &it.node(1), id, 0).await;
    it.ok(later.write(&right[..CHUNK * 2]).await);
    // So that the chunks of the later one are there before those of the earlier one come.
    for _ in 0..200 {
        let there = it.stores[0].inner.clone();
        let keys = it.notes.keys();
        let chunks = super::stage::left(&there, &keys).await;
        if chunks.iter().filter(|(key, _)| chunk_number(key).is_some()).count() == 2 {
            break;
        }
        it.clock.sleep(std::time::Duration::from_millis(10)).await;
    }
    let late = earlier.write(&wrong[CHUNK / 2..]).await;
    let end = earlier.keep().await;
    assert!(late.is_err() || end.is_err(), "{}: {late:?} {end:?}", it.backend);
    it.ok(later.write(&right[CHUNK * 2..]).await);
    assert!(it.ok(later.keep().await).is_complete, "{}", it.backend);
    it.settle().await;
    let back = it.ok(download(&it.node(0), id).await);
    assert!(back.expect("it is there") == right, "{}", it.backend);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_was_overtaken_changes_nothing() {
    on_every_backend(the_later_append_has_it).await;
}

/// Bytes that are only good together leave nothing where they are dropped, others what was kept on
/// the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_append_keeps_what_its_kind_says() {
    on_every_backend(async |it| {
        for (keeping, chunks, kept) in
            [(Keeping::AllOrNothing, 3, 0), (Keeping::AsItComes, 52, CHUNK * 50)]
        {
            let bytes = content(CHUNK * chunks, 6);
            let id = it.ok(it.node(0).create(WORKSPACE, announced(&bytes)).await).id;
            let append = it.ok(it.node(0).append(WORKSPACE, id, 0, keeping).await);
            let mut append = append.expect("there is such an upload");
            for piece in bytes[..bytes.len() - CHUNK / 2].chunks(65_537) {
                it.ok(append.write(piece).await);
            }
            drop(append);
            let left = it.left().await;
            let chunks = left.iter().filter(|(key, _)| chunk_number(key).is_some()).count();
            assert_eq!(chunks, kept / CHUNK, "{}: what was not kept is removed", it.backend);
            assert_eq!(offset(it, &it.node(1), id).await, kept as u64, "{}", it.backend);
            let rest = send(it, &it.node(1), id, kept, &bytes[kept..]).await;
            assert!(rest.is_complete, "{}", it.backend);
            assert!(it.ok(download(&it.node(1), id).await).expect("it is there") == bytes);
            assert!(it.ok(it.node(0).terminate(WORKSPACE, id).await), "{}", it.backend);
            it.assert_nothing_left("a termination").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_sum_than_announced_removes_the_upload() {
    on_every_backend(async |it| {
        let bytes = content(CHUNK + 1, 7);
        let blob = NewBlob { sha256: Some(Sha256Sum::of(b"other")), ..announced(&bytes) };
        let id = it.ok(it.node(0).create(WORKSPACE, blob).await).id;
        let mut append = append(it, &it.node(1), id, 0).await;
        it.ok(append.write(&bytes).await);
        let refused = append.keep().await;
        assert!(matches!(refused, Err(BlobsError::DigestMismatch { .. })), "{refused:?}");
        it.assert_nothing_left("another sum than announced").await;
    })
    .await;
}
