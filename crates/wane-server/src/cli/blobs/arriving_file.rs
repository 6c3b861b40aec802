//! A file that arrives: `NAME.part` until it is whole, then `NAME`, and never half a file there.
//!
//! Other than a backup it may take several runs: what has come stays where a run stops. A name that
//! was free is taken by a link, which never replaces another file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::BlobCommandError;
use crate::cli::backup::part_file::{sync_parent, take_free_name};
use crate::client::Received;

/// Bytes at the end of what came before that are asked for again and compared.
const COMPARED: u64 = 64 * 1024;

/// A file on its way to its name. While it is open no other process works on it.
#[derive(Debug)]
pub(super) struct ArrivingFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    replace: bool,
    length: u64,
}

/// What came in an earlier run: all but its last bytes, and those.
#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) received: Received,
    pub(super) tail: Vec<u8>,
}

impl ArrivingFile {
    /// Begins the file that shall be `target`, or goes on with it.
    pub(super) fn open(target: &Path, replace: bool) -> Result<Self, BlobCommandError> {
        if !replace && target.symlink_metadata().is_ok() {
            return Err(BlobCommandError::FileExists { path: target.to_path_buf() });
        }
        if target.file_name().is_none() || target.is_dir() {
            let is_directory = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(BlobCommandError::io(target)(is_directory));
        }
        let mut path = target.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let failed = BlobCommandError::io(&path);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(&failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BlobCommandError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let length = file.metadata().map_err(&failed)?.len();
        Ok(Self { file, path, target: target.to_path_buf(), replace, length })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that are there.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Reads what came before.
    pub(super) fn earlier(&mut self) -> Result<Earlier, BlobCommandError> {
        let mut received = Received::default();
        let mut left = self.length - self.length.min(COMPARED);
        self.file.seek(SeekFrom::Start(0)).map_err(self.failed())?;
        let mut block = vec![0; COMPARED as usize];
        while left > 0 {
            let length = left.min(COMPARED) as usize;
            self.file.read_exact(&mut block[..length]).map_err(self.failed())?;
            received.add(&block[..length]);
            left -= length as u64;
        }
        let mut tail = Vec::new();
        self.file.read_to_end(&mut tail).map_err(self.failed())?;
        Ok(Earlier { received, tail })
    }

    /// Forgets what came before.
    pub(super) fn begin_anew(&mut self) -> Result<(), BlobCommandError> {
        self.file.set_len(0).map_err(self.failed())?;
        self.file.seek(SeekFrom::Start(0)).map_err(self.failed())?;
        self.length = 0;
        Ok(())
    }

    /// Adds the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), BlobCommandError> {
        self.file.write_all(bytes).map_err(self.failed())?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes the bytes durable, then gives the file its name.
    pub(super) fn publish(self) -> Result<(), BlobCommandError> {
        self.file.sync_all().map_err(self.failed())?;
        let named = if self.replace {
            fs::rename(&self.path, &self.target)
        } else {
            take_free_name(&self.path, &self.target)
        };
        named.map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                return BlobCommandError::FileExists { path: self.target.clone() };
            }
            BlobCommandError::io(&self.target)(error)
        })?;
        // A second link to the same bytes, where it was not renamed.
        drop(fs::remove_file(&self.path));
        sync_parent(&self.target).map_err(BlobCommandError::io(&self.target))
    }

    /// Removes what came: it is of no use.
    pub(super) fn discard(self) -> Result<(), BlobCommandError> {
        fs::remove_file(&self.path).map_err(self.failed())
    }

    fn failed(&self) -> impl Fn(io::Error) -> BlobCommandError + use<> {
        BlobCommandError::io(&self.path)
    }
}

impl Drop for ArrivingFile {
    fn drop(&mut self) {
        if self.length == 0 {
            // Nothing came, nothing is left; or it has its name by now.
            drop(fs::remove_file(&self.path));
        }
    }
}
