//! Settings of the service, and the rules between them.

use std::sync::Arc;
use std::time::Duration;

use super::PullStreamError;
use super::advance_lock::AdvanceLock;
use super::archive::Archive;
use super::body::Gzip;
use super::policy::Policy;
use super::record::MAX_READERS;
use super::regions::checked_name;
use super::segment::SEGMENT_BYTES;
use super::token_view::TokenView;
use crate::store::Ttl;

const DAY: u64 = 24 * 60 * 60;

/// How a service behaves.
#[derive(Debug, Clone)]
pub struct PullStreamSettings {
    /// The region of this node: 1 to 32 lowercase letters, digits and `-`.
    pub region: String,
    /// The home region, written the same: part of where everything lies, and so the same for all
    /// nodes of a store (see [`home_region`](super::home_region)).
    pub home: String,
    /// How long a reader has its slot without a call.
    pub lease: Duration,
    /// How long a token is good without being used.
    pub token_life: Duration,
    /// How long a call waits for a message.
    pub hold: Duration,
    /// How long a row waits to be filled under load.
    pub linger: Duration,
    /// How long messages are kept, unless a policy says otherwise: a second or longer.
    pub retention: Ttl,
    /// How many readers an institution may have, unless a policy says otherwise.
    pub max_readers: usize,
    /// How often rows of other nodes are looked for while somebody waits; `None` where no other
    /// process writes to the store.
    pub look_every: Option<Duration>,
    /// How long a replay can be read, counted from when it was asked for.
    pub replay_life: Ttl,
    /// What bodies of whole rows are compressed with when they are sealed; `None` for not at all.
    pub gzip: Option<Arc<dyn Gzip>>,
    /// Where slots and tokens are shown as well; `None` for nowhere.
    pub view: Option<Arc<dyn TokenView>>,
    /// Where rows are copied to before they expire; `None` for nowhere.
    pub archive: Option<Arc<dyn Archive>>,
    /// How long before its end a row is due for the archive, at least.
    pub archive_before: Duration,
    /// Bytes of rows that are archived in a second, at most: the stream goes first.
    pub archive_rate: u64,
    /// Bytes of rows after which a segment of the archive is full: up to 8 MiB.
    pub archive_segment: usize,
    /// What nodes wait for before they advance an institution; `None` for nothing.
    pub lock: Option<Arc<dyn AdvanceLock>>,
}

impl Default for PullStreamSettings {
    fn default() -> Self {
        Self {
            region: "local".into(),
            home: "local".into(),
            lease: Duration::from_secs(30),
            token_life: Duration::from_secs(300),
            hold: Duration::from_secs(5),
            linger: Duration::from_millis(2),
            retention: Ttl::from_secs(30 * DAY).unwrap_or(Ttl::MAX),
            max_readers: MAX_READERS,
            look_every: Some(Duration::from_millis(100)),
            replay_life: Ttl::from_secs(DAY).unwrap_or(Ttl::MAX),
            gzip: None,
            view: None,
            archive: None,
            archive_before: Duration::from_secs(3 * DAY),
            archive_rate: 16 << 20,
            archive_segment: SEGMENT_BYTES,
            lock: None,
        }
    }
}

impl PullStreamSettings {
    pub(super) fn checked(self) -> Result<Self, PullStreamError> {
        checked_name("region", &self.region)?;
        checked_name("home", &self.home)?;
        if !(self.hold < self.lease && self.lease < self.token_life) {
            let reason = "the hold must be shorter than the lease, and the lease than the token";
            return Err(PullStreamError::Invalid { field: "lease", reason: reason.into() });
        }
        if self.lease < Duration::from_millis(2) || self.token_life > Ttl::MAX.as_duration() {
            let reason = "give a lease of 2 ms or more, and a token life of up to 365 days";
            return Err(PullStreamError::Invalid { field: "lease", reason: reason.into() });
        }
        if self.archive_rate == 0 || !(1..=SEGMENT_BYTES).contains(&self.archive_segment) {
            let reason = "give a byte a second or more, and segments of up to 8 MiB".into();
            return Err(PullStreamError::Invalid { field: "archive_rate", reason });
        }
        self.policy().checked()?;
        Ok(self)
    }

    /// Beyond what leases last, also those of nodes with other settings and clocks that are off.
    pub(super) fn longest_lease(&self) -> Duration {
        self.token_life.max(self.lease * 2)
    }

    /// What holds for institutions without a policy.
    pub(super) fn policy(&self) -> Policy {
        Policy { retention: self.retention, max_readers: self.max_readers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_shorter_than_a_lease_and_a_lease_than_a_token() {
        let usual = PullStreamSettings::default;
        assert!(usual().checked().is_ok());
        let secs = Duration::from_secs;
        for (hold, lease, token_life) in [
            (secs(30), secs(30), secs(300)),
            (secs(5), secs(300), secs(300)),
            (secs(0), secs(0), secs(9)),
        ] {
            assert!(PullStreamSettings { hold, lease, token_life, ..usual() }.checked().is_err());
        }
        for region in ["", "Sao Paulo", "a:b", &"r".repeat(33)] {
            assert!(PullStreamSettings { region: region.into(), ..usual() }.checked().is_err());
            assert!(PullStreamSettings { home: region.into(), ..usual() }.checked().is_err());
        }
        for max_readers in [0, 7] {
            assert!(PullStreamSettings { max_readers, ..usual() }.checked().is_err());
        }
        let retention = Ttl::from_millis(999).unwrap();
        assert!(PullStreamSettings { retention, ..usual() }.checked().is_err());
    }
}
