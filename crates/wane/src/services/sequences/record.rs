//! The one record of a sequence, and what its parts are made of.
//!
//! It is short, so that a swap of it is: a version, the next number, the nonce of the swap that
//! wrote it, and for each idempotency key, oldest first, its digest and its block. Numbers are
//! big-endian.

use std::ops::Range;
use std::str::FromStr;

use arrayvec::ArrayVec;
use sha2::{Digest, Sha256};

use super::SequencesError;
use crate::clock::Clock;
use crate::services::names;
use crate::store::{Key, Life, StoreError, Value, Write};

/// The most numbers in a block.
pub const MAX_COUNT: u64 = 1_000_000;

/// Every number is below this one, so that each reader of JSON keeps it exact.
pub const LIMIT: u64 = 1 << 53;

/// How many idempotency keys a sequence remembers: the last ones.
pub const REMEMBERED: usize = 16;

/// The longest idempotency key, in bytes.
const MAX_KEY: usize = 255;

/// The first byte of a record.
const VERSION: u8 = 1;

const NONCE: usize = 16;
const DIGEST: usize = 16;

/// Bytes before the keys, and bytes of each key.
const HEAD: usize = 1 + 8 + NONCE;
const KEY: usize = DIGEST + 8 + 4;

/// Numbers that were given out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// The first number.
    pub first: u64,
    /// How many there are.
    pub count: u64,
}

impl Block {
    /// The numbers.
    pub fn numbers(self) -> Range<u64> {
        self.first..self.first + self.count
    }
}

/// What a caller that may ask again names its request by: 1 to 255 bytes of visible ASCII.
///
/// Kept as a digest: the record does not tell what callers named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyKey([u8; DIGEST]);

impl IdempotencyKey {
    /// Takes the text as a key, or says what would be legal.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Self, SequencesError> {
        let text = text.as_ref();
        if !(1..=MAX_KEY).contains(&text.len()) || !text.iter().all(u8::is_ascii_graphic) {
            let reason = format!("give 1 to {MAX_KEY} bytes of visible ASCII, without spaces");
            return Err(SequencesError::Invalid { field: "Idempotency-Key", reason });
        }
        let mut digest = [0; DIGEST];
        digest.copy_from_slice(&Sha256::digest(text)[..DIGEST]);
        Ok(Self(digest))
    }
}

impl FromStr for IdempotencyKey {
    type Err = SequencesError;

    fn from_str(text: &str) -> Result<Self, SequencesError> {
        Self::new(text)
    }
}

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    next: u64,
    /// Drawn for each swap: no two writes are alike, and whoever wrote this knows it again.
    nonce: [u8; NONCE],
    keys: ArrayVec<(IdempotencyKey, Block), REMEMBERED>,
}

impl Stored {
    /// A sequence that nobody has taken from.
    pub(super) fn untouched() -> Self {
        Self { next: 1, nonce: [0; NONCE], keys: ArrayVec::new() }
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The block that a key was given, if it is remembered.
    pub(super) fn block_of(&self, key: &IdempotencyKey) -> Option<Block> {
        self.keys.iter().find(|(used, _)| used == key).map(|(_, block)| *block)
    }

    /// The same under a nonce of its own, to be changed and written.
    pub(super) fn successor(&self, clock: &dyn Clock) -> Self {
        let mut nonce = [0; NONCE];
        clock.fill_random(&mut nonce);
        Self { nonce, ..self.clone() }
    }

    /// Whether both are the same write.
    pub(super) fn is_write(&self, other: &Self) -> bool {
        self.nonce == other.nonce
    }

    /// Takes the next numbers, if so many are left, and remembers the key in place of the oldest.
    pub(super) fn take(&mut self, count: u64, key: Option<IdempotencyKey>) -> Option<Block> {
        if count > LIMIT - self.next {
            return None;
        }
        let block = Block { first: self.next, count };
        self.next += count;
        if let Some(key) = key {
            if self.keys.is_full() {
                self.keys.remove(0);
            }
            self.keys.push((key, block));
        }
        Some(block)
    }

    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        Self::decoded(value).map_err(|reason| StoreError::Corrupt {
            key: key.clone(),
            reason: format!("it is not the record of a sequence: {reason}"),
        })
    }

    fn decoded(value: &[u8]) -> Result<Self, &'static str> {
        let (head, keys) = value.split_at_checked(HEAD).ok_or("it is too short")?;
        let (version, head) = head.split_first().ok_or("it is empty")?;
        let (next, nonce) = head.split_first_chunk().ok_or("it has no number")?;
        if *version != VERSION {
            return Err("it has another version");
        }
        let nonce = nonce.try_into().map_err(|_| "it has no nonce")?;
        let mut stored = Self { next: u64::from_be_bytes(*next), nonce, keys: ArrayVec::new() };
        if !(1..=LIMIT).contains(&stored.next) {
            return Err("its next number is not below the limit");
        }
        if !keys.len().is_multiple_of(KEY) {
            return Err("its last key is cut");
        }
        for key in keys.chunks_exact(KEY) {
            let key = stored.decoded_key(key).ok_or("a block is not below the next number")?;
            stored.keys.try_push(key).map_err(|_| "it has too many keys")?;
        }
        Ok(stored)
    }

    fn decoded_key(&self, bytes: &[u8]) -> Option<(IdempotencyKey, Block)> {
        let (digest, block) = bytes.split_first_chunk()?;
        let (first, count) = block.split_first_chunk()?;
        let (first, count) =
            (u64::from_be_bytes(*first), u32::from_be_bytes(count.try_into().ok()?));
        let count = u64::from(count);
        let end = first.checked_add(count)?;
        let is_taken = first > 0 && end <= self.next && checked_count(count).is_ok();
        is_taken.then_some((IdempotencyKey(*digest), Block { first, count }))
    }

    pub(super) fn write(&self) -> Result<Write, StoreError> {
        let mut bytes = Vec::with_capacity(HEAD + KEY * self.keys.len());
        bytes.push(VERSION);
        bytes.extend(self.next.to_be_bytes());
        bytes.extend(self.nonce);
        for (key, block) in &self.keys {
            bytes.extend(key.0);
            bytes.extend(block.first.to_be_bytes());
            // At most MAX_COUNT, so it fits.
            bytes.extend((block.count as u32).to_be_bytes());
        }
        Ok(Write::new(Value::new(bytes)?, Life::Permanent))
    }
}

pub(super) fn checked_name(name: &str) -> Result<(), SequencesError> {
    names::checked(name).map_err(|reason| SequencesError::Invalid { field: "name", reason })
}

pub(super) fn checked_count(count: u64) -> Result<u64, SequencesError> {
    if (1..=MAX_COUNT).contains(&count) {
        return Ok(count);
    }
    let reason = format!("{count} is outside of 1 to {MAX_COUNT}");
    Err(SequencesError::Invalid { field: "count", reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn key(number: u64) -> IdempotencyKey {
        IdempotencyKey::new(number.to_string()).expect("a legal key")
    }

    /// A record with so many keys, the first of which has the block 1..2.
    fn stored(keys: u64) -> Stored {
        let mut stored = Stored::untouched().successor(&*ManualClock::seeded(1));
        for number in 0..keys {
            assert_eq!(
                stored.take(1, Some(key(number))),
                Some(Block { first: number + 1, count: 1 })
            );
        }
        stored
    }

    fn bytes(stored: &Stored) -> Vec<u8> {
        stored.write().expect("short enough").value.to_vec()
    }

    #[test]
    fn what_is_written_is_read() {
        for keys in 0..=16 {
            let stored = stored(keys);
            let bytes = bytes(&stored);
            assert_eq!(bytes.len(), 25 + 28 * keys as usize);
            assert_eq!(Stored::decoded(&bytes), Ok(stored));
        }
    }

    #[test]
    fn the_last_sixteen_keys_are_remembered() {
        let stored = stored(20);
        assert!((0..4).all(|number| stored.block_of(&key(number)).is_none()));
        let block = |number| Some(Block { first: number + 1, count: 1 });
        assert!((4..20).all(|number| stored.block_of(&key(number)) == block(number)));
    }

    #[test]
    fn the_numbers_end_below_the_limit() {
        let mut stored = Stored { next: LIMIT - 5, ..stored(1) };
        assert_eq!(stored.take(6, None), None);
        assert_eq!(stored.take(5, None).map(Block::numbers), Some(LIMIT - 5..LIMIT));
        assert_eq!(stored.take(1, Some(key(9))), None);
        assert_eq!(stored.block_of(&key(9)), None, "nothing to remember");
        assert_eq!(Stored::decoded(&bytes(&stored)), Ok(stored));
    }

    /// A record that another program wrote must not become numbers.
    #[test]
    fn other_bytes_are_no_record() {
        let good = bytes(&stored(2));
        for length in (0..good.len()).filter(|length| ![25, 53].contains(length)) {
            assert!(Stored::decoded(&good[..length]).is_err(), "{length} bytes");
        }
        let changed = |at: usize, to: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + to.len()].copy_from_slice(to);
            Stored::decoded(&bytes)
        };
        assert!(changed(0, &[2]).is_err(), "another version");
        assert!(changed(1, &[0; 8]).is_err(), "numbers start at 1");
        assert!(changed(1, &[0xFF; 8]).is_err(), "beyond the limit");
        assert!(changed(1, &2_u64.to_be_bytes()).is_err(), "below what was given");
        assert!(changed(25 + 16, &[0; 8]).is_err(), "a block that starts at 0");
        assert!(changed(25 + 16, &[0xFF; 8]).is_err(), "a block beyond all numbers");
        assert!(changed(25 + 24, &[0; 4]).is_err(), "an empty block");
        let one_more = [bytes(&stored(16)), vec![1; KEY]].concat();
        assert!(Stored::decoded(&one_more).is_err(), "17 keys");
    }
}
