//! Keys as the order of a generation holds them.
//!
//! Finding a place in the order compares dozens of keys, and each of them lies somewhere else in
//! memory. So the order has their first bytes at hand, which mostly decide.

use std::cmp::Ordering;
use std::sync::Arc;

use super::StoredKey;

/// Bytes that are at hand: beyond the partition of most keys.
const HEAD: usize = WORDS * size_of::<u64>();
const WORDS: usize = 3;

/// A key with its first bytes, filled up with zeros, beside it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::file) struct OrderedKey {
    /// As numbers, which are compared at once.
    head: [u64; WORDS],
    key: StoredKey,
}

impl OrderedKey {
    pub(super) fn new(key: &StoredKey) -> Self {
        let mut bytes = [0; HEAD];
        let at_hand = key.len().min(HEAD);
        bytes[..at_hand].copy_from_slice(&key[..at_hand]);
        let mut head = [0; WORDS];
        let words = bytes.as_chunks().0;
        head.iter_mut().zip(words).for_each(|(head, word)| *head = u64::from_be_bytes(*word));
        Self { head, key: Arc::clone(key) }
    }
}

/// As the keys themselves: where heads differ, one key ends there or has the lower byte.
impl Ord for OrderedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for OrderedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_bytes_whatever_is_at_hand() {
        let long = [7; HEAD + 2];
        let mut keys: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"a\0b",
            b"ab",
            b"b",
            b"\xff",
            &long,
            &long[..HEAD],
            &long[..HEAD - 1],
            &long[..=HEAD],
        ];
        keys.sort_unstable();
        for (at, key) in keys.iter().enumerate() {
            for (other_at, other) in keys.iter().enumerate() {
                let ordered = |key: &[u8]| OrderedKey::new(&key.into());
                assert_eq!(
                    ordered(key).cmp(&ordered(other)),
                    at.cmp(&other_at),
                    "{key:?} {other:?}"
                );
                assert_eq!(ordered(key) == ordered(other), at == other_at);
            }
        }
    }
}
