//! Clocks that are set while a store seals, brings a generation into its tree, or is opened again: what
//! has expired stays gone, and what has not stays.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::{Clock, ManualClock, SharedClock};
use wane::store::{
    ClusteringRange, Key, Life, PageLimit, Partition, Remaining, Store, Timestamp, Ttl, Value,
    Write,
};
use wane_backends::file::{Fault, FaultyDisk, FileStore};

const HOUR: Duration = Duration::from_secs(3_600);
const BRIEF: Duration = Duration::from_secs(5);

/// Where records are when they expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Active,
    Sealed,
    InTree,
}

/// What the store does after the clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Seals,
    Brings,
    Closes,
    IsKilled,
}

const AGES: [Age; 3] = [Age::Active, Age::Sealed, Age::InTree];
const THEN: [Then; 4] = [Then::Seals, Then::Brings, Then::Closes, Then::IsKilled];

fn key(name: &str) -> Key {
    Key::new(b"clock", name.as_bytes()).unwrap()
}

fn write(life: Option<Duration>) -> Write {
    let life = life.map(|life| Life::For(Ttl::from_millis(life.as_millis() as u64).unwrap()));
    Write::new(Value::new("value").unwrap(), life.unwrap_or(Life::Permanent))
}

/// A store on a machine whose clock can be set.
struct Machine {
    home: TempDir,
    disk: FaultyDisk,
    clock: Arc<ManualClock>,
    store: Option<FileStore>,
}

impl Machine {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = ManualClock::seeded(1);
        drop(FileStore::create(home.path(), Arc::clone(&clock) as SharedClock).unwrap());
        let mut machine = Self { home, disk: FaultyDisk::seeded(1), clock, store: None };
        machine.open();
        machine
    }

    fn store(&self) -> &FileStore {
        self.store.as_ref().unwrap()
    }

    fn open(&mut self) {
        let clock = Arc::clone(&self.clock) as SharedClock;
        self.disk = FaultyDisk::seeded(1);
        self.store = Some(FileStore::open_on(&self.disk, self.home.path(), clock).unwrap());
    }

    /// Ends the store in one way or the other, and opens it on a machine whose clock shows `time`.
    fn open_again(&mut self, is_killed: bool, time: Timestamp) {
        if is_killed {
            self.disk.arm(Fault::PowerCut, 0);
        }
        self.store = None;
        self.clock = ManualClock::starting_at(time, 1);
        self.open();
    }

    async fn put(&self, name: &str, life: Option<Duration>) {
        assert!(self.store().put(&key(name), write(life)).await.unwrap().is_applied());
    }

    async fn grow_old(&self, age: Age) {
        match age {
            Age::Active => {}
            Age::Sealed => drop(self.store().scan(None, PageLimit::MAX).await.unwrap()),
            Age::InTree => self.store().flush().await.unwrap(),
        }
    }

    /// What every way of reading shows, by name.
    async fn shown(&self) -> Vec<String> {
        let store = self.store();
        let partition = Partition::new(b"clock".to_vec()).unwrap();
        let page = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
        let name = |key: &Key| String::from_utf8(key.clustering().to_vec()).unwrap();
        let shown: Vec<_> = page.rows.iter().map(|row| name(&row.key)).collect();
        let scanned = store.scan(None, PageLimit::MAX).await.unwrap();
        let mut scanned: Vec<_> = scanned.rows.iter().map(|row| name(&row.key)).collect();
        scanned.sort();
        assert_eq!(scanned, shown, "a scan and a range");
        for name in ["brief", "hour", "late", "permanent"] {
            let is_shown = shown.iter().any(|shown| shown == name);
            let found = store.get(&key(name)).await.unwrap();
            assert_eq!(found.is_some(), is_shown, "a get and a range of {name}");
            let remaining = store.query_ttl(&key(name)).await.unwrap();
            assert_eq!(remaining != Remaining::Absent, is_shown, "{remaining:?} of {name}");
        }
        shown
    }
}

fn before(time: Timestamp) -> Timestamp {
    Timestamp::from_unix_millis(time.as_unix_millis() - HOUR.as_millis() as u64)
}

/// The clock is set back by an hour once something has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_revives_nothing_whatever_the_store_does_then() {
    for age in AGES {
        for then in THEN {
            let mut machine = Machine::new();
            machine.put("brief", Some(BRIEF)).await;
            machine.put("hour", Some(HOUR)).await;
            machine.put("permanent", None).await;
            machine.grow_old(age).await;
            machine.clock.advance(BRIEF);
            // What is written at a time is durable with it.
            machine.put("late", None).await;
            assert_eq!(machine.shown().await, ["hour", "late", "permanent"], "{age:?}");
            machine.clock.set_back(HOUR);
            let time = machine.clock.now();
            match then {
                Then::Seals => machine.grow_old(Age::Sealed).await,
                Then::Brings => machine.grow_old(Age::InTree).await,
                Then::Closes => machine.open_again(false, before(time)),
                Then::IsKilled => machine.open_again(true, before(time)),
            }
            let found = machine.shown().await;
            assert_eq!(found, ["hour", "late", "permanent"], "{age:?} {then:?}");
            assert!(machine.clock.now() >= time, "{age:?} {then:?}: time went back");
            let insert = machine.store().insert_if_not_exists(&key("brief"), write(None)).await;
            assert!(insert.unwrap().is_applied(), "{age:?} {then:?}");
        }
    }
}

/// A machine comes back with a clock that is an hour ahead, and is set right later. What has expired
/// by then is gone for good: callers were told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_expired_under_a_clock_that_was_ahead_stays_gone() {
    for age in AGES {
        for is_killed in [false, true] {
            let mut machine = Machine::new();
            machine.put("hour", Some(HOUR)).await;
            machine.put("permanent", None).await;
            machine.grow_old(age).await;
            let right = machine.clock.now();
            let ahead = right.as_unix_millis() + HOUR.as_millis() as u64;
            machine.open_again(is_killed, Timestamp::from_unix_millis(ahead));
            assert_eq!(machine.shown().await, ["permanent"], "{age:?}");
            machine.put("late", None).await;
            machine.open_again(is_killed, right);
            assert_eq!(machine.shown().await, ["late", "permanent"], "{age:?} {is_killed}");
            machine.grow_old(Age::InTree).await;
            machine.open_again(!is_killed, right);
            assert_eq!(machine.shown().await, ["late", "permanent"], "{age:?} {is_killed}");
        }
    }
}
