//! What holds for one institution: how long its messages are kept, and how many may read them.
//!
//! A record beside the state; without one, the settings of the service hold. Each node looks at it
//! about once a second.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::record::MAX_READERS;
use super::{Ispb, PullStreamError};
use crate::store::{Key, Life, StoreError, Ttl, Value, Write};

/// How long a node goes by what it has read.
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The shortest retention.
const MIN_RETENTION: Duration = Duration::from_secs(1);

/// A retention below this is short: rows may come and expire while an appender takes it for known where
/// the log ends, so that it looks each time.
pub(super) const SHORT_RETENTION: Duration = Duration::from_secs(60);

/// Policies that are remembered at a time.
pub(super) const MOST_KNOWN: usize = 10_000;

/// What holds for an institution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long a message is kept, counted from when it came in: a second or longer.
    pub retention: Ttl,
    /// How many readers may have a lease at a time: 1 to 6.
    pub max_readers: usize,
}

impl Policy {
    pub(super) fn checked(self) -> Result<Self, PullStreamError> {
        if !(1..=MAX_READERS).contains(&self.max_readers) {
            let reason = format!("{} is outside of 1 to {MAX_READERS}", self.max_readers);
            return Err(PullStreamError::Invalid { field: "maxReaders", reason });
        }
        if self.retention.as_duration() < MIN_RETENTION {
            let reason = "give a second or more".into();
            return Err(PullStreamError::Invalid { field: "retentionSeconds", reason });
        }
        Ok(self)
    }

    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let corrupt = |reason: String| StoreError::Corrupt { key: key.clone(), reason };
        let stored: Stored = serde_json::from_slice(value)
            .map_err(|error| corrupt(format!("it is not a policy: {error}")))?;
        let retention = Ttl::from_millis(stored.retention_millis);
        let policy = Self {
            retention: retention.map_err(|error| corrupt(error.to_string()))?,
            max_readers: stored.max_readers,
        };
        policy.checked().map_err(|error| corrupt(error.to_string()))
    }

    pub(super) fn write(self) -> Result<Write, StoreError> {
        let stored = Stored {
            retention_millis: self.retention.as_millis(),
            max_readers: self.max_readers,
            more: Map::new(),
        };
        let json = serde_json::to_vec(&stored).map_err(|error| {
            StoreError::invalid("policy", format!("it cannot be written: {error}"))
        })?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    retention_millis: u64,
    max_readers: usize,
    #[serde(flatten)]
    more: Map<String, Json>,
}

/// Policies that were read lately.
#[derive(Debug, Default)]
pub(super) struct Policies(Mutex<HashMap<Ispb, (Policy, Duration)>>);

impl Policies {
    /// What was read, if it may still be gone by at `now` of the monotonic clock.
    pub(super) fn known(&self, ispb: Ispb, now: Duration) -> Option<Policy> {
        let known = self.0.lock();
        known.get(&ispb).filter(|(_, at)| now < *at + KNOWN_FOR).map(|(policy, _)| *policy)
    }

    pub(super) fn note(&self, ispb: Ispb, policy: Policy, now: Duration) {
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(ispb, (policy, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_keeps_messages_for_a_second_or_more_and_has_one_to_six_readers() {
        let policy = |millis, max_readers| {
            let retention = Ttl::from_millis(millis).unwrap();
            Policy { retention, max_readers }
        };
        let key = Key::new(b"k", b"").unwrap();
        for legal in [policy(1_000, 1), policy(Ttl::MAX.as_millis(), 6)] {
            let written = legal.checked().unwrap().write().unwrap();
            assert_eq!(Policy::read(&key, &written.value).unwrap(), legal);
        }
        for (illegal, field) in [
            (policy(999, 6), "retentionSeconds"),
            (policy(60_000, 0), "maxReaders"),
            (policy(60_000, 7), "maxReaders"),
        ] {
            let told = illegal.checked().unwrap_err().to_string();
            assert!(told.starts_with(field), "{told}");
            assert!(Policy::read(&key, &illegal.write().unwrap().value).is_err());
        }
    }
}
