//! The right to act: it ends on the monotonic clock, once, whatever else hangs.
//!
//! The end is a number that everyone reads without a lock. It moves only while it has not come,
//! and whoever finds that it has come makes that final: nobody is told "leader" after anybody was
//! told "not any more".

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Loss;
use crate::clock::SharedClock;

/// The end of a right that has ended.
const ENDED: u64 = 0;

/// How often the clock is looked at: timers stand still while a machine sleeps, and it does not.
const LOOK: Duration = Duration::from_secs(1);

/// The right of one lease.
#[derive(Debug)]
pub(super) struct Right {
    pub(super) clock: SharedClock,
    /// Nanoseconds on the monotonic clock.
    end: AtomicU64,
    loss: watch::Sender<Option<Loss>>,
    /// Why the last renewal failed.
    failure: Mutex<Option<String>>,
}

impl Right {
    /// A right up to `end` on the monotonic clock.
    pub(super) fn until(end: Duration, clock: SharedClock) -> Self {
        let (end, loss) = (AtomicU64::new(nanos(end)), watch::Sender::new(None));
        Self { clock, end, loss, failure: Mutex::default() }
    }

    pub(super) fn holds(&self) -> bool {
        self.left() > Duration::ZERO
    }

    /// The end on the monotonic clock; zero once it has come.
    pub(super) fn end(&self) -> Duration {
        if self.holds() {
            Duration::from_nanos(self.end.load(Ordering::SeqCst))
        } else {
            Duration::ZERO
        }
    }

    /// What is left. Where nothing is, that is final.
    pub(super) fn left(&self) -> Duration {
        loop {
            let (end, now) = (self.end.load(Ordering::SeqCst), nanos(self.clock.monotonic()));
            if now < end {
                return Duration::from_nanos(end - now);
            }
            if end == ENDED {
                return Duration::ZERO;
            }
            let last_failure = self.failure.lock().clone();
            self.finish(Loss::Expired { last_failure }, || self.replace(end, ENDED));
        }
    }

    /// Moves the end. `false` where it has come before: then it stays.
    pub(super) fn extend(&self, to: Duration) -> bool {
        while self.holds() {
            let end = self.end.load(Ordering::SeqCst);
            if end != ENDED && self.replace(end, nanos(to).max(end)) {
                self.failure.lock().take();
                return true;
            }
        }
        false
    }

    /// Ends the right at once. The first reason stands.
    pub(super) fn give_up(&self, loss: Loss) {
        self.finish(loss, || self.end.swap(ENDED, Ordering::SeqCst) != ENDED);
    }

    /// Notes why a renewal failed, for whoever asks why the right ended.
    pub(super) fn note(&self, failure: String) {
        *self.failure.lock() = Some(failure);
    }

    /// Waits until the right has ended.
    pub(super) async fn lost(&self) -> Loss {
        let mut loss = self.loss.subscribe();
        loop {
            // Zero once it has ended; then the loss is told, or about to be.
            let left = self.left().max(Duration::from_millis(1));
            if let Some(loss) = loss.borrow_and_update().clone() {
                return loss;
            }
            tokio::select! {
                biased;
                // The sender lives as long as this call borrows it.
                _ = loss.changed() => {}
                () = self.clock.sleep(left.min(LOOK)) => {}
            }
        }
    }

    fn replace(&self, before: u64, after: u64) -> bool {
        self.end.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends the right by `end`, and tells why where that was it. Both in one step: nobody sees the
    /// end without its reason.
    fn finish(&self, loss: Loss, end: impl FnOnce() -> bool) {
        self.loss.send_if_modified(|told| {
            let has_ended = end();
            if has_ended {
                told.get_or_insert(loss);
            }
            has_ended
        });
    }
}

/// 584 years of nanoseconds fit.
fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn an_end_that_has_come_never_moves() {
        let clock = ManualClock::seeded(1);
        let right = Right::until(Duration::from_secs(2), clock.clone());
        clock.advance(Duration::from_secs(1));
        assert!(right.extend(Duration::from_secs(3)));
        clock.advance(Duration::from_secs(2));
        assert!(!right.extend(Duration::from_secs(9)), "nobody had asked, and yet it had come");
        assert!(!right.holds());
        assert!(matches!(right.lost().await, Loss::Expired { last_failure: None }));
    }

    #[tokio::test]
    async fn an_end_never_moves_back() {
        let clock = ManualClock::seeded(1);
        let right = Right::until(Duration::from_secs(2), clock.clone());
        assert!(right.extend(Duration::from_secs(1)));
        clock.advance(Duration::from_millis(1_999));
        assert!(right.holds());
    }

    #[tokio::test]
    async fn the_first_reason_stands() {
        let right = Right::until(Duration::from_secs(2), ManualClock::seeded(1));
        right.give_up(Loss::Resigned);
        assert!(!right.holds());
        right.give_up(Loss::Taken(None));
        assert!(matches!(right.lost().await, Loss::Resigned));
    }
}
