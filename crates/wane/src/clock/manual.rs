//! A clock for tests: time moves when the test says so, and chance comes from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::steady::SteadyTime;
use super::{Clock, Sleep};
use crate::store::Timestamp;

/// Where the machine's clock of a new [`ManualClock`] stands: 2001-09-09, a second with a name.
const EPOCH: Timestamp = Timestamp::from_unix_millis(1_000_000_000_000);

/// A [`Clock`] that a test moves by hand.
///
/// It keeps the rules of the system clock: setting the machine's clock with
/// [`set_back`](ManualClock::set_back) slows [`now`](Clock::now) down instead of turning it back.
#[derive(Debug)]
pub struct ManualClock {
    shared: Arc<Shared>,
    /// What the machine's clock showed at first, in nanoseconds.
    epoch: u64,
    time: SteadyTime,
}

#[derive(Debug)]
struct Shared {
    elapsed: AtomicU64,
    set_back: AtomicU64,
    chance: AtomicU64,
    sleepers: Mutex<Vec<(u64, Waker)>>,
}

impl ManualClock {
    /// A clock that stands still, with a seed for its randomness.
    pub fn seeded(seed: u64) -> Arc<Self> {
        Self::starting_at(EPOCH, seed)
    }

    /// The same, from another time on: servers that clean up by their own clock remove at once
    /// what expired long ago by theirs.
    pub fn starting_at(start: Timestamp, seed: u64) -> Arc<Self> {
        let shared = Shared {
            elapsed: AtomicU64::new(0),
            set_back: AtomicU64::new(0),
            chance: AtomicU64::new(seed),
            sleepers: Mutex::default(),
        };
        let epoch = start.as_unix_millis().saturating_mul(1_000_000);
        let time = SteadyTime::anchored(0, epoch);
        Arc::new(Self { shared: Arc::new(shared), epoch, time })
    }

    /// Lets `duration` pass and wakes whoever slept until then.
    pub fn advance(&self, duration: Duration) {
        let nanos = duration.as_nanos() as u64;
        let now = self.shared.elapsed.fetch_add(nanos, Ordering::SeqCst) + nanos;
        let mut sleepers = self.shared.sleepers.lock();
        let due: Vec<_> = sleepers.extract_if(.., |(deadline, _)| *deadline <= now).collect();
        drop(sleepers);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Sets the machine's clock back, as an operator or a time server might.
    pub fn set_back(&self, duration: Duration) {
        self.shared.set_back.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }

    fn elapsed(&self) -> u64 {
        self.shared.elapsed.load(Ordering::SeqCst)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // Derived from what had elapsed, so that a move in between cannot set the two apart.
        let machine = |elapsed| self.epoch + elapsed - self.shared.set_back.load(Ordering::SeqCst);
        Timestamp::from_unix_millis(self.time.now(|| self.elapsed(), machine) / 1_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.elapsed())
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let shared = Arc::clone(&self.shared);
        let deadline = self.elapsed().saturating_add(duration.as_nanos() as u64);
        Box::pin(std::future::poll_fn(move |context| {
            // Registered under the lock that `advance` takes, so that no wake-up is missed.
            let mut sleepers = shared.sleepers.lock();
            if shared.elapsed.load(Ordering::SeqCst) >= deadline {
                return Poll::Ready(());
            }
            sleepers.push((deadline, context.waker().clone()));
            Poll::Pending
        }))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let state = self.shared.chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            chunk.copy_from_slice(&scramble(state).to_le_bytes()[..chunk.len()]);
        }
    }

    fn never_before(&self, floor: Timestamp) {
        let nanos = floor.as_unix_millis().saturating_mul(1_000_000);
        self.time.never_before(nanos, || self.elapsed());
    }
}

/// The output step of SplitMix64.
fn scramble(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Cases that are exact to the millisecond depend on it: readers on other threads must not bend
    /// the line, however they fall between a move of the clock and its setting back.
    #[test]
    fn the_line_catches_up_exactly_beside_other_readers() {
        let clock = ManualClock::seeded(1);
        let done = AtomicBool::new(false);
        let broken = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        clock.now();
                    }
                });
            }
            let broken = (0..2_000).find_map(|round| {
                clock.set_back(Duration::from_millis(50));
                (0..6).for_each(|_| clock.advance(Duration::from_secs(1)));
                clock.now();
                (0..6).for_each(|_| {
                    clock.advance(Duration::from_secs(1));
                    clock.now();
                });
                let before = clock.now();
                clock.advance(Duration::from_millis(1_500));
                let passed = before.until(clock.now());
                (passed != Duration::from_millis(1_500)).then_some((round, passed))
            });
            done.store(true, Ordering::Relaxed);
            broken
        });
        assert_eq!(broken, None, "round, and what passed instead of 1.5 s");
    }
}
