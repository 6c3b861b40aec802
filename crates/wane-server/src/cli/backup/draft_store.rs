//! A store that is being filled beside its place: `DIR/restoring`, until `DIR` is a store.
//!
//! It is in the directory itself and not next to it, so that both are on one file system even where
//! the directory is a mount of its own. Dropped before it is placed, it leaves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wane::clock::SharedClock;
use wane_backends::OpenError;
use wane_backends::file::FileStore;

use super::BackupCommandError;

/// The draft of the store that a directory shall be.
#[derive(Debug)]
pub(crate) struct DraftStore {
    path: PathBuf,
    directory: PathBuf,
    /// Whether the directory was made for it.
    made_directory: bool,
}

impl DraftStore {
    /// Creates an empty draft for `directory`, and the directory where it is missing.
    pub(crate) fn create(
        directory: &Path,
        clock: &SharedClock,
    ) -> Result<(Self, FileStore), BackupCommandError> {
        if FileStore::exists(directory) {
            return Err(OpenError::Exists { path: directory.to_path_buf() }.into());
        }
        let made_directory = !directory.exists();
        let path = directory.join("restoring");
        match FileStore::create(&path, Arc::clone(clock)) {
            Ok(store) => {
                let directory = directory.to_path_buf();
                Ok((Self { path, directory, made_directory }, store))
            }
            Err(OpenError::Exists { path }) => Err(BackupCommandError::DraftExists { path }),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the draft, closed by now, the store of its directory.
    pub(crate) fn place(mut self) -> Result<(), BackupCommandError> {
        FileStore::place(&self.path, &self.directory)?;
        self.made_directory = false;
        Ok(())
    }
}

impl Drop for DraftStore {
    fn drop(&mut self) {
        // What cannot be removed is no store of the directory, and is named when it is in the way.
        drop(fs::remove_dir_all(&self.path));
        if self.made_directory {
            // Fails, as it should, where something else has been put there.
            drop(fs::remove_dir(&self.directory));
        }
    }
}
