//! Pauses between attempts: each twice the one before, up to a bound, and not in step with others.

use std::time::Duration;

use super::settings::SequencerSettings;
use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(settings: &SequencerSettings) -> Self {
        let first = settings.first_pause;
        Self { first, longest: settings.longest_pause, next: first }
    }

    /// Something worked: the next failure is a first one.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits out the next pause: between half of it and the whole.
    pub(super) async fn pause(&mut self, clock: &dyn Clock) {
        let share = (clock.random_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let pause = self.next.mul_f64(0.5 + share / 2.0);
        self.next = self.next.saturating_mul(2).min(self.longest);
        clock.sleep(pause).await;
    }
}
