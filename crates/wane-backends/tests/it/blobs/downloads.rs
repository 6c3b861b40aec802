//! Numbered downloads: of racing ones, on two nodes, exactly as many win as there are.

use tokio::task::JoinSet;
use wane::services::blobs::NewBlob;

use super::stage::{Stage, on_every_backend};
use super::{CHUNK, LONG, WORKSPACE, content, download, living, read};

const RACERS: usize = 12;

fn times(downloads: u32) -> NewBlob {
    NewBlob { downloads: Some(downloads), ..living(LONG) }
}

/// Each racer opens, and reads what it got.
pub(super) async fn as_many_win_as_there_are_downloads(it: &Stage) {
    let bytes = content(CHUNK + 9, 1);
    for downloads in [1, 1, 3] {
        let id = it.upload_as(times(downloads), &bytes).await.id;
        let mut racers = JoinSet::new();
        for number in 0..RACERS {
            let node = it.node(number % 2);
            racers.spawn(async move { node.open(WORKSPACE, id).await });
        }
        // Read once all have their answers: those of another node break when the last one ends.
        let won: Vec<_> =
            racers.join_all().await.into_iter().filter_map(|one| it.ok(one)).collect();
        assert_eq!(won.len(), downloads as usize, "{}: of {RACERS}", it.backend);
        assert!(!it.is_there(id).await, "{}: from before the first byte on", it.backend);
        let mut opened = won.into_iter();
        let one = opened.next().expect("there is at least one");
        assert!(it.ok(read(one).await) == bytes, "{}", it.backend);
        drop(opened);
        it.assert_nothing_left("the last download").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_opens_exactly_as_many_as_there_are_downloads_win() {
    on_every_backend(as_many_win_as_there_are_downloads).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_count_down_from_node_to_node() {
    on_every_backend(async |it| {
        let id = it.upload_as(times(3), b"abc").await.id;
        for left in (0..3).rev() {
            let node = it.node(left as usize % 2);
            let blob = it.ok(node.open(WORKSPACE, id).await).expect("some are left");
            assert_eq!(blob.info().downloads_left, Some(left), "{}", it.backend);
            assert_eq!(it.ok(read(blob).await), b"abc", "{}", it.backend);
        }
        for node in [0, 1] {
            assert!(it.ok(download(&it.node(node), id).await).is_none(), "{}", it.backend);
        }
        it.assert_nothing_left("the last download").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_breaks_is_spent() {
    on_every_backend(async |it| {
        let id = it.upload_as(times(1), &content(CHUNK * 9, 2)).await.id;
        let blob = it.ok(it.node(1).open(WORKSPACE, id).await).expect("it is there");
        let mut reading = blob.read_all();
        assert!(it.ok(reading.next().await).is_some(), "{}", it.backend);
        drop(reading);
        assert!(!it.is_there(id).await, "{}", it.backend);
        it.assert_nothing_left("a broken transfer").await;
    })
    .await;
}
