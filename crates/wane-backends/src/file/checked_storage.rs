//! Storage that hands out a block only as it was last seen.
//!
//! redb checks its pages when a file is opened and trusts them from then on: a page that rots
//! later can hide records, and can panic where unwinding is not possible. So the checksum of each
//! block is kept in memory from its first read, which the check on opening follows, or from its
//! last write. A block that reads differently is an error, and the store refuses to go on.
//!
//! Memory: 8 bytes per 4 KiB of file that is in use.

use std::io;
use std::ops::Bound;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

/// The page size of redb, in which all of its pages are aligned. Only the header is written and
/// read in part, and is not remembered.
const BLOCK: usize = 4_096;

/// A storage whose blocks are remembered by their checksums.
#[derive(Debug)]
pub(super) struct CheckedStorage<S> {
    inner: S,
    seen: RwLock<Vec<Option<u32>>>,
}

impl<S: StorageBackend> CheckedStorage<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, seen: RwLock::default() }
    }

    fn check(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut unseen = false;
        let seen = self.seen.read();
        for (index, block) in whole_blocks(offset, data) {
            match seen.get(index) {
                Some(Some(checksum)) if *checksum == crc32fast::hash(block) => {}
                Some(Some(_)) => return Err(changed(index)),
                Some(None) | None => unseen = true,
            }
        }
        drop(seen);
        if unseen {
            self.remember(offset, data);
        }
        Ok(())
    }

    fn remember(&self, offset: u64, data: &[u8]) {
        let mut seen = self.seen.write();
        for (index, block) in whole_blocks(offset, data) {
            if index >= seen.len() {
                seen.resize(index + 1, None);
            }
            seen[index] = Some(crc32fast::hash(block));
        }
    }

    /// Forgets the blocks from `offset` on that `len` bytes touch.
    fn forget(&self, offset: u64, len: usize) {
        let first = offset as usize / BLOCK;
        let last = (offset as usize + len).div_ceil(BLOCK);
        let mut seen = self.seen.write();
        let end = last.min(seen.len());
        seen[first.min(end)..end].fill(None);
    }
}

/// The blocks that lie wholly within `data`, with their numbers.
fn whole_blocks(offset: u64, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = (offset as usize).div_ceil(BLOCK);
    let skipped = (first * BLOCK - offset as usize).min(data.len());
    let (blocks, _) = data[skipped..].as_chunks::<BLOCK>();
    blocks.iter().enumerate().map(move |(index, block)| (first + index, block.as_slice()))
}

fn changed(index: usize) -> io::Error {
    let reason = format!("the block at {} is not as it was written", index * BLOCK);
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl<S: StorageBackend> StorageBackend for CheckedStorage<S> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)?;
        self.check(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)?;
        self.seen.write().truncate(len as usize / BLOCK);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.forget(offset, data.len());
        self.inner.write(offset, data)?;
        self.remember(offset, data);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    #[test]
    fn a_block_that_changed_since_it_was_seen_is_an_error() {
        let storage = CheckedStorage::new(InMemoryBackend::new());
        storage.set_len(3 * BLOCK as u64).unwrap();
        storage.write(0, &[1; 3 * BLOCK]).unwrap();
        let mut out = [0; 2 * BLOCK];
        storage.read(BLOCK as u64, &mut out).unwrap();
        storage.inner.write(BLOCK as u64 + 9, &[2]).unwrap();
        let error = storage.read(BLOCK as u64, &mut out).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        storage.read(0, &mut out[..BLOCK]).unwrap();
    }

    #[test]
    fn a_block_is_remembered_from_its_first_read_until_it_is_cut_off() {
        let storage = CheckedStorage::new(InMemoryBackend::new());
        storage.inner.set_len(2 * BLOCK as u64).unwrap();
        let mut out = [0; BLOCK];
        storage.read(BLOCK as u64, &mut out).unwrap();
        storage.inner.write(BLOCK as u64, &[2]).unwrap();
        assert!(storage.read(BLOCK as u64, &mut out).is_err());
        storage.set_len(BLOCK as u64).unwrap();
        storage.set_len(2 * BLOCK as u64).unwrap();
        storage.read(BLOCK as u64, &mut out).unwrap();
    }

    #[test]
    fn a_block_written_in_part_is_seen_anew() {
        let storage = CheckedStorage::new(InMemoryBackend::new());
        storage.set_len(BLOCK as u64).unwrap();
        storage.write(0, &[1; BLOCK]).unwrap();
        storage.write(7, &[2; 3]).unwrap();
        storage.read(0, &mut [0; BLOCK]).unwrap();
    }
}
