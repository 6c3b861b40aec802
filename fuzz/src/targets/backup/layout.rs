//! The layout of a backup, written down a second time: how it is sealed, and what it holds.

use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest, Sha256};
use wane::services::backup::Summary;
use wane::store::Timestamp;

use crate::targets::limits::is_legal_clustering;

const MAGIC: [u8; 8] = *b"\xF7wane\r\n\0";
const YEAR_MILLIS: u64 = 31_536_000_000;
const LONGEST_VALUE: usize = 262_144;
const LONGEST_PAYLOAD: usize = 9 + 8 + 8 + 1_024 + 1_024 + LONGEST_VALUE;

const KEYSPACES: [&str; 11] = [
    "elections",
    "sequencer_offsets",
    "sequencer_numbers",
    "app_ttl",
    "blobs",
    "device_auth",
    "pull_stream_log",
    "pull_stream_state",
    "audit",
    "settings",
    "sequences",
];

/// The latest expiry that a backup of this time may hold.
pub(super) fn latest_expiry(created_at: u64) -> u64 {
    created_at.saturating_add(2 * YEAR_MILLIS)
}

/// Bytes that are sealed as they are put together, whatever they hold.
#[derive(Debug)]
pub struct Draft {
    /// All of it so far.
    pub bytes: Vec<u8>,
    /// Where each frame is.
    pub frames: Vec<Range<usize>>,
}

impl Draft {
    /// A preamble of some version.
    pub fn begin(version: u32) -> Self {
        let mut bytes = [&MAGIC[..], &version.to_be_bytes()].concat();
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        Self { bytes, frames: Vec::new() }
    }

    /// Adds a frame.
    pub fn frame(&mut self, kind: u8, payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.push(kind);
        self.bytes.extend((payload.len() as u32).to_be_bytes());
        self.bytes.extend(payload);
        let crc = frame_crc(start, &self.bytes[start..]);
        self.bytes.extend(crc.to_be_bytes());
        self.frames.push(start..self.bytes.len());
    }

    /// Adds a trailer for what is there.
    pub fn trailer(&mut self, records: u64) {
        let digest = Sha256::digest(&self.bytes);
        self.frame(b'T', &[&records.to_be_bytes()[..], &digest].concat());
    }
}

/// The payload of a header.
pub(super) fn header(created_at: u64, store_format: u32, backend: &[u8]) -> Vec<u8> {
    let label = [&[backend.len() as u8], backend].concat();
    [&created_at.to_be_bytes()[..], &store_format.to_be_bytes(), &label].concat()
}

fn frame_crc(start: usize, sealed: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&(start as u64).to_be_bytes());
    crc.update(sealed);
    crc.finalize()
}

/// What a sound backup holds at `now`; none if it is not sound.
pub fn read(bytes: &[u8], now: Timestamp) -> Option<Summary> {
    let mut reader = Reader { whole: bytes, at: 0 };
    let preamble = Draft::begin(1).bytes;
    if reader.take(preamble.len())? != preamble {
        return None;
    }
    let (b'H', mut payload) = reader.frame()? else { return None };
    let mut summary = read_header(&mut payload)?;
    loop {
        let start = reader.at;
        let (kind, mut payload) = reader.frame()?;
        match kind {
            b'R' if !payload.is_empty() => {
                while !payload.is_empty() {
                    read_record(&mut payload, &mut summary, now.as_unix_millis())?;
                }
            }
            b'T' => {
                let records = payload.number(8)?;
                let digest = payload.take(32)?;
                let sound = payload.is_empty()
                    && reader.is_empty()
                    && records == summary.records
                    && *digest == Sha256::digest(&bytes[..start])[..];
                let bytes = bytes.len() as u64;
                return sound.then_some(Summary { bytes, ..summary });
            }
            _ => return None,
        }
    }
}

fn read_header(payload: &mut Reader<'_>) -> Option<Summary> {
    let created_at = Timestamp::from_unix_millis(payload.number(8)?);
    let store_format = payload.number(4)?;
    let label_len = payload.number(1)? as usize;
    let label = payload.take(label_len)?;
    let legal = store_format == 1
        && label_len <= 64
        && label.iter().all(|byte| (0x21..=0x7E).contains(byte))
        && payload.is_empty();
    legal.then(|| Summary {
        created_at,
        backend: String::from_utf8_lossy(label).into_owned(),
        records: 0,
        permanent: 0,
        expired: 0,
        bytes: 0,
        keyspaces: BTreeMap::new(),
    })
}

fn read_record(payload: &mut Reader<'_>, summary: &mut Summary, now: u64) -> Option<()> {
    let flags = payload.number(1)?;
    let lens = [payload.number(2)?, payload.number(2)?, payload.number(4)?];
    let [partition_len, clustering_len, value_len] = lens.map(|len| len as usize);
    let expiry = if flags & 1 != 0 { Some(payload.number(8)?) } else { None };
    let fence = if flags & 2 != 0 { Some(payload.number(8)?) } else { None };
    let partition = payload.take(partition_len)?;
    let clustering = payload.take(clustering_len)?;
    payload.take(value_len)?;
    let legal = flags <= 3
        && expiry.is_none_or(|it| it <= latest_expiry(summary.created_at.as_unix_millis()))
        && fence != Some(0)
        && (1..=1_024).contains(&partition_len)
        && is_legal_clustering(clustering)
        && value_len <= LONGEST_VALUE;
    if !legal {
        return None;
    }
    summary.records += 1;
    summary.permanent += u64::from(expiry.is_none());
    summary.expired += u64::from(expiry.is_some_and(|expiry| expiry <= now));
    *summary.keyspaces.entry(keyspace(partition)).or_default() += 1;
    Some(())
}

fn keyspace(partition: &[u8]) -> &'static str {
    let number = partition.first_chunk().map_or(0, |prefix| u32::from_be_bytes(*prefix));
    KEYSPACES.get((number as usize).wrapping_sub(1)).unwrap_or(&"other")
}

#[derive(Debug)]
struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.whole.len()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.whole[self.at..].get(..len)?;
        self.at += len;
        Some(taken)
    }

    fn number(&mut self, len: usize) -> Option<u64> {
        Some(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn frame(&mut self) -> Option<(u8, Self)> {
        let start = self.at;
        let kind = self.number(1)? as u8;
        let len = self.number(4)? as usize;
        let payload = self.take(len).filter(|_| len <= LONGEST_PAYLOAD)?;
        let crc = frame_crc(start, &self.whole[start..self.at]);
        let sound = self.number(4)? == u64::from(crc);
        sound.then_some((kind, Self { whole: payload, at: 0 }))
    }
}
