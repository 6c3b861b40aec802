//! Archivers that die, stores and archives that fail, and two archivers at once.

use super::*;
use crate::pull_stream::tripped::{Trip, Tripped};

const MESSAGES: usize = 60;

/// What must hold in the end: everything is archived once and comes back.
async fn assert_all<S: Store>(node: &PullStream<S>, known: &[ResourceId], what: &str) {
    let report =
        node.archive(ispb(), all_times(), ALL, &operator()).await.expect("nothing fails here");
    assert!(report.is_done && report.gone == 0, "{what}: {report:?}");
    assert_apart(node).await;
    let rows = read_back(node, all_times()).await.expect("nothing fails here");
    assert_eq!(ids_of(&rows), known, "{what}");
    let status = node.archive_status(ispb()).await.expect("nothing fails here");
    assert_eq!((status.oldest, status.gone), (None, 0), "{what}");
}

/// How many calls of the store archiving makes.
async fn calls() -> usize {
    let (setup, shelf) = (dated(), Shelf::default());
    let store = Tripped::new(setup.store.clone());
    let node = setup.node_over(store.clone(), settings(&shelf));
    ingest(&node, MESSAGES).await;
    true_sleep(SECOND * 2).await;
    store.set(Trip::Nothing);
    node.archive(ispb(), all_times(), ALL, &operator()).await.expect("nothing fails here");
    store.calls()
}

#[tokio::test(start_paused = true)]
async fn whichever_call_of_the_store_fails_is_lost_or_is_the_last_one_nothing_is_missing() {
    let calls = calls().await;
    assert!((20..100).contains(&calls), "{calls} calls");
    for at in 0..calls {
        for trip in [
            Trip::Fails(at),
            Trip::LosesAnswer(at),
            Trip::LosesRequest(at),
            Trip::Hangs { at, after: false },
            Trip::Hangs { at, after: true },
        ] {
            let (setup, shelf) = (dated(), Shelf::default());
            let store = Tripped::new(setup.store.clone());
            let node = setup.node_over(store.clone(), settings(&shelf));
            let known = ingest(&node, MESSAGES).await;
            true_sleep(SECOND * 2).await;
            store.set(trip);
            let client = operator();
            tokio::select! {
                done = node.archive(ispb(), all_times(), ALL, &client) => {
                    let is_store = matches!(&done, Ok(_) | Err(PullStreamError::Store(_)));
                    assert!(is_store, "{trip:?}: {done:?}");
                }
                () = true_sleep(SECOND * 5) => {}
            }
            drop(node);
            let other = setup.node_over(setup.store.clone(), settings(&shelf));
            assert_all(&other, &known, &format!("{trip:?}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_archive_does_to_a_put_the_next_call_goes_on_with_it() {
    for before in 0..4 {
        for mishap in [
            Mishap::Fails,
            Mishap::LosesAnswer,
            Mishap::Hangs { after: false },
            Mishap::Hangs { after: true },
        ] {
            let (setup, shelf) = (dated(), Shelf::default());
            let node = setup.node_over(setup.store.clone(), settings(&shelf));
            let known = ingest(&node, MESSAGES).await;
            node.archive(ispb(), all_times(), before, &operator()).await.unwrap();
            let status = node.archive_status(ispb()).await.unwrap();
            shelf.set(mishap);
            let client = operator();
            tokio::select! {
                done = node.archive(ispb(), all_times(), ALL, &client) => {
                    assert!(matches!(done, Err(PullStreamError::Archive(_))), "{done:?}");
                }
                () = true_sleep(SECOND * 5) => {}
            }
            let left = node.archive_status(ispb()).await.unwrap();
            assert_eq!(left, status, "what fails leaves the progress where it is");
            shelf.set(Mishap::None);
            let other = setup.node_over(setup.store.clone(), settings(&shelf));
            assert_all(&other, &known, &format!("{mishap:?} after {before}")).await;
        }
    }
}

/// The control: an archive that says it has what it has not is caught by the same account.
#[tokio::test(start_paused = true)]
async fn an_archive_that_forgets_is_caught() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let known = ingest(&node, MESSAGES).await;
    node.archive(ispb(), all_times(), 1, &operator()).await.unwrap();
    shelf.set(Mishap::Forgets);
    node.archive(ispb(), all_times(), 1, &operator()).await.unwrap();
    shelf.set(Mishap::None);
    let report = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    assert!(report.is_done);
    let rows = read_back(&node, all_times()).await.unwrap();
    assert!(ids_of(&rows).len() < known.len(), "the account sees what is missing");
}

#[tokio::test(start_paused = true)]
async fn archivers_at_once_write_the_same_segments_or_others_beside_them() {
    for nodes in [2, 3, 5] {
        let (setup, shelf) = (dated(), Shelf::default());
        let node = || {
            // They go at their own pace, so that they meet at all points.
            let archive_rate = 1 << (20 + setup.machine.clock().random_u64() % 4);
            setup.node_over(
                setup.store.clone(),
                PullStreamSettings { archive_rate, ..settings(&shelf) },
            )
        };
        let archivers: Vec<_> = (0..nodes).map(|_| node()).collect();
        let known = ingest(&archivers[0], 300).await;
        let client = operator();
        let runs = archivers.iter().enumerate().map(|(number, archiver)| {
            // Some want all of it, others a part.
            let times = if number % 2 == 0 { all_times() } else { seconds(0..1) };
            archiver.archive(ispb(), times, ALL, &client)
        });
        let reports = futures_util::future::join_all(runs).await;
        let reports: Vec<_> = reports.into_iter().map(|report| report.unwrap()).collect();
        let rows: u64 = reports.iter().map(|report| report.rows).sum();
        assert_eq!(rows, 30, "each row is counted by one of them: {reports:?}");
        assert_all(&archivers[0], &known, &format!("{nodes} nodes")).await;
    }
}

/// A node dies between the plan and the put, and what it planned expires.
#[tokio::test(start_paused = true)]
async fn rows_of_a_plan_that_expire_before_it_is_carried_out_are_gone_and_told_of() {
    for is_put in [false, true] {
        let (setup, shelf) = (dated(), Shelf::default());
        let settings = PullStreamSettings { archive_segment: 100_000, ..settings(&shelf) };
        let node = setup.node_over(setup.store.clone(), settings.clone());
        ingest(&node, 20).await;
        pass(&setup, SECOND * 10 * DAY as u32).await;
        let later = ingest(&node, 10).await;
        shelf.set(Mishap::Hangs { after: is_put });
        let client = operator();
        tokio::select! {
            done = node.archive(ispb(), all_times(), ALL, &client) => panic!("{done:?}"),
            () = true_sleep(SECOND) => {}
        }
        shelf.set(Mishap::None);
        pass(&setup, SECOND * 25 * DAY as u32).await;
        let other = setup.node_over(setup.store.clone(), settings);
        let report = other.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
        assert!(report.is_done);
        let rows = read_back(&other, all_times()).await.unwrap();
        let gone = other.archive_status(ispb()).await.unwrap().gone;
        if is_put {
            assert_eq!((rows.len(), gone, report.gone), (3, 0, 0), "the segment was there");
        } else {
            assert_eq!((ids_of(&rows), gone, report.gone), (later, 2, 2));
        }
    }
}

/// The list of institutions is what the archiver goes by: one that is missing comes with a later row.
#[tokio::test(start_paused = true)]
async fn an_institution_whose_note_was_lost_is_noted_with_the_next_row() {
    for at in 0..12 {
        let setup = setup();
        let store = Tripped::new(setup.store.clone());
        let node = setup.node_over(store.clone(), PullStreamSettings::default());
        store.set(Trip::Fails(at));
        let first = node.ingest(ispb(), batch([0])).await;
        let is_store =
            matches!(&first, Ok(_) | Err(PullStreamError::Store(StoreError::Unavailable { .. })));
        assert!(is_store, "{first:?}");
        store.set(Trip::Nothing);
        node.ingest(ispb(), batch([1])).await.unwrap();
        assert_eq!(node.institutions().await.unwrap(), [ispb()], "call {at}");
    }
}
