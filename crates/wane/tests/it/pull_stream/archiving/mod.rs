//! The archiver: everything is archived once, whatever dies in between and whoever else archives,
//! and comes back as it was.

mod mishaps;
mod reading;
mod restored;
mod shelf;
mod unreadable;

use std::collections::BTreeSet;
use std::ops::Range;

use self::shelf::{Mishap, Shelf};
use super::*;
use wane::services::pull_stream::{
    Action, ArchiveError, ArchivedRow, Chain, Policy, SegmentName, Verdict,
};
use wane::store::{StoreError, Timestamp, Ttl};

/// What the machine's clock shows when a test begins.
const BEGINNING: u64 = 1_700_000_000_000;
const DAY: u64 = 24 * 60 * 60;
const ALL: u64 = u64::MAX;

/// A setup whose store goes by the same time as its machine.
fn dated() -> Setup {
    let store_clock = ManualClock::starting_at(Timestamp::from_unix_millis(BEGINNING), 1);
    Setup { store: inner_store(store_clock.clone()), store_clock, ..setup() }
}

/// Lets time pass, everywhere.
async fn pass(setup: &Setup, duration: Duration) {
    setup.store_clock.advance(duration);
    true_sleep(duration).await;
}

fn settings(shelf: &Shelf) -> PullStreamSettings {
    PullStreamSettings {
        archive: Some(Arc::new(shelf.clone())),
        archive_segment: 2_000,
        ..PullStreamSettings::default()
    }
}

fn seconds(seconds: Range<u64>) -> Range<Timestamp> {
    let moment = |second| Timestamp::from_unix_millis(BEGINNING + second * 1_000);
    moment(seconds.start)..moment(seconds.end)
}

fn all_times() -> Range<Timestamp> {
    seconds(0..100_000_000)
}

fn operator() -> Client {
    Client::new("operator").expect("within the limits")
}

/// Everything that is archived, in its order.
async fn read_back<S: Store>(
    node: &PullStream<S>,
    times: Range<Timestamp>,
) -> Result<Vec<ArchivedRow>, PullStreamError> {
    let mut rows: Vec<ArchivedRow> = Vec::new();
    loop {
        let from = rows.last().map_or(0, |last| last.row + 1);
        let more = node.archived(ispb(), times.clone(), from).await?;
        if more.is_empty() {
            return Ok(rows);
        }
        assert!(more.is_sorted_by_key(|row| row.row) && more[0].row >= from);
        rows.extend(more);
    }
}

fn ids_of(rows: &[ArchivedRow]) -> Vec<ResourceId> {
    rows.iter().flat_map(|row| &row.messages).map(|message| message.id).collect()
}

/// Panics where segments overlap.
async fn assert_apart<S: Store>(node: &PullStream<S>) -> Vec<SegmentName> {
    let segments = node.segments(ispb(), 0, usize::MAX).await.expect("nothing fails here");
    for pair in segments.windows(2) {
        assert!(pair[0].rows.end <= pair[1].rows.start, "{} and {}", pair[0], pair[1]);
    }
    segments
}

#[tokio::test(start_paused = true)]
async fn what_is_archived_comes_back_in_order_and_is_not_copied_again() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let known = ingest(&node, 300).await;
    let report = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    assert_eq!((report.messages, report.rows, report.gone), (300, 30, 0));
    assert!(report.is_done && report.segments > 5 && report.bytes > 0, "{report:?}");
    let rows = read_back(&node, all_times()).await.unwrap();
    assert_eq!(ids_of(&rows), known);
    for (number, message) in rows.iter().flat_map(|row| &row.messages).enumerate() {
        assert_eq!(message.bytes, super::message(number));
    }
    assert_eq!(assert_apart(&node).await.len() as u64, report.segments);

    let puts = shelf.puts();
    let again = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    assert_eq!((again.segments, again.rows, again.is_done), (0, 0, true));
    assert_eq!(shelf.puts(), puts, "nothing is copied again");
    let more = node.ingest(ispb(), batch([300])).await.unwrap();
    let report = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    assert_eq!((report.segments, report.messages), (1, 1));
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), [known, more].concat());
    let check = node.check_archive(ispb(), 0, 1_000).await.unwrap();
    assert_eq!((check.rows, check.next_row), (31, None));
}

#[tokio::test(start_paused = true)]
async fn a_call_writes_as_many_segments_as_it_may_and_the_next_one_goes_on() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let known = ingest(&node, 300).await;
    let (mut calls, mut reached) = (0, None);
    loop {
        let report = node.archive(ispb(), all_times(), 2, &operator()).await.unwrap();
        assert!(report.segments <= 2);
        calls += 1;
        if report.is_done {
            break;
        }
        assert!(report.reached >= reached, "{report:?}");
        reached = report.reached;
    }
    assert!(calls > 3, "{calls}");
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
    let first = node.check_archive(ispb(), 0, 2).await.unwrap();
    assert_eq!(first.segments, 2);
    let rest = node.check_archive(ispb(), first.next_row.unwrap(), 1_000).await.unwrap();
    assert_eq!((first.rows + rest.rows, rest.next_row), (30, None));
}

/// A row each second, of which times are archived in any order.
#[tokio::test(start_paused = true)]
async fn a_time_is_archived_and_what_lies_around_it_is_not() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let mut known = Vec::new();
    for number in 0..600 {
        known.extend(node.ingest(ispb(), batch([number])).await.unwrap());
        pass(&setup, SECOND).await;
    }
    // Appending takes no time, and archiving some milliseconds after the second.
    for (from, to) in [(100, 200), (150, 250), (20, 30), (0, 10), (300, 301), (400, 400 + 61)] {
        let report = node.archive(ispb(), seconds(from..to), ALL, &operator()).await.unwrap();
        assert!(report.is_done);
        let rows = read_back(&node, seconds(from..to)).await.unwrap();
        assert_eq!(ids_of(&rows), known[from as usize..to as usize], "{from} to {to}");
        assert_apart(&node).await;
    }
    assert_eq!(read_back(&node, all_times()).await.unwrap().len(), 150 + 10 + 10 + 1 + 61);
    assert_eq!(read_back(&node, seconds(50..90)).await.unwrap(), []);
    let rest = node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    assert_eq!(rest.rows, 600 - (150 + 10 + 10 + 1 + 61));
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
    assert_apart(&node).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_archived_before_it_expires() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let policy = Policy { retention: Ttl::from_secs(10 * DAY).unwrap(), max_readers: 6 };
    node.set_policy(ispb(), policy, &operator()).await.unwrap();
    let mut known = Vec::new();
    for number in 0..20 {
        known.extend(node.ingest(ispb(), batch([number])).await.unwrap());
        pass(&setup, SECOND * DAY as u32 / 2).await;
        let report = node.archive_due(ispb(), ALL).await.unwrap();
        assert_eq!((report.gone, report.is_done), (0, true));
        let status = node.archive_status(ispb()).await.unwrap();
        assert_eq!(status.lag, Duration::ZERO, "message {number}");
        // Ten days less three, and then the four rows of a day and a half at a time.
        let due = if number < 13 { 0 } else { (number - 13) / 4 * 4 + 4 };
        assert_eq!(status.rows, due as u64, "message {number}");
        if report.segments > 0 {
            assert_eq!((report.segments, report.rows), (1, 4));
        }
    }
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known[..8]);
}

/// Where the retention of the settings was shorter before, rows are near their end sooner than what
/// holds says.
#[tokio::test(start_paused = true)]
async fn rows_with_a_shorter_life_than_what_holds_are_due_by_their_own_end() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = |days| {
        let retention = Ttl::from_secs(days * DAY).unwrap();
        let settings = PullStreamSettings { retention, ..settings(&shelf) };
        setup.node_over(setup.store.clone(), settings)
    };
    node(4).ingest(ispb(), batch([0])).await.unwrap();
    let node = node(300);
    node.ingest(ispb(), batch([1])).await.unwrap();
    assert_eq!(node.archive_due(ispb(), ALL).await.unwrap().rows, 0);
    pass(&setup, SECOND * DAY as u32 + SECOND).await;
    assert_eq!(node.archive_due(ispb(), ALL).await.unwrap().rows, 1);
}

/// What came in between ends before what is older, and the archive goes by the order of the log.
#[tokio::test(start_paused = true)]
async fn what_came_in_while_retention_was_shorter_is_archived_before_it_ends() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let mut known = node.ingest(ispb(), batch([0])).await.unwrap();
    for (days, number) in [(4, 1), (300, 2)] {
        let policy = Policy { retention: Ttl::from_secs(days * DAY).unwrap(), max_readers: 6 };
        node.set_policy(ispb(), policy, &operator()).await.unwrap();
        known.extend(node.ingest(ispb(), batch([number])).await.unwrap());
        pass(&setup, SECOND * DAY as u32).await;
    }
    let report = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((report.rows, report.is_done), (3, true), "the short one, and those around it");
    node.ingest(ispb(), batch([3])).await.unwrap();
    pass(&setup, SECOND * 4 * DAY as u32).await;
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), known);
    // The short one is gone, and the longer retention alone counts.
    let report = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((report.rows, report.gone, report.is_done), (0, 0, true));
}

/// A policy is written over what stands: nobody is refused because others write at the same time.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_changed_by_many_at_once_is_one_of_theirs() {
    let setup = dated();
    let nodes: Vec<_> = (0..4).map(|_| setup.node()).collect();
    let who = operator();
    let changes = nodes.iter().zip(1..).map(|(node, days)| {
        let policy = Policy { retention: Ttl::from_secs(days * DAY).unwrap(), max_readers: 6 };
        node.set_policy(ispb(), policy, &who)
    });
    for done in futures_util::future::join_all(changes).await {
        done.unwrap();
    }
    let held = setup.node().policy(ispb()).await.unwrap().retention.as_millis() / 1_000;
    assert!((1..=4).any(|days| held == days * DAY), "{held}");
}

#[tokio::test(start_paused = true)]
async fn rows_that_expired_before_they_were_archived_are_told_of() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    // What went before there was an archive is nobody's fault.
    ingest(&node, 20).await;
    pass(&setup, SECOND * 31 * DAY as u32).await;
    let first = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((first.gone, first.is_done, first.segments), (0, true, 0));

    ingest(&node, 30).await;
    pass(&setup, SECOND * 28 * DAY as u32).await;
    let late = node.archive_status(ispb()).await.unwrap();
    assert_eq!(late.lag.as_secs() / DAY, 1, "due after 27 days: {late:?}");
    pass(&setup, SECOND * 3 * DAY as u32).await;
    let kept = ingest(&node, 10).await;
    let report = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((report.gone, report.segments), (0, 0), "the rows after them are not due");
    pass(&setup, SECOND * 28 * DAY as u32).await;
    let report = node.archive_due(ispb(), ALL).await.unwrap();
    assert_eq!((report.gone, report.messages), (3, 10));
    assert_eq!(node.archive_status(ispb()).await.unwrap().gone, 3);
    assert_eq!(ids_of(&read_back(&node, all_times()).await.unwrap()), kept);
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_damage_is_named_with_its_segment() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    ingest(&node, 100).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    let segments = node.segments(ispb(), 0, usize::MAX).await.unwrap();
    let name = &segments[1];
    let whole = shelf.bytes(name);
    let assert_damaged = async |name: &SegmentName, what: &str| {
        let reads = read_back(&node, all_times()).await.map(drop);
        let checks = node.check_archive(ispb(), 0, 1_000).await.map(drop);
        for told in [reads, checks] {
            let Err(PullStreamError::Archive(ArchiveError::Damaged { segment, reason })) = told
            else {
                panic!("{what}: {told:?}")
            };
            assert!(segment == *name && !reason.is_empty(), "{what}: {segment}");
        }
    };
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("a flip", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("a cut", |bytes| bytes.truncate(40)),
        ("longer", |bytes| bytes.push(0)),
        ("empty", Vec::clear),
    ];
    for (what, damage) in damages {
        shelf.change(name, damage);
        assert_damaged(name, what).await;
        shelf.change(name, |bytes| *bytes = whole.to_vec());
    }
    let foreign = SegmentName { count: name.count + 1, ..name.clone() };
    shelf.rename(name, &foreign);
    assert_damaged(&foreign, "another name").await;
    shelf.rename(&foreign, name);
    assert_eq!(read_back(&node, all_times()).await.unwrap().len(), 10);
    // What lies before the damage is read.
    shelf.change(&segments[1], Vec::clear);
    let first = node.archived(ispb(), all_times(), 0).await.unwrap();
    assert_eq!(first.len() as u64, segments[0].count);
}

#[tokio::test(start_paused = true)]
async fn the_audit_tells_who_archived_what_and_of_what_was_refused() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    ingest(&node, 20).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    let Range { start, end } = seconds(8..9);
    let inverted = node.archive(ispb(), end..start, ALL, &operator()).await;
    assert!(matches!(inverted, Err(PullStreamError::Invalid { field: "to", .. })), "{inverted:?}");
    shelf.set(Mishap::Fails);
    ingest(&node, 1).await;
    let failed = node.archive(ispb(), all_times(), ALL, &operator()).await;
    assert!(matches!(failed, Err(PullStreamError::Archive(_))), "{failed:?}");
    let without = setup.node();
    let absent = without.archive(ispb(), all_times(), ALL, &operator()).await;
    assert!(matches!(absent, Err(PullStreamError::Absent { .. })), "{absent:?}");

    let entries = node.audit(ispb(), Chain::Remarks, 0).await.unwrap().entries;
    let told: Vec<_> = entries.iter().map(|entry| (entry.verdict, entry.messages)).collect();
    let expected = [
        (Verdict::Done, 20),
        (Verdict::Empty, 0),
        (Verdict::Invalid, 0),
        (Verdict::Failed, 0),
        (Verdict::Absent, 0),
    ];
    assert_eq!(told, expected);
    assert!(entries.iter().all(|entry| entry.action == Action::Archive));
    assert!(entries.iter().all(|entry| entry.who == operator() && entry.reason.is_some()));
}

#[tokio::test(start_paused = true)]
async fn institutions_are_those_that_messages_came_in_for() {
    let setup = setup();
    let node = setup.node();
    assert_eq!(node.institutions().await.unwrap(), []);
    let numbers = [ispb(), "99999999".parse().unwrap(), "00000001".parse().unwrap()];
    for number in numbers {
        node.ingest(number, batch([0])).await.unwrap();
    }
    let sorted: Vec<Ispb> = BTreeSet::from(numbers).into_iter().collect();
    assert_eq!(node.institutions().await.unwrap(), sorted);
    assert_eq!(setup.node().institutions().await.unwrap(), sorted);
    let settings = PullStreamSettings { region: "other".into(), ..PullStreamSettings::default() };
    let other_region = setup.node_over(setup.store.clone(), settings);
    assert_eq!(other_region.institutions().await.unwrap(), sorted);
}

/// Of a log whose older rows have expired, but for some that are held, a replay has all: from the
/// archive what is gone, from the log what is there, each once and in order.
#[tokio::test(start_paused = true)]
async fn a_replay_goes_over_the_archive_and_the_log() {
    let (setup, shelf) = (dated(), Shelf::default());
    let node = setup.node_over(setup.store.clone(), settings(&shelf));
    let policy = Policy { retention: Ttl::from_secs(DAY).unwrap(), max_readers: 6 };
    node.set_policy(ispb(), policy, &operator()).await.unwrap();
    let old = ingest(&node, 100).await;
    pass(&setup, SECOND * 10).await;
    let held = ingest(&node, 50).await;
    pass(&setup, SECOND * 10).await;
    node.hold(ispb(), seconds(9..19), "case 17", &operator()).await.unwrap();
    let older = ingest(&node, 100).await;
    node.archive(ispb(), all_times(), ALL, &operator()).await.unwrap();
    pass(&setup, SECOND * DAY as u32).await;
    let new = ingest(&node, 30).await;

    let times = Timestamp::from_unix_millis(0)..all_times().end;
    let started = node.replay(ispb(), times, "case 17", &operator()).await.unwrap();
    let (mut read, mut token) = (Vec::new(), started.token);
    loop {
        let pulled = node.replay_next(ispb(), &token, &many()).await.unwrap();
        if pulled.batch.is_none() {
            break;
        }
        read.extend(ids(&pulled));
        token = pulled.next;
    }
    assert_eq!(read, [old, held, older, new].concat());
}
