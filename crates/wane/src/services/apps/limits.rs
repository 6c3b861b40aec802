//! What an application may use, and what it may use unless told otherwise.

use serde::{Deserialize, Serialize};

use super::AppsError;
use crate::services::app_ttl::Quota;

/// The limits of an application. What is not set has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    max_keys: Option<u64>,
    max_bytes: Option<u64>,
    requests_per_second: Option<u32>,
    in_flight: Option<u32>,
    max_blob_bytes: Option<u64>,
    max_blob_ttl_seconds: Option<u64>,
    max_blobs: Option<u64>,
    max_blob_total_bytes: Option<u64>,
    default_ttl_seconds: Option<u64>,
}

impl Limits {
    /// Entries: a million.
    pub const MAX_KEYS: u64 = 1_000_000;

    /// Bytes of keys and values: 1 GiB.
    pub const MAX_BYTES: u64 = 1 << 30;

    /// Requests a second: 10,000.
    pub const REQUESTS_PER_SECOND: u32 = 10_000;

    /// Requests under way at once: 256.
    pub const IN_FLIGHT: u32 = 256;

    /// Bytes of one BLOB: 64 MiB.
    pub const MAX_BLOB_BYTES: u64 = 64 << 20;

    /// The longest life of a BLOB: a day.
    pub const MAX_BLOB_TTL_SECONDS: u64 = 24 * 60 * 60;

    /// BLOBs: 10,000.
    pub const MAX_BLOBS: u64 = 10_000;

    /// Unless set, all BLOBs may have so many times the bytes of one: 16 times.
    pub const BLOB_TOTAL_FACTOR: u64 = 16;

    /// How much application TTL storage may hold.
    pub fn quota(&self) -> Quota {
        Quota { keys: Some(self.max_keys()), bytes: Some(self.max_bytes()) }
    }

    /// Entries that may be held.
    pub fn max_keys(&self) -> u64 {
        self.max_keys.unwrap_or(Self::MAX_KEYS)
    }

    /// Bytes that may be held.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes.unwrap_or(Self::MAX_BYTES)
    }

    /// Requests a second.
    pub fn requests_per_second(&self) -> u32 {
        self.requests_per_second.unwrap_or(Self::REQUESTS_PER_SECOND)
    }

    /// Requests under way at once.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.unwrap_or(Self::IN_FLIGHT)
    }

    /// Bytes of one BLOB.
    pub fn max_blob_bytes(&self) -> u64 {
        self.max_blob_bytes.unwrap_or(Self::MAX_BLOB_BYTES)
    }

    /// The longest life of a BLOB, in seconds.
    pub fn max_blob_ttl_seconds(&self) -> u64 {
        self.max_blob_ttl_seconds.unwrap_or(Self::MAX_BLOB_TTL_SECONDS)
    }

    /// BLOBs that may be held.
    pub fn max_blobs(&self) -> u64 {
        self.max_blobs.unwrap_or(Self::MAX_BLOBS)
    }

    /// Bytes that all BLOBs may have together.
    pub fn max_blob_total_bytes(&self) -> u64 {
        let of_one = || self.max_blob_bytes().saturating_mul(Self::BLOB_TOTAL_FACTOR);
        self.max_blob_total_bytes.unwrap_or_else(of_one)
    }

    /// The life of what is written without one, in seconds. Unless set, nothing is.
    pub fn default_ttl_seconds(&self) -> Option<u64> {
        self.default_ttl_seconds
    }
}

/// A change of limits: `None` leaves one as it is, `Some(None)` gives it its default again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "each field is the limit of the same name")]
pub struct LimitsChange {
    pub max_keys: Option<Option<u64>>,
    pub max_bytes: Option<Option<u64>>,
    pub requests_per_second: Option<Option<u32>>,
    pub in_flight: Option<Option<u32>>,
    pub max_blob_bytes: Option<Option<u64>>,
    pub max_blob_ttl_seconds: Option<Option<u64>>,
    pub max_blobs: Option<Option<u64>>,
    pub max_blob_total_bytes: Option<Option<u64>>,
    pub default_ttl_seconds: Option<Option<u64>>,
}

impl LimitsChange {
    /// Says which limit cannot be had.
    pub(super) fn check(&self) -> Result<(), AppsError> {
        const YEAR: u64 = 31_536_000;
        /// What programs with signed numbers can hold.
        const MOST: u64 = i64::MAX as u64;
        let at_least_one = |field, value: Option<Option<u32>>| match value.flatten() {
            Some(0) => Err(AppsError::Invalid { field, reason: "give 1 or more".into() }),
            Some(_) | None => Ok(()),
        };
        let seconds = |field, value: Option<Option<u64>>| match value.flatten() {
            Some(value) if !(1..=YEAR).contains(&value) => {
                Err(AppsError::Invalid { field, reason: format!("give 1 to {YEAR}") })
            }
            Some(_) | None => Ok(()),
        };
        let at_most = |field, value: Option<Option<u64>>| match value.flatten() {
            Some(value) if value > MOST => {
                Err(AppsError::Invalid { field, reason: format!("give up to {MOST}") })
            }
            Some(_) | None => Ok(()),
        };
        at_most("maxKeys", self.max_keys)?;
        at_most("maxBytes", self.max_bytes)?;
        at_most("maxBlobBytes", self.max_blob_bytes)?;
        at_most("maxBlobs", self.max_blobs)?;
        at_most("maxBlobTotalBytes", self.max_blob_total_bytes)?;
        at_least_one("requestsPerSecond", self.requests_per_second)?;
        at_least_one("inFlight", self.in_flight)?;
        seconds("maxBlobTtlSeconds", self.max_blob_ttl_seconds)?;
        seconds("defaultTtlSeconds", self.default_ttl_seconds)
    }

    pub(super) fn apply(&self, limits: &mut Limits) {
        replace(&mut limits.max_keys, self.max_keys);
        replace(&mut limits.max_bytes, self.max_bytes);
        replace(&mut limits.requests_per_second, self.requests_per_second);
        replace(&mut limits.in_flight, self.in_flight);
        replace(&mut limits.max_blob_bytes, self.max_blob_bytes);
        replace(&mut limits.max_blob_ttl_seconds, self.max_blob_ttl_seconds);
        replace(&mut limits.max_blobs, self.max_blobs);
        replace(&mut limits.max_blob_total_bytes, self.max_blob_total_bytes);
        replace(&mut limits.default_ttl_seconds, self.default_ttl_seconds);
    }
}

fn replace<T>(limit: &mut Option<T>, change: Option<Option<T>>) {
    if let Some(value) = change {
        *limit = value;
    }
}
