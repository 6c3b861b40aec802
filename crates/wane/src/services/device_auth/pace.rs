//! Paces: how often something may happen, for each of many.
//!
//! A burst at once, then one for each interval that passes. One number is kept for each: the time
//! at which it is as if nothing had ever happened, and from which on it need not be kept.

use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

use super::fading::Fading;

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How often at once; 0 is taken as 1.
    pub burst: u32,
    /// The time after which it may happen once more.
    pub every: Duration,
}

impl Pace {
    /// So many times as often, at once and later.
    pub(super) fn times(self, times: u32) -> Self {
        Self { burst: self.burst.saturating_mul(times), every: self.every / times.max(1) }
    }
}

/// The pace of each.
#[derive(Debug)]
pub(super) struct Paces<K> {
    pace: Pace,
    /// When each is as if nothing had happened, on the monotonic clock.
    rested: Mutex<Fading<K, Duration>>,
}

impl<K: Eq + Hash> Paces<K> {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, rested: Mutex::default() }
    }

    /// Lets it happen once more, or says how long to wait.
    pub(super) fn admit(&self, key: K, now: Duration) -> Result<(), Duration> {
        let mut rested = self.rested.lock();
        let before = rested.get_mut(&key).copied().unwrap_or_default().max(now);
        let ahead = self.pace.every.saturating_mul(self.pace.burst.saturating_sub(1));
        let allowed_at = before.saturating_sub(ahead);
        if allowed_at > now {
            return Err(allowed_at - now);
        }
        let after = before.saturating_add(self.pace.every);
        rested.insert(key, after, after, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_passes_and_then_one_for_each_interval() {
        let paces = Paces::new(Pace { burst: 3, every: SECOND });
        let now = Duration::from_secs(100);
        assert!((0..3).all(|_| paces.admit("a", now).is_ok()));
        assert_eq!(paces.admit("a", now), Err(SECOND));
        assert_eq!(paces.admit("a", now), Err(SECOND), "who is refused does not wait longer");
        assert_eq!(paces.admit("b", now), Ok(()), "another one");
        assert_eq!(paces.admit("a", now + SECOND), Ok(()));
        assert!(paces.admit("a", now + SECOND).is_err());
        assert!((0..3).all(|_| paces.admit("a", now + SECOND * 10).is_ok()), "rested");
    }
}
