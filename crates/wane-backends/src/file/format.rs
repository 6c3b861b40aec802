//! Bytes on disk: how keys, records and expiry-index entries are written.
//!
//! ```text
//! key      partition length u16 | partition | clustering
//! record   crc32 u32 | flags u8 | [expiry u64] [filed u64] [fence u64] | value or place
//! place    offset u64 | length u32 | crc32 u32
//! due      instant u64 | key
//! large    length u32 | crc32 u32 | key
//! ```
//!
//! Numbers are big-endian, so that byte order is the order of partitions' rows and of time. The
//! checksum covers the key as well as the record: a record that turns up under another key is as
//! corrupt as one with a flipped bit. Fields that are absent take no room. A large value is not in
//! its record, which says where it lies; the checksum of such a value covers the key as well.
//!
//! Decoding never panics and accepts exactly what encoding produces.

use wane::store::{Fence, Key, MAX_VALUE, Record, StoreError, Timestamp, Value};

use super::space::BLOCK;

/// The newest format that this code reads and writes. A newer one is refused.
pub(super) const FORMAT_VERSION: u64 = LOG_FORMAT;

/// The format of a store with a log in front of its tree. Those before had none; in format 1 all
/// values lay in the tree, in format 2 large ones beside it.
pub(super) const LOG_FORMAT: u64 = 3;

/// Values of this size and more lie beside the tree.
pub(super) const LARGE: usize = 80 * 1_024;

const HAS_EXPIRY: u8 = 1;
const HAS_FILED: u8 = 2;
const HAS_FENCE: u8 = 4;
const IS_PLACED: u8 = 8;
const ALL_FLAGS: u8 = HAS_EXPIRY | HAS_FILED | HAS_FENCE | IS_PLACED;

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
    /// The instant under which the expiry index lists the record: `None` exactly where the record
    /// is permanent, and never after its expiry, as a renewal moves only the expiry.
    pub filed: Option<Timestamp>,
}

impl StoredRecord {
    /// Writes the record's bytes to `out`, in place of what it held.
    pub fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        self.encode_with(None, key, out);
    }

    /// Reads a record stored under `key` with its value.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, FormatError> {
        match Entry::decode(key, bytes)? {
            Entry { stored, place: None } => Ok(stored),
            Entry { place: Some(_), .. } => Err(FormatError::Impossible("flag")),
        }
    }

    /// Writes the record with its value, or with the place where that lies.
    fn encode_with(&self, place: Option<Place>, key: &[u8], out: &mut Vec<u8>) {
        debug_assert!(self.is_filed_in_time(), "{self:?} cannot be read back");
        let Record { value, expires_at, fence } = &self.record;
        let filed = self.filed.filter(|filed| Some(*filed) != *expires_at);
        let mut flags = 0;
        flags |= if expires_at.is_some() { HAS_EXPIRY } else { 0 };
        flags |= if filed.is_some() { HAS_FILED } else { 0 };
        flags |= if *fence == Fence::NONE { 0 } else { HAS_FENCE };
        flags |= if place.is_some() { IS_PLACED } else { 0 };

        out.clear();
        out.extend_from_slice(&[0; CRC_LEN]);
        out.push(flags);
        for instant in [*expires_at, filed].into_iter().flatten() {
            out.extend_from_slice(&instant.as_unix_millis().to_be_bytes());
        }
        if *fence != Fence::NONE {
            out.extend_from_slice(&fence.0.to_be_bytes());
        }
        match place {
            None => out.extend_from_slice(value),
            Some(Place { offset, len, crc }) => {
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&len.to_be_bytes());
                out.extend_from_slice(&crc.to_be_bytes());
            }
        }
        let crc = checksum(key, &out[CRC_LEN..]);
        out[..CRC_LEN].copy_from_slice(&crc.to_be_bytes());
    }

    /// Whether the expiry index lists the record if it expires, and no later than that.
    fn is_filed_in_time(&self) -> bool {
        self.filed.is_some() == self.record.expires_at.is_some()
            && self.filed <= self.record.expires_at
    }
}

/// Where a large value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Of the key and the value.
    pub(super) crc: u32,
}

impl Place {
    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (offset, rest) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
        let (len, crc) = rest.split_first_chunk().ok_or(FormatError::Short)?;
        let crc = crc.try_into().map_err(|_| FormatError::Impossible("place"))?;
        let place = Self {
            offset: u64::from_be_bytes(*offset),
            len: u32::from_be_bytes(*len),
            crc: u32::from_be_bytes(crc),
        };
        let is_large = (LARGE..=MAX_VALUE).contains(&(place.len as usize));
        if is_large && place.offset.is_multiple_of(BLOCK) {
            return Ok(place);
        }
        Err(FormatError::Impossible("place"))
    }
}

/// What the tree holds under a key: a record, whose value is empty here where it has a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) stored: StoredRecord,
    pub(super) place: Option<Place>,
}

impl Entry {
    /// Writes the entry's bytes to `out`, in place of what it held.
    pub(super) fn encode(&self, key: &[u8], out: &mut Vec<u8>) {
        self.stored.encode_with(self.place, key, out);
    }

    /// Reads what is stored under `key`.
    pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, FormatError> {
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
        let filed = filed.map(Timestamp::from_unix_millis);
        // A record that was never renewed is filed under its expiry, and does not say so.
        if filed.is_some() && filed >= expires_at {
            return Err(FormatError::Impossible("index instant"));
        }
        let fence = take_if(flags & HAS_FENCE != 0, &mut rest)?;
        if fence == Some(0) {
            return Err(FormatError::Impossible("fence"));
        }
        let place = (flags & IS_PLACED != 0).then(|| Place::decode(rest)).transpose()?;
        let value = if place.is_some() { &[] } else { rest };
        let value = Value::copy_from_slice(value);
        let value = value.map_err(|_| FormatError::Impossible("length"))?;
        let record = Record { value, expires_at, fence: Fence(fence.unwrap_or(0)) };
        Ok(Self { stored: StoredRecord { record, filed: filed.or(expires_at) }, place })
    }
}

/// The entry of a large value in the list of them, under its offset.
pub(super) fn encode_large(key: &[u8], place: Place) -> Vec<u8> {
    [&place.len.to_be_bytes()[..], &place.crc.to_be_bytes(), key].concat()
}

/// The place and the stored key of an entry of that list.
pub(super) fn decode_large(offset: u64, bytes: &[u8]) -> Result<(Place, &[u8]), FormatError> {
    let (len, rest) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
    let (crc, key) = rest.split_first_chunk().ok_or(FormatError::Short)?;
    let (len, crc) = (u32::from_be_bytes(*len), u32::from_be_bytes(*crc));
    Ok((Place { offset, len, crc }, key))
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
    // A partition has 1,026 bytes at most, with the bucket that a spread appends.
    let len = partition.len() as u16;
    [&len.to_be_bytes(), partition].concat()
}

/// The key stored as `bytes`.
#[inline]
pub fn decode_key(bytes: &[u8]) -> Result<Key, FormatError> {
    let (len, rest) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
    let len = usize::from(u16::from_be_bytes(*len));
    let (partition, clustering) = rest.split_at_checked(len).ok_or(FormatError::Short)?;
    Key::stored(partition, clustering).map_err(|_| FormatError::Impossible("key"))
}

/// Bytes of the instant that an entry of the expiry index begins with.
pub(super) const INSTANT: usize = 8;

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

/// The checksum of bytes that are stored under a key.
pub(super) fn checksum(key: &[u8], body: &[u8]) -> u32 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The key `apps`/`row` as stored.
    const KEY: &[u8] = b"\x00\x04appsrow";

    /// 1,700,000,000,000 ms: 0x18BCFE56800.
    const EXPIRY: Timestamp = Timestamp::from_unix_millis(1_700_000_000_000);

    /// Five seconds after [`EXPIRY`]: 0x18BCFE57B88.
    const RENEWED: Timestamp = Timestamp::from_unix_millis(1_700_000_005_000);

    fn stored(value: &[u8], expires_at: Option<Timestamp>, fence: u64) -> StoredRecord {
        let value = Value::new(value.to_vec()).unwrap();
        let record = Record { value, expires_at, fence: Fence(fence) };
        StoredRecord { record, filed: expires_at }
    }

    fn renewed(fence: u64) -> StoredRecord {
        StoredRecord { filed: Some(EXPIRY), ..stored(b"v", Some(RENEWED), fence) }
    }

    fn encoded(stored: &StoredRecord) -> Vec<u8> {
        let mut bytes = b"what was there before".to_vec();
        stored.encode(KEY, &mut bytes);
        bytes
    }

    /// A body under the checksum that belongs to it, whatever the body holds.
    fn sealed(body: &[u8]) -> Vec<u8> {
        [&checksum(KEY, body).to_be_bytes(), body].concat()
    }

    /// A failure means that files already written can no longer be read: raise [`FORMAT_VERSION`] and
    /// convert, or undo the change. The checksums were computed by another program (zlib).
    #[test]
    fn every_shape_of_record_keeps_its_bytes() {
        let expiry = b"\x00\x00\x01\x8B\xCF\xE5\x68\x00";
        let renewal = b"\x00\x00\x01\x8B\xCF\xE5\x7B\x88";
        let fence = b"\x00\x00\x00\x00\x00\x00\x00\x07";
        let shapes: [(StoredRecord, [&[u8]; 6]); 7] = [
            (stored(b"", None, 0), [b"\x19\xDC\xD5\x91", b"\x00", b"", b"", b"", b""]),
            (stored(b"v", None, 0), [b"\xEC\x75\x44\x83", b"\x00", b"", b"", b"", b"v"]),
            (stored(b"v", None, 7), [b"\xC2\x6C\xE2\x7D", b"\x04", b"", b"", fence, b"v"]),
            (stored(b"v", Some(EXPIRY), 0), [b"\x75\x24\x04\xC9", b"\x01", expiry, b"", b"", b"v"]),
            (
                stored(b"v", Some(EXPIRY), 7),
                [b"\x27\xBD\xA0\x6E", b"\x05", expiry, b"", fence, b"v"],
            ),
            (renewed(0), [b"\xBA\x66\xDA\x24", b"\x03", renewal, expiry, b"", b"v"]),
            (renewed(7), [b"\xCC\x7D\x7D\x73", b"\x07", renewal, expiry, fence, b"v"]),
        ];
        for (stored, golden) in shapes {
            let golden = golden.concat();
            assert_eq!(encoded(&stored), golden, "{stored:?}");
            assert_eq!(StoredRecord::decode(KEY, &golden), Ok(stored));
        }
    }

    #[test]
    fn keys_and_due_entries_keep_their_bytes() {
        let key = Key::new(b"apps", b"row").unwrap();
        assert_eq!(encode_key(&key), KEY);
        assert_eq!(decode_key(KEY), Ok(key));
        let bare = Key::new(b"apps", b"").unwrap();
        assert_eq!(encode_key(&bare), b"\x00\x04apps");

        let due = b"\x00\x00\x01\x8B\xCF\xE5\x68\x00\x00\x04appsrow";
        assert_eq!(encode_due(EXPIRY, KEY), due);
        assert_eq!(decode_due(due), Ok((EXPIRY, KEY)));
    }

    /// The sweep would find such a record late, and its room would linger past its expiry.
    #[test]
    fn a_record_filed_after_its_expiry_is_refused() {
        let expiry = EXPIRY.as_unix_millis().to_be_bytes();
        for filed in [EXPIRY, RENEWED] {
            let body =
                [&[HAS_EXPIRY | HAS_FILED][..], &expiry, &filed.as_unix_millis().to_be_bytes()];
            let refused = StoredRecord::decode(KEY, &sealed(&body.concat()));
            assert_eq!(refused, Err(FormatError::Impossible("index instant")), "{filed:?}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "cannot be read back")]
    fn a_record_filed_after_its_expiry_is_not_written() {
        let impossible = StoredRecord { filed: Some(RENEWED), ..stored(b"v", Some(EXPIRY), 0) };
        encoded(&impossible);
    }

    #[test]
    fn what_is_never_written_is_refused() {
        let instant = [0, 0, 0, 0, 0, 0, 0, 1];
        let cases: [(&[u8], FormatError); 6] = [
            (&[], FormatError::Short),
            (&[ALL_FLAGS + 1], FormatError::Impossible("flag")),
            (&[&[HAS_FILED][..], &instant].concat(), FormatError::Impossible("flag")),
            (&[HAS_EXPIRY, 0, 0], FormatError::Short),
            (&[&[HAS_FENCE][..], &[0; 8]].concat(), FormatError::Impossible("fence")),
            (&vec![0; 1 + MAX_VALUE + 1], FormatError::Impossible("length")),
        ];
        for (body, error) in cases {
            assert_eq!(StoredRecord::decode(KEY, &sealed(body)), Err(error));
        }
        assert!(StoredRecord::decode(KEY, &sealed(&vec![0; 1 + MAX_VALUE])).is_ok());
    }

    #[test]
    fn a_place_keeps_its_bytes() {
        let stored = stored(b"", Some(EXPIRY), 0);
        let place = Place { offset: 3 * BLOCK, len: 102_400, crc: 0x0102_0304 };
        let entry = Entry { stored, place: Some(place) };
        let mut bytes = Vec::new();
        entry.encode(KEY, &mut bytes);
        let body = b"\x09\x00\x00\x01\x8B\xCF\xE5\x68\x00\
            \x00\x00\x00\x00\x00\x00\x30\x00\x00\x01\x90\x00\x01\x02\x03\x04";
        assert_eq!(bytes, sealed(body));
        assert_eq!(Entry::decode(KEY, &bytes), Ok(entry));
        let refused = StoredRecord::decode(KEY, &bytes);
        assert_eq!(refused, Err(FormatError::Impossible("flag")), "its value is elsewhere");
        assert_eq!(decode_large(place.offset, &encode_large(KEY, place)), Ok((place, KEY)));
    }

    #[test]
    fn a_place_that_is_never_written_is_refused() {
        let sealed_place = |offset: u64, len: u32, more: &[u8]| {
            let (offset, len) = (offset.to_be_bytes(), len.to_be_bytes());
            let body = [&[IS_PLACED][..], &offset, &len, &[1, 2, 3, 4], more].concat();
            Entry::decode(KEY, &sealed(&body)).map(drop)
        };
        let impossible = Err(FormatError::Impossible("place"));
        assert_eq!(sealed_place(BLOCK, LARGE as u32, b""), Ok(()));
        assert_eq!(sealed_place(BLOCK, LARGE as u32, b"x"), impossible);
        assert_eq!(sealed_place(BLOCK, LARGE as u32 - 1, b""), impossible);
        assert_eq!(sealed_place(BLOCK, MAX_VALUE as u32 + 1, b""), impossible);
        assert_eq!(sealed_place(BLOCK + 1, LARGE as u32, b""), impossible);
        assert_eq!(Entry::decode(KEY, &sealed(&[IS_PLACED])).map(drop), Err(FormatError::Short));
    }

    #[test]
    fn a_record_under_another_key_is_refused() {
        let bytes = encoded(&stored(b"v", Some(EXPIRY), 7));
        assert_eq!(StoredRecord::decode(b"\x00\x04appsrox", &bytes), Err(FormatError::Checksum));
        assert_eq!(StoredRecord::decode(b"\x00\x04appsro", &bytes), Err(FormatError::Checksum));
    }

    #[test]
    fn a_key_beyond_the_limits_is_refused() {
        assert_eq!(decode_key(b"\x00"), Err(FormatError::Short));
        assert_eq!(decode_key(b"\x00\x05apps"), Err(FormatError::Short));
        assert_eq!(decode_key(b"\x00\x00row"), Err(FormatError::Impossible("key")));
        let longest = [&[4, 2][..], &[1; 1_026]].concat();
        assert_eq!(decode_key(&longest).map(|key| encode_key(&key)), Ok(longest));
        let long = [&[4, 3][..], &[1; 1_027]].concat();
        assert_eq!(decode_key(&long), Err(FormatError::Impossible("key")));
    }
}
