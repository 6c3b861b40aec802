//! What holds for one institution: how long its messages are kept, and how many may read them.
//!
//! A record beside the state; without one, the settings of the service hold. Each node looks at it
//! about once a second.
//!
//! The record also says which retention held before, if it was shorter: rows that came in with it end
//! before older ones, and the archive goes by it for as long as one of them may live.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::log::MARGIN;
use super::record::MAX_READERS;
use super::{Ispb, PullStreamError};
use crate::store::{Key, Life, StoreError, Timestamp, Ttl, Value, Write};

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
        Recorded::read(key, value).map(|recorded| recorded.policy)
    }
}

/// What holds for an institution, and what held before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recorded {
    policy: Policy,
    shorter: Option<Shorter>,
}

/// A retention that held before, and until when a row may live that came in with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shorter {
    retention_millis: u64,
    /// Unix milliseconds.
    until: u64,
}

impl Recorded {
    /// Of an institution without a record.
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, shorter: None }
    }

    /// The same with another policy from now on.
    #[must_use]
    pub(super) fn changed(self, policy: Policy, now: Timestamp) -> Self {
        let (now, held) = (now.as_unix_millis(), self.policy.retention.as_millis());
        let known = self.shorter.filter(|shorter| now < shorter.until);
        if policy.retention.as_millis() <= held {
            return Self { policy, shorter: known };
        }
        // Other nodes go by it for a second more, by clocks of their own.
        let until = now.saturating_add(held).saturating_add(MARGIN.as_millis() as u64);
        let last = Shorter { retention_millis: held, until };
        let shorter = known.map_or(last, |known| Shorter {
            retention_millis: known.retention_millis.min(held),
            until: known.until.max(until),
        });
        Self { policy, shorter: Some(shorter) }
    }

    /// The shortest retention that a row may have come in with that still lives, in milliseconds.
    pub(super) fn shortest_retention(&self, now: Timestamp) -> u64 {
        let held = self.policy.retention.as_millis();
        let shorter = self.shorter.filter(|shorter| now.as_unix_millis() < shorter.until);
        shorter.map_or(held, |shorter| shorter.retention_millis.min(held))
    }

    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let corrupt = |reason: String| StoreError::Corrupt { key: key.clone(), reason };
        let stored: Stored = serde_json::from_slice(value)
            .map_err(|error| corrupt(format!("it is not a policy: {error}")))?;
        let retention = Ttl::from_millis(stored.retention_millis);
        let policy = Policy {
            retention: retention.map_err(|error| corrupt(error.to_string()))?,
            max_readers: stored.max_readers,
        };
        let policy = policy.checked().map_err(|error| corrupt(error.to_string()))?;
        Ok(Self { policy, shorter: stored.shorter })
    }

    pub(super) fn write(self) -> Result<Write, StoreError> {
        let stored = Stored {
            retention_millis: self.policy.retention.as_millis(),
            max_readers: self.policy.max_readers,
            shorter: self.shorter,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shorter: Option<Shorter>,
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
            let written = Recorded::new(legal.checked().unwrap()).write().unwrap();
            assert_eq!(Policy::read(&key, &written.value).unwrap(), legal);
        }
        for (illegal, field) in [
            (policy(999, 6), "retentionSeconds"),
            (policy(60_000, 0), "maxReaders"),
            (policy(60_000, 7), "maxReaders"),
        ] {
            let told = illegal.checked().unwrap_err().to_string();
            assert!(told.starts_with(field), "{told}");
            let written = Recorded::new(illegal).write().unwrap();
            assert!(Policy::read(&key, &written.value).is_err());
        }
    }

    #[test]
    fn a_shorter_retention_is_known_for_as_long_as_its_rows_live() {
        let policy =
            |seconds| Policy { retention: Ttl::from_secs(seconds).unwrap(), max_readers: 6 };
        let moment = |second: u64| Timestamp::from_unix_millis(second * 1_000);
        let key = Key::new(b"k", b"").unwrap();
        let again =
            |recorded: Recorded| Recorded::read(&key, &recorded.write().unwrap().value).unwrap();
        let shortest = |recorded: &Recorded, second| recorded.shortest_retention(moment(second));
        let margin = MARGIN.as_secs();

        let lowered = again(Recorded::new(policy(3_000)).changed(policy(400), moment(0)));
        assert_eq!(shortest(&lowered, 0), 400_000, "what holds is the shortest");
        let raised = again(lowered.changed(policy(9_000), moment(100)));
        assert_eq!(shortest(&raised, 499 + margin), 400_000);
        assert_eq!(shortest(&raised, 500 + margin), 9_000_000);
        // The shortest of several counts until the last of their rows are gone.
        let higher = again(raised.changed(policy(9_500), moment(200)));
        assert_eq!(shortest(&higher, 9_199 + margin), 400_000);
        assert_eq!(shortest(&higher, 9_200 + margin), 9_500_000);
        let forgotten = again(raised.changed(policy(9_500), moment(600)));
        assert_eq!(shortest(&forgotten, 700), 9_000_000);
    }
}
