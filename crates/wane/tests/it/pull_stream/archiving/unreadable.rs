//! A row of the log that cannot be read: what lies behind it is held, archived and replayed, and
//! whoever asked is told of the row.

use super::*;
use wane::services::pull_stream::{AuditEntry, HoldState, ReplayStarted};
use wane::store::{Fence, Key, Keyspace, Life, Value, Write};

const ROWS: usize = 10;

/// The row that is damaged.
const ROW: u64 = 4;

fn row_key(row: u64) -> Key {
    let rest = [&[5][..], b"local", b"00000208", &[0; 8]].concat();
    let partition = Keyspace::PullStreamLog.partition(&rest).expect("within the limits");
    Key::new(partition.as_bytes(), &row.to_be_bytes()).expect("within the limits")
}

/// A log with a row of one message each ten seconds.
async fn log<S: Store>(setup: &Setup, node: &PullStream<S>) -> Vec<ResourceId> {
    let mut known = Vec::new();
    for number in 0..ROWS {
        known.extend(node.ingest(ispb(), batch([number])).await.expect("nothing fails here"));
        pass(setup, SECOND * 10).await;
    }
    known
}

async fn damage(setup: &Setup, row: u64) {
    let value = Value::copy_from_slice(b"no row").expect("within the limits");
    let there = setup.store.get(&row_key(row)).await.expect("nothing fails here");
    let (there, write) = (there.expect("a row").value, Write::new(value, Life::Keep));
    let swapped = setup.store.compare_and_swap(&row_key(row), &there, write).await;
    assert!(swapped.expect("nothing fails here").is_applied());
}

/// All but those of the damaged row.
fn others(known: &[ResourceId]) -> Vec<ResourceId> {
    let others = known.iter().enumerate().filter(|(row, _)| *row as u64 != ROW);
    others.map(|(_, id)| *id).collect()
}

/// What the audit tells of damage.
async fn told<S: Store>(node: &PullStream<S>, verdict: Verdict) -> Vec<AuditEntry> {
    let mut entries = node.audit(ispb(), Chain::Remarks, 0).await.expect("it is whole").entries;
    entries.retain(|entry| entry.verdict == verdict);
    entries
}

#[tokio::test(start_paused = true)]
async fn rows_behind_it_are_held_and_so_is_the_row() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    log(&setup, &node).await;
    damage(&setup, ROW).await;
    let hold = node.hold(ispb(), seconds(15..65), "case 17", &operator()).await.unwrap();
    assert_eq!((hold.rows, hold.damaged, hold.first_damaged), (5, 1, Some(ROW)));
    let ends = async || {
        let mut ends = Vec::new();
        for row in 0..ROWS as u64 {
            let record = setup.store.get(&row_key(row)).await.unwrap().expect("it is there");
            ends.push(record.expires_at.is_some());
        }
        ends
    };
    let held: Vec<bool> = (0..ROWS).map(|row| !(2..7).contains(&row)).collect();
    assert_eq!(ends().await, held, "the damaged one with its neighbours");
    let entries = told(&node, Verdict::Damaged).await;
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].action, &entries[0].who), (Action::Hold, &operator()));
    assert!(entries[0].reason.as_ref().unwrap().ends_with("the first is 4"), "{entries:?}");

    node.release(&hold.id, &operator()).await.unwrap();
    assert_eq!(ends().await, [true; ROWS], "each has its end again");
}

/// A hold that reaches into the future is kept by those who come by, who tell as well, and once.
#[tokio::test(start_paused = true)]
async fn a_row_that_comes_under_a_hold_later_is_told_of_once() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let hold = node.hold(ispb(), seconds(0..1_000), "case 17", &operator()).await.unwrap();
    assert_eq!((hold.state, hold.damaged), (HoldState::Placing, 0));
    log(&setup, &node).await;
    damage(&setup, ROW).await;
    for _ in 0..3 {
        assert_eq!(node.keep_holds().await.unwrap(), 1);
        assert_eq!(told(&node, Verdict::Damaged).await.len(), 1);
    }
    let kept = &node.holds(ispb()).await.unwrap()[0];
    assert_eq!((kept.rows, kept.damaged), (ROWS as u64, 1));
}

#[tokio::test(start_paused = true)]
async fn rows_behind_it_are_archived_and_it_is_counted_once() {
    for damaged in [0, ROW, ROWS as u64 - 1] {
        let (setup, shelf) = (dated(), Shelf::default());
        let node = setup.node_over(setup.store.clone(), settings(&shelf));
        let mut known = log(&setup, &node).await;
        damage(&setup, damaged).await;
        let report = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
        assert_eq!((report.rows, report.gone, report.is_done), (9, 0, true), "row {damaged}");
        assert_eq!((report.damaged, report.first_damaged), (1, Some(damaged)));
        assert_eq!(told(&node, Verdict::Damaged).await.len(), 1);
        known.remove(damaged as usize);
        assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
        node.check_archive(ispb(), 0, 1_000).await.unwrap();

        known.extend(node.ingest(ispb(), batch([ROWS])).await.unwrap());
        let more = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
        // The last one of a log is counted once there is something behind it.
        let again = u64::from(damaged == ROWS as u64 - 1);
        assert_eq!((more.rows, more.damaged, more.gone), (1, again, 0), "row {damaged}");
        let status = node.archive_status(ispb()).await.unwrap();
        assert_eq!((status.damaged, status.gone, status.oldest), (1, 0, None), "row {damaged}");
        assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
    }
}

#[tokio::test(start_paused = true)]
async fn the_archiver_goes_on_behind_it_and_lets_it_go_in_the_end() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let known = log(&setup, &node).await;
    for row in [ROW, ROWS as u64 - 1] {
        damage(&setup, row).await;
    }
    let early = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((early.rows, early.damaged, early.is_done), (0, 0, true));
    pass(&setup, SECOND * 28 * DAY as u32).await;
    let due = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((due.rows, due.damaged, due.gone, due.is_done), (8, 2, 0, true));
    assert_eq!(told(&node, Verdict::Damaged).await.len(), 1);
    let again = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((again.rows, again.damaged, again.gone, again.is_done), (0, 0, 0, true));
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), others(&known)[..8]);
}

/// Reads a replay as far as it goes: what was delivered, and why it ended.
async fn read<S: Store>(
    node: &PullStream<S>,
    started: ReplayStarted,
) -> (Vec<ResourceId>, Option<PullStreamError>) {
    let (mut read, mut token) = (Vec::new(), started.token);
    loop {
        match node.replay_next(ispb(), &token, &many()).await {
            Ok(pulled) if pulled.batch.is_none() => return (read, None),
            Ok(pulled) => {
                read.extend(ids(&pulled));
                token = pulled.next;
            }
            Err(error) => return (read, Some(error)),
        }
    }
}

fn corrupt_reason(error: Option<PullStreamError>) -> String {
    match error {
        Some(PullStreamError::Store(StoreError::Corrupt { reason, .. })) => reason,
        other => panic!("not told of damage: {other:?}"),
    }
}

/// As the stream does: nothing is left out unseen. What lies behind is another replay's.
#[tokio::test(start_paused = true)]
async fn a_replay_ends_before_it_and_another_one_reads_what_lies_behind() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let known = log(&setup, &node).await;
    damage(&setup, ROW).await;
    let started = node.replay(ispb(), all_times(), "case 17", &operator()).await.unwrap();
    let (before, error) = read(&node, started).await;
    assert_eq!(before, known[..ROW as usize]);
    let reason = corrupt_reason(error);
    let from: u64 =
        reason.split_whitespace().filter_map(|word| word.parse().ok()).next_back().unwrap();
    let entries = told(&node, Verdict::Failed).await;
    assert_eq!(entries.last().unwrap().reason.as_deref(), Some(&reason[..]));

    let behind = Timestamp::from_unix_millis(from)..all_times().end;
    let started = node.replay(ispb(), behind, "case 17", &operator()).await.unwrap();
    let (behind, error) = read(&node, started).await;
    assert_eq!((&behind[..], error.is_none()), (&known[ROW as usize + 1..], true));
    let entries = told(&node, Verdict::Done).await;
    let reason = entries.last().unwrap().reason.clone().unwrap();
    assert!(reason.ends_with("beside 1 that cannot be read, the first is 4]"), "{reason}");

    // One that would have to begin with it is not made.
    let within = seconds(ROW * 10 - 5..all_times().end.as_unix_millis() / 1_000);
    let refused = node.replay(ispb(), within, "case 17", &operator()).await;
    corrupt_reason(refused.err());
}

#[tokio::test(start_paused = true)]
async fn a_replay_takes_it_from_the_archive() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let known = log(&setup, &node).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    damage(&setup, ROW).await;
    let started = node.replay(ispb(), all_times(), "case 17", &operator()).await.unwrap();
    let (replayed, error) = read(&node, started).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(replayed, known);
}

/// The stream itself stops at such a row: no institution misses a message without knowing.
#[tokio::test(start_paused = true)]
async fn the_stream_is_not_read_past_it() {
    let setup = dated();
    let node = setup.node();
    log(&setup, &node).await;
    damage(&setup, 0).await;
    for _ in 0..2 {
        let started = node.start(ispb(), &many()).await;
        corrupt_reason(started.err());
    }
    let record = setup.store.get(&row_key(0)).await.unwrap().expect("it is there");
    let gone = setup.store.compare_and_delete(&row_key(0), &record.value, Fence::NONE).await;
    assert!(gone.unwrap().is_applied());
    assert_eq!(ids(&node.start(ispb(), &many()).await.unwrap()).len(), ROWS - 1);
}
