//! What a store keeps its files on: the file system, or a disk that fails as told.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::log::{Folder, Shelf};

/// An open file.
pub(super) type Storage = Arc<dyn StorageBackend>;

/// The files of a store beside its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The tree.
    Records,
    /// The large values beside it.
    Values,
}

/// Where files are.
pub(super) trait Disk: Debug + Send + Sync + 'static {
    /// What becomes of a file that was opened.
    fn file(&self, part: Part, file: FileBackend) -> io::Result<Storage>;

    /// What becomes of the folder of the log.
    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf>;
}

/// The file system, as it is.
#[derive(Debug)]
pub(super) struct FileSystem;

impl Disk for FileSystem {
    fn file(&self, _: Part, file: FileBackend) -> io::Result<Storage> {
        Ok(Arc::new(file))
    }

    fn shelf(&self, folder: Folder) -> Arc<dyn Shelf> {
        Arc::new(folder)
    }
}
