//! Segments: rows of one institution that lie side by side, as an archive keeps them.
//!
//! What it is (a magic number, version, region, institution, rows and times), an index (number,
//! time, place, length and checksum of each row), the rows compressed together, and a SHA-256 of
//! all of that. Numbers are big-endian.
//!
//! ```text
//! WANESEG 1 | region | ispb | rows | times | count | index .. | lengths | rows, deflated | SHA-256
//! ```
//!
//! Invariants:
//! - The same rows make the same bytes, so that two nodes that write one segment write it once.
//! - What is decoded is what was encoded, under the name that it is asked for by; anything else is
//!   [`ArchiveError::Damaged`].
//! - No length is believed: decoding takes as much memory as the bytes at hand and the longest
//!   segment need, whatever they announce.

#[cfg(test)]
mod tests;

use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use sha2::{Digest, Sha256};

use super::archive::{ArchiveError, SegmentName};
use super::log::{Place, SealedRow};
use crate::store::{MAX_VALUE, Timestamp};

/// The most bytes of rows after which another one is added: 8 MiB.
pub(super) const SEGMENT_BYTES: usize = 8 << 20;

/// The longest segment in an archive: rows that cannot be compressed, and their index.
pub const LONGEST_SEGMENT: usize = 16 << 20;

/// The most rows.
const MOST_ROWS: usize = 1 << 16;

/// How far a segment may reach over rows that are gone: a row is looked for in segments that begin so
/// far before it, and no further.
pub(super) const LONGEST_REACH: u64 = 2 * MOST_ROWS as u64;

/// Bytes of rows that may wait until one comes after which they are wanted: then all go in at once.
pub(super) const MOST_HELD: usize = 2 << 20;

/// The most bytes of all rows: the last one of those that waited, and of all, may be the longest.
const LONGEST: usize = SEGMENT_BYTES + MOST_HELD + 2 * MAX_VALUE;

const MAGIC: &[u8; 7] = b"WANESEG";
const VERSION: u8 = 1;

/// Bytes of an entry of the index: number, time, place, length, checksum.
const ENTRY: usize = 8 + 8 + 4 + 4 + 4;

/// Bytes of the digest at the end.
const DIGEST: usize = 32;

#[derive(Debug)]
struct Entry {
    row: u64,
    at: u64,
    offset: u32,
    length: u32,
    checksum: u32,
}

/// A segment that is being written, row by row: no more is held than what is compressed.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    region: String,
    ispb: super::Ispb,
    index: Vec<Entry>,
    plain: usize,
    /// It is full once its rows have so many bytes.
    most_bytes: usize,
    packed: DeflateEncoder<Vec<u8>>,
}

impl SegmentWriter {
    pub(super) fn new(place: Place<'_>, most_bytes: usize) -> Self {
        Self {
            region: place.region.to_owned(),
            ispb: place.ispb,
            index: Vec::new(),
            plain: 0,
            most_bytes: most_bytes.min(SEGMENT_BYTES),
            packed: DeflateEncoder::new(Vec::new(), Compression::fast()),
        }
    }

    /// Adds a row after those that it has, if it is not full.
    pub(super) fn push(
        &mut self,
        row: u64,
        at: Timestamp,
        value: &[u8],
    ) -> Result<(), ArchiveError> {
        self.packed.write_all(value).map_err(unwritable)?;
        self.index.push(Entry {
            row,
            at: at.as_unix_millis(),
            // Of a segment and of a value, both of which are far below 4 GiB.
            offset: self.plain as u32,
            length: value.len() as u32,
            checksum: crc32fast::hash(value),
        });
        self.plain += value.len();
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether a row that follows lies near enough.
    pub(super) fn reaches(&self, row: u64) -> bool {
        self.index.first().is_none_or(|first| row < first.row + LONGEST_REACH)
    }

    pub(super) fn is_full(&self) -> bool {
        self.plain >= self.most_bytes || self.index.len() >= MOST_ROWS
    }

    /// The segment and its name; `None` without a row.
    pub(super) fn finish(self) -> Result<Option<(SegmentName, Bytes)>, ArchiveError> {
        let (Some(first), Some(last)) = (self.index.first(), self.index.last()) else {
            return Ok(None);
        };
        let times = || self.index.iter().map(|entry| entry.at);
        let (from, to) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let moment = Timestamp::from_unix_millis;
        let name = SegmentName {
            region: self.region,
            ispb: self.ispb,
            rows: first.row..last.row + 1,
            times: moment(from)..moment(to.saturating_add(1)),
            count: self.index.len() as u64,
        };
        let packed = self.packed.finish().map_err(unwritable)?;
        let mut bytes = head(&name);
        for entry in &self.index {
            bytes.extend(entry.row.to_be_bytes());
            bytes.extend(entry.at.to_be_bytes());
            for number in [entry.offset, entry.length, entry.checksum] {
                bytes.extend(number.to_be_bytes());
            }
        }
        // Both are below 4 GiB.
        for length in [self.plain, packed.len()] {
            bytes.extend((length as u32).to_be_bytes());
        }
        bytes.extend(packed);
        let digest = Sha256::digest(&bytes);
        bytes.extend(digest);
        Ok(Some((name, bytes.into())))
    }
}

fn unwritable(error: io::Error) -> ArchiveError {
    ArchiveError::Unavailable { source: error.into() }
}

/// What a segment says of itself, from which its index follows.
fn head(name: &SegmentName) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    // At most 32 bytes, so the length fits in one.
    bytes.push(name.region.len() as u8);
    bytes.extend(name.region.as_bytes());
    bytes.extend(name.ispb.as_bytes());
    let times = [name.times.start, name.times.end].map(Timestamp::as_unix_millis);
    for number in [name.rows.start, name.rows.end, times[0], times[1], name.count] {
        bytes.extend(number.to_be_bytes());
    }
    bytes
}

/// The same as [`decode`], which takes many milliseconds, beside those who wait.
pub(super) async fn decode_aside(
    name: &SegmentName,
    bytes: Bytes,
) -> Result<Vec<(u64, SealedRow)>, ArchiveError> {
    let name = name.clone();
    aside(move || decode(&name, &bytes)).await
}

/// Runs what takes many milliseconds on a thread where nobody waits.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|ended| Err(ArchiveError::Unavailable { source: ended.into() }))
}

/// The rows of a segment: [`ArchiveError::Damaged`] unless all of it is as it was written.
pub(super) fn decode(
    name: &SegmentName,
    bytes: &[u8],
) -> Result<Vec<(u64, SealedRow)>, ArchiveError> {
    read(name, bytes)
        .map_err(|reason| ArchiveError::Damaged { segment: name.clone(), reason: reason.into() })
}

fn read(name: &SegmentName, bytes: &[u8]) -> Result<Vec<(u64, SealedRow)>, &'static str> {
    if bytes.len() > LONGEST_SEGMENT {
        return Err("it is longer than any segment");
    }
    let (content, digest) =
        bytes.split_last_chunk::<DIGEST>().ok_or("it is shorter than any segment")?;
    if !content.starts_with(MAGIC) {
        return Err("it does not begin like a segment");
    }
    if content.get(MAGIC.len()) != Some(&VERSION) {
        return Err("it is of a version that this program does not read");
    }
    if Sha256::digest(content)[..] != digest[..] {
        return Err("its digest does not match: it was changed, cut or joined");
    }
    let rest = content.strip_prefix(&head(name)[..]);
    let rest = rest.ok_or("it says to be another segment than its name does")?;
    let (entries, rest) = index(name, rest)?;
    let plain = unpacked(rest)?;
    rows(name, &entries, &plain)
}

/// The index of a segment, and what follows it.
fn index<'a>(name: &SegmentName, rest: &'a [u8]) -> Result<(Vec<Entry>, &'a [u8]), &'static str> {
    let bytes = usize::try_from(name.count).ok().and_then(|count| count.checked_mul(ENTRY));
    let (index, rest) = bytes
        .and_then(|bytes| rest.split_at_checked(bytes))
        .ok_or("its index is longer than the segment")?;
    let (entries, _) = index.as_chunks::<ENTRY>();
    let entry = |bytes: &[u8; ENTRY]| {
        let mut left = &bytes[..];
        Some(Entry {
            row: u64::from_be_bytes(take(&mut left)?),
            at: u64::from_be_bytes(take(&mut left)?),
            offset: u32::from_be_bytes(take(&mut left)?),
            length: u32::from_be_bytes(take(&mut left)?),
            checksum: u32::from_be_bytes(take(&mut left)?),
        })
    };
    let entries = entries.iter().map(entry).collect::<Option<_>>();
    Ok((entries.ok_or("its index is cut")?, rest))
}

fn take<const N: usize>(left: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = left.split_first_chunk()?;
    *left = rest;
    Some(*taken)
}

/// The rows as they lie one after the other.
fn unpacked(mut rest: &[u8]) -> Result<Bytes, &'static str> {
    let lengths = (take(&mut rest), take(&mut rest));
    let (Some(plain), Some(packed)) = lengths else { return Err("its lengths are cut") };
    let (plain, packed) = (u32::from_be_bytes(plain) as usize, u32::from_be_bytes(packed) as usize);
    if rest.len() != packed {
        return Err("its rows have another length than it says");
    }
    if plain > LONGEST {
        return Err("it says to have more bytes than any segment");
    }
    // What comes out is counted, and grows with what came: an announced length reserves nothing.
    let mut bytes = Vec::new();
    let mut decoder = DeflateDecoder::new(rest).take(plain as u64 + 1);
    decoder.read_to_end(&mut bytes).map_err(|_| "its rows cannot be decompressed")?;
    let is_whole = bytes.len() == plain && decoder.into_inner().total_in() == packed as u64;
    if is_whole { Ok(bytes.into()) } else { Err("its rows do not decompress to their length") }
}

/// The rows, each of which is what the index says.
fn rows(
    name: &SegmentName,
    entries: &[Entry],
    plain: &Bytes,
) -> Result<Vec<(u64, SealedRow)>, &'static str> {
    let mut rows: Vec<(u64, SealedRow)> = Vec::with_capacity(entries.len());
    let mut offset = 0;
    for entry in entries {
        let is_next = rows.last().is_none_or(|(last, _)| *last < entry.row);
        if !is_next || entry.offset as usize != offset {
            return Err("its rows are not in their order");
        }
        let end = offset + entry.length as usize;
        if end > plain.len() {
            return Err("a row lies outside of it");
        }
        let value = plain.slice(offset..end);
        if crc32fast::hash(&value) != entry.checksum {
            return Err("the checksum of a row does not match");
        }
        let sealed = SealedRow::decoded(value).ok_or("a row in it is none")?;
        if sealed.at().as_unix_millis() != entry.at {
            return Err("a row is of another time than the index says");
        }
        rows.push((entry.row, sealed));
        offset = end;
    }
    let ends = rows.first().zip(rows.last()).map(|((first, _), (last, _))| *first..last + 1);
    let times = || rows.iter().map(|(_, sealed)| sealed.at());
    let is_in_time = times().min() == Some(name.times.start)
        && times().max().map(|at| at.as_unix_millis().saturating_add(1))
            == Some(name.times.end.as_unix_millis());
    if ends != Some(name.rows.clone()) || offset != plain.len() || !is_in_time {
        return Err("its rows are others than it says");
    }
    Ok(rows)
}
