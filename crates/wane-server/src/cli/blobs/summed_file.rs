//! A file that is read here and there, and summed up from its beginning.
//!
//! Each byte counts once, as it was when it was first read: a piece that is read again changes
//! nothing about the sum.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use wane::services::blobs::Sha256Sum;

use crate::client::Received;

/// Bytes that are read at once where they are only summed up.
const BLOCK: u64 = 1 << 20;

/// A file and the sum of its first bytes.
#[derive(Debug)]
pub(super) struct SummedFile {
    file: File,
    /// Of its first bytes.
    sum: Received,
}

impl SummedFile {
    pub(super) fn new(file: File) -> Self {
        Self { file, sum: Received::default() }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The bytes at `offset`, exactly so many.
    pub(super) fn read(&mut self, offset: u64, length: usize) -> io::Result<Bytes> {
        self.sum_to(offset)?;
        let mut piece = vec![0; length];
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(&mut piece)?;
        // A piece that is read again was summed up before.
        let known = usize::try_from(self.sum.length() - offset).unwrap_or(usize::MAX);
        self.sum.add(piece.get(known..).unwrap_or_default());
        Ok(piece.into())
    }

    /// The sum of the first `end` bytes, or of as many more as were read.
    pub(super) fn sum_to(&mut self, end: u64) -> io::Result<Sha256Sum> {
        self.file.seek(SeekFrom::Start(self.sum.length()))?;
        let mut block = Vec::new();
        while self.sum.length() < end {
            block.resize((end - self.sum.length()).min(BLOCK) as usize, 0);
            self.file.read_exact(&mut block)?;
            self.sum.add(&block);
        }
        Ok(self.sum.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_of_the_whole_however_it_is_read() {
        let bytes: Vec<u8> = (0..=250).cycle().take(3_000_000).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        for reads in [&[][..], &[(0, 10)], &[(2_500_000, 10)], &[(5, 10), (0, 3), (0, 40), (7, 9)]]
        {
            let mut file = SummedFile::new(File::open(&path).unwrap());
            for (offset, length) in reads {
                let piece = file.read(*offset, *length).unwrap();
                assert!(piece == bytes[*offset as usize..][..*length]);
            }
            assert_eq!(file.sum_to(3_000_000).unwrap(), Sha256Sum::of(&bytes), "{reads:?}");
            let beyond = file.sum_to(3_000_001).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
