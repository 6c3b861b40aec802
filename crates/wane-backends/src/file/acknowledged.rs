//! The number of the last commit that callers were told of, in a small file beside the store.
//!
//! After a crash redb verifies its last commit and, where that is damaged, falls back to the one
//! before: right for a commit that was being written, wrong for one that was acknowledged and then
//! rotted. This number tells the two apart. It is written after the commit is durable and never
//! synced, so it costs no wait for the disk. After a kill it is exact, unless the disk had no room for
//! it, and after a power cut at worst it says too little. It names the store that it belongs to, so
//! that one left behind says nothing of another store created in its place.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::lent_storage::is_lack_of_room;

/// The file with the number, there or not yet.
#[derive(Debug)]
pub(super) struct Acknowledged {
    path: PathBuf,
    file: Option<File>,
    identity: u64,
}

impl Acknowledged {
    /// The file at `path`, with the number that it holds for the store of this identity, if it can be
    /// read. Nothing is written.
    pub(super) fn open(path: &Path, identity: u64) -> io::Result<(Self, Option<u64>)> {
        let path = path.to_path_buf();
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Self { path, file: None, identity }, None));
            }
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((Self { path, file: Some(file), identity }, decode(identity, &bytes)))
    }

    /// Notes that callers are about to be told of this commit. Where there is no room for that, the file
    /// says too little, as it may.
    pub(super) fn note(&mut self, commit: u64) -> io::Result<()> {
        match self.write(&encode(self.identity, commit)) {
            Err(error) if is_lack_of_room(&error) => Ok(()),
            written => written,
        }
    }

    fn write(&mut self, noted: &[u8]) -> io::Result<()> {
        let file = self.file()?;
        file.rewind()?;
        file.write_all(noted)
    }

    /// The file, after creating it where it is not there.
    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false).open(&self.path)?
            }
        };
        Ok(self.file.insert(file))
    }
}

/// The identity, the number and the complement of both, so that a flipped bit shows.
fn encode(identity: u64, commit: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&identity.to_be_bytes());
    bytes[8..16].copy_from_slice(&commit.to_be_bytes());
    bytes[16..].copy_from_slice(&(!(identity ^ commit)).to_be_bytes());
    bytes
}

fn decode(identity: u64, bytes: &[u8]) -> Option<u64> {
    let commit = u64::from_be_bytes(*bytes.get(8..16)?.as_array()?);
    (bytes == encode(identity, commit)).then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which nothing has room.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_no_reason_to_fail_and_anything_else_is() {
        let at = |path: &str| Acknowledged { path: path.into(), file: None, identity: 5 };
        let mut full = at("/dev/full");
        assert!(is_lack_of_room(&full.write(b"something").unwrap_err()));
        full.note(77).unwrap();
        assert!(at("/dev").note(77).is_err());
    }

    #[test]
    fn a_number_with_a_flipped_bit_counts_as_none() {
        let sound = encode(5, 77);
        assert_eq!(decode(5, &sound), Some(77));
        for bit in 0..8 * sound.len() {
            let mut flipped = sound;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(5, &flipped), None, "bit {bit}");
        }
        assert_eq!(decode(5, &sound[..23]), None);
        assert_eq!(decode(5, &[]), None);
        assert_eq!(decode(6, &sound), None, "another store's number");
    }
}
