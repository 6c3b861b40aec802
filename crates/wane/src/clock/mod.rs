//! Time and chance: the only way the crates of this workspace reach a clock, a timer or randomness.
//!
//! Everything that waits, expires or draws takes a [`Clock`], so that tests decide what time it
//! is and what comes up. [`SystemClock`] is the real one. Its wall time is anchored at the start,
//! never steps back, and slews towards the machine's clock when that is set (see `steady`).
//!
//! Not here: agreement between machines. Shared backends compare clocks on their own.

#[cfg(feature = "testing")]
mod manual;
#[cfg(feature = "testing")]
mod off;
mod steady;

#[cfg(feature = "testing")]
pub use manual::ManualClock;
#[cfg(feature = "testing")]
pub use off::OffClock;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::store::Timestamp;
use steady::SteadyTime;

/// A pending [`Clock::sleep`].
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A clock shared by all parts of a process.
pub type SharedClock = Arc<dyn Clock>;

/// Wall time, elapsed time, waiting and randomness.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall time. Never less than what any caller was told before.
    fn now(&self) -> Timestamp;

    /// Time elapsed since some fixed moment, unaffected by changes of the wall clock. The time that
    /// a machine sleeps counts, where its system tells.
    fn monotonic(&self) -> Duration;

    /// Completes once `duration` has elapsed on [`monotonic`](Clock::monotonic).
    fn sleep(&self, duration: Duration) -> Sleep;

    /// Fills `bytes` with randomness fit for secrets (a manual clock's is fit for tests only).
    fn fill_random(&self, bytes: &mut [u8]);

    /// Moves [`now`](Clock::now) up to `floor` if it is behind. Durable stores call this on
    /// opening, so that a clock set back during downtime cannot revive what had expired.
    fn never_before(&self, floor: Timestamp);

    /// A random number.
    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

/// The machine's own clock and randomness. Sleeping needs a tokio runtime.
///
/// On Linux the monotonic time is that since the boot: all processes of a machine share it, and it
/// goes on while the machine is suspended.
#[derive(Debug)]
pub struct SystemClock {
    time: SteadyTime,
}

impl SystemClock {
    /// Anchors a clock at the machine's present time, ready to be shared.
    pub fn shared() -> SharedClock {
        Arc::new(Self { time: SteadyTime::anchored(elapsed_nanos(), wall_nanos()) })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let nanos = self.time.now(elapsed_nanos, |_| wall_nanos());
        Timestamp::from_unix_millis(nanos / 1_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(elapsed_nanos())
    }

    #[expect(clippy::disallowed_methods, reason = "this is what everything else sleeps through")]
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }

    #[expect(clippy::disallowed_methods, reason = "this is what everything else draws from")]
    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system provides randomness");
    }

    fn never_before(&self, floor: Timestamp) {
        let nanos = floor.as_unix_millis().saturating_mul(1_000_000);
        self.time.never_before(nanos, elapsed_nanos);
    }
}

/// Nanoseconds since the boot; 584 years of them fit. `Instant` stands still during a suspend, and
/// whoever went by it would take up a lease again that ended meanwhile.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn elapsed_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since this was first asked.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::disallowed_methods, reason = "this is where elapsed time comes from")]
fn elapsed_nanos() -> u64 {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// Nanoseconds since the Unix epoch by the machine's clock, which may have been set to anything.
#[expect(clippy::disallowed_methods, reason = "this is where wall time comes from")]
fn wall_nanos() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since_epoch| u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}
