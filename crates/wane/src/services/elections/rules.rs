//! The arithmetic of leases: how long one may be, and how much of it a holder may use.

use std::time::Duration;

use super::ElectionsError;
use crate::store::Ttl;

/// The longest lease.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A holder on a slow clock and a server on a fast one may disagree by so many parts of a lease:
/// 7/8 of it at a rate of 0.95 end before all of it at a rate of 1.05 that is slewed by another 2 %.
const DRIFT_PARTS: u32 = 8;

/// What the clocks around a store allow its leases to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRules {
    shortest: Duration,
    max_skew: Duration,
    pub(super) poll: Option<Duration>,
}

impl LeaseRules {
    /// For a store that one process has to itself: one clock says when leases end, and the process
    /// sees every change. Leases of 1 s or more.
    pub const ONE_PROCESS: Self =
        Self { shortest: Duration::from_secs(1), max_skew: Duration::ZERO, poll: None };

    /// For a store that many nodes share, each with a clock at most `max_skew` off the store's.
    /// They look for changes four times a second.
    pub const fn shared(shortest: Duration, max_skew: Duration) -> Self {
        Self { shortest, max_skew, poll: Some(Duration::from_millis(250)) }
    }

    /// The part of a lease that its holder must not use. One node may be `max_skew` behind the
    /// store while another is as much ahead.
    pub fn margin(&self, ttl: Duration) -> Duration {
        self.max_skew * 2 + ttl / DRIFT_PARTS
    }

    /// How long a holder may act on a lease, from when the request for it was sent.
    pub fn right(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.margin(ttl))
    }

    /// The shortest lease: one of which the margin leaves a quarter.
    fn shortest(&self) -> Duration {
        self.shortest.max(self.max_skew * 16 / 5)
    }

    pub(super) fn checked_ttl(&self, ttl: Duration) -> Result<Ttl, ElectionsError> {
        let legal = (self.shortest()..=LONGEST).contains(&ttl);
        let ttl = Ttl::try_from(ttl).ok().filter(|_| legal);
        ttl.ok_or_else(|| {
            let (from, to) = (self.shortest().as_millis(), LONGEST.as_millis());
            let reason = format!("a lease on this store may have {from} to {to} milliseconds");
            ElectionsError::InvalidTtl { reason }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_holder_stops_before_the_fastest_candidate_starts() {
        let max_skew = Duration::from_millis(500);
        for (rules, shortest) in [
            (LeaseRules::ONE_PROCESS, 1_000),
            (LeaseRules::shared(Duration::from_secs(3), max_skew), 3_000),
            (LeaseRules::shared(Duration::from_secs(10), max_skew * 6), 10_000),
        ] {
            for millis in [shortest, 10_000, 60_000, 3_600_000] {
                let ttl = Duration::from_millis(millis);
                let holder_stops = rules.right(ttl).div_f64(0.95);
                let candidate_starts = (ttl - rules.max_skew * 2).div_f64(1.05 * 1.02);
                assert!(holder_stops < candidate_starts, "{rules:?} {ttl:?}");
                assert!(rules.right(ttl) > ttl / 4, "{rules:?} {ttl:?}: no time to renew");
            }
        }
    }

    #[test]
    fn a_lease_too_short_for_the_clocks_is_refused() {
        let hasty = LeaseRules::shared(Duration::from_secs(1), Duration::from_millis(500));
        assert!(hasty.checked_ttl(Duration::from_millis(1_599)).is_err());
        assert!(hasty.checked_ttl(Duration::from_millis(1_600)).is_ok());
    }

    #[test]
    fn leases_outside_of_the_limits_are_refused() {
        let rules = LeaseRules::shared(Duration::from_secs(3), Duration::from_millis(500));
        for millis in [0, 2_999, 3_600_001] {
            let refused = rules.checked_ttl(Duration::from_millis(millis)).unwrap_err();
            assert!(refused.to_string().contains("3000 to 3600000"), "{refused}");
        }
        assert!(rules.checked_ttl(Duration::from_secs(3)).is_ok());
        assert!(rules.checked_ttl(Duration::from_secs(3_600)).is_ok());
    }
}
