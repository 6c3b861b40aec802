//! A store that was restored from a backup goes on with numbers that the archive knows already, for
//! rows that are no more. What it holds under them is never taken for what came in since.

use std::io::Cursor;

use super::*;
use wane::services::backup::{Backup, restore};

/// The store as it is now.
async fn backup(setup: &Setup) -> Vec<u8> {
    let clock = &*setup.store_clock;
    let mut backup =
        Backup::begin(setup.store.clone(), clock, "mem").await.expect("nothing fails here");
    let mut bytes = Vec::new();
    while let Some(chunk) = backup.next().await {
        bytes.extend(chunk.expect("nothing fails here"));
    }
    bytes
}

async fn restored(setup: &Setup, bytes: &[u8]) -> InnerStore {
    let store = inner_store(setup.store_clock.clone());
    let done = restore(&store, &*setup.store_clock, &mut Cursor::new(bytes), |_| ()).await;
    assert!(done.expect("nothing fails here").records > 10);
    store
}

/// The row that an answer names as another log's.
fn foreign<T: std::fmt::Debug>(answer: Result<T, PullStreamError>) -> u64 {
    match answer {
        Err(PullStreamError::Archive(ArchiveError::Foreign { row, .. })) => row,
        other => panic!("not told of another log: {other:?}"),
    }
}

/// A restored log of ten archived rows and three that came in since, where the archive has ten more
/// of before, and what came in in all.
async fn after_a_restoration(shelf: &Shelf) -> (Setup, PullStream<InnerStore>, Vec<ResourceId>) {
    let setup = dated();
    let node = setup.node_over(setup.store.clone(), settings(shelf));
    let mut known = ingest(&node, 100).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.expect("nothing fails here");
    pass(&setup, SECOND * 2).await;
    let bytes = backup(&setup).await;
    ingest(&node, 100).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.expect("nothing fails here");
    drop(node);
    let node = setup.node_over(restored(&setup, &bytes).await, settings(shelf));
    known.extend(ingest(&node, 30).await);
    (setup, node, known)
}

#[tokio::test(start_paused = true)]
async fn what_the_archive_has_of_before_is_not_handed_out() {
    let shelf = Shelf::default();
    let (setup, node, known) = after_a_restoration(&shelf).await;
    assert_eq!(foreign(read_back(&node, all_times()).await), 10);
    assert_eq!(foreign(node.check_archive(ispb(), 0, 1_000).await), 10);

    // A replay is told where the log has them no more, and has what came before.
    pass(&setup, SECOND * 31 * DAY as u32).await;
    node.ingest(ispb(), batch([0])).await.unwrap();
    let started = node.replay(ispb(), all_times(), "case 17", &operator()).await.unwrap();
    let (mut read, mut token) = (Vec::new(), started.token);
    let told = loop {
        match node.replay_next(ispb(), &token, &many()).await {
            Ok(pulled) => {
                assert!(pulled.batch.is_some(), "it ended");
                read.extend(ids(&pulled));
                token = pulled.next;
            }
            Err(error) => break error,
        }
    };
    assert!(foreign(Err::<(), _>(told)) >= 10);
    assert_eq!(read, known[..read.len()], "nothing but what is ours");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_beside_it_until_it_is_moved_away() {
    let shelf = Shelf::default();
    let (setup, node, known) = after_a_restoration(&shelf).await;
    let puts = shelf.puts();
    assert_eq!(foreign(node.archive(ispb(), all_times(), ALL, &operator()).await), 10);
    pass(&setup, SECOND * 28 * DAY as u32).await;
    assert_eq!(foreign(node.archive_due(ispb(), ALL).await), 10);
    assert_eq!((shelf.puts(), node.archive_status(ispb()).await.unwrap().rows), (puts, 10));

    shelf.remove(|name| name.rows.start >= 10);
    let report = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((report.rows, report.gone), (3, 0));
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
}

/// Rows that went unarchived are not counted as archived where another log's lie.
#[tokio::test(start_paused = true)]
async fn rows_that_are_gone_are_not_taken_for_those_of_before() {
    let shelf = Shelf::default();
    let (setup, node, _) = after_a_restoration(&shelf).await;
    pass(&setup, SECOND * 31 * DAY as u32).await;
    assert_eq!(foreign(node.archive_due(ispb(), ALL).await), 10);
    assert_eq!(foreign(read_back(&node, all_times()).await), 10);
}

/// Two logs in one archive, as where one store was made anew beside it.
#[tokio::test(start_paused = true)]
async fn segments_that_do_not_agree_are_told_of() {
    let shelves = [Shelf::default(), Shelf::default()];
    let nodes = shelves.each_ref().map(|shelf| {
        let setup = dated();
        (setup.node_over(setup.store.clone(), settings(shelf)), setup)
    });
    for (node, _) in &nodes {
        ingest(node, 50).await;
        node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    }
    shelves[0].take_over(&shelves[1]);
    for (node, _) in &nodes[..1] {
        assert_eq!(foreign(read_back(node, all_times()).await), 0);
    }
}
