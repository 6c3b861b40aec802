//! A disk whose syncs take longer, for benchmarks: what a store makes of its callers' waiting.
//!
//! Nothing else is different: what is written is written, and each sync is a real one after the
//! pause.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::disk::{Disk, Storage, ValueStorage, backend};
use super::log::{Folder, Shelf};

/// The disk under a store that was opened with
/// [`FileStore::open_on_slow`](super::FileStore::open_on_slow).
#[derive(Debug, Clone, Copy)]
pub struct SlowDisk {
    /// What each sync takes more.
    pub pause: Duration,
}

impl SlowDisk {
    /// Puts the disk under `file`.
    pub fn under(self, file: FileBackend) -> SlowStorage {
        SlowStorage { file, disk: self }
    }

    #[expect(clippy::disallowed_methods, reason = "a disk waits in real time")]
    fn wait(self) {
        std::thread::sleep(self.pause);
    }
}

impl Disk for SlowDisk {
    fn records(&self, file: FileBackend) -> io::Result<Storage> {
        Ok(Arc::new(self.under(file)))
    }

    fn values(&self, file: File) -> io::Result<Arc<dyn ValueStorage>> {
        Ok(Arc::new(self.under(backend(file)?)))
    }

    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf> {
        Arc::new(SlowShelf { folder, disk: *self })
    }
}

/// The folder of a log on a [`SlowDisk`].
#[derive(Debug)]
struct SlowShelf {
    folder: Folder,
    disk: SlowDisk,
}

impl Shelf for SlowShelf {
    fn names(&self) -> io::Result<Vec<String>> {
        self.folder.names()
    }

    fn open(&self, name: &str) -> io::Result<Storage> {
        Ok(Arc::new(self.disk.under(self.folder.open_file(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.wait();
        self.folder.sync()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }
}

/// A file on a [`SlowDisk`].
#[derive(Debug)]
pub struct SlowStorage {
    file: FileBackend,
    disk: SlowDisk,
}

impl ValueStorage for SlowStorage {}

impl StorageBackend for SlowStorage {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.wait();
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use wane::clock::SystemClock;

    use super::*;

    #[test]
    fn a_sync_takes_longer_and_a_write_does_not() {
        let pause = Duration::from_millis(300);
        let file = FileBackend::new(tempfile::tempfile().unwrap()).unwrap();
        let storage = SlowDisk { pause }.under(file);
        let clock = SystemClock::shared();
        let timed = |work: &dyn Fn() -> io::Result<()>| {
            let before = clock.monotonic();
            work().unwrap();
            clock.monotonic() - before
        };
        assert!(timed(&|| storage.write(0, b"bytes")) < pause);
        assert!(timed(&|| storage.sync_data()) >= pause);
    }
}
