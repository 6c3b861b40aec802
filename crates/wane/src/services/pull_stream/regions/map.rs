//! The map of an institution: a record beside its state, and what a node remembers of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::services::pull_stream::log::Place;
use crate::services::pull_stream::policy::{KNOWN_FOR, MOST_KNOWN};
use crate::services::pull_stream::{Ispb, PullStreamError};
use crate::store::{Fence, Key, Life, StoreError, Timestamp, Value, Write};

/// Where the record lies.
pub(in super::super) fn map_key(place: Place<'_>) -> Result<Key, StoreError> {
    place.state_key("ownership")
}

/// The longest name of a region, in bytes.
const MAX_NAME: usize = 32;

/// Says whether this can be the name of a region, and of which field it is said.
pub(in super::super) fn checked_name(
    field: &'static str,
    name: &str,
) -> Result<(), PullStreamError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let reason = format!("give 1 to {MAX_NAME} lowercase letters, digits and -");
    Err(PullStreamError::Invalid { field, reason })
}

/// Which regions serve an institution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionMap {
    /// The region that does.
    pub primary: String,
    /// The region that takes over.
    pub secondary: String,
    /// Grows with every change, and is never used twice.
    pub epoch: u64,
    /// When one took over from the other last.
    pub failed_over_at: Option<Timestamp>,
}

impl RegionMap {
    /// Whether it names this pair.
    pub(super) fn is_of(&self, regions: &Regions) -> bool {
        (&self.primary, &self.secondary) == (&regions.primary, &regions.secondary)
    }

    /// Whether it names this pair the other way round.
    pub(super) fn is_turned(&self, regions: &Regions) -> bool {
        (&self.primary, &self.secondary) == (&regions.secondary, &regions.primary)
    }

    /// The pair once the other one has taken over.
    pub(super) fn turned(&self, now: Timestamp) -> Regions {
        Regions {
            primary: self.secondary.clone(),
            secondary: self.primary.clone(),
            failed_over_at: Some(now.as_unix_millis()),
        }
    }

    pub(in super::super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let stored: Stored =
            serde_json::from_slice(value).map_err(|error| StoreError::Corrupt {
                key: key.clone(),
                reason: format!("it is not a map of regions: {error}"),
            })?;
        Ok(stored.regions.at_epoch(stored.epoch))
    }

    /// Refused by a map of a later epoch.
    pub(super) fn write(&self) -> Result<Write, StoreError> {
        let regions = Regions {
            primary: self.primary.clone(),
            secondary: self.secondary.clone(),
            failed_over_at: self.failed_over_at.map(Timestamp::as_unix_millis),
        };
        let stored = Stored { epoch: self.epoch, regions, more: Map::new() };
        let json = serde_json::to_vec(&stored).map_err(|error| {
            StoreError::invalid("regions", format!("they cannot be written: {error}"))
        })?;
        Ok(Write::new(Value::new(json)?, Life::Permanent).fenced(Fence(self.epoch)))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    epoch: u64,
    #[serde(flatten)]
    regions: Regions,
    #[serde(flatten)]
    more: Map<String, Json>,
}

/// The pair of an epoch, as the state record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Regions {
    pub(in super::super) primary: String,
    pub(in super::super) secondary: String,
    /// Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_over_at: Option<u64>,
}

impl Regions {
    /// A pair that was never turned. Says which name breaks a rule.
    pub(super) fn new(primary: &str, secondary: &str) -> Result<Self, PullStreamError> {
        checked_name("primary", primary)?;
        checked_name("secondary", secondary)?;
        if primary == secondary {
            let reason = "give another region than the primary".into();
            return Err(PullStreamError::Invalid { field: "secondary", reason });
        }
        let (primary, secondary) = (primary.to_owned(), secondary.to_owned());
        Ok(Self { primary, secondary, failed_over_at: None })
    }

    /// The same, with when one took over from the other last.
    pub(super) fn since(self, failed_over_at: Option<Timestamp>) -> Self {
        Self { failed_over_at: failed_over_at.map(Timestamp::as_unix_millis), ..self }
    }

    pub(in super::super) fn at_epoch(&self, epoch: u64) -> RegionMap {
        RegionMap {
            primary: self.primary.clone(),
            secondary: self.secondary.clone(),
            epoch,
            failed_over_at: self.failed_over_at.map(Timestamp::from_unix_millis),
        }
    }
}

/// What a node found: no map, or this one.
type Found = Option<Arc<RegionMap>>;

/// Maps that were read lately.
#[derive(Debug, Default)]
pub(in super::super) struct Owners(Mutex<HashMap<Ispb, (Found, Duration)>>);

impl Owners {
    /// What was found, if it may still be gone by at `now` of the monotonic clock.
    pub(super) fn known(&self, ispb: Ispb, now: Duration) -> Option<Found> {
        let known = self.0.lock();
        known.get(&ispb).filter(|(_, at)| now < *at + KNOWN_FOR).map(|(found, _)| found.clone())
    }

    pub(in super::super) fn note(&self, ispb: Ispb, found: Found, now: Duration) {
        let mut known = self.0.lock();
        let epoch = |found: &Found| found.as_ref().map_or(0, |map| map.epoch);
        let is_later =
            |(other, at): &(Found, Duration)| now < *at + KNOWN_FOR && epoch(other) > epoch(&found);
        if known.get(&ispb).is_some_and(is_later) {
            return;
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(ispb, (found, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_two_names_of_regions() {
        assert!(Regions::new("r1", "sa-east-1").is_ok());
        let long = "r".repeat(33);
        for (primary, secondary, field) in [
            ("", "r2", "primary"),
            ("r1", "R2", "secondary"),
            ("r 1", "r2", "primary"),
            ("r1", &long, "secondary"),
            ("r1", "r1", "secondary"),
            ("r\u{e9}", "r2", "primary"),
        ] {
            let told = Regions::new(primary, secondary).unwrap_err().to_string();
            assert!(told.starts_with(&format!("{field}: ")), "{primary} {secondary}: {told}");
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written_and_its_epoch_is_its_fence() {
        let key = Key::new(b"k", b"").unwrap();
        let at = Timestamp::from_unix_millis(1_700_000_000_000);
        let turned = Regions::new("r1", "r2").unwrap().at_epoch(6).turned(at).at_epoch(7);
        assert_eq!((&*turned.primary, turned.failed_over_at), ("r2", Some(at)));
        let write = turned.write().unwrap();
        assert_eq!(write.fence, Fence(7));
        assert_eq!(RegionMap::read(&key, &write.value).unwrap(), turned);
        let later =
            br#"{"epoch":7,"primary":"r2","secondary":"r1","failedOverAt":1700000000000,"x":1}"#;
        assert_eq!(RegionMap::read(&key, later).unwrap(), turned, "what later versions add");
        assert!(RegionMap::read(&key, b"{}").is_err());
    }
}
