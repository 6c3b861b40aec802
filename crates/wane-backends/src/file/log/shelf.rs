//! The folder that segments are kept in.
//!
//! A segment is written under the name of a draft, synced, renamed, and the folder is synced before
//! anything is logged to it. So every file with a segment's name begins with a whole header, and one
//! that does not was damaged since.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;

use crate::file::disk::Storage;

/// What the names of drafts end with.
const DRAFT: &str = ".draft";

/// What the names of segments end with.
const SEGMENT: &str = ".log";

/// Digits of a segment's number in its name, so that names sort as numbers do.
const DIGITS: usize = 16;

/// A folder of files, or what stands in for one.
pub(in crate::file) trait Shelf: Debug + Send + Sync + 'static {
    /// The names of its files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file, after creating it where it is not there.
    fn open(&self, name: &str) -> io::Result<Storage>;

    /// Gives a file another name, in place of whatever had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable which files there are.
    fn sync(&self) -> io::Result<()>;

    /// Where a file is, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// Bytes that are free on its disk, where that can be told.
    fn free(&self) -> Option<u64> {
        None
    }
}

/// What a name says that a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Segment(u64),
    Draft,
    /// None of ours.
    Other,
}

/// Reads a name.
pub(super) fn named(name: &str) -> Named {
    if name.ends_with(DRAFT) {
        return Named::Draft;
    }
    let digits = name.strip_suffix(SEGMENT).filter(|digits| digits.len() == DIGITS);
    let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).map_or(Named::Other, Named::Segment)
}

/// The name of a segment.
pub(super) fn segment_name(number: u64) -> String {
    format!("{number:0DIGITS$}{SEGMENT}")
}

/// The name under which a segment is prepared.
pub(super) fn draft_name(number: u64) -> String {
    format!("{number:0DIGITS$}{DRAFT}")
}

/// A directory of the file system.
#[derive(Debug)]
pub(in crate::file) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`. One that does not exist is empty.
    pub(in crate::file) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// Whether there are segments in it.
    pub(in crate::file) fn has_segments(&self) -> bool {
        let is_segment = |name: &String| matches!(named(name), Named::Segment(_));
        self.names().is_ok_and(|names| names.iter().any(is_segment))
    }

    /// Opens a file, after creating it where it is not there.
    pub(in crate::file) fn open_file(&self, name: &str) -> io::Result<FileBackend> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        FileBackend::new(file.open(self.path.join(name))?).map_err(io::Error::other)
    }
}

impl Shelf for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?.into_iter();
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn open(&self, name: &str) -> io::Result<Storage> {
        Ok(Arc::new(self.open_file(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn free(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.path).ok()?;
        disk.f_bavail.checked_mul(disk.f_frsize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        assert_eq!(segment_name(12), "0000000000000012.log");
        assert_eq!(named(&segment_name(12)), Named::Segment(12));
        assert_eq!(named(&draft_name(12)), Named::Draft);
        for other in ["", "12.log", "000000000000001x.log", "+000000000000012.log", "records.redb"]
        {
            assert_eq!(named(other), Named::Other, "{other}");
        }
    }

    #[test]
    fn names_sort_as_numbers_do() {
        let mut names: Vec<_> = [100, 9, 10, 1].map(segment_name).into();
        names.sort();
        assert_eq!(names, [1, 9, 10, 100].map(segment_name));
    }
}
