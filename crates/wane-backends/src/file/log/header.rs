//! The header of a segment, as bytes.
//!
//! ```text
//! header   magic u64 | crc32 of the rest u32 | version u32 | store u64 | number u64 | size u64
//!          | zeros up to 4 KiB
//! ```
//!
//! Decoding never panics, and accepts no header with a flipped bit.

use super::frame::BLOCK;
use crate::file::format::FormatError;

/// The version of the log's format. A newer one is refused.
pub(super) const LOG_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"wane log";
const HEADER: usize = 40;

/// What the header of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version of the log's format.
    pub version: u32,
    /// The store that it belongs to.
    pub identity: u64,
    /// Its number, which its name says too.
    pub number: u64,
    /// The bytes of the file, of which the header is part.
    pub size: u64,
}

impl Header {
    /// The bytes of the header, zeros included.
    pub fn encode(self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&self.version.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.identity.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_be_bytes());
        bytes[32..HEADER].copy_from_slice(&self.size.to_be_bytes());
        let crc = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads a header.
    pub fn decode(bytes: &[u8; BLOCK]) -> Result<Self, FormatError> {
        if bytes[..8] != MAGIC {
            return Err(FormatError::Impossible("magic"));
        }
        if crc32fast::hash(&bytes[12..]).to_be_bytes() != bytes[8..12] {
            return Err(FormatError::Checksum);
        }
        let number = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_be_bytes);
        let version = bytes[12..].first_chunk().copied().map_or(0, u32::from_be_bytes);
        Ok(Self { version, identity: number(16), number: number(24), size: number(32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Header =
        Header { version: LOG_VERSION, identity: 0xA1B2_C3D4, number: 9, size: 1 << 20 };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(Header::decode(&SOUND.encode()), Ok(SOUND));
        assert_eq!(&SOUND.encode()[..8], b"wane log");
    }

    #[test]
    fn a_flipped_bit_anywhere_in_a_header_is_found() {
        for bit in 0..8 * BLOCK {
            let mut flipped = SOUND.encode();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&flipped).is_err(), "bit {bit}");
        }
        assert!(Header::decode(&[0; BLOCK]).is_err());
    }
}
