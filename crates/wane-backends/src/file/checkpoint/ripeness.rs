//! When a generation is brought into the tree: late enough for most of it to have died.
//!
//! What is replaced or expires while it is young costs the tree nothing. So a generation waits, as
//! long as there is memory for it and opening the store would not take long: until another was sealed
//! after it, or for half a minute, or until nobody writes any more and there is nothing better to do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use wane::store::Timestamp;

use super::Checkpointer;
use crate::file::view::Oldest;

/// How many sealed generations there may be.
const SEALED: usize = 1;

/// How long something stays young.
const YOUTH: Duration = Duration::from_secs(30);

/// How long a large value does, whose bytes are written once in any case, and in the way if it dies.
const LARGE_YOUTH: Duration = Duration::from_secs(2);

/// How long nothing must have been logged for there to be nothing better to do.
const QUIET: Duration = Duration::from_secs(1);

impl Checkpointer {
    /// Whether the oldest generation is to be brought into the tree.
    pub(super) fn is_ripe(&self, oldest: &Oldest) -> bool {
        let hurry = self.shared.hurry.load(Ordering::SeqCst);
        oldest.sealed.as_ref().is_some_and(|oldest| oldest.sequence <= hurry)
            || oldest.count > SEALED
            || until_ripe(oldest, self.shared.clock.now()).is_zero()
    }
}

/// How long until it is, if nothing else happens.
pub(super) fn until_ripe(oldest: &Oldest, now: Timestamp) -> Duration {
    let Some(since) = oldest.since else { return Duration::MAX };
    let youth = if oldest.has_large { LARGE_YOUTH } else { YOUTH };
    let young = youth.saturating_sub(since.until(now));
    young.min(QUIET.saturating_sub(oldest.last.until(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oldest(since: Option<u64>, last: u64) -> Oldest {
        let at = Timestamp::from_unix_millis;
        Oldest { sealed: None, count: 0, since: since.map(at), has_large: false, last: at(last) }
    }

    #[test]
    fn something_stays_young_for_half_a_minute_or_until_nobody_writes_any_more() {
        let now = Timestamp::from_unix_millis(100_000);
        assert_eq!(until_ripe(&oldest(None, 0), now), Duration::MAX);
        assert_eq!(until_ripe(&oldest(Some(100_000), 100_000), now), QUIET);
        assert_eq!(until_ripe(&oldest(Some(70_500), 100_000), now), Duration::from_millis(500));
        assert_eq!(until_ripe(&oldest(Some(70_000), 100_000), now), Duration::ZERO);
        assert_eq!(until_ripe(&oldest(Some(98_000), 99_000), now), Duration::ZERO);
        let large = Oldest { has_large: true, ..oldest(Some(98_500), 100_000) };
        assert_eq!(until_ripe(&large, now), Duration::from_millis(500));
    }
}
