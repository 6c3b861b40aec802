//! What `put` remembers of an upload until it is complete, so that the same command goes on with it.
//!
//! One small file per command line (server, app, workspace, path and what is said of the BLOB) in
//! `XDG_STATE_HOME/wane/uploads`, which only its owner can read: the delete secret is in it. It is
//! locked while `put` runs, written once, and removed when the upload is complete. Those whose
//! upload has expired are removed by the next `put`.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use wane::services::blobs::Sha256Sum;
use wane::store::Timestamp;

use super::BlobCommandError;
use crate::cli::output::Output;

/// No memory is longer.
const LONGEST: u64 = 64 * 1024;

/// When a file is taken for the one that it was: the same size, changed last at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) size: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

impl Stamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        // Files of before 1970 are of 1970.
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { size: metadata.len(), modified })
    }
}

/// An upload that is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remembered {
    pub(super) file: Stamp,
    #[serde(rename = "blobSUUID")]
    pub(super) id: String,
    pub(super) delete_secret: String,
    /// Unix milliseconds.
    pub(super) expires_at: u64,
}

/// The memory of one command line.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    /// Locked.
    file: File,
    /// Nothing is remembered in it.
    is_blank: bool,
}

impl Memory {
    /// The memory of the command line that these words stand for.
    pub(super) fn open(directory: &Path, words: &[&str]) -> Result<Self, BlobCommandError> {
        let failed = BlobCommandError::io(directory);
        make_private(directory).map_err(&failed)?;
        let name = Sha256Sum::of(serde_json::json!(words).to_string().as_bytes());
        let path = directory.join(format!("{name}.json"));
        let file = owners_only().open(&path).map_err(&failed)?;
        match file.try_lock() {
            Ok(()) => {
                let is_blank = file.metadata().map_err(&failed)?.len() == 0;
                Ok(Self { path, file, is_blank })
            }
            Err(TryLockError::WouldBlock) => {
                let path = words.first().map_or_else(|| path.clone(), PathBuf::from);
                Err(BlobCommandError::Busy { path })
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// What was remembered; `None` where nothing was, or nothing that makes sense.
    pub(super) fn recall(&mut self) -> Result<Option<Remembered>, BlobCommandError> {
        let failed = BlobCommandError::io(&self.path);
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0)).map_err(&failed)?;
        (&self.file).take(LONGEST).read_to_end(&mut bytes).map_err(&failed)?;
        let remembered = serde_json::from_slice(&bytes).ok();
        self.is_blank = remembered.is_none();
        Ok(remembered)
    }

    pub(super) fn remember(&mut self, upload: &Remembered) -> Result<(), BlobCommandError> {
        let failed = BlobCommandError::io(&self.path);
        let text = serde_json::to_vec(upload).map_err(io::Error::other).map_err(&failed)?;
        self.file.seek(SeekFrom::Start(0)).map_err(&failed)?;
        self.file.set_len(0).map_err(&failed)?;
        self.is_blank = false;
        self.file.write_all(&text).and_then(|()| self.file.sync_data()).map_err(&failed)
    }

    pub(super) fn forget(self) -> Result<(), BlobCommandError> {
        fs::remove_file(&self.path).map_err(BlobCommandError::io(&self.path))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_blank {
            // Whether or not it can be removed, there is nothing in it.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Where uploads are remembered; `None` where the environment names no such place.
pub(super) fn directory(output: &Output<'_>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = output.variable("XDG_STATE_HOME").map(PathBuf::from).filter(absolute);
    let of_home = || output.variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(of_home)?.join("wane").join("uploads"))
}

/// Removes what is remembered of uploads that have expired. What cannot be read or removed is left:
/// it is in nobody's way.
pub(super) fn sweep(directory: &Path, now: Timestamp) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Ok(file) = File::open(&path) else { continue };
        // Locked by a run that is under way.
        if file.try_lock().is_err() {
            continue;
        }
        let mut bytes = Vec::new();
        let read = file.take(LONGEST).read_to_end(&mut bytes);
        let upload = serde_json::from_slice::<Remembered>(&bytes);
        let is_over = upload.is_ok_and(|upload| upload.expires_at <= now.as_unix_millis());
        if read.is_ok() && (is_over || bytes.is_empty()) {
            drop(fs::remove_file(&path));
        }
    }
}

fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn owners_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(expires_at: u64) -> Remembered {
        let file = Stamp { size: 5, modified: 7 };
        Remembered { file, id: "id".into(), delete_secret: "s".into(), expires_at }
    }

    #[test]
    fn a_command_line_remembers_its_own_upload_only() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        let mut memory = Memory::open(&directory, &["f", "x"]).unwrap();
        assert_eq!(memory.recall().unwrap(), None);
        memory.remember(&upload(9_000)).unwrap();
        memory.remember(&upload(9)).unwrap();
        drop(memory);
        let mut other = Memory::open(&directory, &["f", "y"]).unwrap();
        assert_eq!(other.recall().unwrap(), None);
        drop(other);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "what is blank is removed");
        let mut memory = Memory::open(&directory, &["f", "x"]).unwrap();
        assert_eq!(memory.recall().unwrap(), Some(upload(9)));
        memory.forget().unwrap();
        let mut memory = Memory::open(&directory, &["f", "x"]).unwrap();
        assert_eq!(memory.recall().unwrap(), None);
    }

    /// Two runs of one command would take the upload from each other, piece by piece.
    #[test]
    fn one_run_at_a_time_has_the_memory() {
        let place = tempfile::tempdir().unwrap();
        let memory = Memory::open(place.path(), &["f"]).unwrap();
        let second = Memory::open(place.path(), &["f"]).unwrap_err();
        assert!(matches!(second, BlobCommandError::Busy { .. }), "{second}");
        drop(memory);
        Memory::open(place.path(), &["f"]).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("wane/uploads");
        let memory = Memory::open(&directory, &["f"]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&memory.path)), (0o700, 0o600));
    }

    #[test]
    fn what_makes_no_sense_is_as_good_as_nothing() {
        let place = tempfile::tempdir().unwrap();
        let mut memory = Memory::open(place.path(), &["f"]).unwrap();
        fs::write(&memory.path, "{\"file\":").unwrap();
        assert_eq!(memory.recall().unwrap(), None);
    }

    #[test]
    fn uploads_that_expired_are_forgotten() {
        let place = tempfile::tempdir().unwrap();
        for (name, expires_at) in [("old", 9), ("new", 11)] {
            Memory::open(place.path(), &[name]).unwrap().remember(&upload(expires_at)).unwrap();
        }
        let mut held = Memory::open(place.path(), &["held"]).unwrap();
        held.remember(&upload(9)).unwrap();
        sweep(place.path(), Timestamp::from_unix_millis(10));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
        assert_eq!(held.recall().unwrap(), Some(upload(9)));
        let mut new = Memory::open(place.path(), &["new"]).unwrap();
        assert_eq!(new.recall().unwrap(), Some(upload(11)));
    }
}
