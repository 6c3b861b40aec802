//! Rows: a record as cells, and cells as a record.
//!
//! | cell | holds |
//! |---|---|
//! | `v` | the value; null where there is no record |
//! | `exp` | the expiry in Unix milliseconds, `i64::MAX` for never |
//! | `fence` | the stamp as 8 big-endian bytes, whose order is that of numbers; null for none |
//! | `op` | the id of the operation that wrote the row, 16 bytes |
//!
//! Invariant: a write sets all cells at once and under one native TTL, so they expire together and
//! the operation's id stands for the whole row: the same id is the same row.

use scylla::deserialize::row::{ColumnIterator, DeserializeRow};
use scylla::deserialize::{DeserializationError, TypeCheckError};
use scylla::frame::response::result::ColumnSpec;
use scylla::value::MaybeUnset;
use wane::store::{Fence, Key, Record, StoreError, Timestamp, Value};

/// The expiry of a record without one.
const NEVER: i64 = i64::MAX;

/// How much longer than the record its cells live natively, in seconds: the record's own expiry
/// decides, the native one only cleans up. Deleted rows keep their operation's id as long.
pub(super) const SLACK: i32 = 60;

/// What names a write: it stands in the row once the write is applied.
pub(super) type OperationId = [u8; 16];

/// The columns of a row as the driver hands them out; those that were not asked for are null.
#[derive(Debug, Default)]
pub(super) struct Columns<'f> {
    pub(super) applied: Option<bool>,
    pub(super) p: &'f [u8],
    pub(super) c: &'f [u8],
    v: Option<&'f [u8]>,
    exp: Option<i64>,
    fence: Option<&'f [u8]>,
    op: Option<&'f [u8]>,
}

#[derive(Debug, thiserror::Error)]
#[error("column {0} has an unexpected length")]
struct BadColumn(&'static str);

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for Columns<'frame> {
    fn type_check(_: &[ColumnSpec<'_>]) -> Result<(), TypeCheckError> {
        Ok(())
    }

    /// By name: which columns there are differs between answers, and between servers.
    fn deserialize(row: ColumnIterator<'frame, 'metadata>) -> Result<Self, DeserializationError> {
        let mut columns = Self::default();
        for column in row {
            let column = column?;
            let bytes = column.slice.map(|slice| slice.as_slice());
            match column.spec.name() {
                "[applied]" => {
                    let bytes = bytes.ok_or_else(|| bad("[applied]"))?;
                    columns.applied = Some(bytes != [0]);
                }
                "p" => columns.p = bytes.ok_or_else(|| bad("p"))?,
                "c" => columns.c = bytes.ok_or_else(|| bad("c"))?,
                "v" => columns.v = bytes,
                "exp" => {
                    let number = bytes.map(TryInto::try_into).transpose();
                    columns.exp = number.map_err(|_| bad("exp"))?.map(i64::from_be_bytes);
                }
                "fence" => columns.fence = bytes,
                "op" => columns.op = bytes,
                _ => {}
            }
        }
        Ok(columns)
    }
}

fn bad(column: &'static str) -> DeserializationError {
    DeserializationError::new(BadColumn(column))
}

/// What a row holds, whether or not it has expired.
#[derive(Debug, Default)]
pub(super) struct Seen {
    record: Option<Record>,
    pub(super) op: Option<OperationId>,
}

impl Seen {
    /// Reads the columns of the row at `key`.
    pub(super) fn decode(key: &Key, columns: &Columns<'_>) -> Result<Self, StoreError> {
        let corrupt =
            |reason: &str| StoreError::Corrupt { key: key.clone(), reason: reason.into() };
        let op = columns.op.map(TryInto::try_into).transpose();
        let op = op.map_err(|_| corrupt("its operation id has not 16 bytes"))?;
        let Some(value) = columns.v else { return Ok(Self { record: None, op }) };
        let value = Value::copy_from_slice(value).map_err(|_| corrupt("its value is too long"))?;
        let expires_at = match columns.exp {
            None => return Err(corrupt("it has a value and no expiry")),
            Some(NEVER) => None,
            Some(millis) => {
                let millis =
                    u64::try_from(millis).map_err(|_| corrupt("its expiry is negative"))?;
                Some(Timestamp::from_unix_millis(millis))
            }
        };
        let fence = match columns.fence {
            None => Fence::NONE,
            Some(stamp) => {
                let stamp = stamp.try_into().map_err(|_| corrupt("its fence has not 8 bytes"))?;
                Fence(u64::from_be_bytes(stamp))
            }
        };
        Ok(Self { record: Some(Record { value, expires_at, fence }), op })
    }

    /// The record that is there at `now`.
    pub(super) fn live(&self, now: Timestamp) -> Option<&Record> {
        self.record.as_ref().filter(|record| record.is_live(now))
    }

    /// The same, and nothing else.
    pub(super) fn into_live(self, now: Timestamp) -> Option<Record> {
        self.record.filter(|record| record.is_live(now))
    }

    /// Whether the row has a stamp, of a record that is live or not.
    pub(super) fn is_stamped(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.fence != Fence::NONE)
    }
}

/// A fence as a cell.
pub(super) fn stamp(fence: Fence) -> [u8; 8] {
    fence.0.to_be_bytes()
}

/// The cells that a write sets, in the order of the statements.
#[derive(Debug)]
pub(super) struct Cells<'w> {
    pub(super) ttl: i32,
    pub(super) v: Option<&'w [u8]>,
    pub(super) exp: Option<i64>,
    /// Left as it is where it is known to be null: writing null again would leave a tombstone in
    /// every row.
    pub(super) fence: MaybeUnset<Option<[u8; 8]>>,
    pub(super) op: OperationId,
}

impl<'w> Cells<'w> {
    /// The cells of `record`; `over_stamp` tells that the row may hold a fence.
    pub(super) fn of(
        record: &'w Record,
        over_stamp: bool,
        now: Timestamp,
        op: OperationId,
    ) -> Self {
        let fence = match record.fence {
            Fence::NONE => cleared(over_stamp),
            fence => MaybeUnset::Set(Some(stamp(fence))),
        };
        let exp = record.expires_at.map_or(NEVER, expiry);
        Self { ttl: native_ttl(record, now), v: Some(&record.value), exp: Some(exp), fence, op }
    }

    /// The cells that a delete leaves for a while.
    pub(super) fn of_deleted(over_stamp: bool, op: OperationId) -> Self {
        Self { ttl: SLACK, v: None, exp: None, fence: cleared(over_stamp), op }
    }
}

fn cleared(over_stamp: bool) -> MaybeUnset<Option<[u8; 8]>> {
    if over_stamp { MaybeUnset::Set(None) } else { MaybeUnset::Unset }
}

/// An instant as a cell.
pub(super) fn expiry(at: Timestamp) -> i64 {
    i64::try_from(at.as_unix_millis()).unwrap_or(NEVER - 1)
}

/// How long the cells live natively, in whole seconds: 0 for ever. At most a year and the slack,
/// which is below Cassandra's limit of 20 years.
fn native_ttl(record: &Record, now: Timestamp) -> i32 {
    let Some(expires_at) = record.expires_at else { return 0 };
    let left = now.until(expires_at).as_millis().div_ceil(1_000);
    i32::try_from(left).unwrap_or(i32::MAX - SLACK) + SLACK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    fn record(expires_at: Option<u64>) -> Record {
        let value = Value::new("v").unwrap();
        Record { value, expires_at: expires_at.map(at), fence: Fence::NONE }
    }

    #[test]
    fn the_native_life_is_never_shorter_than_the_record() {
        let now = at(1_000);
        for (expires_at, seconds) in [
            (None, 0),
            (Some(0), 60),
            (Some(1_000), 60),
            (Some(1_001), 61),
            (Some(2_000), 61),
            (Some(2_001), 62),
            (Some(1_000 + 31_536_000_000), 31_536_060),
        ] {
            assert_eq!(native_ttl(&record(expires_at), now), seconds, "{expires_at:?}");
        }
    }

    #[test]
    fn stamps_compare_as_numbers_do() {
        let fences = [1, 255, 256, 1 << 53, i64::MAX as u64, 1 << 63, u64::MAX];
        assert!(fences.map(|fence| stamp(Fence(fence))).is_sorted());
    }

    #[test]
    fn cells_that_no_write_of_ours_leaves_are_corrupt() {
        let key = Key::new(b"p", b"c").unwrap();
        let whole = || Columns { v: Some(b"v"), exp: Some(NEVER), ..Columns::default() };
        for columns in [
            Columns { exp: None, ..whole() },
            Columns { exp: Some(-1), ..whole() },
            Columns { fence: Some(b"1"), ..whole() },
            Columns { op: Some(b"1"), ..whole() },
        ] {
            let seen = Seen::decode(&key, &columns);
            assert!(matches!(seen, Err(StoreError::Corrupt { .. })), "{columns:?}: {seen:?}");
        }
        assert!(Seen::decode(&key, &whole()).unwrap().live(at(0)).is_some());
        assert!(Seen::decode(&key, &Columns::default()).unwrap().live(at(0)).is_none());
    }
}
