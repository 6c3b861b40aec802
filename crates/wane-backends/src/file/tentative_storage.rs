//! Storage that changes nothing until it is told to.
//!
//! Opening repairs: after a crash redb goes back to its last whole commit and writes that down,
//! before anybody has asked whether this loses something acknowledged. So what opening writes is
//! held in memory. Once the store is accepted it goes to the file, in order and with every sync
//! between; where the store is refused, the file stays as it was found.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

/// A storage that holds back what is written to it. Clones share it.
#[derive(Debug)]
pub(super) struct TentativeStorage<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    /// What was written so far, or `None` once it goes straight to the file.
    held: RwLock<Option<Vec<Held>>>,
}

#[derive(Debug)]
enum Held {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

impl<S> Clone for TentativeStorage<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: StorageBackend> TentativeStorage<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { shared: Arc::new(Shared { inner, held: RwLock::new(Some(Vec::new())) }) }
    }

    /// Writes down what was held back, and from now on whatever comes.
    ///
    /// Where that fails, the file is as after a crash at that point, and everything is still held:
    /// it can be tried again from the start.
    pub(super) fn accept(&self) -> io::Result<()> {
        let mut held = self.shared.held.write();
        let inner = &self.shared.inner;
        for step in held.iter().flatten() {
            match step {
                Held::Write(offset, data) => inner.write(*offset, data),
                Held::Length(len) => inner.set_len(*len),
                Held::Sync => inner.sync_data(),
            }?;
        }
        *held = None;
        Ok(())
    }

    /// The length that the file has once what is held back is written.
    fn len_with(&self, held: &[Held]) -> io::Result<u64> {
        let len = self.shared.inner.len()?;
        Ok(held.iter().fold(len, |len, step| match step {
            Held::Write(offset, data) => len.max(offset + data.len() as u64),
            Held::Length(len) => *len,
            Held::Sync => len,
        }))
    }

    /// Holds `step` back, or says that it is to be done.
    fn hold(&self, step: impl FnOnce() -> Held) -> bool {
        if self.shared.held.read().is_none() {
            return false;
        }
        let mut held = self.shared.held.write();
        held.as_mut().is_some_and(|held| {
            held.push(step());
            true
        })
    }
}

impl Held {
    /// Does to `out`, which lies at `offset`, what this step does to the file.
    fn show(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        match self {
            Self::Write(at, data) => {
                let (from, to) = (offset.max(*at), end.min(at + data.len() as u64));
                if from < to {
                    let seen = &data[(from - at) as usize..(to - at) as usize];
                    out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(seen);
                }
            }
            Self::Length(len) => out[(end.min(offset.max(*len)) - offset) as usize..].fill(0),
            Self::Sync => {}
        }
    }
}

impl<S: StorageBackend> StorageBackend for TentativeStorage<S> {
    fn len(&self) -> io::Result<u64> {
        self.len_with(self.shared.held.read().as_deref().unwrap_or_default())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.shared.held.read();
        let Some(held) = &*held else {
            drop(held);
            return self.shared.inner.read(offset, out);
        };
        if offset + out.len() as u64 > self.len_with(held)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let in_file = self.shared.inner.len()?.saturating_sub(offset).min(out.len() as u64);
        let (in_file, beyond) = out.split_at_mut(in_file as usize);
        self.shared.inner.read(offset, in_file)?;
        beyond.fill(0);
        held.iter().for_each(|step| step.show(offset, out));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.hold(|| Held::Length(len)) { Ok(()) } else { self.shared.inner.set_len(len) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.hold(|| Held::Sync) { Ok(()) } else { self.shared.inner.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.hold(|| Held::Write(offset, data.to_vec())) {
            return Ok(());
        }
        self.shared.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.shared.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.shared.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.shared.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.shared.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.shared.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.shared.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.shared.inner.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    fn bytes(storage: &impl StorageBackend) -> Vec<u8> {
        let mut bytes = vec![9; storage.len().unwrap() as usize];
        storage.read(0, &mut bytes).unwrap();
        bytes
    }

    /// Every way to change a storage: over, across the end, shorter, longer, in a gap.
    fn change(storage: &impl StorageBackend) {
        storage.write(1, &[1, 2]).unwrap();
        storage.set_len(6).unwrap();
        storage.write(3, &[3, 4, 5]).unwrap();
        storage.sync_data().unwrap();
        storage.set_len(5).unwrap();
        storage.set_len(8).unwrap();
        storage.write(7, &[7]).unwrap();
    }

    #[test]
    fn what_is_held_back_reads_as_if_it_were_written_and_is_written_once_accepted() {
        let plain = InMemoryBackend::new();
        plain.set_len(4).unwrap();
        change(&plain);
        let tentative = TentativeStorage::new(InMemoryBackend::new());
        tentative.shared.inner.set_len(4).unwrap();
        change(&tentative);
        assert_eq!(bytes(&tentative), bytes(&plain));
        let mut part = [0; 3];
        tentative.read(3, &mut part).unwrap();
        assert_eq!(part, bytes(&plain)[3..6]);
        assert!(tentative.read(6, &mut part).is_err(), "it reads beyond its end");
        assert_eq!(bytes(&tentative.shared.inner), [0; 4], "the file was changed");
        tentative.accept().unwrap();
        assert_eq!(bytes(&tentative.shared.inner), bytes(&plain));
        tentative.accept().unwrap();
        tentative.write(0, &[8]).unwrap();
        assert_eq!(bytes(&tentative.shared.inner)[0], 8);
    }
}
