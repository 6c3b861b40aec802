//! Room that is set aside, so that what has expired can leave a disk that is full.
//!
//! ```text
//! DIR/reserve    4 MiB that mean nothing, once there was a large value or the log has grown
//! ```
//!
//! Removing a record takes room before it gives any back: the tree writes the pages that change
//! beside those that a crash would go back to. On a disk that large values or the log have filled to the
//! last block there is none, and what has expired would stay for good. So a file holds some, and is made
//! shorter, a step at a time, where a removal did not fit. What the removal frees fills it up again,
//! before callers get any of it.
//!
//! Nothing reads its bytes and nothing syncs them: whatever a crash leaves of it is made up for
//! after the next opening. They are not zeros, which some file systems and copies store as nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What is set aside.
const WHOLE: u64 = 4 << 20;

/// What is given up at a time. A removal of eight records writes some hundred pages of 4 KiB at
/// most, unless their neighbours are large.
const STEP: u64 = 1 << 20;

/// What is written at a time.
static PIECE: [u8; 64 << 10] = [0xA5; 64 << 10];

/// The room that is set aside, all of it or less.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    len: u64,
    /// Some of it was given up, and not all of that was made up for.
    given_up: bool,
    was_tried: bool,
    /// That it cannot be set aside was said.
    told: bool,
}

/// Room could not be set aside.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be filled up; while it is short, a full disk may not empty itself", path = .path.display())]
pub(super) struct NotSetAside {
    path: PathBuf,
    source: io::Error,
}

impl Reserve {
    /// What is set aside in the file at `path`, which need not exist.
    pub(super) fn found(path: PathBuf) -> Self {
        let len =
            std::fs::metadata(&path).map_or(0, |file| if file.is_file() { file.len() } else { 0 });
        Self { path, len: len.min(WHOLE), given_up: false, was_tried: false, told: false }
    }

    /// Whether it was tried to set all of it aside since the store was opened.
    pub(super) fn was_tried(&self) -> bool {
        self.was_tried
    }

    /// Whether there is something to give up.
    pub(super) fn has_some(&self) -> bool {
        self.len > 0
    }

    /// Whether it is short of what was given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Sets aside what it is short of, all of that or nothing. Says whether it is whole; the first
    /// time that it is not, the log says why.
    pub(super) fn fill(&mut self) -> bool {
        self.was_tried = true;
        match self.try_fill() {
            Ok(()) => {
                (self.given_up, self.told) = (false, false);
                true
            }
            Err(error) => {
                if !self.told {
                    self.told = true;
                    let reason = &error.source;
                    tracing::warn!(backend = "file", %reason, "{error}");
                }
                false
            }
        }
    }

    fn try_fill(&mut self) -> Result<(), NotSetAside> {
        if self.len == WHOLE {
            return Ok(());
        }
        let not_set_aside = |source| NotSetAside { path: self.path.clone(), source };
        let mut file = opened(&self.path).map_err(not_set_aside)?;
        if let Err(error) = write_from(&mut file, self.len) {
            // Whoever comes first may have what was not enough.
            return Err(not_set_aside(file.set_len(self.len).err().unwrap_or(error)));
        }
        self.len = WHOLE;
        Ok(())
    }

    /// Gives a part of it back to the disk. `false` means that there is none left to give.
    pub(super) fn give_up(&mut self) -> bool {
        if self.len == 0 {
            return false;
        }
        self.given_up = true;
        self.len = self.len.saturating_sub(STEP);
        // Synced, as a file system may keep freed blocks to itself until then.
        let given = opened(&self.path).and_then(|file| {
            file.set_len(self.len)?;
            file.sync_all()
        });
        if let Err(error) = &given {
            tracing::warn!(backend = "file", %error, "room that was set aside cannot be given up");
        }
        given.is_ok()
    }
}

fn write_from(file: &mut File, offset: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    (offset..WHOLE).step_by(PIECE.len()).try_for_each(|offset| {
        let piece = PIECE.len().min((WHOLE - offset) as usize);
        file.write_all(&PIECE[..piece])
    })
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn len(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn it_is_given_up_in_steps_and_filled_up_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("reserve");
        let mut reserve = Reserve::found(path.clone());
        assert!(!reserve.has_some() && !reserve.give_up(), "there is none yet");
        assert!(reserve.fill());
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= WHOLE, "it takes no room");
        let mut steps = 0;
        while reserve.give_up() {
            steps += 1;
            assert_eq!(len(&path), WHOLE - steps * STEP);
            assert!(reserve.is_given_up());
        }
        assert_eq!(steps, WHOLE / STEP);
        assert!(reserve.fill() && !reserve.is_given_up());
        assert_eq!(len(&path), WHOLE);
    }

    /// A crash leaves it short, and whoever opens the store may find anything.
    #[test]
    fn whatever_is_found_is_filled_up() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("reserve");
        for found in [0, 5, STEP + 1, WHOLE, WHOLE + 7] {
            std::fs::write(&path, vec![0; found as usize]).unwrap();
            let mut reserve = Reserve::found(path.clone());
            assert_eq!(reserve.has_some(), found > 0);
            assert!(reserve.fill());
            assert!(len(&path) >= WHOLE);
        }
    }

    #[test]
    fn one_that_cannot_be_had_is_none_and_does_no_harm() {
        let home = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::found(home.path().to_path_buf());
        assert!(!reserve.has_some());
        assert!(!reserve.fill() && !reserve.fill() && !reserve.give_up());
        assert!(!reserve.is_given_up());
    }
}
