//! Replays across the log and an archive. The archive here is a list of rows; segments and their
//! files are tried where they are written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use super::restored::{ArchivedRows, Rows};
use super::*;
use crate::clock::{Clock, ManualClock};
use crate::services::pull_stream::archive::{ArchiveError, ArchiveFuture, SegmentName};
use crate::services::pull_stream::body::Delivered;
use crate::services::pull_stream::keys::{StaticKeys, TokenKey, TokenKeys};
use crate::services::pull_stream::log::{Place, read_rows};
use crate::services::pull_stream::message::{Batch, Message};
use crate::services::pull_stream::reader::Form;
use crate::services::pull_stream::{Chain, Core, PullStreamSettings};
use crate::store::{Fence, Life, MemoryStore, Value, Write};

const REGION: &str = "local";

/// An archive that hands out so many rows at a time.
#[derive(Debug, Default)]
struct Shelf {
    rows: Rows,
    at_a_time: usize,
    asked: AtomicUsize,
    is_damaged: AtomicBool,
}

impl ArchivedRows for Shelf {
    fn rows_from<'a>(
        &'a self,
        place: Place<'a>,
        times: Range<Timestamp>,
        from_row: u64,
    ) -> ArchiveFuture<'a, Rows> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.is_damaged.load(Ordering::Relaxed) {
            let (region, ispb, rows) = (REGION.into(), place.ispb, 0..256);
            let segment = SegmentName { region, ispb, rows, times, count: 256 };
            let reason = "its checksum differs".into();
            return Box::pin(async { Err(ArchiveError::Damaged { segment, reason }) });
        }
        let found = self
            .rows
            .iter()
            .filter(move |(row, sealed)| *row >= from_row && times.contains(&sealed.at()));
        let found = found.take(self.at_a_time).cloned().collect();
        Box::pin(async { Ok(found) })
    }
}

struct World {
    streams: PullStream<MemoryStore>,
    clock: Arc<ManualClock>,
    shelf: Arc<Shelf>,
    /// What came in, by rows.
    rows: Vec<Vec<Delivered>>,
}

fn ispb() -> Ispb {
    "00000208".parse().unwrap()
}

fn place() -> Place<'static> {
    Place { region: REGION, ispb: ispb() }
}

fn reader(form: Form) -> Reader {
    Reader { form, ..Reader::default() }
}

fn ever() -> Range<Timestamp> {
    Timestamp::from_unix_millis(0)..Timestamp::from_unix_millis(u64::MAX / 2)
}

impl World {
    /// A log of rows with so many messages, of which those are archived, and those are live no more.
    async fn new(counts: &[usize], archived: &BTreeSet<u64>, gone: &BTreeSet<u64>) -> Self {
        let clock = ManualClock::seeded(3);
        let store = MemoryStore::new(clock.clone()).unwrap();
        let key = TokenKey::new("k", &[7; 64]).unwrap();
        let keys = Arc::new(StaticKeys::new(TokenKeys::new(key, None).unwrap()));
        let settings = PullStreamSettings::default();
        let streams = PullStream::new(store.clone(), clock.clone(), keys.clone(), settings.clone());
        let mut streams = streams.unwrap();
        let mut rows = Vec::new();
        for (row, count) in counts.iter().enumerate() {
            let bytes: Vec<String> = (0..*count).map(|n| format!("<row>{row}.{n}</row>")).collect();
            let messages = bytes.iter().map(|text| Message::new(text.clone()).unwrap()).collect();
            let ids = streams.ingest(ispb(), Batch::new(messages).unwrap()).await.unwrap();
            let bytes = bytes.into_iter().map(Into::into);
            rows.push(
                ids.into_iter().zip(bytes).map(|(id, bytes)| Delivered { id, bytes }).collect(),
            );
            clock.advance(Duration::from_secs(1));
        }
        let wanted: Vec<u64> = archived.iter().copied().collect();
        let found = read_rows(&store, place(), &wanted).await.unwrap();
        // What is archived is known to be.
        let json = format!(r#"{{"archived":[[0,{}]]}}"#, counts.len());
        let write = Write::new(Value::new(json).unwrap(), Life::Permanent);
        let put = store.put(&place().state_key("archive").unwrap(), write).await.unwrap();
        assert!(put.is_applied());
        let shelf = Arc::new(Shelf { rows: found, at_a_time: 3, ..Shelf::default() });
        let mut core = Core::new(store.clone(), clock.clone(), keys, settings);
        core.restored = Restored::over(shelf.clone());
        streams.core = Arc::new(core);
        let world = Self { streams, clock, shelf, rows };
        world.end_tail(counts.len() as u64).await;
        for row in gone {
            world.take_out(*row).await;
        }
        world
    }

    fn store(&self) -> &MemoryStore {
        &self.streams.core.store
    }

    /// What an appender does once a second.
    async fn end_tail(&self, end: u64) {
        let value = Value::copy_from_slice(&end.to_be_bytes()).unwrap();
        let write = Write::new(value, Life::Permanent);
        assert!(
            self.store().put(&log::tail_key(place()).unwrap(), write).await.unwrap().is_applied()
        );
    }

    async fn take_out(&self, row: u64) {
        let key = place().row_key(row).unwrap();
        let value = self.store().get(&key).await.unwrap().unwrap().value;
        let gone = self.store().compare_and_delete(&key, &value, Fence::NONE).await.unwrap();
        assert!(gone.is_applied());
    }

    async fn replay(&self) -> Result<ReplayStarted, PullStreamError> {
        self.streams.replay(ispb(), ever(), "why", &Client::default()).await
    }

    async fn next(&self, token: &str, form: Form) -> Result<Pulled, PullStreamError> {
        self.streams.replay_next(ispb(), token, &reader(form)).await
    }

    async fn read_all(&self, form: Form) -> Vec<Delivered> {
        let (mut read, mut token) = (Vec::new(), self.replay().await.unwrap().token);
        while let Pulled { batch: Some(batch), next } = self.next(&token, form).await.unwrap() {
            read.extend(batch.messages().iter().cloned());
            token = next;
        }
        read
    }

    /// What is neither in the log nor in the archive is gone.
    fn expected(&self, archived: &BTreeSet<u64>, gone: &BTreeSet<u64>) -> Vec<Delivered> {
        let is_there = |row: u64| !gone.contains(&row) || archived.contains(&row);
        let rows = (0..).zip(&self.rows).filter(|(row, _)| is_there(*row));
        rows.flat_map(|(_, messages)| messages.clone()).collect()
    }
}

fn some(clock: &dyn Clock, rows: u64, share: u64) -> BTreeSet<u64> {
    (0..rows).filter(|_| clock.random_u64() % 100 < share).collect()
}

#[tokio::test]
async fn rows_of_the_log_and_of_the_archive_come_once_and_in_order() {
    let draws = ManualClock::seeded(9);
    for round in 0..60 {
        let counts: Vec<usize> = (0..40).map(|_| 1 + (draws.random_u64() % 10) as usize).collect();
        let (archived, mut gone) = match round % 3 {
            // The first rows are archived and gone, as time makes it.
            0 => ((0..25).collect(), (0..15).collect()),
            1 => (some(&*draws, 40, 50), some(&*draws, 40, 50)),
            _ => ((0..40).collect(), (0..40).collect()),
        };
        if archived.is_empty() {
            gone.remove(&0);
        }
        let world = World::new(&counts, &archived, &gone).await;
        let expected = world.expected(&archived, &gone);
        for form in [Form::MULTIPART, Form::SINGLE] {
            assert_eq!(world.read_all(form).await, expected, "round {round}");
        }
    }
}

/// The control: the same check without the archive misses what only that has.
#[tokio::test]
async fn without_its_archive_a_replay_lacks_what_is_there() {
    let (archived, gone) = ((0..10).collect(), (0..5).collect());
    let world = World::new(&[10; 10], &archived, &gone).await;
    assert_eq!(world.read_all(Form::MULTIPART).await, world.expected(&archived, &gone));
    let world = World::new(&[10; 10], &BTreeSet::new(), &gone).await;
    assert_eq!(world.read_all(Form::MULTIPART).await, world.expected(&archived, &gone)[50..]);
}

#[tokio::test]
async fn a_log_that_is_all_gone_is_replayed_from_the_archive() {
    let rows: BTreeSet<u64> = (0..10).collect();
    let world = World::new(&[10; 10], &rows, &rows).await;
    assert_eq!(world.read_all(Form::MULTIPART).await.len(), 100);
    let world = World::new(&[10; 10], &BTreeSet::new(), &rows).await;
    assert!(matches!(world.replay().await, Err(PullStreamError::Absent { .. })));
}

/// Bytes are the same whether they come from the log or, after retention, from the archive.
#[tokio::test]
async fn a_retry_is_answered_from_the_archive_once_the_log_has_lost_its_rows() {
    let archived: BTreeSet<u64> = (0..3).collect();
    let world = World::new(&[4; 5], &archived, &BTreeSet::new()).await;
    let token = world.replay().await.unwrap().token;
    let first = world.next(&token, Form::MULTIPART).await.unwrap();
    for row in 0..3 {
        world.take_out(row).await;
    }
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(world.next(&token, Form::SINGLE).await.unwrap(), first);
    let second = world.next(&first.next, Form::MULTIPART).await.unwrap();
    let got = second.batch.as_ref().unwrap().messages();
    assert_eq!(got, &world.expected(&archived, &BTreeSet::new())[10..20], "within a row, too");
    world.take_out(3).await;
    let lost = world.next(&first.next, Form::MULTIPART).await;
    assert!(matches!(lost, Err(PullStreamError::Absent { .. })), "only the log had it");
}

#[tokio::test]
async fn a_damaged_archive_is_told_audited_and_changes_nothing() {
    let rows: BTreeSet<u64> = (0..10).collect();
    let world = World::new(&[10; 10], &rows, &rows).await;
    let token = world.replay().await.unwrap().token;
    let first = world.next(&token, Form::MULTIPART).await.unwrap();
    world.streams.core.restored.forget();
    world.shelf.is_damaged.store(true, Ordering::Relaxed);
    for token in [&token, &first.next] {
        let failed = world.next(token, Form::MULTIPART).await;
        assert!(
            matches!(failed, Err(PullStreamError::Archive(ArchiveError::Damaged { .. }))),
            "{failed:?}"
        );
    }
    assert!(matches!(world.replay().await, Err(PullStreamError::Archive(_))));
    let page = world.streams.audit(ispb(), Chain::Remarks, 0).await.unwrap();
    let verdicts: Vec<_> = page.entries.iter().map(|entry| entry.verdict).collect();
    let expected =
        [Verdict::Done, Verdict::Delivered, Verdict::Failed, Verdict::Failed, Verdict::Failed];
    assert_eq!(verdicts, expected);
    world.shelf.is_damaged.store(false, Ordering::Relaxed);
    assert_eq!(world.next(&token, Form::MULTIPART).await.unwrap(), first, "as before");
}

/// What was fetched is kept for the batches that follow.
#[tokio::test]
async fn a_segment_is_not_fetched_for_each_batch() {
    let rows: BTreeSet<u64> = (0..30).collect();
    let world = World::new(&[10; 30], &rows, &rows).await;
    assert_eq!(world.read_all(Form::SINGLE).await.len(), 300);
    let asked = world.shelf.asked.load(Ordering::Relaxed);
    assert!((10..=12).contains(&asked), "{asked} times for ten threes and the end");
}

/// Live rows that follow each other need no look at the archive, but for the end of the time.
#[tokio::test]
async fn a_replay_of_live_rows_does_not_ask_the_archive_for_each_batch() {
    let world = World::new(&[10; 30], &BTreeSet::new(), &BTreeSet::new()).await;
    assert_eq!(world.read_all(Form::MULTIPART).await.len(), 300);
    let asked = world.shelf.asked.load(Ordering::Relaxed);
    assert!(asked <= 2, "{asked}");
}
