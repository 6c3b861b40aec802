//! A full disk under an open store: reads go on, writes are refused, and once there is room they
//! are taken again. Nothing acknowledged is lost, nothing refused appears.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::store::{Fence, Key, Life, Store, StoreError, Ttl, Value, Write};
use wane_backends::file::{Fault, FaultyDisk, FileSettings, FileStore};

use crate::proof::ledger::{self, Answer, Ledger, Line};
use crate::proof::verifier::{self, Verifier};
use crate::proof::workload::Workload;
use crate::proof::{Chance, check_reopened, copied, count, runtime, size_of_log, wait};

fn key(name: &str) -> Key {
    Key::new(b"full", name.as_bytes()).unwrap()
}

fn value(size: usize) -> Value {
    Value::new(vec![b'v'; size]).unwrap()
}

async fn put(store: &FileStore, name: &str, size: usize) -> Result<(), StoreError> {
    store.put(&key(name), Write::new(value(size), Life::Permanent)).await.map(drop)
}

/// A store on a disk of its own.
struct Bench {
    home: TempDir,
    disk: FaultyDisk,
    store: FileStore,
}

impl Bench {
    fn new(seed: u64, clock: SharedClock) -> Self {
        let home = tempfile::tempdir().unwrap();
        drop(FileStore::create(home.path(), Arc::clone(&clock)).unwrap());
        let disk = FaultyDisk::seeded(seed);
        let store = FileStore::open_on(&disk, home.path(), clock).unwrap();
        Self { home, disk, store }
    }
}

/// What the caller of a write was told. On a full disk nobody needs to be in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Applied,
    NotApplied,
}

fn told<T>(answer: &Result<T, StoreError>) -> Told {
    match answer {
        Ok(_) => Told::Applied,
        Err(StoreError::Unavailable { .. }) => Told::NotApplied,
        Err(error) => panic!("{error:?}"),
    }
}

/// Reads records back, which must be there as their writers were told.
async fn check(store: &FileStore, written: &[(&str, Told)]) {
    for (name, told) in written {
        let found = store.get(&key(name)).await;
        let found = found.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(found.is_some(), *told == Told::Applied, "{name}: {told:?}");
    }
}

/// Writes before and after the disk becomes full at its `last_call`; `None` if it does not.
async fn meet_the_end(
    bench: &Bench,
    clock: &ManualClock,
    last_call: u64,
) -> Option<Vec<(&'static str, Told)>> {
    let Bench { disk, store, .. } = bench;
    put(store, "before", 100).await.unwrap();
    put(store, "other", 100).await.unwrap();
    disk.arm(Fault::DiskFull, last_call);
    let mut written = vec![("before", Told::Applied)];
    written.push(("small", told(&put(store, "small", 100).await)));
    written.push(("medium", told(&put(store, "medium", 20_000).await)));
    written.push(("large", told(&put(store, "large", 200_000).await)));
    let deleted = store.compare_and_delete(&key("other"), &value(100), Fence::NONE).await;
    // Whether it reaches the tree or not, nobody was promised that it does.
    drop(store.flush().await);
    disk.struck()?;
    written.push(match told(&deleted) {
        Told::Applied => ("other", Told::NotApplied),
        Told::NotApplied => ("other", Told::Applied),
    });
    assert_eq!(told(&put(store, "none", 100).await), Told::NotApplied, "there is no room");
    clock.advance(Duration::from_secs(5));
    assert_eq!(told(&put(store, "none", 100).await), Told::NotApplied, "a try in vain");
    written.push(("none", Told::NotApplied));
    Some(written)
}

/// Writes on a disk that has room again. A try may have been under way that had none, and the next
/// one is not long in coming.
async fn put_before_long(store: &FileStore, clock: &ManualClock, name: &str, size: usize) {
    for _ in 0..3 {
        clock.advance(Duration::from_secs(60));
        if told(&put(store, name, size).await) == Told::Applied {
            return;
        }
    }
    panic!("{name}: the disk has had room for three minutes");
}

/// Not by chance: every single change to the disk is tried as the first that does not fit.
#[test]
fn a_disk_that_is_full_from_any_call_on_is_survived() {
    for last_call in 0.. {
        let clock = ManualClock::seeded(last_call);
        let bench = Bench::new(last_call, Arc::clone(&clock) as SharedClock);
        let Some(mut written) = runtime().block_on(meet_the_end(&bench, &clock, last_call)) else {
            assert!(last_call > 12, "only {last_call} calls to the disk");
            break;
        };
        let Bench { home, disk, store } = bench;
        runtime().block_on(async {
            check(&store, &written).await;
            disk.make_room();
            put_before_long(&store, &clock, "after", 200_000).await;
            written.push(("after", Told::Applied));
            check(&store, &written).await;
        });
        drop(store);
        let store = FileStore::open(home.path(), SystemClock::shared()).unwrap();
        runtime().block_on(check(&store, &written));
    }
}

/// A store on a disk that has been full for long, with something on it that has expired, and whose
/// reserve somebody else has taken.
async fn full_for_long(bench: &Bench, clock: &ManualClock) {
    let Bench { home, disk, store } = bench;
    let dies = Write::new(value(200_000), Life::For(Ttl::from_secs(1).unwrap()));
    assert!(store.put(&key("dies"), dies).await.unwrap().is_applied());
    put(store, "stays", 200_000).await.unwrap();
    store.flush().await.unwrap();
    let reserve = home.path().join("reserve");
    std::fs::remove_file(&reserve).unwrap();
    std::fs::create_dir(&reserve).unwrap();
    disk.arm(Fault::DiskFull, 0);
    assert_eq!(told(&put(store, "none", 100).await), Told::NotApplied);
    for _ in 0..10 {
        clock.advance(Duration::from_secs(60));
        wait(Duration::from_millis(5));
    }
}

/// Room comes back, and is gone again at any call of what follows. What is acknowledged after that is
/// in the file, not in memory alone.
#[test]
fn room_that_comes_and_goes_leaves_nothing_in_memory_alone() {
    for last_call in 0.. {
        let clock = ManualClock::seeded(last_call);
        let bench = Bench::new(last_call, Arc::clone(&clock) as SharedClock);
        let Bench { home, disk, store } = &bench;
        let mut written = vec![("stays", Told::Applied), ("dies", Told::NotApplied)];
        runtime().block_on(async {
            full_for_long(&bench, &clock).await;
            disk.make_room_for(last_call);
            clock.advance(Duration::from_secs(60));
        });
        let struck = (0..2_500).any(|_| {
            wait(Duration::from_millis(2));
            // Whoever was late for the last change of the time sees this one.
            clock.advance(Duration::from_secs(1));
            disk.struck().is_some()
        });
        wait(Duration::from_millis(10));
        runtime().block_on(async {
            disk.make_room();
            std::fs::remove_dir(home.path().join("reserve")).unwrap();
            put_before_long(store, &clock, "late", 200_000).await;
            written.push(("late", Told::Applied));
            store.flush().await.unwrap();
            check(store, &written).await;
        });
        let killed = copied(home.path());
        let opened = FileStore::open(killed.path(), SystemClock::shared());
        let opened = opened.unwrap_or_else(|error| panic!("full from call {last_call}: {error}"));
        runtime().block_on(check(&opened, &written));
        if !struck {
            // 26 where the thread of the tree has kept up with the clock, 12 where it has not.
            assert!(last_call >= 8, "only {last_call} calls to the disk");
            break;
        }
    }
}

/// Callers at work while the disk becomes full and has room again, on one store throughout; in the
/// end its power is cut.
#[test]
fn callers_on_a_disk_that_is_full_now_and_then_are_told_the_truth() {
    let mut refused = 0;
    for seed in 0..count("WANE_TEST_DISK_FAULTS", 100).div_ceil(25) {
        let clock = SystemClock::shared();
        let Bench { home, disk, store } = Bench::new(seed, Arc::clone(&clock));
        let (chance, mut verifier) = (Chance::seeded(seed), Verifier::default());
        for round in 0..3 {
            disk.arm(Fault::DiskFull, chance.below(80));
            let path = home.path().join(format!("ledger-{round}"));
            let ledger = Arc::new(Ledger::append_to(&path));
            let seed = seed * 10 + round;
            let workload = Workload { callers: 8, keys_each: 6, rounds: 12, seed };
            runtime().block_on(workload.run(&Arc::new(store.clone()), &clock, &ledger));
            let lines = ledger::read(&path);
            let is_refusal =
                |line: &&Line| matches!(line, Line::Ended { answer: Answer::Unavailable, .. });
            refused += lines.iter().filter(is_refusal).count();
            verifier.replay(&lines);
            runtime().block_on(verifier::scan(&store)).expect("reads go on");
            disk.make_room();
            assert!(takes_writes_again(&store), "seed {seed}: it does not go on");
            runtime().block_on(verifier.check(&store, &clock));
            verifier.assert_sound();
        }
        drop(store);
        disk.lose_what_was_not_synced(home.path()).unwrap();
        check_reopened(home.path(), &mut verifier);
        verifier.assert_sound();
    }
    assert!(refused > 0, "the disk was never full");
}

/// Whether a record can be written and removed before long.
fn takes_writes_again(store: &FileStore) -> bool {
    let name = "caller-0/room";
    let (key, value) = (ledger::store_key(name), ledger::value(name, 1));
    (0..100).any(|_| {
        wait(Duration::from_millis(50));
        runtime().block_on(async {
            let put = store.put(&key, Write::new(value.clone(), Life::Permanent)).await;
            put.is_ok() && store.compare_and_delete(&key, &value, Fence::NONE).await.is_ok()
        })
    })
}

/// The engine that ran out of room reads no more, and another takes its place. Whoever reads at
/// that moment gets the record, not an error.
#[test]
fn readers_notice_nothing_of_a_full_disk() {
    let clock = ManualClock::seeded(1);
    let Bench { home: _home, disk, store } = Bench::new(1, Arc::clone(&clock) as SharedClock);
    let names: Vec<_> = (0..200).map(|number| format!("read-{number}")).collect();
    let rows = names.iter().map(|name| (key(name), Write::new(value(20_000), Life::Permanent)));
    runtime().block_on(store.put_batch(rows.collect())).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let read = |reader: usize| {
        let (store, names, over) = (store.clone(), names.clone(), Arc::clone(&over));
        std::thread::spawn(move || {
            let (mut reads, runtime) = (0, runtime());
            while !over.load(Ordering::Relaxed) {
                let name = &names[(reads * 7 + reader * 50) % names.len()];
                let found = runtime.block_on(store.get(&key(name)));
                assert_eq!(found.unwrap().map(|found| found.value), Some(value(20_000)), "{name}");
                reads += 1;
            }
            reads
        })
    };
    let readers: Vec<_> = (0..4).map(read).collect();
    let mut refused = 0;
    for round in 0..60 {
        disk.arm(Fault::DiskFull, round % 5);
        let (logged, flushed) = runtime().block_on(async {
            let logged = put(&store, "written", 100 * round as usize).await;
            (logged, store.flush().await)
        });
        // The log takes it, or it does not; the tree does not, unless it was quick.
        refused += usize::from([told(&logged), told(&flushed)].contains(&Told::NotApplied));
        disk.make_room();
        runtime().block_on(put_before_long(&store, &clock, "written", 100));
    }
    over.store(true, Ordering::Relaxed);
    let reads: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(reads > 1_000, "only {reads} reads");
    assert!(refused > 40, "the disk was full {refused} times");
}

/// Segments are kept to be written over. While the tree has no room they would lie there unused.
#[test]
fn segments_that_nothing_needs_make_room_for_the_tree() {
    let home = tempfile::tempdir().unwrap();
    drop(FileStore::create(home.path(), SystemClock::shared()).unwrap());
    let disk = FaultyDisk::seeded(1);
    let settings = FileSettings::default().with_few_young_bytes(7 << 20);
    let clock = SystemClock::shared();
    let store = FileStore::open_on_as(&disk, home.path(), settings, clock).unwrap();
    runtime().block_on(async {
        let again = || Write::new(value(20_000), Life::Permanent);
        for _ in 0..10 {
            let rows = (0..25).map(|number| (key(&format!("again-{number}")), again()));
            store.put_batch(rows.collect()).await.unwrap();
        }
        store.flush().await.unwrap();
        put(&store, "last", 100).await.unwrap();
    });
    let kept = size_of_log(home.path());
    disk.arm(Fault::DiskFull, 0);
    assert_eq!(told(&runtime().block_on(store.flush())), Told::NotApplied);
    let left = size_of_log(home.path());
    assert!(left < kept, "{left} bytes of log are left of {kept}");
    disk.make_room();
    drop(store);
    let store = FileStore::open(home.path(), SystemClock::shared()).unwrap();
    runtime().block_on(check(&store, &[("again-0", Told::Applied), ("last", Told::Applied)]));
}

/// Where the file cannot be opened again after its disk was full, nobody knows what the tree has. The log
/// keeps what was acknowledged, however long the store is left as it is.
#[test]
fn a_store_that_failed_on_a_full_disk_keeps_its_log() {
    let Bench { home, disk, store } = Bench::new(1, SystemClock::shared());
    let rows = (0..150)
        .map(|number| (key(&format!("kept-{number}")), Write::new(value(20_000), Life::Permanent)));
    runtime().block_on(store.put_batch(rows.collect())).unwrap();
    let (records, hidden) = (home.path().join("records.redb"), home.path().join("hidden"));
    std::fs::rename(&records, &hidden).unwrap();
    disk.arm(Fault::DiskFull, 0);
    assert_eq!(told(&runtime().block_on(store.flush())), Told::NotApplied);
    disk.make_room();
    let refused = runtime().block_on(put(&store, "late", 100)).unwrap_err();
    assert!(refused.to_string().contains("unavailable"), "{refused}");
    // Longer than a writer that has nothing to do keeps a large segment.
    wait(Duration::from_millis(2_500));
    drop(store);
    std::fs::rename(&hidden, &records).unwrap();
    let store = FileStore::open(home.path(), SystemClock::shared()).unwrap();
    runtime().block_on(check(&store, &[("kept-0", Told::Applied), ("kept-149", Told::Applied)]));
}
