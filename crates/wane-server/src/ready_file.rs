//! The file that says that a server is ready, and where it answers.
//!
//! It may lie on the disk of the store, which may be full by the time that the server is ready. So its
//! room is taken before the store is opened, in a draft that is written over and renamed. Where not
//! even that room is there, the file comes as soon as it is: the server serves what it can meanwhile.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use wane::clock::Clock;

/// Room for what the file will say.
const ROOM: [u8; 512] = [b' '; 512];

/// How long to wait for room before it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// A ready file that is not there yet. Dropped before it is written, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    path: PathBuf,
    draft: PathBuf,
}

impl ReadyFile {
    /// Removes the file of an earlier process, which says nothing of this one, and takes room for
    /// another.
    pub(crate) fn prepare(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let draft = path.with_added_extension("draft");
        match fs::write(&draft, ROOM) {
            Err(error) if !is_lack_of_room(&error) => Err(error),
            _ => Ok(Self { path: path.to_path_buf(), draft }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, once there is room for it.
    pub(crate) async fn write(&self, bytes: &[u8], clock: &dyn Clock) -> io::Result<()> {
        let mut told = false;
        loop {
            match self.try_write(bytes) {
                Err(error) if is_lack_of_room(&error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%error, "the ready file waits for room on its disk");
                    }
                    clock.sleep(TRY_AGAIN).await;
                }
                written => return written,
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut draft = options.write(true).create(true).truncate(false).open(&self.draft)?;
        draft.write_all(bytes)?;
        draft.set_len(bytes.len() as u64)?;
        fs::rename(&self.draft, &self.path)
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // Once it was written there is no draft.
        drop(fs::remove_file(&self.draft));
    }
}

fn is_lack_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use wane::clock::SystemClock;

    use super::*;

    #[tokio::test]
    async fn it_appears_whole_and_in_place_of_an_earlier_one() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ready.json");
        fs::write(&path, "earlier").unwrap();
        let ready = ReadyFile::prepare(&path).unwrap();
        assert!(!path.exists(), "the earlier one is gone");
        ready.write(b"ready", &*SystemClock::shared()).await.unwrap();
        drop(ready);
        assert_eq!(fs::read(&path).unwrap(), b"ready");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_that_is_not_written_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        drop(ReadyFile::prepare(&home.path().join("ready.json")).unwrap());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        assert!(ReadyFile::prepare(&home.path().join("no/ready.json")).is_err());
    }
}
