//! From bytes to records: told of bytes as they come, it yields the parts that are complete.
//!
//! It holds what was pushed and not yet yielded, and asks for no more than one frame, which is at
//! most as long as the longest record. A part that was yielded had a sound checksum; that the whole
//! is sound is known only once [`Decoder::finish`] says so.

use bytes::{Buf, BytesMut};
use sha2::{Digest, Sha256};

use super::format::{
    FRAME_HEAD, FRAME_TAIL, FrameKind, Header, MAX_PAYLOAD, PREAMBLE_LEN, Payload, Trailer,
    check_preamble, frame_checksum,
};
use super::{BackupError, Progress};
use crate::store::{Row, Timestamp};

/// A part of a backup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Header(Header),
    Records(Vec<Row>),
}

/// What may come next.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Preamble,
    Header,
    /// Records or the trailer, of a backup begun at this time.
    Records(Timestamp),
    Nothing,
}

/// Reads a backup. After an error it is of no further use.
#[derive(Debug)]
pub(super) struct Decoder {
    buffer: BytesMut,
    /// Where the buffer begins.
    offset: u64,
    digest: Sha256,
    expected: Expected,
    records: u64,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            offset: 0,
            digest: Sha256::new(),
            expected: Expected::Preamble,
            records: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// What was yielded so far.
    pub(super) fn progress(&self) -> Progress {
        Progress { records: self.records, bytes: self.offset }
    }

    /// The next part, or `None` where more bytes are needed first, or where the backup has ended.
    pub(super) fn next(&mut self) -> Result<Option<Part>, BackupError> {
        if matches!(self.expected, Expected::Preamble) {
            let Some(preamble) = self.buffer.get(..PREAMBLE_LEN) else {
                return check_preamble(&self.buffer).map(|()| None);
            };
            check_preamble(preamble)?;
            self.digest.update(preamble);
            self.advance(PREAMBLE_LEN);
            self.expected = Expected::Header;
        }
        self.next_frame()
    }

    fn next_frame(&mut self) -> Result<Option<Part>, BackupError> {
        if matches!(self.expected, Expected::Nothing) {
            return self.finish().map(|()| None);
        }
        let Some([kind, length @ ..]) = self.buffer.first_chunk::<FRAME_HEAD>() else {
            return Ok(None);
        };
        let (kind, payload) = (*kind, u32::from_be_bytes(*length) as usize);
        if payload > MAX_PAYLOAD {
            let reason = format!("a frame of {payload} bytes, and none has over {MAX_PAYLOAD}");
            return Err(BackupError::damaged(self.offset, reason));
        }
        let sealed = FRAME_HEAD + payload;
        let Some(frame) = self.buffer.get(..sealed + FRAME_TAIL) else { return Ok(None) };
        let (covered, crc) = frame.split_at(sealed);
        if frame_checksum(self.offset, covered).to_be_bytes() != *crc {
            let reason = "the checksum of the frame there does not match";
            return Err(BackupError::damaged(self.offset, reason));
        }
        let payload = Payload::new(&covered[FRAME_HEAD..], self.offset + FRAME_HEAD as u64);
        let part = self.open(kind, payload)?;
        self.digest.update(frame);
        self.advance(sealed + FRAME_TAIL);
        self.accept(part)
    }

    /// What a frame holds, if it may come here: `None` for the trailer, which ends the backup.
    fn open(&self, kind: u8, payload: Payload<'_>) -> Result<Option<Part>, BackupError> {
        match (FrameKind::from_byte(kind), self.expected) {
            (Some(FrameKind::Header), Expected::Header) => {
                Ok(Some(Part::Header(payload.header()?)))
            }
            (Some(FrameKind::Records), Expected::Records(created_at)) => {
                Ok(Some(Part::Records(payload.records(created_at)?)))
            }
            (Some(FrameKind::Trailer), Expected::Records(_)) => {
                self.check_trailer(payload.trailer()?)?;
                Ok(None)
            }
            (Some(_) | None, _) => {
                Err(BackupError::damaged(self.offset, "a frame of a kind that cannot come here"))
            }
        }
    }

    fn check_trailer(&self, trailer: Trailer) -> Result<(), BackupError> {
        if trailer.records != self.records {
            let reason = format!("it had {} records and has {}", trailer.records, self.records);
            return Err(BackupError::damaged(self.offset, reason));
        }
        if self.digest.clone().finalize()[..] != trailer.digest {
            let reason = "the SHA-256 of all that comes before does not match";
            return Err(BackupError::damaged(self.offset, reason));
        }
        Ok(())
    }

    fn accept(&mut self, part: Option<Part>) -> Result<Option<Part>, BackupError> {
        match &part {
            Some(Part::Header(header)) => self.expected = Expected::Records(header.created_at),
            Some(Part::Records(rows)) => self.records += rows.len() as u64,
            None => {
                self.expected = Expected::Nothing;
                return self.next_frame();
            }
        }
        Ok(part)
    }

    /// The bytes of memory that it holds.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn advance(&mut self, len: usize) {
        self.buffer.advance(len);
        self.offset += len as u64;
    }

    /// Whether the backup was whole, once all bytes were pushed and all parts taken.
    pub(super) fn finish(&self) -> Result<(), BackupError> {
        let within = match self.expected {
            Expected::Nothing if self.buffer.is_empty() => return Ok(()),
            Expected::Nothing => return Err(BackupError::TrailingBytes { offset: self.offset }),
            Expected::Preamble => "its first 16 bytes",
            Expected::Header => "its header",
            Expected::Records(_) if self.buffer.is_empty() => "its records: the trailer is missing",
            Expected::Records(_) => "a frame",
        };
        Err(BackupError::Truncated { offset: self.offset + self.buffer.len() as u64, within })
    }
}
