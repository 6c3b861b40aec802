//! New inputs from old ones: a few small edits of a seed, or a splice of two.

use crate::Random;

/// The longest input. Targets describe long keys and values in a few bytes.
const MAX_INPUT: usize = 512;

/// Bytes that mean something: ends of ranges, flags, codes of lengths and numbers.
const BYTES: [u8; 16] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x08, 0x7F, 0x80, 0xBF, 0xC0, 0xC4, 0xC5, 0xFE, 0xFF,
];

/// Runs that mean something: a stored key, numbers, a record of each flag.
const RUNS: [&[u8]; 7] = [
    b"\x00\x04apps",
    b"\x04\x00",
    b"\x04\x01",
    b"\x00\x00\x01\x8B\xCF\xE5\x68\x00",
    b"\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
    b"\x07\x00\x00\x01\x8B\xCF\xE5\x7B\x88\x00\x00\x01\x8B\xCF\xE5\x68\x00\x00\x00\x00\x00\x00\x00\x00\x07",
];

/// Makes inputs of the seeds of a corpus.
#[derive(Debug)]
pub struct Mutator {
    random: Random,
    seeds: Vec<Vec<u8>>,
}

impl Mutator {
    /// Mutates `seeds`, and an empty input if there are none.
    pub fn new(random: Random, mut seeds: Vec<Vec<u8>>) -> Self {
        seeds.push(Vec::new());
        Self { random, seeds }
    }

    /// Puts the next input into `out`.
    pub fn next_into(&mut self, out: &mut Vec<u8>) {
        out.clear();
        if self.random.below(8) == 0 {
            let len = self.random.below(MAX_INPUT / 4);
            out.extend((0..len).map(|_| self.random.byte()));
        } else {
            let seed = self.random.below(self.seeds.len());
            out.extend_from_slice(&self.seeds[seed]);
        }
        for _ in 0..1 << self.random.below(5) {
            self.edit(out);
        }
        out.truncate(MAX_INPUT);
    }

    fn edit(&mut self, out: &mut Vec<u8>) {
        let at = self.random.below(out.len() + 1);
        match self.random.below(9) {
            0 => self.replace(out, at, |random, byte| byte ^ (1 << random.below(8))),
            1 => self.replace(out, at, |random, _| BYTES[random.below(BYTES.len())]),
            2 => self.replace(out, at, |random, _| random.byte()),
            3 => self.replace(out, at, |_, byte| byte.wrapping_add(1)),
            4 => out.insert(at, self.random.byte()),
            5 => insert(out, at, RUNS[self.random.below(RUNS.len())]),
            6 => {
                let end = at + self.random.below(out.len() - at + 1).min(16);
                out.drain(at..end);
            }
            7 => {
                let end = at + self.random.below(out.len() - at + 1).min(32);
                let copy = out[at..end].to_vec();
                insert(out, at, &copy);
            }
            _ => {
                let other = &self.seeds[self.random.below(self.seeds.len())];
                let from = self.random.below(other.len() + 1);
                out.truncate(at);
                out.extend_from_slice(&other[from..]);
            }
        }
    }

    fn replace(&mut self, out: &mut [u8], at: usize, new: impl Fn(&mut Random, u8) -> u8) {
        if let Some(byte) = out.get_mut(at) {
            *byte = new(&mut self.random, *byte);
        }
    }
}

fn insert(out: &mut Vec<u8>, at: usize, run: &[u8]) {
    out.splice(at..at, run.iter().copied());
}
