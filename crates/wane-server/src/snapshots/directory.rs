//! The directory of snapshots: what they are called, which are kept, what a kill left behind.
//!
//! A snapshot is called by the instant that it was due at, so that names sort by time and no instant
//! has two. Other files are left alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use wane::store::Timestamp;

use super::schedule::written;

const PREFIX: &str = "wane-";
const SUFFIX: &str = ".backup";

/// What is written before it has its name.
const PART: &str = ".backup.part";

/// Where a snapshot is restored to be tried.
const TRIAL: &str = ".wane-trial-restore";

/// A directory of snapshots.
#[derive(Debug, Clone)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The file of an instant.
    pub(super) fn file(&self, due: Timestamp) -> PathBuf {
        self.0.join(format!("{PREFIX}{}{SUFFIX}", written(due)))
    }

    /// Where a snapshot is restored to be tried.
    pub(super) fn trial(&self) -> PathBuf {
        self.0.join(TRIAL)
    }

    /// Makes it, for the owner alone, and removes what a kill left there.
    pub(super) fn prepare(&self) -> io::Result<()> {
        make(&self.0)?;
        for path in self.named(PART)? {
            fs::remove_file(path)?;
        }
        match fs::remove_dir_all(self.trial()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes the oldest snapshots beyond so many: how many were removed.
    pub(super) fn prune(&self, keep: usize) -> io::Result<usize> {
        let snapshots = self.named(SUFFIX)?;
        let surplus = snapshots.len().saturating_sub(keep);
        for path in &snapshots[..surplus] {
            fs::remove_file(path)?;
        }
        Ok(surplus)
    }

    /// Files of ours that end so, the oldest first.
    fn named(&self, end: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(end));
            if stem.is_some_and(is_instant) {
                found.push(self.0.join(name));
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Whether it is written as instants are: `20261116T020000Z`.
fn is_instant(text: &str) -> bool {
    text.len() == "20261116T020000Z".len()
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

/// A backup holds every secret of the store.
fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::new(&folder.path().join("made/for/it"));
        directory.prepare().unwrap();
        let due = |day: u64| Timestamp::from_unix_millis(day * 86_400_000);
        for day in [20_003, 20_001, 20_002, 20_004] {
            fs::write(directory.file(due(day)), b"x").unwrap();
        }
        let others = ["wane-by-hand.backup", "notes.txt", "wane-20261116T020000.backup"];
        for other in others {
            fs::write(directory.path().join(other), b"x").unwrap();
        }
        assert_eq!(directory.prune(4).unwrap(), 0);
        assert_eq!(directory.prune(2).unwrap(), 2);
        let left = [20_001, 20_002, 20_003, 20_004].map(|day| directory.file(due(day)).exists());
        assert_eq!(left, [false, false, true, true]);
        assert!(others.iter().all(|other| directory.path().join(other).exists()));
    }

    #[test]
    fn what_a_kill_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::new(folder.path());
        let due = directory.file(Timestamp::from_unix_millis(0));
        let part = due.with_added_extension("part");
        fs::write(&due, b"whole").unwrap();
        fs::write(&part, b"half").unwrap();
        fs::create_dir(directory.trial()).unwrap();
        fs::write(directory.trial().join("file"), b"half").unwrap();
        directory.prepare().unwrap();
        assert!(due.exists() && !part.exists() && !directory.trial().exists());
        directory.prepare().unwrap();
    }
}
