//! Fuzzed bytes read as a description of a case.
//!
//! Every byte string is a description: where the bytes end, zeroes follow. Lengths and numbers at
//! which behaviour changes take one byte to name, so that a mutation of a short input reaches a
//! key of 1,025 bytes or the last millisecond of `u64` as easily as any other.

use wane::store::{MAX_CLUSTERING, MAX_PARTITION, MAX_VALUE, Ttl};

/// Codes from here on name a length of the table, those below are the length.
const FIRST_NAMED: u8 = 0xC0;

/// Lengths around the limits of keys and around the sizes of length fields.
pub(crate) const KEY_LENGTHS: [usize; 8] = [
    255,
    256,
    257,
    MAX_CLUSTERING - 2,
    MAX_CLUSTERING - 1,
    MAX_CLUSTERING,
    MAX_PARTITION + 1,
    u16::MAX as usize + 1,
];

/// Lengths around the limit of values. Few codes name them: such values take most of the time.
pub(crate) const VALUE_LENGTHS: [usize; 32] = {
    let mut lengths = [256; 32];
    lengths[20] = MAX_VALUE;
    lengths[21] = MAX_VALUE + 1;
    lengths
};

/// Numbers around which behaviour changes; a last byte moves them up or down.
const NUMBERS: [u64; 8] =
    [0, 1, 0xFF, 1_000, 1_700_000_000_000, Ttl::MAX.as_millis(), u64::MAX - 0x7F, 1 << 63];

/// What is left of an input.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// A number: one of [`NUMBERS`] and up to 127 more or 128 less, or eight bytes as they are.
    pub fn number(&mut self) -> u64 {
        let code = usize::from(self.byte());
        match NUMBERS.get(code % (2 * NUMBERS.len())) {
            Some(number) => number.saturating_add_signed(i64::from(self.byte() as i8)),
            None => u64::from_be_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// A place below `bound`, which must not be 0: from the start or from the end.
    pub fn place(&mut self, bound: usize) -> usize {
        let far = u16::from_be_bytes([self.byte(), self.byte()]);
        if far & 1 == 0 {
            usize::from(far >> 1) % bound
        } else {
            bound - 1 - usize::from(far >> 1) % bound
        }
    }

    /// A byte string as the input spells it, or one of a named length: a first byte, a last one,
    /// and one that fills the middle.
    pub fn text(&mut self, named_lengths: &[usize]) -> Vec<u8> {
        let code = self.byte();
        if code < FIRST_NAMED {
            let spelled = usize::from(code).min(self.rest.len());
            let (text, rest) = self.rest.split_at(spelled);
            self.rest = rest;
            return text.to_vec();
        }
        let mut text =
            vec![0; named_lengths[usize::from(code - FIRST_NAMED) % named_lengths.len()]];
        let (first, last) = (self.byte(), self.byte());
        text.fill(self.byte());
        if let [head, .., tail] = &mut *text {
            (*head, *tail) = (first, last);
        }
        text
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}
