//! What reading an archive costs it: no more names than are needed, and each segment once.

use super::*;
use wane::store::{Fence, Key, Keyspace, Life, Value, Write};

/// Lets the log go on with a row far behind, as if all before had come and gone.
async fn skip_to(setup: &Setup, row: u64) {
    let rest = [&[5][..], b"local", b"00000208"].concat();
    let partition = Keyspace::PullStreamState.partition(&rest).expect("within the limits");
    let key = Key::new(partition.as_bytes(), b"tail").expect("within the limits");
    let value = Value::copy_from_slice(&row.to_be_bytes()).expect("within the limits");
    let write = Write::new(value, Life::Permanent).fenced(Fence(row));
    assert!(setup.store.put(&key, write).await.expect("nothing fails here").is_applied());
}

#[tokio::test(start_paused = true)]
async fn segments_are_listed_from_where_they_are_read() {
    const FAR: u64 = 400_000;
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let mut known = ingest(&node, 300).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    let early = node.segments(ispb(), 0, usize::MAX).await.unwrap().len();
    pass(&setup, SECOND * 2).await;
    skip_to(&setup, FAR).await;
    drop(node);
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    known.extend(ingest(&node, 50).await);
    shelf.listed();
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    let late = node.segments(ispb(), FAR, usize::MAX).await.unwrap().len();
    assert!(early > 5 && late > 1 && late < early, "{early} and {late}");
    let listed = shelf.listed();
    assert!(listed.iter().all(|names| *names <= early), "{listed:?}");
    assert!(listed.iter().skip(1).all(|names| *names <= late), "{listed:?}");

    let found = node.archived(ispb(), all_times(), FAR).await.unwrap();
    assert_eq!(found[0].row, FAR);
    assert_eq!(shelf.listed(), [late]);
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
    assert_eq!(node.segments(ispb(), 0, 3).await.unwrap().len(), 3);
}

/// Rows that lie too far apart are in segments of their own, so that each is found from near by.
#[tokio::test(start_paused = true)]
async fn no_segment_reaches_further_than_it_is_looked_for() {
    let (setup, shelf) = (dated(), Shelf::default());
    let settings = PullStreamSettings { archive_segment: 1 << 20, ..settings(&shelf) };
    let node = || setup.node_over(setup.store.clone(), settings.clone());
    let mut known = Vec::new();
    for far in [0, 100_000, 200_000] {
        pass(&setup, SECOND * 2).await;
        skip_to(&setup, far + 10).await;
        known.extend(ingest(&node(), 20).await);
    }
    node().archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    let segments = node().segments(ispb(), 0, usize::MAX).await.unwrap();
    let rows: Vec<_> = segments.iter().map(|name| name.rows.clone()).collect();
    assert_eq!(rows, [10..100_012, 200_010..200_012]);
    assert_eq!(ids_of(&read_back(&node(), all_times()).await.unwrap()), known);
    let found = node().archived(ispb(), all_times(), 100_010).await.unwrap();
    assert_eq!(found.iter().map(|row| row.row).collect::<Vec<_>>(), [100_010, 100_011]);
}

#[tokio::test(start_paused = true)]
async fn many_who_want_a_segment_at_once_fetch_it_once() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    ingest(&node, 100).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    shelf.gets();
    let readers = (0..20).map(|_| node.archived(ispb(), all_times(), 0));
    let read = futures_util::future::join_all(readers).await;
    let first = read[0].as_ref().unwrap();
    assert!(!first.is_empty() && read.iter().all(|rows| rows.as_ref().unwrap() == first));
    assert_eq!(shelf.gets(), 1);
    // It is not kept: what the archive has is looked at again.
    node.archived(ispb(), all_times(), 0).await.unwrap();
    assert_eq!(shelf.gets(), 1);
}
