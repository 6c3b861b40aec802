//! Frames of a log, and headers of its segments, as they are read back.
//!
//! - Reading never panics, whatever the bytes.
//! - What reads as a frame is written with the same bytes again, but for the zeros that fill its last
//!   block, and carries the checksums of its head and its changes, which this target computes on its
//!   own. So arbitrary bytes are no frame, and neither are changes that make no sense.
//! - What is written reads as the same frame, and not in another store.
//! - A flipped bit is never read, unless it is among those zeros: then it is the same frame. Nor is a
//!   frame whose writing ended early, over zeros or over another frame.
//! - A header with a flipped bit is none.

use wane::store::Timestamp;
use wane_backends::file::log::frame::{
    BLOCK, Draft, HEAD, Head, Logged, Position, TAIL, each_change,
};
use wane_backends::file::log::header::Header;

use crate::Input;
use crate::input::KEY_LENGTHS;

/// Lengths of entries: around a block, so that changes end where zeros, or the end, begin.
const ENTRY_LENGTHS: [usize; 8] = [
    BLOCK - HEAD - TAIL - 8,
    BLOCK - HEAD - TAIL - 7,
    BLOCK - HEAD - TAIL - 6,
    BLOCK - HEAD - TAIL - 5,
    BLOCK,
    2 * BLOCK,
    256,
    0,
];

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Segment, sequence, and the instant in milliseconds.
    pub numbers: (u64, u64, u64),
    /// Keys, and what they come to hold; nothing where they are removed.
    pub changes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads the frame that bytes begin with, in the log of a store.
pub type Read = fn(u64, &[u8]) -> Option<Frame>;

/// Reads the header of a segment.
pub type ReadHeader = fn(&[u8; BLOCK]) -> Option<Header>;

/// The file backend's log.
pub fn target(bytes: &[u8]) {
    check(read, |bytes| Header::decode(bytes).ok(), bytes);
}

/// Reads a frame as a log is read back: its head, what ends it, its changes.
pub fn read(identity: u64, bytes: &[u8]) -> Option<Frame> {
    let head = Head::decode(identity, bytes).ok()?;
    let whole = bytes.get(..head.size())?;
    if !head.is_ended_by(whole.last_chunk::<TAIL>()?) {
        return None;
    }
    let mut changes = Vec::new();
    each_change(&head, whole.get(HEAD..HEAD + head.len as usize)?, |Logged { key, entry }| {
        changes.push((key.to_vec(), entry.unwrap_or_default().to_vec()));
        Ok::<_, wane_backends::file::format::FormatError>(())
    })
    .ok()?;
    let decided = head.decided.as_unix_millis();
    Some(Frame { numbers: (head.segment, head.sequence, decided), changes })
}

/// The properties of both.
pub fn check(read: Read, read_header: ReadHeader, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (identity, other) = (input.number(), input.number());
    let numbers = (input.number(), input.number(), input.number());
    let change =
        |input: &mut Input<'_>| (input.text(&KEY_LENGTHS[..7]), input.text(&ENTRY_LENGTHS));
    let changes = (0..input.byte() % 4).map(|_| change(&mut input)).collect();
    let frame = Frame { numbers, changes };
    let (flip, cut, count) = (input.clone(), input.clone(), input.clone().byte());
    let raw = input.rest();

    a_frame_or_none(read, identity, raw);
    a_frame_or_none(read, identity, &sealed(identity, numbers, u32::from(count), raw));

    let written = write(identity, &frame);
    assert_eq!(read(identity, &written).as_ref(), Some(&frame), "it was written like this");
    assert!(other == identity || read(other, &written).is_none(), "it is of another store");
    a_flipped_bit_is_noticed(read, identity, &written, flip.clone());
    an_early_end_is_noticed(read, identity, &written, cut);
    headers(read_header, numbers, flip);
}

fn a_frame_or_none(read: Read, identity: u64, bytes: &[u8]) {
    let Some(frame) = read(identity, bytes) else { return };
    let written = write(identity, &frame);
    let changes = written.len() - TAIL - zeros(&frame);
    assert!(bytes.len() >= written.len(), "it ends before its end");
    assert!(bytes[..changes] == written[..changes], "{frame:?} was written otherwise");
    let crcs =
        [checksum(&[&identity.to_be_bytes(), &bytes[8..HEAD]]), checksum(&[&bytes[HEAD..changes]])];
    assert_eq!((&crcs[0][..], &crcs[1][..]), (&bytes[4..8], &bytes[40..HEAD]), "another checksum");
}

/// How many zeros there are before the end of a frame.
fn zeros(frame: &Frame) -> usize {
    let changes: usize = frame.changes.iter().map(|(key, entry)| 6 + key.len() + entry.len()).sum();
    (HEAD + changes + TAIL).next_multiple_of(BLOCK) - HEAD - changes - TAIL
}

fn a_flipped_bit_is_noticed(read: Read, identity: u64, written: &[u8], mut input: Input<'_>) {
    let mut flipped = written.to_vec();
    let (at, bit) = (input.place(written.len()), input.byte() % 8);
    flipped[at] ^= 1 << bit;
    let sound = read(identity, written);
    let zeros = sound.as_ref().map_or(0, zeros);
    let end = written.len() - TAIL;
    match read(identity, &flipped) {
        found if (end - zeros..end).contains(&at) => assert_eq!(found, sound, "zeros say nothing"),
        found => {
            assert!(found.is_none(), "bit {bit} of byte {at} flipped: it was read all the same")
        }
    }
}

/// Only so much of a frame was written, in the place of zeros or of a frame like it.
fn an_early_end_is_noticed(read: Read, identity: u64, written: &[u8], mut input: Input<'_>) {
    let at = input.place(written.len());
    let mut torn = written.to_vec();
    torn[at..].fill(0);
    if torn != written {
        assert!(read(identity, &torn).is_none(), "it was written up to byte {at}, and read");
    }
    assert!(
        read(identity, &written[..at]).is_none(),
        "there are {at} bytes of it, and it was read"
    );
}

fn headers(read_header: ReadHeader, numbers: (u64, u64, u64), mut input: Input<'_>) {
    let header = Header { version: 1, identity: numbers.0, number: numbers.1, size: numbers.2 };
    let mut bytes = header.encode();
    assert_eq!(read_header(&bytes), Some(header), "the header was written like this");
    let (at, bit) = (input.place(BLOCK), input.byte() % 8);
    bytes[at] ^= 1 << bit;
    assert_eq!(read_header(&bytes), None, "bit {bit} of byte {at} of a header flipped");
    let mut raw = [0; BLOCK];
    let rest = input.rest();
    let len = rest.len().min(BLOCK);
    raw[..len].copy_from_slice(&rest[..len]);
    if let Some(header) = read_header(&raw) {
        assert!(header.encode() == raw, "{header:?} was written otherwise");
    }
}

fn write(identity: u64, frame: &Frame) -> Vec<u8> {
    let (segment, sequence, decided) = frame.numbers;
    let mut draft = Draft::default();
    frame.changes.iter().for_each(|(key, entry)| draft.push(key, entry));
    let at = Position { identity, segment, sequence };
    draft.finish(at, Timestamp::from_unix_millis(decided)).to_vec()
}

/// Arbitrary changes under the checksums that belong to them.
fn sealed(identity: u64, numbers: (u64, u64, u64), count: u32, changes: &[u8]) -> Vec<u8> {
    let (segment, sequence, decided) = numbers;
    let numbers = [segment, sequence, decided].map(u64::to_be_bytes).concat();
    let counts = [count, changes.len() as u32].map(u32::to_be_bytes).concat();
    let fields = [&numbers[..], &counts, &checksum(&[changes])].concat();
    let crc = checksum(&[&identity.to_be_bytes(), &fields]);
    let mut bytes = [b"wnfr", &crc[..], &fields, changes].concat();
    bytes.resize((bytes.len() + TAIL).next_multiple_of(BLOCK) - TAIL, 0);
    bytes.extend(crc);
    bytes
}

fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut crc = crc32fast::Hasher::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.finalize().to_be_bytes()
}
