//! A thread that stands still where it asks for the time, while others go on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::cell::Cell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::{Condvar, Mutex};
use wane::clock::{Clock, ManualClock, Sleep};
use wane::store::{
    ClusteringRange, Key, Life, MemoryStore, PageLimit, Partition, Remaining, Row, Store,
    Timestamp, Ttl, Value, Write,
};

thread_local! {
    static STALL: Cell<Option<Stall>> = const { Cell::new(None) };
}

/// Where a thread stands still: before it has the time, or with the time that was.
#[derive(Debug, Clone, Copy)]
enum Stall {
    Before,
    After,
}

/// A clock that lets one thread stand still.
#[derive(Debug)]
struct StallingClock {
    inner: Arc<ManualClock>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Running,
    Stalled,
    Released,
}

impl Clock for StallingClock {
    fn now(&self) -> Timestamp {
        let before = self.inner.now();
        let Some(stall) = STALL.take() else { return before };
        let mut progress = self.progress.lock();
        *progress = Progress::Stalled;
        self.changed.notify_all();
        self.changed.wait_while(&mut progress, |progress| *progress != Progress::Released);
        match stall {
            Stall::Before => self.inner.now(),
            Stall::After => before,
        }
    }

    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }

    fn sleep(&self, _: Duration) -> Sleep {
        // Nothing is swept meanwhile.
        Box::pin(std::future::pending())
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.inner.fill_random(bytes);
    }

    fn never_before(&self, floor: Timestamp) {
        self.inner.never_before(floor);
    }
}

/// A store of one record that is renewed in time, or is not.
struct Stage {
    clock: Arc<StallingClock>,
    store: MemoryStore,
}

fn now<T>(request: impl Future<Output = T>) -> T {
    request.now_or_never().expect("memory answers at once")
}

fn lease() -> Key {
    Key::new(b"stalled", b"lease").unwrap()
}

fn write(value: &'static [u8], life: Life) -> Write {
    Write::new(Value::new(value).unwrap(), life)
}

fn millis(millis: u64) -> Life {
    Life::For(Ttl::from_millis(millis).unwrap())
}

/// The rows of a scan.
fn scanned(store: &MemoryStore) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = now(store.scan(after, PageLimit::MAX)).unwrap();
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

impl Stage {
    /// A lease of 100 ms, 5 ms before its end.
    fn new() -> Self {
        let (progress, changed) = (Mutex::new(Progress::Running), Condvar::new());
        let clock = Arc::new(StallingClock { inner: ManualClock::seeded(1), progress, changed });
        let store = MemoryStore::new(Arc::clone(&clock) as _).unwrap();
        assert!(now(store.put(&lease(), write(b"old", millis(100)))).unwrap().is_applied());
        clock.inner.advance(Duration::from_millis(95));
        Self { clock, store }
    }

    /// Lets somebody begin, who stands still at the clock.
    fn stall<T: Send + 'static>(
        &self,
        stall: Stall,
        work: impl FnOnce(&MemoryStore) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let store = self.store.clone();
        let thread = std::thread::spawn(move || {
            STALL.set(Some(stall));
            work(&store)
        });
        let mut progress = self.clock.progress.lock();
        self.clock.changed.wait_while(&mut progress, |it| *it != Progress::Stalled);
        thread
    }

    fn release(&self) {
        *self.clock.progress.lock() = Progress::Released;
        self.clock.changed.notify_all();
    }

    fn renew(store: &MemoryStore) -> bool {
        let renewed = write(b"new", millis(10_000));
        now(store.compare_and_swap(&lease(), b"old", renewed)).unwrap().is_applied()
    }
}

/// Lets a thread go on until it is done, or waits for somebody as it seems.
fn let_run<T>(thread: &JoinHandle<T>) {
    for _ in 0..200_000 {
        if thread.is_finished() {
            return;
        }
        std::thread::yield_now();
    }
}

/// A lease that is renewed while somebody asks for what is left of it is never told to be gone.
#[test]
fn what_is_left_of_a_renewed_record_is_not_nothing() {
    let stage = Stage::new();
    let asked = stage.stall(Stall::Before, |store| now(store.query_ttl(&lease())).unwrap());
    let store = stage.store.clone();
    let renewing = std::thread::spawn(move || Stage::renew(&store));
    let_run(&renewing);
    stage.clock.inner.advance(Duration::from_millis(10));
    stage.release();
    let left = asked.join().unwrap();
    let is_renewed = renewing.join().unwrap();
    assert_eq!(matches!(left, Remaining::For(_)), is_renewed, "{left:?}");
}

/// The renewal was decided in time, and a scan begins after the old expiry, before it is carried out.
#[test]
fn a_scan_shows_a_record_whose_renewal_is_under_way() {
    let stage = Stage::new();
    let renewing = stage.stall(Stall::After, Stage::renew);
    stage.clock.inner.advance(Duration::from_millis(10));
    let store = stage.store.clone();
    let scanning = std::thread::spawn(move || scanned(&store));
    let_run(&scanning);
    stage.release();
    let is_renewed = renewing.join().unwrap();
    let rows = scanning.join().unwrap();
    assert_eq!(rows.len(), usize::from(is_renewed), "{rows:?}");
}

/// What was over when it was written is shown by nobody, also not by whoever took the time before.
#[test]
fn a_record_that_never_lived_is_not_shown() {
    let page = |store: &MemoryStore| {
        let partition = Partition::new(&b"stalled"[..]).unwrap();
        now(store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX)).unwrap().rows
    };
    let stage = Stage::new();
    let over = stage.clock.inner.now();
    let later = Timestamp::from_unix_millis(over.as_unix_millis() + 1);
    let reading = stage.stall(Stall::After, page);
    stage.clock.inner.advance(Duration::from_millis(1));
    let key = Key::new(b"stalled", b"over").unwrap();
    for until in [over, later] {
        assert!(
            now(stage.store.put(&key, write(b"over", Life::Until(until)))).unwrap().is_applied()
        );
    }
    stage.release();
    let rows = reading.join().unwrap();
    assert!(rows.iter().all(|row| row.key != key), "{rows:?}");
}
