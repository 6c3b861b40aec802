//! Bytes on disk: how keys, records and expiry-index entries are written.
//!
//! ```text
//! key      partition length u16 | partition | clustering
//! record   crc32 u32 | flags u8 | [expiry u64] [filed u64] [fence u64] | value
//! due      instant u64 | key
//! ```
//!
//! Numbers are big-endian, so that byte order is the order of partitions' rows and of time. The
//! checksum covers the key as well as the record: a record that turns up under another key is as
//! corrupt as one with a flipped bit. Fields that are absent take no room.
//!
//! Decoding never panics and accepts exactly what encoding produces.

use bytes::Bytes;
use wane::store::{Fence, Key, Record, StoreError, Timestamp, Value};

/// The format that this code reads and writes. An older one is converted, a newer one refused.
pub(super) const FORMAT_VERSION: u64 = 1;

const HAS_EXPIRY: u8 = 1;
const HAS_FILED: u8 = 2;
const HAS_FENCE: u8 = 4;
const ALL_FLAGS: u8 = HAS_EXPIRY | HAS_FILED | HAS_FENCE;

const CRC_LEN: usize = 4;

/// Why bytes are not what this module writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the fields that they announce.
    #[error("it is cut short")]
    Short,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// A field holds what is never written.
    #[error("it holds an impossible {0}")]
    Impossible(&'static str),
}

/// A record as stored: the record, and where the expiry index lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// What the store's callers see.
    pub record: Record,
    /// The instant under which the expiry index lists the record. At most the record's expiry:
    /// a renewal moves only the expiry.
    pub filed: Option<Timestamp>,
}

impl StoredRecord {
    /// Appends the record's bytes to `out`, which is cleared first.
    pub fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        let Record { value, expires_at, fence } = &self.record;
        let filed = self.filed.filter(|filed| Some(*filed) != *expires_at);
        let mut flags = 0;
        flags |= if expires_at.is_some() { HAS_EXPIRY } else { 0 };
        flags |= if filed.is_some() { HAS_FILED } else { 0 };
        flags |= if *fence == Fence::NONE { 0 } else { HAS_FENCE };

        out.clear();
        out.extend_from_slice(&[0; CRC_LEN]);
        out.push(flags);
        for instant in [*expires_at, filed].into_iter().flatten() {
            out.extend_from_slice(&instant.as_unix_millis().to_be_bytes());
        }
        if *fence != Fence::NONE {
            out.extend_from_slice(&fence.0.to_be_bytes());
        }
        out.extend_from_slice(value);
        let crc = checksum(key, &out[CRC_LEN..]);
        out[..CRC_LEN].copy_from_slice(&crc.to_be_bytes());
    }

    /// Reads a record stored under `key`.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, FormatError> {
        let (crc, body) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
        if checksum(key, body) != u32::from_be_bytes(*crc) {
            return Err(FormatError::Checksum);
        }
        let (&flags, mut rest) = body.split_first().ok_or(FormatError::Short)?;
        if flags & !ALL_FLAGS != 0 || flags & (HAS_EXPIRY | HAS_FILED) == HAS_FILED {
            return Err(FormatError::Impossible("flag"));
        }
        let expires_at = take_if(flags & HAS_EXPIRY != 0, &mut rest)?;
        let expires_at = expires_at.map(Timestamp::from_unix_millis);
        let filed = take_if(flags & HAS_FILED != 0, &mut rest)?;
        let filed = filed.map(Timestamp::from_unix_millis).or(expires_at);
        let fence = take_if(flags & HAS_FENCE != 0, &mut rest)?.unwrap_or(0);
        if (flags & HAS_FILED != 0 && filed == expires_at) || (flags & HAS_FENCE != 0 && fence == 0)
        {
            return Err(FormatError::Impossible("field"));
        }
        let value = Value::new(Bytes::copy_from_slice(rest));
        let value = value.map_err(|_| FormatError::Impossible("length"))?;
        Ok(Self { record: Record { value, expires_at, fence: Fence(fence) }, filed })
    }
}

/// The bytes under which a key is stored.
pub fn encode_key(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + key.size());
    bytes.extend_from_slice(&partition_prefix(key.partition()));
    bytes.extend_from_slice(key.clustering());
    bytes
}

/// The bytes with which every key of a partition begins, and no other key.
pub(super) fn partition_prefix(partition: &[u8]) -> Vec<u8> {
    // A partition has 1,024 bytes at most.
    let len = partition.len() as u16;
    [&len.to_be_bytes(), partition].concat()
}

/// The key stored as `bytes`.
pub fn decode_key(bytes: &[u8]) -> Result<Key, FormatError> {
    let (len, rest) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
    let len = usize::from(u16::from_be_bytes(*len));
    let (partition, clustering) = rest.split_at_checked(len).ok_or(FormatError::Short)?;
    Key::new(partition, clustering).map_err(|_| FormatError::Impossible("key"))
}

/// The expiry index's entry for the key stored as `key`, due at `instant`.
pub fn encode_due(instant: Timestamp, key: &[u8]) -> Vec<u8> {
    [&instant.as_unix_millis().to_be_bytes(), key].concat()
}

/// The instant and the stored key of an entry of the expiry index.
pub fn decode_due(bytes: &[u8]) -> Result<(Timestamp, &[u8]), FormatError> {
    let (instant, key) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
    Ok((Timestamp::from_unix_millis(u64::from_be_bytes(*instant)), key))
}

/// What the caller is told about bytes that cannot be read.
pub(super) fn corrupt(stored_key: &[u8], error: FormatError) -> StoreError {
    match decode_key(stored_key) {
        Ok(key) => StoreError::Corrupt { key, reason: error.to_string() },
        Err(_) => StoreError::Unavailable { backend: "file", source: Box::new(error) },
    }
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(body);
    hasher.finalize()
}

fn take_if(present: bool, rest: &mut &[u8]) -> Result<Option<u64>, FormatError> {
    if !present {
        return Ok(None);
    }
    let (number, after) = rest.split_first_chunk().ok_or(FormatError::Short)?;
    *rest = after;
    Ok(Some(u64::from_be_bytes(*number)))
}
