//! Disks that fail: torn writes, flipped bits, a full disk, a failed fsync.
//!
//! After each of them the store holds what was acknowledged, or refuses to open. It never opens
//! with anything else in it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::SystemClock;
use wane::store::{Key, Life, Store, StoreError, Ttl, Value, Write};
use wane_backends::OpenError;
use wane_backends::file::{Fault, FaultyDisk, FileStore};

use crate::proof::ledger::{self, Answer, Ledger, Line};
use crate::proof::verifier::{Verifier, Wrong};
use crate::proof::workload::Workload;
use crate::proof::{Chance, beside_checkpoints, check_reopened, count, runtime, wait};

/// A store on a faulty disk, and the ledger of its callers.
#[derive(Debug)]
struct Bench {
    home: TempDir,
    disk: FaultyDisk,
    chance: Chance,
    verifier: Verifier,
    rounds: u64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        drop(
            FileStore::create(&home.path().join("store"), SystemClock::shared()).expect("a store"),
        );
        Self {
            home,
            disk: FaultyDisk::seeded(seed),
            chance: Chance::seeded(seed),
            verifier: Verifier::default(),
            rounds: 0,
        }
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("store")
    }

    fn records(&self) -> PathBuf {
        self.directory().join("records.redb")
    }

    /// Lets callers work until they are done or the disk fails, and closes the store.
    fn work(&mut self) -> Vec<Line> {
        self.work_between(|_| {}, || {})
    }

    /// The same, with something before callers begin, and something else before the store is closed.
    fn work_between(&mut self, before: impl Fn(&FileStore), after: impl Fn()) -> Vec<Line> {
        self.rounds += 1;
        let path = self.home.path().join(format!("ledger-{}", self.rounds));
        let ledger = Arc::new(Ledger::append_to(&path));
        let clock = SystemClock::shared();
        let seed = self.chance.below(1 << 30);
        let workload = Workload { callers: 8, keys_each: 6, rounds: 12, seed };
        // The disk may fail while the store is opened, which is then all that happens.
        if let Ok(store) = FileStore::open_on(&self.disk, &self.directory(), Arc::clone(&clock)) {
            before(&store);
            let shared = Arc::new(store.clone());
            let callers = workload.run(&shared, &clock, &ledger);
            runtime().block_on(beside_checkpoints(&store, callers));
            after();
        }
        let lines = ledger::read(&path);
        self.verifier.replay(&lines);
        lines
    }

    /// Leaves in the file what a power cut leaves.
    fn lose_what_was_not_synced(&self) {
        self.disk.lose_what_was_not_synced(&self.directory()).expect("the files are written");
    }

    /// What was not synced is gone after a power cut, and the kernel drops pages that it could not write.
    fn forget_what_a_fault_took(&self) {
        if matches!(self.disk.struck(), Some(Fault::PowerCut | Fault::SyncError)) {
            self.lose_what_was_not_synced();
        }
    }

    /// Flips bits in parts of a file that are in use.
    fn flip_bits(&self) {
        let values = self.directory().join("values");
        let is_in_use = fs::read(&values).is_ok_and(|bytes| bytes.iter().any(|byte| *byte != 0));
        let hits_values = is_in_use && self.chance.below(2) == 0;
        let file = if hits_values { values } else { self.records() };
        let mut bytes = fs::read(&file).expect("the file is read");
        for _ in 0..=self.chance.below(3) {
            let at = loop {
                let at = self.chance.below(bytes.len() as u64) as usize;
                let page = at / 4096 * 4096;
                if bytes[page..bytes.len().min(page + 4096)].iter().any(|byte| *byte != 0) {
                    break at;
                }
            };
            bytes[at] ^= 1 << self.chance.below(8);
        }
        fs::write(file, bytes).expect("the file is written");
    }

    fn check(&mut self, what: &str) {
        check_reopened(&self.directory(), &mut self.verifier);
        let wrongs = self.verifier.wrongs();
        if !wrongs.is_empty() {
            eprintln!("after {what}");
        }
        self.verifier.assert_sound();
    }

    /// Whether the store opens; where it does, it must be sound, and else as it was found.
    fn check_or_refused(&mut self, what: &str) -> bool {
        let found = fs::read(self.records()).expect("the file is read");
        match FileStore::open(&self.directory(), SystemClock::shared()) {
            Ok(store) => drop(store),
            Err(OpenError::Damaged { .. } | OpenError::NewerFormat { .. }) => {
                let left = fs::read(self.records()).expect("the file is read");
                assert!(left == found, "after {what}: the file was refused, and changed");
                return false;
            }
            Err(error) => panic!("after {what}: {error:?}"),
        }
        self.check(what);
        true
    }
}

/// Runs `prove` once per seed; a seed that fails is named.
fn for_each_seed(share: u64, prove: impl Fn(u64)) {
    for seed in 0..count("WANE_TEST_DISK_FAULTS", 100).div_ceil(share) {
        let proof = std::panic::AssertUnwindSafe(|| prove(seed));
        if let Err(panic) = std::panic::catch_unwind(proof) {
            eprintln!("seed {seed} fails");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Three cuts in a row on one file, each of which may come while the store is opened or closed.
#[test]
fn writes_torn_by_a_power_cut_leave_the_old_state_or_the_new() {
    for_each_seed(1, |seed| {
        let mut bench = Bench::new(seed);
        for cut in 0..3 {
            bench.disk = FaultyDisk::seeded(seed * 3 + cut);
            bench.disk.arm(Fault::PowerCut, bench.chance.below(400));
            bench.work();
            bench.lose_what_was_not_synced();
            if seed % 2 == 0 {
                // It is never synced, so it may be gone as well.
                drop(fs::remove_file(bench.directory().join("acknowledged")));
            }
            bench.check(&format!("cut {cut}"));
        }
    });
}

/// Not by chance: every single call to the disk is tried as the last one.
#[test]
fn a_power_cut_at_any_call_of_opening_writing_and_closing_is_survived() {
    for seed in 0..4 {
        for last_call in 0.. {
            let bench = Bench::new(seed);
            bench.disk.arm(Fault::PowerCut, last_call);
            let key = Key::new(b"cut", b"").unwrap();
            let write = Write::new(Value::new("written").unwrap(), Life::Permanent);
            let opened = FileStore::open_on(&bench.disk, &bench.directory(), SystemClock::shared());
            let acknowledged = opened.is_ok_and(|store| {
                runtime().block_on(store.insert_if_not_exists(&key, write)).is_ok()
            });
            if bench.disk.struck().is_none() {
                assert!(last_call > 10, "only {last_call} calls to the disk");
                break;
            }
            bench.lose_what_was_not_synced();
            let store = FileStore::open(&bench.directory(), SystemClock::shared());
            let store = store.unwrap_or_else(|error| panic!("cut at call {last_call}: {error:?}"));
            let found = runtime().block_on(store.get(&key)).unwrap();
            assert!(found.is_some() || !acknowledged, "lost by a cut at call {last_call}");
        }
    }
}

#[test]
fn flipped_bits_are_refused_or_harmless() {
    let refused = std::cell::Cell::new(0);
    let opened = std::cell::Cell::new(0);
    for_each_seed(1, |seed| {
        let mut bench = Bench::new(seed);
        // Half of the files were closed, half were left by a kill.
        if seed % 2 == 0 {
            bench.disk.arm(Fault::PowerCut, 100 + bench.chance.below(300));
        }
        bench.work();
        bench.flip_bits();
        let sound = bench.check_or_refused("flips");
        let tally = if sound { &opened } else { &refused };
        tally.set(tally.get() + 1);
    });
    let (refused, opened) = (refused.get(), opened.get());
    eprintln!("of the files with flipped bits {refused} were refused, {opened} were sound");
    assert!(refused > opened / 4, "the flips hardly hit anything");
}

/// The callers of a group that could not be synced are told that nobody knows; all others that nothing
/// was done.
#[test]
fn after_a_failed_fsync_every_call_is_refused_until_the_store_is_opened_again() {
    let in_doubt = std::cell::Cell::new(0);
    for_each_seed(2, |seed| {
        let mut bench = Bench::new(seed);
        let clock = SystemClock::shared();
        let store = FileStore::open_on(&bench.disk, &bench.directory(), clock.clone()).unwrap();
        let path = bench.home.path().join("ledger");
        let ledger = Arc::new(Ledger::append_to(&path));
        bench.disk.arm(Fault::SyncError, bench.chance.below(20));
        let workload = Workload { callers: 8, keys_each: 6, rounds: u64::MAX, seed };
        let key = Key::new(b"after", b"").unwrap();
        let put = Write::new(Value::new("x").unwrap(), Life::Permanent);
        runtime().block_on(async {
            workload.run(&Arc::new(store.clone()), &clock, &ledger).await;
            assert_unavailable(&store.get(&key).await);
            assert_unavailable(&store.put(&key, put).await);
            assert_unavailable(&crate::proof::verifier::scan(&store).await);
        });
        drop(store);
        let lines = ledger::read(&path);
        let told_unknown =
            |line: &Line| matches!(line, Line::Ended { answer: Answer::Unknown, .. });
        in_doubt.set(in_doubt.get() + u64::from(lines.iter().any(told_unknown)));
        bench.verifier.replay(&lines);
        // The kernel drops the pages that it could not write.
        bench.lose_what_was_not_synced();
        bench.check("a failed fsync");
    });
    // Nobody is, where it was not the log that could not be synced.
    assert!(in_doubt.get() > 0, "no caller was told that the outcome is unknown");
}

fn assert_unavailable<T: std::fmt::Debug>(result: &Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
}

#[test]
fn a_full_disk_fails_writes_and_loses_nothing() {
    for_each_seed(2, |seed| {
        let mut bench = Bench::new(seed);
        bench.disk.arm(Fault::DiskFull, bench.chance.below(200));
        bench.work();
        bench.check("a full disk");
    });
}

/// A store whose file is about to be made smaller, as most of it has expired, when `fault` strikes.
fn compacting(bench: &Bench, fault: Fault) -> FileStore {
    let store = FileStore::open_on(&bench.disk, &bench.directory(), SystemClock::shared());
    let store = store.expect("the store opens");
    let life = Life::For(Ttl::MIN);
    let row = |number: u32| {
        let key = Key::new(b"crowd", &number.to_be_bytes()).expect("a legal key");
        (key, Write::new(Value::new(vec![7; 200_000]).expect("a legal value"), life))
    };
    let rows = (0..60).map(row).collect();
    runtime().block_on(store.put_batch(rows)).expect("the rows are put");
    bench.disk.arm(fault, bench.chance.below(60));
    for _ in 0..400 {
        let smaller = store.size_on_disk().expect("a file") < 8 << 20;
        if bench.disk.struck().is_some() || smaller {
            break;
        }
        wait(Duration::from_millis(5));
    }
    store
}

#[test]
fn a_power_cut_while_the_file_is_compacted_is_survived() {
    let struck = std::cell::Cell::new(0);
    for_each_seed(10, |seed| {
        let mut bench = Bench::new(seed);
        bench.work();
        drop(compacting(&bench, Fault::PowerCut));
        struck.set(struck.get() + u64::from(bench.disk.struck().is_some()));
        bench.lose_what_was_not_synced();
        bench.check("a cut while compacting");
    });
    assert!(struck.get() > 0, "no cut came while the file was compacted");
}

/// Puts and gets. Where the store is `dying`, until both are refused: a thread that panics is dead some
/// moments later, and what is put up to then is put.
async fn ask(store: &FileStore, dying: bool) -> Result<(), tokio::time::error::Elapsed> {
    let key = ledger::store_key("crowd/after");
    let refused = async {
        loop {
            let put = Write::new(ledger::value("crowd/after", 1), Life::Permanent);
            let (put, get) = (store.put(&key, put).await, store.get(&key).await);
            if !dying {
                return;
            }
            if put.is_err() {
                assert_unavailable(&put);
                return assert_unavailable(&get);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await
}

/// Whatever kills the writer, its callers learn of it.
#[test]
fn nobody_waits_for_a_writer_that_died() {
    let struck = std::cell::Cell::new(0);
    for_each_seed(10, |seed| {
        let mut bench = Bench::new(seed);
        bench.work();
        let store = compacting(&bench, Fault::Panic);
        let died = bench.disk.struck().is_some();
        struck.set(struck.get() + u64::from(died));
        let asked = runtime().block_on(ask(&store, died));
        asked.expect("a put and a get are answered, and refused once the writer has died");
        drop(store);
        bench.check("a panic while compacting");
    });
    assert!(struck.get() > 0, "no panic came while the file was compacted");
}

/// Pages may rot after they were verified. The callers that meet one are refused; nobody is told
/// that a record is absent, or handed bytes that were not written under that key.
#[test]
fn a_page_that_rots_under_an_open_store_is_refused() {
    let refused = std::cell::Cell::new(0);
    for_each_seed(2, |seed| {
        let mut bench = Bench::new(seed);
        bench.work();
        let clock = SystemClock::shared();
        let store = FileStore::open_on(&bench.disk, &bench.directory(), clock.clone()).unwrap();
        bench.disk.arm(Fault::Rot, 0);
        let path = bench.home.path().join("ledger");
        let ledger = Arc::new(Ledger::append_to(&path));
        let workload = Workload { callers: 8, keys_each: 6, rounds: 30, seed };
        runtime().block_on(workload.run(&Arc::new(store), &clock, &ledger));
        let lines = ledger::read(&path);
        let unanswered = |line: &Line| {
            matches!(line, Line::Ended { answer: Answer::Unknown | Answer::Unavailable, .. })
        };
        refused.set(refused.get() + u64::from(lines.iter().any(unanswered)));
        bench.verifier.replay(&lines);
        bench.check("rot");
    });
    assert!(refused.get() > 0, "nobody met a page that rotted");
}

/// Longer than a writer that has nothing to do keeps a large segment.
const IDLE: Duration = Duration::from_millis(1_500);

/// Rows beside those of the callers, so many that the segment of the log becomes a large one, and the
/// number that makes each of them as large as a row of the tree may be.
const FILLING: usize = 400;
const NINE_KILOBYTES: u64 = 61;

fn filling(row: usize) -> String {
    format!("crowd/filling-{row}")
}

fn fill(store: &FileStore) {
    let row = |row| {
        let value = ledger::value(&filling(row), NINE_KILOBYTES);
        (ledger::store_key(&filling(row)), Write::new(value, Life::Permanent))
    };
    let rows = (0..FILLING).map(row).collect();
    for outcome in runtime().block_on(store.put_batch(rows)).expect("the rows are put") {
        assert!(outcome.is_applied());
    }
}

fn assert_filled(store: &FileStore) {
    let keys: Vec<_> = (0..FILLING).map(|row| ledger::store_key(&filling(row))).collect();
    let rows = runtime().block_on(store.get_batch(&keys)).expect("the rows are read");
    assert!(rows.iter().all(Option::is_some), "a row that was put is gone");
}

/// A second fault strikes a store that is at what the first one left it with: opening its file once
/// more, waiting for room, or being opened again.
#[test]
fn a_second_fault_after_the_first_loses_nothing() {
    const PAIRS: [[Fault; 2]; 5] = [
        [Fault::DiskFull, Fault::SyncError],
        [Fault::DiskFull, Fault::Rot],
        [Fault::DiskFull, Fault::PowerCut],
        [Fault::SyncError, Fault::PowerCut],
        [Fault::SyncError, Fault::DiskFull],
    ];
    let struck = [const { std::cell::Cell::new(0) }; PAIRS.len()];
    for_each_seed(2, |seed| {
        let number = seed as usize % PAIRS.len();
        let [first, second] = PAIRS[number];
        let mut bench = Bench::new(seed);
        let (disk, after) = (bench.disk.clone(), [bench.chance.below(60), bench.chance.below(3)]);
        let has_both = |disk: &FaultyDisk| disk.struck() == Some(second);
        // Half of them strike while nobody writes. Then a store that has failed for good is left alone,
        // where there is room again, for what goes on by itself.
        let is_quiet = seed % 2 == 0;
        let leave_alone = || {
            if is_quiet && first == Fault::DiskFull && has_both(&disk) {
                disk.make_room();
                wait(IDLE);
            }
        };
        let fill = |store: &FileStore| {
            fill(store);
            disk.arm(first, after[0]);
            disk.arm_next(second, after[1]);
            if is_quiet {
                drop(runtime().block_on(store.flush()));
            }
        };
        bench.work_between(fill, leave_alone);
        bench.forget_what_a_fault_took();
        for _ in 0..3 {
            if !has_both(&bench.disk) {
                let clock = SystemClock::shared();
                drop(FileStore::open_on(&bench.disk, &bench.directory(), clock));
                bench.forget_what_a_fault_took();
            }
        }
        struck[number].set(struck[number].get() + u64::from(has_both(&bench.disk)));
        bench.check(&format!("{first:?}, and then {second:?}"));
        let store = FileStore::open(&bench.directory(), SystemClock::shared());
        assert_filled(&store.expect("it opens"));
    });
    let struck = struck.map(|pair| pair.get());
    eprintln!("how often both faults of each pair struck: {struck:?}");
    assert!(struck.iter().all(|times| *times > 0), "{struck:?}");
}

/// The control: a store that acknowledges before it syncs is caught by the same proof.
#[test]
fn a_store_that_acknowledges_before_sync_is_caught() {
    let mut caught = 0;
    for seed in 0..8 {
        let mut bench = Bench::new(seed);
        bench.disk = FaultyDisk::seeded(seed).ignoring_syncs();
        bench.disk.arm(Fault::PowerCut, 200);
        bench.work();
        bench.lose_what_was_not_synced();
        let refused = FileStore::open(&bench.directory(), SystemClock::shared()).is_err();
        fs::remove_file(bench.directory().join("acknowledged")).unwrap();
        if FileStore::open(&bench.directory(), SystemClock::shared()).is_err() {
            caught += 1;
            continue;
        }
        check_reopened(&bench.directory(), &mut bench.verifier);
        let lost = bench.verifier.wrongs().contains(&Wrong::Lost);
        assert!(!lost || refused, "seed {seed}: lost, and the sidecar did not tell");
        caught += u64::from(lost);
    }
    assert!(caught >= 4, "only {caught} of 8 were caught");
}
