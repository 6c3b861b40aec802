//! Large values at the end of their file that nothing leads to any more: the next opening cuts them off.
//!
//! What replaced or removed them may not be durable yet, where the process that wrote it was killed before
//! its sync. A power cut after the file was made shorter must not bring back what led to them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock};
use wane::store::{Fence, Key, Life, Store, StoreError, Value, Write};
use wane_backends::file::{DiskStep, Fault, FaultPoint, FaultyDisk, FileStore};

use crate::proof::{copied, runtime};

/// A value beside the tree, and one for which its place is too small.
const SHORT: usize = 90 << 10;
const LONG: usize = 150 << 10;

/// What becomes of unsynced writes is tried in so many ways for each cut.
const CHANCES: u64 = 4;

fn key(name: &str) -> Key {
    Key::new(b"values", name.as_bytes()).unwrap()
}

fn filled(byte: u8, len: usize) -> Vec<u8> {
    vec![byte; len]
}

async fn put(store: &FileStore, name: &str, value: Vec<u8>) -> Result<(), StoreError> {
    let write = Write::new(Value::new(value).unwrap(), Life::Permanent);
    store.put(&key(name), write).await.map(drop)
}

async fn delete(store: &FileStore, name: &str, value: &[u8]) -> Result<(), StoreError> {
    store.compare_and_delete(&key(name), value, Fence::NONE).await.map(drop)
}

/// What a killed process has left, on a disk that knows what of it is durable.
struct Killed {
    home: TempDir,
    disk: FaultyDisk,
    clock: SharedClock,
}

impl Killed {
    /// Works on a new store, until it is killed before this sync of what it does last.
    fn before(step: DiskStep, work: &impl AsyncFn(&FileStore, &FaultyDisk)) -> Self {
        let clock: SharedClock = ManualClock::seeded(1);
        let (home, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::seeded(0));
        drop(FileStore::create(home.path(), Arc::clone(&clock)).unwrap());
        let store = FileStore::open_on(&disk, home.path(), Arc::clone(&clock)).unwrap();
        disk.arm_at(FaultPoint { phase: "last", step }, 0);
        runtime().block_on(work(&store, &disk));
        drop(store);
        assert_eq!(disk.struck(), Some(Fault::PowerCut), "it was not killed");
        disk.restart();
        Self { home, disk, clock }
    }

    /// Cuts the power at each call of the next opening, and hands what opens after that to `holds`.
    fn cut_while_opening(&self, holds: &impl AsyncFn(&FileStore)) {
        for last_call in 0.. {
            let mut is_open = true;
            for chance in 0..CHANCES {
                let home = copied(self.home.path());
                let disk = self.disk.copied(last_call * CHANCES + chance);
                disk.arm(Fault::PowerCut, last_call);
                let opened = FileStore::open_on(&disk, home.path(), Arc::clone(&self.clock));
                is_open &= opened.is_ok();
                // A store that is open does nothing more.
                disk.arm(Fault::PowerCut, 0);
                drop(opened);
                disk.lose_what_was_not_synced(home.path()).unwrap();
                self.check(home.path(), last_call, holds);
            }
            if is_open {
                assert!(last_call > 3, "opening hardly writes anything");
                return;
            }
        }
    }

    fn check(&self, home: &Path, last_call: u64, holds: &impl AsyncFn(&FileStore)) {
        let disk = FaultyDisk::seeded(0);
        let opened = FileStore::open_on(&disk, home, Arc::clone(&self.clock));
        let store = opened.unwrap_or_else(|error| panic!("cut at call {last_call}: {error:?}"));
        runtime().block_on(holds(&store));
    }
}

fn values_len(home: &Path) -> u64 {
    std::fs::metadata(home.join("values")).unwrap().len()
}

/// The value was acknowledged; the one that replaces it, in a place before it, was logged and not synced.
#[test]
fn a_value_whose_replacement_is_not_durable_is_not_cut_off() {
    let killed = Killed::before(DiskStep::FrameSynced, &async |store, disk| {
        put(store, "hole", filled(1, SHORT)).await.unwrap();
        put(store, "wall", filled(2, SHORT)).await.unwrap();
        store.flush().await.unwrap();
        delete(store, "hole", &filled(1, SHORT)).await.unwrap();
        store.flush().await.unwrap();
        // A place is free once no snapshot shows it any more, which the next commit finds out.
        put(store, "next", filled(0, 1)).await.unwrap();
        store.flush().await.unwrap();
        put(store, "replaced", filled(3, LONG)).await.unwrap();
        disk.begin("last");
        put(store, "replaced", filled(4, SHORT)).await.unwrap_err();
    });
    let len = values_len(killed.home.path());
    assert!(len < (2 * SHORT + LONG + SHORT) as u64, "the hole was not used: {len} bytes");
    killed.cut_while_opening(&async |store| {
        let found = store.get(&key("replaced")).await.unwrap().unwrap();
        let (old, new) = (filled(3, LONG), filled(4, SHORT));
        assert!([&old[..], &new[..]].contains(&&found.value[..]), "another value");
    });
}

/// The value was removed, and the tree that does not have it was written and not synced.
#[test]
fn a_value_that_the_durable_tree_has_is_not_cut_off() {
    let killed = Killed::before(DiskStep::TreeSynced, &async |store, disk| {
        put(store, "wall", filled(1, SHORT)).await.unwrap();
        put(store, "removed", filled(2, SHORT)).await.unwrap();
        store.flush().await.unwrap();
        delete(store, "removed", &filled(2, SHORT)).await.unwrap();
        disk.begin("last");
        store.flush().await.unwrap_err();
    });
    killed.cut_while_opening(&async |store| {
        assert!(store.get(&key("removed")).await.unwrap().is_none(), "it is back");
        let wall = store.get(&key("wall")).await.unwrap().unwrap();
        assert_eq!(&wall.value[..], filled(1, SHORT));
    });
}
