//! Time of the store: instants, lives and what is left of them, in whole milliseconds.

use std::time::Duration;

use super::StoreError;

/// An instant: milliseconds since the Unix epoch, as the injected clock tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant this many milliseconds after the Unix epoch.
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }

    /// The time from `self` until `later`; zero where `later` has passed.
    pub const fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }

    /// The instant `ttl` from here.
    pub const fn after(self, ttl: Ttl) -> Timestamp {
        Self(self.0.saturating_add(ttl.0))
    }
}

/// How long a record lives: 1 ms to 365 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// The shortest life.
    pub const MIN: Self = Self(1);

    /// The longest life: 365 days.
    pub const MAX: Self = Self(365 * 24 * 60 * 60 * 1_000);

    /// A life of whole milliseconds, or [`StoreError::Invalid`] outside of 1..=31,536,000,000.
    pub fn from_millis(millis: u64) -> Result<Self, StoreError> {
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) {
            return Ok(Self(millis));
        }
        let reason = format!("{millis} ms is outside of 1 ms to 365 days (31536000000 ms)");
        Err(StoreError::invalid("ttl", reason))
    }

    /// A life of whole seconds, or [`StoreError::Invalid`] outside of 1..=31,536,000.
    pub fn from_secs(secs: u64) -> Result<Self, StoreError> {
        Self::from_millis(secs.saturating_mul(1_000))
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The life as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = StoreError;

    /// Rounds up to whole milliseconds, so that nothing lives shorter than was asked for.
    fn try_from(duration: Duration) -> Result<Self, StoreError> {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

/// How long the record of a write shall live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Until it is deleted.
    Permanent,
    /// Counted from some moment between the call and when the write is applied.
    For(Ttl),
    /// Up to this instant, at most 365 days ahead. Where it has passed already, the write is
    /// applied and its record is absent at once.
    Until(Timestamp),
    /// As long as the record that it replaces. For swaps only: anything else is
    /// [`StoreError::Invalid`].
    Keep,
}

/// What [`Store::query_ttl`](super::Store::query_ttl) answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// There is no live record.
    Absent,
    /// The record does not expire.
    Permanent,
    /// The record expires after this time: at least 1 ms.
    For(Duration),
}
