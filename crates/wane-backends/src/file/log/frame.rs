//! Frames: what one sync makes durable, as bytes.
//!
//! ```text
//! frame    head | changes | zeros | the head's crc32 u32: a multiple of 4 KiB in all
//! head     magic u32 | crc32 of the rest of the head u32 | segment u64 | sequence u64 | decided u64
//!          | count u32 | length of the changes u32 | crc32 of the changes u32
//! change   key length u16 | entry length u32 | key | entry; no entry: the record was removed
//! ```
//!
//! A frame holds results, not operations: replaying it decides nothing. Frames are numbered over
//! the life of the store, so that one that is missing shows, whatever segment it was in. Each names
//! its segment too, whose file may still hold frames of the one that it was before. The checksum of
//! the head begins with the store's identity: a value that looks like a frame is none. It comes again
//! at the very end, so that a frame whose writing ended early is none either, even where only zeros
//! are missing.
//!
//! Decoding never panics and accepts exactly what encoding produces.

use wane::store::Timestamp;

use crate::file::format::FormatError;

/// Frames begin at multiples of this: writing one touches no block of the one before.
pub const BLOCK: usize = 4_096;

/// Bytes before the changes.
pub const HEAD: usize = 44;

/// Bytes at the end.
pub const TAIL: usize = 4;

const MAGIC: [u8; 4] = *b"wnfr";

/// What the head of a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The segment that it was written to.
    pub segment: u64,
    /// Its number over the life of the store.
    pub sequence: u64,
    /// When its changes were decided.
    pub decided: Timestamp,
    /// How many changes it holds.
    pub count: u32,
    /// Their bytes.
    pub len: u32,
    crc: u32,
    /// What the frame ends with.
    tail: [u8; TAIL],
}

impl Head {
    /// Reads the head that `bytes` begin with, in a log of the store `identity`.
    pub fn decode(identity: u64, bytes: &[u8]) -> Result<Self, FormatError> {
        let head: &[u8; HEAD] = bytes.first_chunk().ok_or(FormatError::Short)?;
        if head[..4] != MAGIC {
            return Err(FormatError::Impossible("magic"));
        }
        if head_crc(identity, &head[8..]).to_be_bytes() != head[4..8] {
            return Err(FormatError::Checksum);
        }
        let tail = [head[4], head[5], head[6], head[7]];
        let mut rest = &head[8..];
        let head = Self {
            segment: take_u64(&mut rest)?,
            sequence: take_u64(&mut rest)?,
            decided: Timestamp::from_unix_millis(take_u64(&mut rest)?),
            count: take_u32(&mut rest)?,
            len: take_u32(&mut rest)?,
            crc: take_u32(&mut rest)?,
            tail,
        };
        Ok(head)
    }

    /// Whether these are the last bytes of the frame, so that its writing did not end early.
    pub fn is_ended_by(&self, tail: &[u8; TAIL]) -> bool {
        *tail == self.tail
    }

    /// The bytes that the whole frame takes in its segment.
    pub fn size(&self) -> usize {
        (HEAD + self.len as usize + TAIL).next_multiple_of(BLOCK)
    }
}

/// A change as logged: a stored key, and the entry that it has from then on, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged<'a> {
    /// The key in its stored form.
    pub key: &'a [u8],
    /// The bytes of the entry, or `None` where the record was removed.
    pub entry: Option<&'a [u8]>,
}

/// Hands the changes of a frame to `visit`, in order, after checking all of them. `changes` are the
/// bytes behind the head, without the zeros.
pub fn each_change<E: From<FormatError>>(
    head: &Head,
    changes: &[u8],
    mut visit: impl FnMut(Logged<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if changes.len() != head.len as usize {
        return Err(FormatError::Short.into());
    }
    if crc32fast::hash(changes) != head.crc {
        return Err(FormatError::Checksum.into());
    }
    let (mut rest, mut count) = (changes, 0);
    while !rest.is_empty() {
        visit(take_change(&mut rest)?)?;
        count += 1;
    }
    if count == head.count { Ok(()) } else { Err(FormatError::Impossible("count").into()) }
}

fn head_crc(identity: u64, fields: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_be_bytes());
    hasher.update(fields);
    hasher.finalize()
}

fn take_change<'a>(rest: &mut &'a [u8]) -> Result<Logged<'a>, FormatError> {
    let (key_len, after) = rest.split_first_chunk().ok_or(FormatError::Short)?;
    let mut after = after;
    let entry_len = take_u32(&mut after)? as usize;
    let key_len = usize::from(u16::from_be_bytes(*key_len));
    let (key, after) = after.split_at_checked(key_len).ok_or(FormatError::Short)?;
    let (entry, after) = after.split_at_checked(entry_len).ok_or(FormatError::Short)?;
    *rest = after;
    Ok(Logged { key, entry: Some(entry).filter(|entry| !entry.is_empty()) })
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, FormatError> {
    let (number, after) = rest.split_first_chunk().ok_or(FormatError::Short)?;
    *rest = after;
    Ok(u64::from_be_bytes(*number))
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, FormatError> {
    let (number, after) = rest.split_first_chunk().ok_or(FormatError::Short)?;
    *rest = after;
    Ok(u32::from_be_bytes(*number))
}

/// Where a frame comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The store.
    pub identity: u64,
    /// The segment.
    pub segment: u64,
    /// The number of the frame.
    pub sequence: u64,
}

/// What is kept of a draft's memory: a frame of a busy store has less.
const KEPT: usize = 8 << 20;

/// A frame that is being put together. Kept from one to the next for its memory.
#[derive(Debug, Default)]
pub struct Draft {
    bytes: Vec<u8>,
    count: u32,
}

impl Draft {
    /// Begins anew.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.bytes.resize(HEAD, 0);
        self.count = 0;
    }

    /// Adds what a key holds from then on; an empty `entry` removes it.
    pub fn push(&mut self, key: &[u8], entry: &[u8]) {
        if self.bytes.is_empty() {
            self.clear();
        }
        // A stored key has 2,052 bytes at most.
        self.bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
        self.bytes.extend_from_slice(&(entry.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(entry);
        self.count += 1;
    }

    /// How many changes it holds.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The bytes that it will take in its segment.
    pub fn size(&self) -> usize {
        (self.bytes.len().max(HEAD) + TAIL).next_multiple_of(BLOCK)
    }

    /// The bytes of the finished frame, zeros included.
    pub fn finish(&mut self, at: Position, decided: Timestamp) -> &[u8] {
        let Position { identity, segment, sequence } = at;
        if self.bytes.is_empty() {
            self.clear();
        }
        let changes = &self.bytes[HEAD..];
        let (len, crc) = (changes.len() as u32, crc32fast::hash(changes));
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&segment.to_be_bytes());
        head[16..24].copy_from_slice(&sequence.to_be_bytes());
        head[24..32].copy_from_slice(&decided.as_unix_millis().to_be_bytes());
        head[32..36].copy_from_slice(&self.count.to_be_bytes());
        head[36..40].copy_from_slice(&len.to_be_bytes());
        head[40..].copy_from_slice(&crc.to_be_bytes());
        let crc = head_crc(identity, &head[8..]);
        head[4..8].copy_from_slice(&crc.to_be_bytes());
        self.bytes[..HEAD].copy_from_slice(&head);
        self.bytes.resize(self.size() - TAIL, 0);
        self.bytes.extend_from_slice(&crc.to_be_bytes());
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECIDED: Timestamp = Timestamp::from_unix_millis(1_700_000_000_000);
    const AT: Position = Position { identity: 5, segment: 7, sequence: 41 };

    fn finished(changes: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut draft = Draft::default();
        draft.clear();
        changes.iter().for_each(|(key, entry)| draft.push(key, entry));
        draft.finish(AT, DECIDED).to_vec()
    }

    /// A key, and what it holds.
    type Change = (Vec<u8>, Option<Vec<u8>>);

    fn read(bytes: &[u8]) -> Result<(Head, Vec<Change>), FormatError> {
        let head = Head::decode(AT.identity, bytes)?;
        let changes = bytes[HEAD..].get(..head.len as usize).ok_or(FormatError::Short)?;
        let mut read = Vec::new();
        each_change(&head, changes, |Logged { key, entry }| {
            read.push((key.to_vec(), entry.map(<[u8]>::to_vec)));
            Ok::<_, FormatError>(())
        })?;
        Ok((head, read))
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let bytes = finished(&[(b"a", b"one"), (b"bc", b""), (b"", b"x")]);
        assert_eq!(bytes.len(), BLOCK);
        let (head, changes) = read(&bytes).unwrap();
        assert_eq!((head.segment, head.sequence, head.decided), (7, 41, DECIDED));
        assert_eq!((head.count, head.size()), (3, BLOCK));
        let expected: [(&[u8], Option<&[u8]>); 3] =
            [(b"a", Some(b"one")), (b"bc", None), (b"", Some(b"x"))];
        let expected = expected.map(|(key, entry)| (key.to_vec(), entry.map(<[u8]>::to_vec)));
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_frame_fills_whole_blocks() {
        let entry = vec![1; BLOCK];
        assert_eq!(finished(&[]).len(), BLOCK);
        assert_eq!(finished(&[(b"", &entry[..BLOCK - HEAD - TAIL - 6])]).len(), BLOCK);
        assert_eq!(finished(&[(b"", &entry[..BLOCK - HEAD - TAIL - 5])]).len(), 2 * BLOCK);
    }

    /// A failure means that logs already written can no longer be read. The checksums were computed by
    /// another program (zlib).
    #[test]
    fn a_frame_keeps_its_bytes() {
        let bytes = finished(&[(b"k", b"entry")]);
        let golden: [&[u8]; 9] = [
            b"wnfr\x05\x27\xF9\xD6",
            b"\x00\x00\x00\x00\x00\x00\x00\x07",
            b"\x00\x00\x00\x00\x00\x00\x00\x29",
            b"\x00\x00\x01\x8B\xCF\xE5\x68\x00",
            b"\x00\x00\x00\x01",
            b"\x00\x00\x00\x0C",
            b"\x67\x53\xA3\xFC",
            b"\x00\x01\x00\x00\x00\x05",
            b"kentry",
        ];
        let golden = golden.concat();
        assert_eq!(bytes[..golden.len()], golden);
        let (zeros, tail) = bytes[golden.len()..].split_at(BLOCK - golden.len() - TAIL);
        assert!(zeros.iter().all(|byte| *byte == 0));
        assert_eq!(tail, &golden[4..8]);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let bytes = finished(&[(b"key", b"entry"), (b"gone", b"")]);
        let sound = read(&bytes).unwrap();
        for bit in 0..8 * (HEAD + sound.0.len as usize) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_found() {
        let bytes = finished(&[(b"key", b"entry")]);
        let whole = HEAD + read(&bytes).unwrap().0.len as usize;
        for len in 0..whole {
            assert!(read(&bytes[..len]).is_err(), "{len} bytes");
            let mut torn = bytes.clone();
            torn[len..].fill(0);
            assert!(read(&torn).is_err(), "zeros after {len} bytes");
        }
        assert!(read(&bytes[..whole]).is_ok());
    }

    #[test]
    fn a_draft_begins_anew() {
        let mut draft = Draft::default();
        draft.push(b"a", b"1");
        assert_eq!(draft.count(), 1);
        draft.finish(AT, DECIDED);
        draft.clear();
        assert_eq!((draft.count(), draft.size()), (0, BLOCK));
        draft.push(b"b", b"2");
        let (_, changes) = read(draft.finish(AT, DECIDED)).unwrap();
        assert_eq!(changes, [(b"b".to_vec(), Some(b"2".to_vec()))]);
    }
}
