//! How fast callers are served: as fast as the disk, until the tree falls behind.
//!
//! What is logged must reach the tree some time, which is slower. Until the young generations take
//! three fifths of what they may, callers notice nothing. From there on each group waits a little
//! longer than the one before, so that callers are slowed down smoothly to what the tree can take,
//! and nobody ever waits for a whole generation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::file::log::Log;
use crate::file::view::Shared;

/// The share of the bound from which on callers are slowed down.
const SLOWER_FROM: f64 = 0.6;

/// What a group waits at most, before it is looked again whether there is room.
const LONGEST: Duration = Duration::from_millis(50);

/// The share of the bound that one generation takes at most.
const GENERATION: usize = 4;

/// A disk whose syncs take as long as this is worth gathering callers for.
const SLOW_SYNC: Duration = Duration::from_micros(500);

/// How callers are served.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes of memory that the young generations may take, and of segments that are kept for them.
    young_bytes: usize,
    /// What a sync takes, on average of the last few.
    sync: Duration,
}

impl Pace {
    pub(super) fn new(young_bytes: usize) -> Self {
        Self { young_bytes, sync: Duration::ZERO }
    }

    /// Notes what a sync took.
    pub(super) fn synced(&mut self, took: Duration) {
        self.sync = if self.sync.is_zero() { took } else { (7 * self.sync + took) / 8 };
    }

    /// What a sync takes.
    pub(super) fn sync(&self) -> Duration {
        self.sync
    }

    /// How many callers the next group is worth waiting for, after one of so many.
    pub(super) fn gathers(&self, last_group: usize) -> usize {
        if self.sync >= SLOW_SYNC { last_group } else { 0 }
    }

    /// Waits as long as the tree is behind. `false` means that it cannot catch up.
    pub(super) fn wait(&self, shared: &Shared, log: &Log) -> bool {
        loop {
            let (young, active) = shared.weight();
            if active > self.young_bytes / GENERATION {
                shared.seal(None);
            }
            let filled = log.needed().max(young as u64) as f64 / self.young_bytes as f64;
            // The log alone may be full of what the tree has: then the next segment makes room.
            if young == 0 || shared.check().is_err() {
                return true;
            }
            if filled < 1.0 {
                rest(pause(filled));
                return true;
            }
            if shared.lacks_room.load(Ordering::SeqCst) {
                return false;
            }
            shared.hasten();
            rest(LONGEST);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the tree catches up in real time")]
fn rest(pause: Duration) {
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

/// What a group waits where so much of the bound is taken.
fn pause(filled: f64) -> Duration {
    let over = ((filled - SLOWER_FROM) / (1.0 - SLOWER_FROM)).clamp(0.0, 1.0);
    LONGEST.mul_f64(over * over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_slowed_down_smoothly_and_not_before_it_is_time() {
        assert_eq!(pause(0.0), Duration::ZERO);
        assert_eq!(pause(SLOWER_FROM), Duration::ZERO);
        let pauses: Vec<_> = (60..=100).map(|percent| pause(f64::from(percent) / 100.0)).collect();
        assert!(pauses.is_sorted());
        assert!(pauses[1] < Duration::from_micros(100), "{:?}", pauses[1]);
        assert_eq!(pause(1.0), LONGEST);
        assert_eq!(pause(3.0), LONGEST);
    }

    #[test]
    fn callers_are_gathered_where_a_sync_takes_long() {
        let mut pace = Pace::new(1 << 20);
        assert_eq!(pace.gathers(128), 0);
        pace.synced(Duration::from_millis(2));
        assert_eq!(pace.gathers(128), 128);
        (0..40).for_each(|_| pace.synced(Duration::from_micros(90)));
        assert_eq!(pace.gathers(128), 0);
    }
}
