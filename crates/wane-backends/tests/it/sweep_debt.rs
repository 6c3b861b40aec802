//! Records of short lives at a high rate, for as long as one likes: what is due and has not been removed
//! stays bounded, and so do the files. When nobody writes any more, all of it leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wane::clock::{SharedClock, SystemClock};
use wane::store::{Key, Life, Store, Ttl, Value, Write};
use wane_backends::file::{FileSettings, FileStore};

use crate::proof::count;

const WRITERS: u64 = 4;
const BATCH: u64 = 100;

/// The longest life, in milliseconds. Most records reach the tree before they end.
const LONGEST: u64 = 600;

/// Memory for young records, what one takes of it at least, and what one takes in the tree at most.
const YOUNG: usize = 7 << 20;
const ROW: u64 = 300;
const TREE_ROW: u64 = 512;

/// What files take whatever is in them: the log, and a tree that is not worth making smaller.
const FILES: u64 = 24 << 20;

const SECOND: Duration = Duration::from_secs(1);

/// How often the store is looked at.
const SAMPLE: Duration = Duration::from_millis(50);

/// Writes records that end soon, each under a key of its own.
async fn write(store: &FileStore, writer: u64, written: &AtomicU64, over: &AtomicBool) {
    let value = Value::new(vec![7; 100]).unwrap();
    let mut number = writer << 40;
    while !over.load(Ordering::Relaxed) {
        let row = |number: u64| {
            let life = Ttl::from_millis(LONGEST / 2 + number % (LONGEST / 2)).unwrap();
            // All over the tree, as random keys are.
            let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            let key = Key::new(b"debt", &spread).unwrap();
            (key, Write::new(value.clone(), Life::For(life)))
        };
        store.put_batch((number..number + BATCH).map(row).collect()).await.unwrap();
        number += BATCH;
        written.fetch_add(BATCH, Ordering::Relaxed);
    }
}

/// What was there at most.
#[derive(Debug, Clone, Copy, Default)]
struct Most {
    records: u64,
    /// Those of them that must have been due.
    due: u64,
    bytes: u64,
}

/// How many records were written by when, over the last seconds.
#[derive(Debug, Default)]
struct Pace(VecDeque<(Duration, u64)>);

impl Pace {
    fn note(&mut self, now: Duration, written: u64) {
        self.0.push_back((now, written));
        while self.0.front().is_some_and(|(noted, _)| now - *noted > 4 * SECOND) {
            self.0.pop_front();
        }
    }

    /// How many were written in the time before the last note, or more.
    fn within(&self, time: Duration) -> u64 {
        let Some((now, written)) = self.0.back() else { return 0 };
        let before = self.0.iter().rev().find(|(noted, _)| *now - *noted >= time);
        written - before.map_or(0, |(_, written)| *written)
    }
}

/// Looks at the store until the time is over, and holds what it finds to what may be there. What
/// lives is what was written within the longest life. The rest is due, and may be what is young, and
/// what came due within the last second: the machine may have other things to do, but not for long.
async fn look(store: &FileStore, clock: &SharedClock, written: &AtomicU64, seconds: u64) {
    let (mut thirds, mut pace) = ([Most::default(); 3], Pace::default());
    let mut bytes = FILES;
    let began = clock.monotonic();
    let whole = Duration::from_secs(seconds);
    while clock.monotonic() - began < whole {
        let records = store.stored_records().await.unwrap();
        pace.note(clock.monotonic(), written.load(Ordering::Relaxed) + WRITERS * BATCH);
        let live = pace.within(Duration::from_millis(LONGEST));
        let due = records.saturating_sub(live);
        let just_due = pace.within(Duration::from_millis(LONGEST) + SECOND) - live;
        let may_be_due = YOUNG as u64 / ROW + just_due;
        assert!(due <= may_be_due, "{due} of {records} records are due, of {may_be_due} at most");
        // A file that was larger once need not be made smaller at once.
        bytes = bytes.max(FILES + (pace.within(2 * SECOND) + may_be_due) * TREE_ROW);
        let size = store.size_on_disk().unwrap();
        assert!(size <= bytes, "{size} bytes on disk for {records} records, of {bytes} at most");
        let third = ((clock.monotonic() - began).as_millis() * 3 / whole.as_millis()).min(2);
        let most = &mut thirds[third as usize];
        *most = Most {
            records: most.records.max(records),
            due: most.due.max(due),
            bytes: most.bytes.max(size),
        };
        clock.sleep(SAMPLE).await;
    }
    let written = written.load(Ordering::Relaxed);
    eprintln!("{written} records in {seconds} s, at most, by thirds of the time: {thirds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_and_not_removed_stays_bounded() {
    let home = tempfile::tempdir().unwrap();
    let clock = SystemClock::shared();
    drop(FileStore::create(home.path(), SystemClock::shared()).unwrap());
    let settings = FileSettings::default().with_few_young_bytes(YOUNG);
    let store = FileStore::open_as(home.path(), settings, SystemClock::shared()).unwrap();
    let (written, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, written, over) = (store.clone(), Arc::clone(&written), Arc::clone(&over));
        writers.spawn(async move { write(&store, writer, &written, &over).await });
    }
    look(&store, &clock, &written, count("WANE_TEST_SWEEP_SECONDS", 4)).await;
    over.store(true, Ordering::Relaxed);
    writers.join_all().await;
    for _ in 0..4_000 {
        if store.stored_records().await.unwrap() == 0 {
            return;
        }
        clock.sleep(SAMPLE).await;
    }
    panic!("{:?} records stay", store.stored_records().await);
}
