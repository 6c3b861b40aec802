//! The bytes of a backup: preamble, frames, and what is in them. The layout is in the module above.
//!
//! Decoding never panics, never allocates by a length that it has not checked, and accepts exactly
//! what encoding produces. Offsets that it reports count from the first byte of the backup.

use super::BackupError;
use crate::store::{
    Fence, Key, MAX_CLUSTERING, MAX_PARTITION, MAX_VALUE, Record, Row, Timestamp, Ttl, Value,
};

/// The version of this layout. Readers refuse a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// The version of what services write into keys and values. Readers refuse a higher one.
pub const STORE_FORMAT: u32 = 1;

/// Beyond ASCII first, so that nothing takes a backup for text; line ends show a transfer that
/// translates them.
pub(super) const MAGIC: [u8; 8] = *b"\xF7wane\r\n\0";

pub(super) const PREAMBLE_LEN: usize = 16;

/// Kind and length, before a frame's payload.
pub(super) const FRAME_HEAD: usize = 5;

/// The checksum after a frame's payload.
pub(super) const FRAME_TAIL: usize = 4;

const RECORD_HEAD: usize = 9;
const HAS_EXPIRY: u8 = 1;
const HAS_FENCE: u8 = 2;

/// The longest record, and so the longest payload of a frame.
pub(super) const MAX_PAYLOAD: usize = RECORD_HEAD + 16 + MAX_PARTITION + MAX_CLUSTERING + MAX_VALUE;

/// A frame of records is closed once its payload would pass this: frames cost little, and chunks
/// stay small.
const FULL_PAYLOAD: usize = 64 << 10;

const MAX_BACKEND: usize = 64;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Header = b'H',
    Records = b'R',
    Trailer = b'T',
}

impl FrameKind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Header, Self::Records, Self::Trailer].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) created_at: Timestamp,
    /// A label for people; nothing depends on it.
    pub(super) backend: String,
}

/// How a backup ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) records: u64,
    pub(super) digest: [u8; 32],
}

/// The first bytes of every backup, of this version and of later ones.
pub(super) fn encode_preamble() -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_be_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Checks the first bytes. Fewer than all of them are checked as far as they go.
pub(super) fn check_preamble(bytes: &[u8]) -> Result<(), BackupError> {
    if let Some(other) = bytes.iter().zip(MAGIC).position(|(found, magic)| *found != magic) {
        return Err(BackupError::NotABackup { offset: other as u64 });
    }
    let Some((preamble, [])) = bytes.split_first_chunk::<PREAMBLE_LEN>() else { return Ok(()) };
    let [.., v0, v1, v2, v3, c0, c1, c2, c3] = *preamble;
    if crc32fast::hash(&preamble[..12]) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Err(BackupError::damaged(8, "the checksum of its first 16 bytes does not match"));
    }
    check_version("backup format", 8, u32::from_be_bytes([v0, v1, v2, v3]), FORMAT_VERSION)
}

fn check_version(
    what: &'static str,
    offset: u64,
    found: u32,
    known: u32,
) -> Result<(), BackupError> {
    match found {
        0 => Err(BackupError::damaged(offset, format!("the {what} has no version 0"))),
        _ if found > known => Err(BackupError::Newer { what, offset, found, known }),
        _ => Ok(()),
    }
}

/// The checksum of the frame at `offset`, over all of it but the checksum itself.
pub(super) fn frame_checksum(offset: u64, head_and_payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_be_bytes());
    hasher.update(head_and_payload);
    hasher.finalize()
}

/// A frame that is being filled.
#[derive(Debug)]
pub(super) struct FrameFill {
    bytes: Vec<u8>,
}

impl FrameFill {
    pub(super) fn new(kind: FrameKind) -> Self {
        let mut bytes = Vec::with_capacity(FRAME_HEAD + 64 + FRAME_TAIL);
        bytes.push(kind as u8);
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes }
    }

    /// A frame of whatever payload.
    #[cfg(test)]
    pub(super) fn of_bytes(kind: FrameKind, payload: &[u8]) -> Self {
        let mut frame = Self::new(kind);
        frame.extend(payload);
        frame
    }

    pub(super) fn header(header: &Header) -> Self {
        let backend = header.backend.chars().filter(char::is_ascii_graphic);
        let backend: String = backend.take(MAX_BACKEND).collect();
        let mut frame = Self::new(FrameKind::Header);
        frame.extend(&header.created_at.as_unix_millis().to_be_bytes());
        frame.extend(&STORE_FORMAT.to_be_bytes());
        frame.extend(&[backend.len() as u8]);
        frame.extend(backend.as_bytes());
        frame
    }

    pub(super) fn trailer(trailer: &Trailer) -> Self {
        let mut frame = Self::new(FrameKind::Trailer);
        frame.extend(&trailer.records.to_be_bytes());
        frame.extend(&trailer.digest);
        frame
    }

    /// Whether the record belongs in this frame, as the first always does.
    pub(super) fn has_room(&self, row: &Row) -> bool {
        let payload = self.bytes.len() - FRAME_HEAD;
        payload == 0 || payload + encoded_len(row) <= FULL_PAYLOAD
    }

    pub(super) fn push(&mut self, row: &Row) {
        let Row { key, record: Record { value, expires_at, fence } } = row;
        let mut flags = 0;
        flags |= if expires_at.is_some() { HAS_EXPIRY } else { 0 };
        flags |= if *fence == Fence::NONE { 0 } else { HAS_FENCE };
        self.bytes.reserve(encoded_len(row) + FRAME_TAIL);
        self.extend(&[flags]);
        // The limits of keys and values fit.
        self.extend(&(key.partition().len() as u16).to_be_bytes());
        self.extend(&(key.clustering().len() as u16).to_be_bytes());
        self.extend(&(value.len() as u32).to_be_bytes());
        if let Some(expiry) = expires_at {
            self.extend(&expiry.as_unix_millis().to_be_bytes());
        }
        if *fence != Fence::NONE {
            self.extend(&fence.0.to_be_bytes());
        }
        self.extend(key.partition());
        self.extend(key.clustering());
        self.extend(value);
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes of the frame, to stand at `offset`.
    pub(super) fn seal(mut self, offset: u64) -> Vec<u8> {
        // Within MAX_PAYLOAD, so the length fits.
        let len = (self.bytes.len() - FRAME_HEAD) as u32;
        self.bytes[1..FRAME_HEAD].copy_from_slice(&len.to_be_bytes());
        let crc = frame_checksum(offset, &self.bytes);
        self.extend(&crc.to_be_bytes());
        self.bytes
    }
}

fn encoded_len(row: &Row) -> usize {
    let expiry = if row.record.expires_at.is_some() { 8 } else { 0 };
    let fence = if row.record.fence == Fence::NONE { 0 } else { 8 };
    RECORD_HEAD + expiry + fence + row.key.size() + row.record.value.len()
}

/// What is left of a payload, and where in the backup it stands.
#[derive(Debug)]
pub(super) struct Payload<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Payload<'a> {
    pub(super) fn new(bytes: &'a [u8], offset: u64) -> Self {
        Self { bytes, offset }
    }

    pub(super) fn header(mut self) -> Result<Header, BackupError> {
        let created_at = Timestamp::from_unix_millis(self.u64("creation time")?);
        let offset = self.offset;
        let version = u32::from_be_bytes(self.array("store format")?);
        check_version("store format", offset, version, STORE_FORMAT)?;
        let [len] = self.array("backend")?;
        let label = self.take(usize::from(len), "backend")?;
        if label.len() > MAX_BACKEND || !label.iter().all(u8::is_ascii_graphic) {
            return Err(self.impossible("backend"));
        }
        let backend = label.iter().copied().map(char::from).collect();
        self.end()?;
        Ok(Header { created_at, backend })
    }

    pub(super) fn trailer(mut self) -> Result<Trailer, BackupError> {
        let trailer = Trailer { records: self.u64("count")?, digest: self.array("digest")? };
        self.end()?;
        Ok(trailer)
    }

    /// The records of a backup that was begun at `created_at`.
    pub(super) fn records(mut self, created_at: Timestamp) -> Result<Vec<Row>, BackupError> {
        if self.bytes.is_empty() {
            return Err(self.impossible("frame without records"));
        }
        let mut rows = Vec::new();
        while !self.bytes.is_empty() {
            rows.push(self.record(created_at)?);
        }
        Ok(rows)
    }

    fn record(&mut self, created_at: Timestamp) -> Result<Row, BackupError> {
        let start = self.offset;
        let at_start = |what| BackupError::damaged(start, format!("an impossible {what}"));
        let [flags, p0, p1, c0, c1] = self.array("record")?;
        let value_len = u32::from_be_bytes(self.array("record")?) as usize;
        if flags & !(HAS_EXPIRY | HAS_FENCE) != 0 {
            return Err(at_start("flag"));
        }
        let expires_at = if flags & HAS_EXPIRY == 0 { None } else { Some(self.u64("expiry")?) };
        let expires_at = expires_at.map(Timestamp::from_unix_millis);
        if expires_at.is_some_and(|expiry| expiry > latest_expiry(created_at)) {
            return Err(at_start("expiry: more than 365 days ahead"));
        }
        let fence = if flags & HAS_FENCE == 0 { 0 } else { self.u64("fence")? };
        if flags & HAS_FENCE != 0 && fence == 0 {
            return Err(at_start("fence"));
        }
        let partition = self.take(usize::from(u16::from_be_bytes([p0, p1])), "partition")?;
        let clustering = self.take(usize::from(u16::from_be_bytes([c0, c1])), "clustering")?;
        let key = Key::new(partition, clustering).map_err(|_| at_start("key"))?;
        // Copied: a value that shared the frame's bytes would keep all of them in a store.
        let value = Value::copy_from_slice(self.take(value_len, "value")?);
        let value = value.map_err(|_| at_start("value"))?;
        Ok(Row { key, record: Record { value, expires_at, fence: Fence(fence) } })
    }

    fn u64(&mut self, what: &str) -> Result<u64, BackupError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], BackupError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.impossible(what))?;
        self.offset += N as u64;
        self.bytes = rest;
        Ok(*taken)
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], BackupError> {
        let split = self.bytes.split_at_checked(len);
        let (taken, rest) = split.ok_or_else(|| self.impossible(what))?;
        self.offset += len as u64;
        self.bytes = rest;
        Ok(taken)
    }

    fn end(self) -> Result<(), BackupError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.impossible("length")) }
    }

    fn impossible(&self, what: &str) -> BackupError {
        BackupError::damaged(self.offset, format!("an impossible {what}"))
    }
}

/// The expiry that no record of a backup passes: 365 days ahead when it was written, which on a
/// shared store may be a long scan after the backup was begun, by a clock of its own.
fn latest_expiry(created_at: Timestamp) -> Timestamp {
    created_at.after(Ttl::MAX).after(Ttl::MAX)
}
