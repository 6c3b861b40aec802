//! A clock that is off, for tests: the time of another one, so much ahead or behind.

use std::time::Duration;

use super::{Clock, SharedClock, Sleep};
use crate::store::Timestamp;

/// A [`Clock`] whose wall time differs from another's by a fixed amount, as on another node.
#[derive(Debug)]
pub struct OffClock {
    right: SharedClock,
    ahead: i64,
}

impl OffClock {
    /// A clock that is `ahead` milliseconds ahead of `right`, or behind where that is negative.
    pub fn ahead_of(right: SharedClock, ahead: i64) -> Self {
        Self { right, ahead }
    }
}

impl Clock for OffClock {
    fn now(&self) -> Timestamp {
        let millis = self.right.now().as_unix_millis();
        Timestamp::from_unix_millis(millis.saturating_add_signed(self.ahead))
    }

    fn monotonic(&self) -> Duration {
        self.right.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.right.sleep(duration)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.right.fill_random(bytes);
    }

    fn never_before(&self, floor: Timestamp) {
        let millis = floor.as_unix_millis().saturating_add_signed(self.ahead.saturating_neg());
        self.right.never_before(Timestamp::from_unix_millis(millis));
    }
}
