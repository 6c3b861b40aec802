//! The records that every contestant holds: the same keys, values and lives.
//!
//! A key is a partition of 8 bytes and a clustering of 16. A partition has up to 100,000 rows;
//! clusterings begin with scrambled bits, so that neighbours in time are strangers in the order.
//! The Go program in `bbolt/` derives the same bytes from the same numbers.

use wane::store::{Key, Ttl};

/// How many records share a partition.
pub(crate) const ROWS_PER_PARTITION: u64 = 100_000;

/// What each record holds.
pub(crate) const VALUE: &[u8; 32] = b"thirty-two bytes of record value";

/// How long records live that are not meant to expire while a benchmark runs.
pub(crate) fn long_life() -> Ttl {
    Ttl::from_secs(24 * 60 * 60).expect("a day is a legal life")
}

/// The partition of record `index`.
pub(crate) fn partition(index: u64) -> [u8; 8] {
    (index / ROWS_PER_PARTITION).to_be_bytes()
}

/// The clustering of record `index`.
pub(crate) fn clustering(index: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&scramble(index).to_be_bytes());
    bytes[8..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// The key of record `index`, in memory of its own.
pub(crate) fn key(index: u64) -> Key {
    Key::new(&partition(index), &clustering(index)).expect("lengths are within the limits")
}

/// Both parts of the key of record `index` in one, for stores with plain keys.
pub(crate) fn flat_key(index: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&partition(index));
    bytes[8..].copy_from_slice(&clustering(index));
    bytes
}

/// Repeatable pseudo-randomness, so that runs differ in nothing but the machine.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// A sequence of its own for each seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(scramble(seed))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0) % bound
    }
}

/// A one-to-one mixing of 64 bits: multiply, fold the high half down, twice.
fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Go program has the same line in its own test.
    #[test]
    fn the_first_key_has_the_bytes_that_bbolt_uses() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(&flat_key(1)),
            concat!("0000000000000000", "f68cbd0d7c7c04b1", "0000000000000001")
        );
    }
}
