//! A machine: clocks that run at a rate of their own, and pauses during which nothing runs on it.
//!
//! True time is that of tokio's paused runtime. A paused machine's clocks go on, as those of a
//! stopped process do; its sleeps and its calls come back only after the pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use wane::clock::{Clock, Sleep};
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Timestamp, Write,
};

/// What the right clock shows when a world begins.
const BEGINNING: u64 = 1_700_000_000_000;

/// A machine of a simulated world. A clone is the same one.
#[derive(Debug, Clone)]
pub(crate) struct Machine(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    began: Instant,
    /// Of the monotonic clock.
    rate: f64,
    wall: Wall,
    chance: AtomicU64,
    /// Nanoseconds of true time.
    paused_until: AtomicU64,
}

/// How the wall clock of a machine goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wall {
    /// With the monotonic one, from the right time on.
    Monotonic,
    /// So much faster than the monotonic one.
    Slewed(f64),
    /// Off by up to so much, to and fro at a rate of 1 plus or minus `drift`.
    Wandering { at_first: f64, drift: f64, max_skew: Duration },
}

impl Wall {
    /// Nanoseconds off the right time.
    fn offset(self, rate: f64, elapsed: Duration) -> f64 {
        let elapsed = elapsed.as_nanos() as f64;
        match self {
            Self::Monotonic => elapsed * (rate - 1.0),
            Self::Slewed(factor) => elapsed * (rate * factor - 1.0),
            Self::Wandering { at_first, drift, max_skew } => {
                // A triangle between -1 and 1, in units of the largest skew.
                let skew = max_skew.as_nanos() as f64;
                let place = (at_first + elapsed * drift / skew + 1.0).rem_euclid(4.0);
                skew * if place < 2.0 { place - 1.0 } else { 3.0 - place }
            }
        }
    }
}

impl Machine {
    pub(crate) fn new(rate: f64, wall: Wall, seed: u64) -> Self {
        let began = true_now();
        let (chance, paused_until) = (AtomicU64::new(seed), AtomicU64::new(0));
        Self(Arc::new(Parts { began, rate, wall, chance, paused_until }))
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    /// True time since the world began.
    pub(crate) fn elapsed(&self) -> Duration {
        true_now().duration_since(self.0.began)
    }

    /// Nothing runs on the machine for so long.
    pub(crate) fn pause(&self, duration: Duration) {
        let until = (self.elapsed() + duration).as_nanos() as u64;
        self.0.paused_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Completes as soon as anything runs on the machine.
    async fn running(&self) {
        loop {
            let until = Duration::from_nanos(self.0.paused_until.load(Ordering::Relaxed));
            let left = until.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            true_sleep(left).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the simulated time is tokio's")]
fn true_now() -> Instant {
    Instant::now()
}

/// Waits for so much of true time, in whole milliseconds: tokio's timers know no others, and would
/// round by when its runtime was built.
#[expect(clippy::disallowed_methods, reason = "the simulated time is tokio's")]
pub(crate) async fn true_sleep(duration: Duration) {
    let millis = duration.as_nanos().div_ceil(1_000_000) as u64;
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Begins true time at a tick of tokio's timers.
pub(crate) async fn begin() {
    true_sleep(Duration::from_millis(1)).await;
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        let offset = self.0.wall.offset(self.0.rate, elapsed);
        let millis = (elapsed.as_nanos() as f64 + offset) / 1e6;
        Timestamp::from_unix_millis(BEGINNING.saturating_add_signed(millis as i64))
    }

    fn monotonic(&self) -> Duration {
        self.elapsed().mul_f64(self.0.rate)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let (machine, duration) = (self.clone(), duration.div_f64(self.0.rate));
        Box::pin(async move {
            true_sleep(duration).await;
            machine.running().await;
        })
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let state = self.0.chance.fetch_add(1, Ordering::Relaxed);
            let drawn = super::Dice::of(state).draw();
            chunk.copy_from_slice(&drawn.to_le_bytes()[..chunk.len()]);
        }
    }

    fn never_before(&self, _: Timestamp) {}
}

/// The store as a machine reaches it: while the machine is paused, nothing is sent and no answer is
/// noticed.
#[derive(Debug)]
pub(crate) struct Reached<S> {
    pub(crate) machine: Machine,
    pub(crate) store: S,
}

impl<S: Store> Reached<S> {
    async fn call<T>(&self, request: impl Future<Output = T> + Send) -> T {
        self.machine.running().await;
        let answer = request.await;
        self.machine.running().await;
        answer
    }
}

impl<S: Store> Store for Reached<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.call(self.store.get(key)).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.call(self.store.get_batch(keys)).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.call(self.store.read(partition, range, limit)).await
    }

    async fn scan(
        &self,
        after: Option<S::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<S::ScanCursor>, StoreError> {
        self.call(self.store.scan(after, limit)).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.call(self.store.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.call(self.store.put_batch(writes)).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.call(self.store.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.call(self.store.compare_and_swap(key, expected, write)).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.call(self.store.compare_and_delete(key, expected, fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.call(self.store.query_ttl(key)).await
    }
}
