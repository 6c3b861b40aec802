//! A kill and a power cut at each step of what a store does by itself: rotating, preparing and writing
//! over segments, bringing generations into the tree, sweeping, packing, compacting, placing large
//! values.
//!
//! One caller makes a store do all of that, in a known order. A first run notes which points it passes,
//! and each that is listed here must be among them. Then everything ends at each point in turn, and
//! the store that is opened next holds what its caller was told, and nothing else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::store::{Life, StoreError, Ttl};
use wane_backends::file::DiskStep::{
    self, DraftCreated, DraftFilled, DraftRemoved, DraftSized, FolderSynced, FrameSynced,
    FrameWritten, HeaderSynced, HeaderWritten, SegmentNamed, SegmentRemoved, SegmentReused,
    TreeResized, TreeSynced, TreeWritten, ValuesCut, ValuesSynced, ValuesWritten,
};
use wane_backends::file::{Fault, FaultPoint, FaultyDisk, FileSettings, FileStore};

use crate::proof::script::{Caller, all, large, medium, small};
use crate::proof::verifier::Verifier;
use crate::proof::{copied, count, runtime};

/// Segments of 1 MiB, as long as there is no more.
const YOUNG: usize = 7 << 20;

fn minute() -> Life {
    Life::For(Ttl::from_millis(60_000).unwrap())
}

/// What must have been passed, by what the store does.
const POINTS: [(&str, &[DiskStep]); 13] = [
    ("opening", &[TreeWritten, TreeSynced, DraftRemoved]),
    // The last frame is written again, and goes on in a segment that the tree has made superfluous.
    ("opening", &[FrameWritten, FrameSynced]),
    ("opening", &[SegmentReused, HeaderWritten, HeaderSynced, SegmentNamed, FolderSynced]),
    ("logging", &[FrameWritten, FrameSynced]),
    ("placing", &[ValuesWritten, ValuesSynced, FrameWritten, FrameSynced]),
    ("writing over", &[SegmentReused, HeaderWritten, HeaderSynced, SegmentNamed, FolderSynced]),
    ("rotating", &[DraftCreated, DraftSized, DraftFilled, HeaderWritten, HeaderSynced]),
    ("rotating", &[SegmentNamed, FolderSynced, FrameWritten, FrameSynced]),
    ("bringing", &[TreeWritten, TreeSynced]),
    ("sweeping", &[TreeWritten, TreeSynced]),
    ("packing", &[ValuesWritten, ValuesSynced, TreeWritten, TreeSynced, ValuesCut]),
    ("compacting", &[TreeWritten, TreeSynced, TreeResized]),
    ("closing", &[TreeWritten, TreeSynced, SegmentRemoved]),
];

/// What is left of a file that was several times as large.
const SMALLER: u64 = 2 << 20;

const TWICE: [&str; 2] = ["once", "again"];

fn settings() -> FileSettings {
    FileSettings::default().with_few_young_bytes(YOUNG)
}

/// A life that is over once the clock has moved.
fn brief() -> Life {
    Life::For(Ttl::MIN)
}

/// A store that was killed, with a log in which there is something of everything: a segment that the
/// tree has, one that it does not have, and one that was being prepared.
struct Killed {
    home: TempDir,
    caller: Caller,
}

impl Killed {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut caller = Caller::new(&ManualClock::seeded(1));
        let clock = || Arc::clone(caller.clock()) as SharedClock;
        drop(FileStore::create(home.path(), clock()).unwrap());
        let disk = FaultyDisk::seeded(0);
        let store = FileStore::open_on_as(&disk, home.path(), settings(), clock()).unwrap();
        runtime().block_on(async {
            let fill = |keys, number| all("fill", keys, medium(number));
            caller.put(&store, &fill(0..40, 1), Life::Permanent).await.unwrap();
            caller.put(&store, &all("large", 0..2, large(1)), Life::Permanent).await.unwrap();
            caller.put(&store, &fill(40..80, 1), Life::Permanent).await.unwrap();
            caller.put(&store, &fill(80..120, 1), Life::Permanent).await.unwrap();
            // All of the first segment, and some of the one that is written.
            store.flush().await.unwrap();
            caller.put(&store, &all("small", 0..8, small(1)), minute()).await.unwrap();
        });
        disk.arm(Fault::PowerCut, 0);
        drop(store);
        std::fs::write(home.path().join("log/0000000000000099.draft"), [7; 5_000]).unwrap();
        Self { home, caller }
    }

    fn again(&self) -> (TempDir, Caller) {
        (copied(self.home.path()), self.caller.again())
    }
}

/// Makes a store do everything, until it is done or the disk has failed.
fn play(disk: &FaultyDisk, home: &Path, caller: &mut Caller) {
    let clock = Arc::clone(caller.clock()) as SharedClock;
    disk.begin("opening");
    let Ok(store) = FileStore::open_on_as(disk, home, settings(), clock) else { return };
    let played = runtime().block_on(async {
        play_logging(disk, &store, caller).await?;
        play_tidying(disk, home, &store, caller).await
    });
    if played.is_ok() {
        disk.begin("closing");
    }
    drop(store);
}

async fn play_logging(
    disk: &FaultyDisk,
    store: &FileStore,
    caller: &mut Caller,
) -> Result<(), StoreError> {
    let permanent = Life::Permanent;
    // What was found in the log comes into the tree at once.
    store.flush().await?;
    disk.begin("logging");
    caller.put(store, &all("small", 4..20, small(2)), minute()).await?;
    caller.put(store, &all("small", 20..24, small(2)), permanent).await?;
    caller.delete(store, &all("small", 20..22, small(2))).await?;
    caller.delete(store, &all("fill", 0..2, medium(1))).await?;
    disk.begin("placing");
    caller.put(store, &all("large", 2..4, large(2)), permanent).await?;
    caller.put(store, &all("large", 1..3, large(3)), permanent).await?;
    // Two of them in what is left of the first segment, and one in another, which was the tree's.
    disk.begin("writing over");
    for keys in [0..40, 40..80, 80..120] {
        caller.put(store, &all("fill", keys, medium(4)), permanent).await?;
    }
    // The same again, and no segment is left to be written over.
    disk.begin("rotating");
    for keys in [0..40, 40..80] {
        caller.put(store, &all("fill", keys, medium(5)), permanent).await?;
    }
    disk.begin("bringing");
    caller.delete(store, &all("fill", 40..42, medium(5))).await?;
    store.flush().await
}

async fn play_tidying(
    disk: &FaultyDisk,
    home: &Path,
    store: &FileStore,
    caller: &mut Caller,
) -> Result<(), StoreError> {
    let permanent = Life::Permanent;
    disk.begin("sweeping");
    let stored = store.stored_records().await?;
    caller.pass(Duration::from_secs(61));
    awaits(disk, "a sweep", caller, async || Ok(store.stored_records().await? < stored)).await?;
    // Most of the tree dies. Files that are small in all would be left as they are.
    disk.begin("compacting");
    caller.put(store, &all("large", 50..70, large(6)), permanent).await?;
    caller.put(store, &all("fill", 5..100, small(6)), brief()).await?;
    caller.pass(Duration::from_millis(2));
    store.flush().await?;
    awaits(disk, "compaction", caller, async || Ok(len(home, "records.redb") < SMALLER)).await?;
    // Most of the large values die, but not the last ones of their file.
    disk.begin("packing");
    caller.put(store, &all("large", 10..40, large(7)), brief()).await?;
    caller.put(store, &all("large", 40..44, large(7)), permanent).await?;
    caller.put(store, &all("large", 50..70, small(7)), permanent).await?;
    caller.pass(Duration::from_millis(2));
    store.flush().await?;
    awaits(disk, "packing", caller, async || Ok(len(home, "values") < SMALLER)).await?;
    disk.begin("logging before closing");
    caller.put(store, &all("large", 0..1, large(8)), permanent).await?;
    caller.put(store, &all("small", 0..4, small(8)), minute()).await
}

/// Waits for the store to do something by itself, or to fail.
async fn awaits(
    disk: &FaultyDisk,
    what: &str,
    caller: &Caller,
    mut is_done: impl AsyncFnMut() -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let clock = SystemClock::shared();
    for _ in 0..5_000 {
        caller.pass(Duration::from_millis(500));
        clock.sleep(Duration::from_millis(1)).await;
        if disk.struck().is_some() || is_done().await? {
            return Ok(());
        }
    }
    panic!("{what} did not come");
}

fn len(home: &Path, file: &str) -> u64 {
    std::fs::metadata(home.join(file)).unwrap().len()
}

/// The points that a run without a fault passes, and how many times.
fn passed(killed: &Killed) -> BTreeMap<FaultPoint, u64> {
    let (home, mut caller) = killed.again();
    let disk = FaultyDisk::seeded(0);
    play(&disk, home.path(), &mut caller);
    check(home.path(), &caller, &TWICE, "nothing at all");
    let passed = disk.passed();
    for (phase, steps) in POINTS {
        for step in steps {
            let point = FaultPoint { phase, step: *step };
            assert!(passed.contains_key(&point), "{point:?} was not passed: {passed:#?}");
        }
    }
    passed
}

/// Opens the store as the next process would, and the one after it, and checks it against what the caller was told.
fn check(home: &Path, caller: &Caller, openings: &[&str], after: &str) {
    let caller = caller.again();
    let clock = Arc::clone(caller.clock()) as SharedClock;
    let mut verifier = Verifier::default();
    verifier.replay(caller.lines());
    for opening in openings {
        // It does not wait for the real one.
        let disk = FaultyDisk::seeded(0);
        let store = FileStore::open_on(&disk, home, Arc::clone(&clock));
        let store =
            store.unwrap_or_else(|error| panic!("opened {opening} after {after}: {error:?}"));
        runtime().block_on(verifier.check(&store, &clock));
        caller.pass(Duration::from_secs(30));
    }
    if !verifier.wrongs().is_empty() {
        eprintln!("after {after}");
    }
    verifier.assert_sound();
}

/// Ends everything at a point that was passed so many times before. `false` means that this run did not
/// pass it as often.
fn end_at(killed: &Killed, point: FaultPoint, turn: u64) -> bool {
    let (home, mut caller) = killed.again();
    let disk = FaultyDisk::seeded(turn);
    disk.arm_at(point, turn);
    play(&disk, home.path(), &mut caller);
    if disk.struck().is_none() {
        return false;
    }
    check(copied(home.path()).path(), &caller, &TWICE, &format!("a kill at {point:?} {turn}"));
    disk.lose_what_was_not_synced(home.path()).unwrap();
    check(home.path(), &caller, &TWICE, &format!("a power cut at {point:?} {turn}"));
    true
}

/// Some of so many turns, the first one always, and the last one where there are several.
fn turns(passed: u64, most: u64) -> Vec<u64> {
    let turns = passed.min(most.max(1));
    (0..turns).map(|turn| turn * (passed - 1) / (turns - 1).max(1)).collect()
}

#[test]
fn a_kill_and_a_power_cut_at_every_step_lose_nothing_and_revive_nothing() {
    let killed = Killed::new();
    let passed = passed(&killed);
    let most = count("WANE_TEST_STEP_TURNS", 2);
    let mut ends = 0;
    for (point, passed) in passed {
        if !POINTS.iter().any(|(phase, steps)| *phase == point.phase && steps.contains(&point.step))
        {
            continue;
        }
        let ended = turns(passed, most).into_iter().filter(|turn| end_at(&killed, point, *turn));
        let ended = ended.count();
        assert!(ended > 0, "nothing ended at {point:?}");
        ends += ended;
    }
    eprintln!("{ends} kills and as many power cuts, each at a step of its own");
}

/// The control: a segment is written over before the last transaction of its generation is durable. The
/// tree is whole, the log is synced, no note tells, and it is the order alone that is wrong.
#[test]
fn a_segment_that_is_written_over_before_the_tree_is_durable_is_caught() {
    /// The tree may have caught up with its next transaction before the cut, and then nothing is lost.
    const ATTEMPTS: usize = 20;
    let killed = Killed::new();
    let ends_wrong = |step, disk: FaultyDisk| {
        let (home, mut caller) = killed.again();
        disk.arm_at(FaultPoint { phase: "writing over", step }, 0);
        play(&disk, home.path(), &mut caller);
        assert!(disk.struck().is_some(), "no cut at {step:?}");
        disk.lose_what_was_not_synced(home.path()).unwrap();
        for note in ["acknowledged", "log/acknowledged"] {
            std::fs::remove_file(home.path().join(note)).unwrap();
        }
        is_wrong(home.path(), &caller)
    };
    for step in [HeaderWritten, HeaderSynced, SegmentNamed] {
        assert!(!ends_wrong(step, FaultyDisk::seeded(1)), "{step:?}");
        let late = || FaultyDisk::seeded(1).with_a_late_tree();
        assert!((0..ATTEMPTS).any(|_| ends_wrong(step, late())), "{step:?} was not caught");
    }
}

/// Whether a store does not open, or does not hold what its caller was told.
fn is_wrong(home: &Path, caller: &Caller) -> bool {
    let clock = Arc::clone(caller.clock()) as SharedClock;
    let Ok(store) = FileStore::open(home, Arc::clone(&clock)) else { return true };
    let mut verifier = Verifier::default();
    verifier.replay(caller.lines());
    runtime().block_on(verifier.check(&store, &clock));
    !verifier.wrongs().is_empty()
}

#[test]
fn the_first_and_the_last_turn_are_tried() {
    assert_eq!((turns(1, 2), turns(9, 1)), (vec![0], vec![0]));
    assert_eq!((turns(9, 2), turns(9, 3), turns(3, 9)), (vec![0, 8], vec![0, 4, 8], vec![0, 1, 2]));
}

/// Where a process is killed before a sync, so that the next one finds what is not durable.
const UNSYNCED: [FaultPoint; 5] = [
    FaultPoint { phase: "logging", step: FrameSynced },
    FaultPoint { phase: "placing", step: FrameSynced },
    FaultPoint { phase: "writing over", step: FolderSynced },
    FaultPoint { phase: "bringing", step: TreeSynced },
    FaultPoint { phase: "packing", step: TreeSynced },
];

/// A process is killed before it syncs, and the next one goes on from what it finds. The power is cut at
/// each call of its opening, and after something was acknowledged on top of that.
#[test]
fn what_a_killed_process_did_not_sync_is_durable_before_anything_depends_on_it() {
    const ACKNOWLEDGED: u64 = 8;
    let killed = Killed::new();
    let mut cuts = 0;
    for point in UNSYNCED {
        let (home, mut caller) = killed.again();
        let disk = FaultyDisk::seeded(1);
        disk.arm_at(point, 0);
        play(&disk, home.path(), &mut caller);
        assert!(disk.struck().is_some(), "no kill at {point:?}");
        disk.restart();
        let mut acknowledged = 0;
        for last_call in 0.. {
            if acknowledged == ACKNOWLEDGED {
                break;
            }
            let (home, disk) = (copied(home.path()), disk.copied(last_call));
            let mut caller = caller.clone();
            disk.arm(Fault::PowerCut, last_call);
            acknowledged += u64::from(go_on(&disk, home.path(), &mut caller));
            disk.lose_what_was_not_synced(home.path()).unwrap();
            let after = format!("a kill at {point:?} and a cut at call {last_call} after it");
            check(home.path(), &caller, &["once"], &after);
            cuts += 1;
        }
    }
    eprintln!("{cuts} power cuts, each of which came after a kill");
    assert!(cuts > 80, "opening hardly writes anything");
}

/// Opens a store, has it acknowledge something, and ends it. Says whether it came to that.
fn go_on(disk: &FaultyDisk, home: &Path, caller: &mut Caller) -> bool {
    let clock = Arc::clone(caller.clock()) as SharedClock;
    let opened = FileStore::open_on_as(disk, home, settings(), clock);
    let Ok(store) = opened else {
        assert!(disk.struck().is_some(), "it does not open: {opened:?}");
        return false;
    };
    let rows = all("small", 30..31, small(9));
    let is_acknowledged = runtime().block_on(caller.put(&store, &rows, Life::Permanent)).is_ok();
    disk.arm(Fault::PowerCut, 0);
    drop(store);
    is_acknowledged
}
