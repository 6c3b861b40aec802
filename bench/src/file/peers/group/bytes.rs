//! Bytes on disk: how keys, records and entries of the expiry index are written.
//!
//! ```text
//! key      partition length u16 | partition | clustering
//! record   crc32 u32 | flags u8 | [expiry u64] [filed u64] | value or place
//! place    offset u64 | length u32 | crc32 u32
//! due      instant u64 | key
//! ```
//!
//! The checksum covers the key as well. There are no fences: no benchmark has any.

use ::wane::store::{Fence, Key, Record, StoreError, Timestamp, Value};

use crate::BoxError;

const HAS_EXPIRY: u8 = 1;
const HAS_FILED: u8 = 2;
const IS_PLACED: u8 = 8;

/// Where a large value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Of the key and the value.
    pub(super) crc: u32,
}

/// What the tree holds under a key: a record, whose value is empty here where it has a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// The instant under which the expiry index lists the record.
    pub(super) filed: Option<Timestamp>,
    pub(super) place: Option<Place>,
}

impl Entry {
    /// Writes the entry's bytes to `out`, in place of what it held.
    pub(super) fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        let expiry = self.record.expires_at;
        // A record that was never renewed is filed under its expiry, and does not say so.
        let filed = self.filed.filter(|filed| Some(*filed) != expiry);
        let mut flags = 0;
        flags |= if expiry.is_some() { HAS_EXPIRY } else { 0 };
        flags |= if filed.is_some() { HAS_FILED } else { 0 };
        flags |= if self.place.is_some() { IS_PLACED } else { 0 };
        out.clear();
        out.extend_from_slice(&[0, 0, 0, 0, flags]);
        for instant in [expiry, filed].into_iter().flatten() {
            out.extend_from_slice(&instant.as_unix_millis().to_be_bytes());
        }
        match self.place {
            None => out.extend_from_slice(&self.record.value),
            Some(Place { offset, len, crc }) => {
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&crc.to_be_bytes());
            }
        }
        let crc = checksum(key, &out[4..]);
        out[..4].copy_from_slice(&crc.to_be_bytes());
    }

    /// Reads what is stored under `key`.
    pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, Damaged> {
        let (crc, body) = bytes.split_first_chunk().ok_or(Damaged)?;
        if checksum(key, body) != u32::from_be_bytes(*crc) {
            return Err(Damaged);
        }
        let (&flags, mut rest) = body.split_first().ok_or(Damaged)?;
        let expires_at = instant_if(flags & HAS_EXPIRY != 0, &mut rest)?;
        let filed = instant_if(flags & HAS_FILED != 0, &mut rest)?.or(expires_at);
        let place = (flags & IS_PLACED != 0).then(|| Place::decode(rest)).transpose()?;
        let value = if place.is_some() { &[] } else { rest };
        let value = Value::copy_from_slice(value).map_err(|_| Damaged)?;
        Ok(Self { record: Record { value, expires_at, fence: Fence::NONE }, filed, place })
    }
}

impl Place {
    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let (offset, rest) = bytes.split_first_chunk().ok_or(Damaged)?;
        let (len, crc) = rest.split_first_chunk().ok_or(Damaged)?;
        let crc = crc.try_into().map_err(|_| Damaged)?;
        let (len, crc) = (u32::from_be_bytes(*len), u32::from_be_bytes(crc));
        Ok(Self { offset: u64::from_be_bytes(*offset), len, crc })
    }
}

fn instant_if(is_there: bool, rest: &mut &[u8]) -> Result<Option<Timestamp>, Damaged> {
    if !is_there {
        return Ok(None);
    }
    let (instant, after) = rest.split_first_chunk().ok_or(Damaged)?;
    *rest = after;
    Ok(Some(Timestamp::from_unix_millis(u64::from_be_bytes(*instant))))
}

/// Bytes are not what this module writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a record is not as it was written")
    }
}

impl std::error::Error for Damaged {}

/// What a caller is told of a record that cannot be read.
pub(super) fn corrupt(stored_key: &[u8], damaged: Damaged) -> StoreError {
    match decode_key(stored_key) {
        Ok(key) => StoreError::Corrupt { key, reason: damaged.to_string() },
        Err(damaged) => failed(damaged),
    }
}

/// What a caller is told of anything else.
pub(super) fn failed(source: impl Into<BoxError>) -> StoreError {
    StoreError::Unknown { backend: "redb group", source: source.into() }
}

/// The checksum of what is stored under `key`.
pub(super) fn checksum(key: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(bytes);
    hasher.finalize()
}

/// The bytes under which a key is stored.
pub(super) fn encode_key(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + key.size());
    bytes.extend_from_slice(&partition_prefix(key.partition()));
    bytes.extend_from_slice(key.clustering());
    bytes
}

/// The bytes with which every key of a partition begins, and no other key.
pub(super) fn partition_prefix(partition: &[u8]) -> Vec<u8> {
    let len = partition.len() as u16;
    [&len.to_be_bytes(), partition].concat()
}

/// The key stored as `bytes`.
pub(super) fn decode_key(bytes: &[u8]) -> Result<Key, Damaged> {
    let (len, rest) = bytes.split_first_chunk().ok_or(Damaged)?;
    let len = usize::from(u16::from_be_bytes(*len));
    let (partition, clustering) = rest.split_at_checked(len).ok_or(Damaged)?;
    Key::stored(partition, clustering).map_err(|_| Damaged)
}

/// The expiry index's entry for the key stored as `key`, due at `instant`.
pub(super) fn encode_due(instant: Timestamp, key: &[u8]) -> Vec<u8> {
    [&instant.as_unix_millis().to_be_bytes(), key].concat()
}

/// The instant and the stored key of an entry of the expiry index.
pub(super) fn decode_due(bytes: &[u8]) -> Result<(Timestamp, &[u8]), Damaged> {
    let (instant, key) = bytes.split_first_chunk().ok_or(Damaged)?;
    Ok((Timestamp::from_unix_millis(u64::from_be_bytes(*instant)), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_what_it_holds_and_a_flipped_bit_shows() {
        let at = |millis| Some(Timestamp::from_unix_millis(millis));
        let record = |value: &[u8], expires_at| Record {
            value: Value::copy_from_slice(value).unwrap(),
            expires_at,
            fence: Fence::NONE,
        };
        let place = Place { offset: 8_192, len: 100_000, crc: 7 };
        let entries = [
            Entry { record: record(b"permanent", None), filed: None, place: None },
            Entry { record: record(b"new", at(9)), filed: at(9), place: None },
            Entry { record: record(b"renewed", at(9)), filed: at(5), place: None },
            Entry { record: record(b"", at(9)), filed: at(9), place: Some(place) },
        ];
        for entry in entries {
            let mut bytes = Vec::new();
            entry.encode(b"key", &mut bytes);
            assert_eq!(Entry::decode(b"key", &bytes), Ok(entry));
            assert_eq!(Entry::decode(b"other", &bytes), Err(Damaged));
            *bytes.last_mut().unwrap() ^= 1;
            assert_eq!(Entry::decode(b"key", &bytes), Err(Damaged));
        }
    }
}
