//! A directory of messages, each in a file that is named by its id and is whole from the beginning.
//!
//! A message is written as `NAME.part`, made durable, and given its name then. One that is there
//! already is left as it is: the same id is the same message.
//!
//! Invariant: no two processes write the same draft. Each locks it, and looks for the name again
//! once it has the lock, as whoever had it before gave the name before letting go.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use wane::services::pull_stream::{Delivered, ResourceId};

use super::StreamCommandError;

/// A directory that messages are written to.
#[derive(Debug)]
pub(super) struct MessageDirectory(PathBuf);

impl MessageDirectory {
    /// The directory, which is made where it is not there.
    pub(super) fn open(path: &Path) -> Result<Self, StreamCommandError> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StreamCommandError::io(path)(error));
            }
            Ok(()) | Err(_) => {}
        }
        // A file of that name is none, and a directory that cannot be opened is of no use.
        fs::read_dir(path).map_err(StreamCommandError::io(path))?;
        Ok(Self(path.to_path_buf()))
    }

    /// Writes the messages that are not there yet, and returns once all of them are durable: where
    /// each of them is.
    pub(super) fn keep(&self, messages: &[Delivered]) -> Result<Vec<PathBuf>, StreamCommandError> {
        let files: Result<_, _> = messages.iter().map(|message| self.keep_one(message)).collect();
        File::open(&self.0)
            .and_then(|it| it.sync_all())
            .map_err(StreamCommandError::io(&self.0))?;
        files
    }

    fn keep_one(&self, message: &Delivered) -> Result<PathBuf, StreamCommandError> {
        let target = self.0.join(file_name(message.id));
        if target.exists() {
            return Ok(target);
        }
        let draft = self.0.join(format!("{}.part", file_name(message.id)));
        let failed = StreamCommandError::io(&draft);
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(&draft);
        let mut file = opened.map_err(&failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StreamCommandError::Busy { path: draft }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if target.exists() {
            // What was opened is the message itself, or a draft that nobody needs.
            drop(fs::remove_file(&draft));
            return Ok(target);
        }
        let written = write(&mut file, &message.bytes).and_then(|()| fs::rename(&draft, &target));
        if let Err(error) = written {
            // What stays of it is written anew the next time.
            drop(fs::remove_file(&draft));
            return Err(failed(error));
        }
        Ok(target)
    }
}

fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The id in characters that every file system takes.
fn file_name(id: ResourceId) -> String {
    format!("{}.xml", id.to_string().replace('/', "_").replace('+', "-"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const ID: &str = "UEkA6NSlEAC/ytXg6/ZBDJciLThDTl+k";

    fn message(bytes: &'static [u8]) -> Delivered {
        Delivered { id: ID.parse().unwrap(), bytes: bytes.into() }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries.map(|entry| name(entry).into_string().unwrap()).collect()
    }

    #[test]
    fn a_message_is_a_file_named_by_its_id() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new");
        let directory = MessageDirectory::open(&path).unwrap();
        let kept = directory.keep(&[message(b"<a>\r\n\xFF</a>\n")]).unwrap();
        let expected = path.join("UEkA6NSlEAC_ytXg6_ZBDJciLThDTl-k.xml");
        assert_eq!(kept, [&*expected]);
        assert_eq!(fs::read(&expected).unwrap(), b"<a>\r\n\xFF</a>\n");
        assert_eq!(names(&path).len(), 1, "no draft is left");
    }

    #[test]
    fn a_message_that_is_there_is_not_written_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = MessageDirectory::open(place.path()).unwrap();
        let kept = directory.keep(&[message(b"first")]).unwrap();
        let before = fs::metadata(&kept[0]).unwrap();
        assert_eq!(directory.keep(&[message(b"again")]).unwrap(), kept);
        let after = fs::metadata(&kept[0]).unwrap();
        assert_eq!(fs::read(&kept[0]).unwrap(), b"first");
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    }

    /// A process that was killed leaves a draft behind, of any length.
    #[test]
    fn a_draft_that_was_left_is_written_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = MessageDirectory::open(place.path()).unwrap();
        let draft = place.path().join("UEkA6NSlEAC_ytXg6_ZBDJciLThDTl-k.xml.part");
        fs::write(&draft, "half of a message that was longer").unwrap();
        let kept = directory.keep(&[message(b"whole")]).unwrap();
        assert_eq!(fs::read(&kept[0]).unwrap(), b"whole");
        assert!(!draft.exists());
    }

    #[test]
    fn a_draft_that_another_writes_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = MessageDirectory::open(place.path()).unwrap();
        let draft = place.path().join("UEkA6NSlEAC_ytXg6_ZBDJciLThDTl-k.xml.part");
        let other = File::create(&draft).unwrap();
        other.lock().unwrap();
        let error = directory.keep(&[message(b"whole")]).unwrap_err();
        assert!(matches!(error, StreamCommandError::Busy { .. }), "{error}");
        drop(other);
        directory.keep(&[message(b"whole")]).unwrap();
    }

    #[test]
    fn what_is_no_directory_is_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file, place.path().join("no/such")] {
            let error = MessageDirectory::open(&path).unwrap_err();
            assert!(matches!(error, StreamCommandError::Io { .. }), "{error}");
        }
    }
}
