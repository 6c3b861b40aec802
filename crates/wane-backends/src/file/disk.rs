//! What a store keeps its files on: the file system, or a disk that fails as told.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;
use rustix::fs::{Advice, fadvise};

use super::log::{Folder, Shelf};

/// An open file.
pub(super) type Storage = Arc<dyn StorageBackend>;

/// The open file of large values.
pub(super) trait ValueStorage: StorageBackend {
    /// Writes pieces one behind the other, none of them empty. Only one thread does so.
    fn write_pieces(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.write(offset, &bytes)
    }
}

/// Where files are.
pub(super) trait Disk: Debug + Send + Sync + 'static {
    /// What becomes of the file of the tree once it was opened.
    fn records(&self, file: FileBackend) -> io::Result<Storage>;

    /// What becomes of the file of large values.
    fn values(&self, file: File) -> io::Result<Arc<dyn ValueStorage>>;

    /// What becomes of the folder of the log.
    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf>;
}

/// The file system, as it is.
#[derive(Debug)]
pub(super) struct FileSystem;

impl Disk for FileSystem {
    fn records(&self, file: FileBackend) -> io::Result<Storage> {
        Ok(Arc::new(file))
    }

    fn values(&self, file: File) -> io::Result<Arc<dyn ValueStorage>> {
        let written = file.try_clone()?;
        Ok(Arc::new(PlainValues { file: backend(file)?, written }))
    }

    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf> {
        Arc::new(folder)
    }
}

/// A file as trees want it.
pub(super) fn backend(file: File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(io::Error::other)
}

/// Large values in a file of the system.
#[derive(Debug)]
struct PlainValues {
    file: FileBackend,
    /// The same file. Its position is where pieces are written, and means nothing to anyone else.
    written: File,
}

impl ValueStorage for PlainValues {
    /// In one call, and copied once: by the system, which begins to bring them to the disk.
    fn write_pieces(&self, offset: u64, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut file = &self.written;
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        file.seek(SeekFrom::Start(offset))?;
        while !pieces.is_empty() {
            match file.write_vectored(pieces) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut pieces, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.begin_to_sync(offset, bytes);
        Ok(())
    }
}

impl PlainValues {
    /// Has what was just written brought to the disk while more is being written: the sync, which
    /// would begin with it, takes a fifth of the time. Linux does so with what is not needed any more;
    /// what is on its way then stays in memory nevertheless.
    fn begin_to_sync(&self, offset: u64, bytes: u64) {
        // It is advice. Where it is not taken, the sync takes as long as without.
        fadvise(&self.written, offset, NonZeroU64::new(bytes), Advice::DontNeed)
            .unwrap_or_default();
    }
}

impl StorageBackend for PlainValues {
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
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More pieces than a system takes in one call.
    #[test]
    fn pieces_lie_one_behind_the_other_however_many_there_are() {
        let file = tempfile::tempfile().unwrap();
        let values = FileSystem.values(file).unwrap();
        let pieces: Vec<_> = (0..3_000_usize).map(|n| vec![n as u8; 1 + n % 5]).collect();
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        values.write_pieces(7, &mut slices).unwrap();
        let expected = pieces.concat();
        assert_eq!(values.len().unwrap(), 7 + expected.len() as u64);
        let mut written = vec![0; expected.len()];
        values.read(7, &mut written).unwrap();
        assert_eq!(written, expected);
    }
}
