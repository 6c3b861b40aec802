//! What callers give and get: keys, values and lives within the limits, entries and pages.

use std::time::Duration;

use bytes::Bytes;

use crate::store::{
    ClusteringRange, Fence, Life, Record, Remaining, Row, StoreError, Timestamp, Ttl, Value,
};

/// The longest key, in bytes of UTF-8.
pub const MAX_KEY: usize = 1_024;

/// The longest value, in bytes.
pub const MAX_VALUE: usize = 65_536;

/// Why a call of application TTL storage failed. The first five touched nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum AppTtlError {
    /// The key is empty.
    #[error("the key is empty; give 1 to {MAX_KEY} bytes of UTF-8")]
    KeyEmpty,

    /// The key is too long.
    #[error("the key has {len} bytes, the limit is {MAX_KEY}")]
    KeyTooLong { len: usize },

    /// The key is not UTF-8.
    #[error("the key is not UTF-8 from byte {at} on")]
    KeyNotUtf8 { at: usize },

    /// A value is too long, the new one or the expected one.
    #[error("{field} has {len} bytes, the limit is {MAX_VALUE}")]
    ValueTooLong { field: &'static str, len: usize },

    /// The life is too short or too long.
    #[error("{reason}")]
    InvalidTtl { reason: String },

    /// The application holds as much as it may. Nothing was written; delete something, or wait
    /// until something expires.
    #[error(
        "the application may hold {limit} {what} and holds {held}; delete some or raise the limit"
    )]
    OverQuota { what: &'static str, held: u64, limit: u64 },

    /// A later leader has written the entry. Nothing was written; stop acting as the leader.
    #[error("fence {} is behind {} on the entry; stop, a later leader has written it", fence.0, newer.0)]
    Fenced { fence: Fence, newer: Fence },

    /// Others kept changing the entry. Nothing was written; try again.
    #[error("the entry kept changing under the write; try again")]
    Contended,

    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A live entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// What was left of its life when it was read; `None` for no end.
    pub remaining: Option<Duration>,
}

impl Entry {
    /// The entry of a record that was just read, unless it has expired meanwhile.
    pub(super) fn at(record: Record, now: Timestamp) -> Option<Self> {
        let remaining = match record.remaining(now) {
            Remaining::Absent => return None,
            Remaining::Permanent => None,
            Remaining::For(remaining) => Some(remaining),
        };
        Some(Self { value: record.value, expires_at: record.expires_at, remaining })
    }
}

/// Entries in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Keys and their entries.
    pub entries: Vec<(Bytes, Entry)>,
    /// The key to go on after, or `None` on the last page.
    pub next: Option<Bytes>,
}

impl Page {
    pub(super) fn new(rows: Vec<Row>, more: bool, now: Timestamp) -> Self {
        let last = rows.last().map(|row| Bytes::copy_from_slice(row.key.clustering()));
        let next = last.filter(|_| more);
        let entries = rows.into_iter().filter_map(|row| {
            let key = Bytes::copy_from_slice(row.key.clustering());
            Entry::at(row.record, now).map(|entry| (key, entry))
        });
        Self { entries: entries.collect(), next }
    }
}

/// How long a swapped entry lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// A life of its own from now on.
    For(Duration),
    /// As long as the entry that it replaces.
    Keep,
}

impl Renewal {
    pub(super) fn checked(self) -> Result<Life, AppTtlError> {
        match self {
            Self::For(ttl) => checked_life(ttl),
            Self::Keep => Ok(Life::Keep),
        }
    }
}

pub(super) fn checked_key(key: &[u8]) -> Result<(), AppTtlError> {
    match key.len() {
        0 => Err(AppTtlError::KeyEmpty),
        1..=MAX_KEY => std::str::from_utf8(key)
            .map(drop)
            .map_err(|error| AppTtlError::KeyNotUtf8 { at: error.valid_up_to() }),
        len => Err(AppTtlError::KeyTooLong { len }),
    }
}

pub(super) fn checked_value(field: &'static str, value: &[u8]) -> Result<Value, AppTtlError> {
    if value.len() > MAX_VALUE {
        return Err(AppTtlError::ValueTooLong { field, len: value.len() });
    }
    Ok(Value::copy_from_slice(value)?)
}

pub(super) fn checked_life(ttl: Duration) -> Result<Life, AppTtlError> {
    match Ttl::try_from(ttl) {
        Ok(ttl) => Ok(Life::For(ttl)),
        Err(StoreError::Invalid { reason, .. }) => Err(AppTtlError::InvalidTtl { reason }),
        Err(error) => Err(error.into()),
    }
}

/// The keys with `prefix`, those after `after`.
pub(super) fn range(prefix: &[u8], after: Option<&[u8]>) -> Result<ClusteringRange, AppTtlError> {
    for part in std::iter::once(prefix).chain(after).filter(|part| !part.is_empty()) {
        checked_key(part)?;
    }
    let range = ClusteringRange::prefix(Bytes::copy_from_slice(prefix))?;
    Ok(match after {
        // The least key after this one.
        Some(after) if after >= range.start() => range.starting_at([after, &[0]].concat()),
        Some(_) | None => range,
    })
}
