//! A file that appears under its name when it is complete and durable, or not at all.
//!
//! It is written as `NAME.part`, which is removed when anything fails. A name that was free is taken
//! by a link, which never replaces another file; `--force` replaces the old file in one step, and
//! only by a complete one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::BackupCommandError;

/// A file on its way to its name.
#[derive(Debug)]
pub(crate) struct PartFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    replace: bool,
}

impl PartFile {
    /// Begins the file that shall be `target`.
    pub(crate) fn create(target: &Path, replace: bool) -> Result<Self, BackupCommandError> {
        if !replace && target.exists() {
            return Err(BackupCommandError::FileExists { path: target.to_path_buf() });
        }
        if target.file_name().is_none() || target.is_dir() {
            let is_directory = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(BackupCommandError::io(target)(is_directory));
        }
        let mut path = target.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let file = owners_only().open(&path).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                return BackupCommandError::PartExists { path: path.clone() };
            }
            BackupCommandError::io(&path)(error)
        })?;
        Ok(Self { file, path, target: target.to_path_buf(), replace })
    }

    /// Where the bytes go.
    pub(crate) fn sink(&self) -> Result<BufWriter<File>, BackupCommandError> {
        self.file.try_clone().map(BufWriter::new).map_err(BackupCommandError::io(&self.path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Makes the bytes durable, then gives the file its name and returns it.
    pub(crate) fn publish(self) -> Result<PathBuf, BackupCommandError> {
        self.file.sync_all().map_err(BackupCommandError::io(&self.path))?;
        let named = if self.replace {
            fs::rename(&self.path, &self.target)
        } else {
            take_free_name(&self.path, &self.target)
        };
        named.map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                return BackupCommandError::FileExists { path: self.target.clone() };
            }
            BackupCommandError::io(&self.target)(error)
        })?;
        sync_parent(&self.target).map_err(BackupCommandError::io(&self.target))?;
        Ok(self.target.clone())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // Where it has its name by now, there is nothing to remove, or a second link to it.
        drop(fs::remove_file(&self.path));
    }
}

/// Gives a file a name that no other file has.
pub(in crate::cli) fn take_free_name(path: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(path, target) {
        // A file system without links, as on a memory stick.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !target.exists() => {
            fs::rename(path, target)
        }
        linked => linked,
    }
}

/// A new file, which others cannot read: a backup holds every secret of the store.
fn owners_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the names in the directory of `path` durable.
pub(in crate::cli) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}
