//! The number of the last commit that callers were told of, in a small file beside the store.
//!
//! After a crash redb verifies its last commit and, where that is damaged, falls back to the one
//! before: right for a commit that was being written, wrong for one that was acknowledged and then
//! rotted. This number tells the two apart. It is written after the commit is durable and never
//! synced, so it costs a microsecond, is exact after a kill, and after a power cut at worst says
//! too little.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// The file with the number.
#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
}

impl Acknowledged {
    /// Opens or creates the file, and returns the number that it holds, if it can be read.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Option<u64>)> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((Self { file }, decode(&bytes)))
    }

    /// Notes that callers are about to be told of this commit.
    pub(super) fn note(&mut self, commit: u64) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(&encode(commit))
    }
}

/// The number and its complement, so that a flipped bit shows.
fn encode(commit: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&commit.to_be_bytes());
    bytes[8..].copy_from_slice(&(!commit).to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (complement, _) = rest.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    (number == !u64::from_be_bytes(*complement)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_flipped_bit_counts_as_none() {
        let sound = encode(77);
        assert_eq!(decode(&sound), Some(77));
        for bit in 0..128 {
            let mut flipped = sound;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(decode(&sound[..15]), None);
        assert_eq!(decode(&[]), None);
    }
}
