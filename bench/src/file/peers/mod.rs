//! The contestants of the file benchmark.
//!
//! Each keeps what a store of expiring records needs on disk: the record with its expiry in front
//! of the value, and an index of expiries for the removal of what is due. Renewing moves the index
//! entry in the same transaction. All sync to disk before a write returns.

mod bbolt;
mod fjall;
mod group;
mod lmdb;
mod redb;
mod wane;

pub(crate) use self::bbolt::Bbolt;
pub(crate) use self::fjall::{FjallOptimistic, FjallPersist};
pub(crate) use self::group::RedbGroup;
pub(crate) use self::lmdb::Lmdb;
pub(crate) use self::redb::Redb;
pub(crate) use self::wane::WaneFile;

use ::wane::clock::{SharedClock, SystemClock};
use ::wane::store::Timestamp;

use crate::workload::{VALUE, flat_key, long_life};

/// How many records a bulk load writes in one transaction.
const LOAD_BATCH: u64 = 10_000;

/// Makes and reads the bytes of records for stores that know only bytes.
#[derive(Debug)]
struct Records(SharedClock);

impl Records {
    fn new() -> Self {
        Self(SystemClock::shared())
    }

    /// The bytes of a record whose life begins now.
    fn fresh(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        let expires_at = self.0.now().after(long_life());
        bytes[..8].copy_from_slice(&expires_at.as_unix_millis().to_be_bytes());
        bytes[8..].copy_from_slice(VALUE);
        bytes
    }

    fn is_live(&self, record: &[u8]) -> bool {
        self.0.now() < Timestamp::from_unix_millis(expiry(record))
    }

    /// Whether a swap of [`VALUE`] for something may replace this.
    fn matches(&self, record: &[u8]) -> bool {
        self.is_live(record) && record.get(8..) == Some(VALUE)
    }
}

fn expiry(record: &[u8]) -> u64 {
    record.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The entry of a record in the index of expiries.
fn index_entry(record: &[u8], index: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&expiry(record).to_be_bytes());
    bytes[8..].copy_from_slice(&flat_key(index));
    bytes
}

/// Where the partition of record `index` ends.
fn partition_end(index: u64) -> [u8; 8] {
    (index / crate::workload::ROWS_PER_PARTITION + 1).to_be_bytes()
}
