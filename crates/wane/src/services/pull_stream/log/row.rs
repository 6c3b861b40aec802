//! A row of the log: up to ten messages, sealed together with the body that they are served in.
//!
//! Version, time, write id, for each message its id and where it lies in the body, then the
//! multipart body, then its compressed form or nothing. Numbers are big-endian. Nothing is encoded:
//! a message is a slice of the value, and so is the body of a whole row.
//!
//! Invariant: a row is at most [`ROW_BYTES`] long, with its compressed body or else without it.

use std::ops::Range;

use bytes::Bytes;

use crate::services::pull_stream::body::{self, Gzip};
use crate::services::pull_stream::message::{MAX_BATCH, Message};
use crate::services::pull_stream::resource_id::{ID_BYTES, ResourceId};
use crate::store::{Key, StoreError, Timestamp, Value};

/// The longest row: 240 KiB.
pub(super) const ROW_BYTES: usize = 240 * 1_024;

/// More than a message takes in a row beside its own bytes.
const PER_MESSAGE: usize = 256;

/// More than a row takes beside its messages.
const PER_ROW: usize = 256;

const VERSION: u8 = 1;

/// Drawn for each row, by which its writer knows it again.
pub(in super::super) type WriteId = [u8; 16];

/// Bytes of one entry of the table: id, offset, length.
const ENTRY: usize = ID_BYTES + 4 + 4;

/// Version, time, write id, number of messages.
const HEAD: usize = 1 + 8 + 16 + 1;

/// A row as it stands in the log.
#[derive(Debug, Clone)]
pub(in super::super) struct SealedRow {
    at: Timestamp,
    write: WriteId,
    messages: Vec<(ResourceId, Range<usize>)>,
    body: Range<usize>,
    gzip: Range<usize>,
    value: Bytes,
}

/// Whether messages of these lengths fit into one row.
pub(super) fn fits(lengths: impl Iterator<Item = usize>) -> bool {
    let (count, bytes) = lengths
        .fold((0, PER_ROW), |(count, bytes), length| (count + 1, bytes + length + PER_MESSAGE));
    count <= MAX_BATCH && bytes <= ROW_BYTES
}

impl SealedRow {
    /// Seals messages that fit.
    pub(in super::super) fn seal(
        at: Timestamp,
        write: WriteId,
        messages: &[(ResourceId, Message)],
        gzip: Option<&dyn Gzip>,
    ) -> Self {
        let parts = messages.iter().map(|(id, message)| (*id, message.as_bytes()));
        let table = HEAD..HEAD + ENTRY * messages.len();
        let start = table.end + 4;
        let long = messages.iter().map(|(_, message)| message.as_bytes().len() + PER_MESSAGE);
        let mut value = Vec::with_capacity(PER_ROW + long.sum::<usize>());
        value.push(VERSION);
        value.extend(at.as_unix_millis().to_be_bytes());
        value.extend(write);
        // At most ten.
        value.push(messages.len() as u8);
        // The table is known once the body is there.
        value.resize(start, 0);
        let places = body::push_multipart(&mut value, parts);
        let body = start..value.len();
        let mut entries = Vec::with_capacity(start - table.start);
        for ((id, _), place) in messages.iter().zip(&places) {
            entries.extend(id.as_bytes());
            push_length(&mut entries, place.start);
            push_length(&mut entries, place.len());
        }
        push_length(&mut entries, body.len());
        value[table.start..start].copy_from_slice(&entries);

        let compressed = gzip.map(|gzip| gzip.compress(&value[body.clone()])).unwrap_or_default();
        let has_room = value.len() + 4 + compressed.len() <= ROW_BYTES;
        let compressed = if has_room { &compressed[..] } else { &[] };
        push_length(&mut value, compressed.len());
        let gzip = value.len()..value.len() + compressed.len();
        value.extend(compressed);

        let ids = messages.iter().map(|(id, _)| *id);
        let messages = ids.zip(places.into_iter().map(|place| shifted(&place, start))).collect();
        Self { at, write, messages, body, gzip, value: value.into() }
    }

    pub(in super::super) fn value(&self) -> Result<Value, StoreError> {
        Value::new(self.value.clone())
    }

    pub(super) fn read(key: &Key, value: Value) -> Result<Self, StoreError> {
        Self::decoded(value.into_bytes()).ok_or_else(|| StoreError::Corrupt {
            key: key.clone(),
            reason: "it is not a row of a log, or is cut".into(),
        })
    }

    /// Reads a row from its bytes; `None` where they are not all of one.
    pub(in super::super) fn decoded(value: Bytes) -> Option<Self> {
        let mut rest = Rest { value: &value, at: 0 };
        let [VERSION] = rest.take()? else { return None };
        let at = Timestamp::from_unix_millis(u64::from_be_bytes(rest.take()?));
        let write = rest.take()?;
        let [count] = rest.take()?;
        let mut table = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let id = ResourceId::from_bytes(&rest.take::<ID_BYTES>()?)?;
            table.push((id, rest.length()?, rest.length()?));
        }
        let body = rest.slice()?;
        let gzip = rest.slice()?;
        let is_whole = rest.at == value.len() && (1..=MAX_BATCH).contains(&table.len());
        let messages = table.into_iter().map(|(id, start, length)| {
            let place = shifted(&(start..start.checked_add(length)?), body.start);
            (place.end <= body.end).then_some((id, place))
        });
        let messages: Vec<_> = messages.collect::<Option<_>>()?;
        is_whole.then_some(Self { at, write, messages, body, gzip, value })
    }

    pub(super) fn is_write(&self, write: &WriteId) -> bool {
        self.write == *write
    }

    /// Whether both are the same, byte by byte.
    pub(in super::super) fn is_same(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// How many messages it has.
    pub(in super::super) fn count(&self) -> u8 {
        // At most ten.
        self.messages.len() as u8
    }

    /// When it was sealed.
    pub(in super::super) fn at(&self) -> Timestamp {
        self.at
    }

    /// A message by its place; its bytes share memory with the row.
    pub(in super::super) fn message(&self, index: u8) -> Option<(ResourceId, Bytes)> {
        let (id, place) = self.messages.get(usize::from(index))?;
        Some((*id, self.value.slice(place.clone())))
    }

    /// The body with all of its messages.
    pub(in super::super) fn body(&self) -> Bytes {
        self.value.slice(self.body.clone())
    }

    /// The same, compressed when it was sealed; `None` where there was no room or no need.
    pub(in super::super) fn gzip(&self) -> Option<Bytes> {
        (!self.gzip.is_empty()).then(|| self.value.slice(self.gzip.clone()))
    }
}

fn shifted(place: &Range<usize>, by: usize) -> Range<usize> {
    place.start + by..place.end + by
}

fn push_length(value: &mut Vec<u8>, length: usize) {
    // At most ROW_BYTES and a table, so it fits.
    value.extend((length as u32).to_be_bytes());
}

/// What is left of a value to be read.
struct Rest<'a> {
    value: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.value.get(self.at..)?.first_chunk().copied()?;
        self.at += N;
        Some(taken)
    }

    fn length(&mut self) -> Option<usize> {
        self.take().map(|bytes| u32::from_be_bytes(bytes) as usize)
    }

    /// Where bytes lie that are preceded by their length.
    fn slice(&mut self) -> Option<Range<usize>> {
        let length = self.length()?;
        let place = self.at..self.at.checked_add(length)?;
        self.at = place.end;
        (place.end <= self.value.len()).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn row(lengths: &[usize], gzip: Option<&dyn Gzip>) -> (SealedRow, Vec<Vec<u8>>) {
        let clock = ManualClock::seeded(1);
        let bytes: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0xF0; *length]).collect();
        let messages: Vec<_> = bytes
            .iter()
            .map(|bytes| (ResourceId::draw(&*clock), Message::new(bytes.clone()).unwrap()))
            .collect();
        (SealedRow::seal(clock.now(), [7; 16], &messages, gzip), bytes)
    }

    #[derive(Debug)]
    struct Backwards;

    impl Gzip for Backwards {
        fn compress(&self, plain: &[u8]) -> Vec<u8> {
            plain.iter().rev().copied().collect()
        }
    }

    #[test]
    fn what_is_sealed_is_read_byte_by_byte() {
        for lengths in [&[1][..], &[3_600; 10], &[200 * 1_024], &[1, 2, 3]] {
            let (sealed, bytes) = row(lengths, None);
            let read = SealedRow::decoded(sealed.value.clone()).unwrap();
            assert_eq!(usize::from(read.count()), lengths.len());
            assert_eq!((read.body(), read.gzip()), (sealed.body(), None));
            assert!(read.is_write(&[7; 16]) && !read.is_write(&[8; 16]));
            for (index, bytes) in bytes.iter().enumerate() {
                assert_eq!(read.message(index as u8).unwrap().1, bytes, "message {index}");
                assert_eq!(read.message(index as u8), sealed.message(index as u8));
            }
            assert!(read.message(lengths.len() as u8).is_none());
        }
    }

    /// A row with the longest message, or with ten that just fit, stays under its limit.
    #[test]
    fn what_fits_is_never_longer_than_a_row_may_be() {
        let even = (ROW_BYTES - PER_ROW) / 10 - PER_MESSAGE;
        for lengths in [vec![200 * 1_024], vec![even; 10]] {
            assert!(fits(lengths.iter().copied()));
            let (sealed, _) = row(&lengths, None);
            assert!(sealed.value.len() <= ROW_BYTES, "{}", sealed.value.len());
        }
        assert!(!fits([even + 1; 10].into_iter()));
        assert!(!fits([1; 11].into_iter()));
    }

    #[test]
    fn a_compressed_body_is_kept_where_there_is_room() {
        let (small, _) = row(&[3_600; 10], Some(&Backwards));
        let reversed: Vec<u8> = small.body().iter().rev().copied().collect();
        assert_eq!(small.gzip().unwrap(), reversed);
        assert_eq!(SealedRow::decoded(small.value.clone()).unwrap().gzip(), small.gzip());
        let (large, _) = row(&[200 * 1_024], Some(&Backwards));
        assert_eq!(large.gzip(), None);
    }

    #[test]
    fn cut_and_foreign_bytes_are_no_row() {
        let (sealed, _) = row(&[5, 6], Some(&Backwards));
        for length in 0..sealed.value.len() {
            assert!(SealedRow::decoded(sealed.value.slice(..length)).is_none(), "{length} bytes");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = sealed.value.to_vec();
            bytes[at] = to;
            SealedRow::decoded(bytes.into())
        };
        assert!(changed(0, 2).is_none(), "another version");
        assert!(changed(25, 1).is_none(), "another number of messages");
        assert!(changed(HEAD, b'X').is_none(), "no id");
        assert!(changed(HEAD + ID_BYTES, 0xFF).is_none(), "a message outside of the body");
        let longer = [&sealed.value[..], &[0]].concat();
        assert!(SealedRow::decoded(longer.into()).is_none());
    }
}
