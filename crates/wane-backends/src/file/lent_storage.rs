//! The files of a store, lent to one engine after another.
//!
//! redb gives up for good at the first error of its storage, whatever the error is. A disk without
//! room need not be the end: nothing that is on it is in doubt, as long as no sync has failed. So
//! the file outlives the engine. One that ran out of room has its loan ended, after which it
//! can change nothing any more, and another is opened on the same file and finds the last whole
//! commit. The lock on the file is held throughout, so that no other process comes between.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use redb::{BackendError, StorageBackend};
use wane::store::Value;

use super::disk::Storage;
use super::format::{FormatError, Place};
use super::values::ValuesFile;

/// The owner of the files.
#[derive(Debug)]
pub(super) struct Lender {
    file: Storage,
    values: Arc<ValuesFile>,
    loan: Arc<Loan>,
}

/// What became of the file in the hands of one engine.
#[derive(Debug, Default)]
struct Loan {
    /// Held while the files are changed: whoever ends the loan waits for that.
    ended: RwLock<bool>,
    lacked_room: AtomicBool,
    failed: AtomicBool,
}

impl Lender {
    pub(super) fn new(file: Storage, values: ValuesFile) -> Self {
        Self { file, values: Arc::new(values), loan: Arc::default() }
    }

    /// Ends the loan there was, and lends the files anew.
    pub(super) fn lend(&mut self) -> (LentStorage, LentValues) {
        *self.loan.ended.write() = true;
        self.loan = Arc::default();
        let loan = || Arc::clone(&self.loan);
        let storage = LentStorage { file: Arc::clone(&self.file), loan: loan() };
        (storage, LentValues { file: Arc::clone(&self.values), loan: loan() })
    }

    /// Makes durable whatever is in the file now.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Where the file of large values is.
    pub(super) fn values(&self) -> Arc<ValuesFile> {
        Arc::clone(&self.values)
    }

    /// Whether all that went wrong is that something did not fit on the disk.
    ///
    /// A sync that fails is always worse: what the system could not write it may have dropped.
    pub(super) fn only_lacked_room(&self) -> bool {
        let Loan { lacked_room, failed, .. } = &*self.loan;
        lacked_room.load(Ordering::SeqCst) && !failed.load(Ordering::SeqCst)
    }
}

impl Loan {
    /// For as long as what is returned is kept, the loan does not end.
    fn holds(&self) -> io::Result<RwLockReadGuard<'_, bool>> {
        let ended = self.ended.read();
        let over = || io::Error::other("the file was given to another engine");
        if *ended { Err(over()) } else { Ok(ended) }
    }

    /// Notes how a change went that needs room.
    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        match &result {
            Ok(_) => {}
            Err(error) if is_lack_of_room(error) => self.lacked_room.store(true, Ordering::SeqCst),
            Err(_) => self.failed.store(true, Ordering::SeqCst),
        }
        result
    }

    /// Notes how anything else went.
    fn must<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.failed.store(true, Ordering::SeqCst);
        }
        result
    }
}

/// Whether the disk, or what this process may have of it, is full.
pub(super) fn is_lack_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    [StorageFull, QuotaExceeded, FileTooLarge].contains(&error.kind())
}

/// The file in the hands of one engine.
#[derive(Debug)]
pub(super) struct LentStorage {
    file: Storage,
    loan: Arc<Loan>,
}

impl StorageBackend for LentStorage {
    fn len(&self) -> io::Result<u64> {
        self.loan.must(self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.loan.must(self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _holds = self.loan.holds()?;
        self.loan.noted(self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let _holds = self.loan.holds()?;
        self.loan.must(self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let _holds = self.loan.holds()?;
        self.loan.noted(self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.loan.holds().map_or(Ok(()), |_holds| self.file.close())
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
        self.loan.holds().map_or(Ok(()), |_holds| self.file.unlock_range(start, end))
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

/// The file of large values in the hands of one engine.
#[derive(Debug)]
pub(super) struct LentValues {
    file: Arc<ValuesFile>,
    loan: Arc<Loan>,
}

impl LentValues {
    /// The file itself, for readers, who change nothing.
    pub(super) fn file(&self) -> Arc<ValuesFile> {
        Arc::clone(&self.file)
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.loan.must(self.file.len())
    }

    pub(super) fn read(&self, key: &[u8], place: Place) -> io::Result<Result<Value, FormatError>> {
        self.loan.must(self.file.read(key, place))
    }

    pub(super) fn write(&self, offset: u64, value: &[u8]) -> io::Result<()> {
        let _holds = self.loan.holds()?;
        self.loan.noted(self.file.write(offset, value))
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        let _holds = self.loan.holds()?;
        self.loan.noted(self.file.set_len(len))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let _holds = self.loan.holds()?;
        self.loan.must(self.file.sync())
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::file::disk::FileSystem;

    fn no_values() -> ValuesFile {
        ValuesFile::open("there is none".into(), Arc::new(FileSystem)).unwrap()
    }

    #[test]
    fn an_engine_whose_loan_has_ended_changes_nothing_any_more() {
        let mut lender = Lender::new(Arc::new(InMemoryBackend::new()), no_values());
        let (first, first_values) = lender.lend();
        first.set_len(8).unwrap();
        first.write(0, &[1; 8]).unwrap();
        let (second, _) = lender.lend();
        assert!(first.write(0, &[2; 8]).is_err() && first.set_len(0).is_err());
        assert!(first.sync_data().is_err());
        assert!(first_values.write(0, &[2; 8]).is_err() && first_values.sync().is_err());
        let mut seen = [0; 8];
        second.read(0, &mut seen).unwrap();
        assert_eq!(seen, [1; 8]);
        assert!(!lender.only_lacked_room(), "what the first did is not told of the second");
    }

    #[test]
    fn lack_of_room_is_told_from_everything_worse() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let loan = Arc::new(Loan::default());
        let mut lender = Lender::new(Arc::new(InMemoryBackend::new()), no_values());
        lender.loan = Arc::clone(&loan);
        loan.noted::<()>(Err(full())).unwrap_err();
        assert!(lender.only_lacked_room());
        loan.must::<()>(Err(full())).unwrap_err();
        assert!(!lender.only_lacked_room(), "a sync that found no room has failed");
    }
}
