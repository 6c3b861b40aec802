//! Writes that were not synced and are there all the same: kept in part by a power cut, or left whole by
//! a process that was killed, found by the next one, and lost later.
//!
//! One disk lasts as long as its store, which is opened many times and never closed in peace. Each life
//! works on with what the one before has left, while generations reach the tree and segments are
//! written over.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use wane::clock::{Clock, SharedClock, SystemClock};
use wane::store::{Life, Store, Ttl, Write};
use wane_backends::OpenError;
use wane_backends::file::{DiskStep, Fault, FaultyDisk, FileSettings, FileStore};

use crate::proof::ledger::{self, Ledger, store_key, value};
use crate::proof::script::medium;
use crate::proof::verifier::Verifier;
use crate::proof::workload::{CROWD, Workload};
use crate::proof::{Chance, beside_checkpoints, count, runtime};

/// Segments of 1 MiB, as long as there is no more.
const YOUNG: usize = 7 << 20;

/// How often a store is opened.
const LIVES: u64 = 8;

/// A store, its disk, and what its callers were told.
struct Machine {
    home: TempDir,
    disk: FaultyDisk,
    clock: SharedClock,
    chance: Chance,
    verifier: Verifier,
    lives: u64,
}

impl Machine {
    fn new(seed: u64, disk: FaultyDisk) -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = SystemClock::shared();
        drop(FileStore::create(&home.path().join("store"), Arc::clone(&clock)).unwrap());
        let (chance, verifier) = (Chance::seeded(seed), Verifier::default());
        Self { home, disk, clock, chance, verifier, lives: 0 }
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("store")
    }

    fn open(&self) -> Result<FileStore, OpenError> {
        let settings = FileSettings::default().with_few_young_bytes(YOUNG);
        FileStore::open_on_as(&self.disk, &self.directory(), settings, Arc::clone(&self.clock))
    }

    /// Opens the store, and lets callers work with what is there until the disk fails.
    fn work(&mut self) -> Result<(), OpenError> {
        self.lives += 1;
        let store = self.open()?;
        runtime().block_on(self.verifier.check(&store, &self.clock));
        self.disk.arm(Fault::PowerCut, self.chance.below(800));
        let path = self.home.path().join(format!("ledger-{}", self.lives));
        let ledger = Arc::new(Ledger::append_to(&path));
        let seed = self.chance.below(1 << 30);
        let workload = Workload { callers: 8, keys_each: 6, rounds: u64::MAX, seed };
        let shared = Arc::new(store.clone());
        let callers = workload.run(&shared, &self.clock, &ledger);
        let work = async { tokio::join!(callers, fill(&store, &*self.clock)) };
        runtime().block_on(beside_checkpoints(&store, work));
        self.verifier.replay(&ledger::read(&path));
        Ok(())
    }

    /// Opens the store and closes it, and the disk fails meanwhile or does not.
    fn open_and_close(&self) -> Result<(), OpenError> {
        self.disk.arm(Fault::PowerCut, self.chance.below(60));
        match self.open() {
            Err(_) if self.disk.struck().is_some() => Ok(()),
            opened => opened.map(drop),
        }
    }

    /// Ends a life: the process alone is gone, or what was not synced is too, by chance.
    fn end(&self) {
        if self.chance.below(2) == 0 {
            self.disk.lose_what_was_not_synced(&self.directory()).unwrap();
            // Notes are never synced, so they may be gone as well.
            for note in ["acknowledged", "log/acknowledged"] {
                if self.chance.below(2) == 0 {
                    drop(std::fs::remove_file(self.directory().join(note)));
                }
            }
        }
        self.disk.restart();
    }

    /// One life after another.
    fn live(&mut self) -> Result<(), OpenError> {
        for _ in 0..LIVES {
            match self.chance.below(3) {
                0 => self.open_and_close()?,
                _ => self.work()?,
            }
            self.end();
        }
        let store = self.open()?;
        runtime().block_on(self.verifier.check(&store, &self.clock));
        Ok(())
    }
}

/// Fills one segment after another with what expires soon, until the store fails.
async fn fill(store: &FileStore, clock: &dyn Clock) {
    let life = Life::For(Ttl::from_millis(20).unwrap());
    loop {
        let number = medium(clock.now().as_unix_millis());
        let row = |index: u64| {
            let key = format!("{CROWD}/fill-{index}");
            (store_key(&key), Write::new(value(&key, number), life))
        };
        if store.put_batch((0..20).map(row).collect()).await.is_err() {
            return;
        }
    }
}

#[test]
fn writes_that_are_kept_in_part_or_lost_later_leave_what_was_acknowledged() {
    let mut passed: BTreeMap<DiskStep, u64> = BTreeMap::new();
    let seeds = count("WANE_TEST_DISK_FAULTS", 100).div_ceil(5);
    let mut acknowledged = 0;
    for seed in 0..seeds {
        let mut machine = Machine::new(seed, FaultyDisk::seeded(seed));
        machine.live().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        if !machine.verifier.wrongs().is_empty() {
            eprintln!("seed {seed} fails");
        }
        machine.verifier.assert_sound();
        acknowledged += machine.verifier.acknowledged();
        for (point, count) in machine.disk.passed() {
            *passed.entry(point.step).or_default() += count;
        }
    }
    eprintln!("{} openings, {acknowledged} acknowledged changes: {passed:?}", seeds * LIVES);
    let reused = passed.get(&DiskStep::SegmentReused).copied().unwrap_or_default();
    assert!(reused > seeds, "segments were hardly written over: {passed:?}");
}
