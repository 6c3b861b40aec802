//! What the commands answer: lines for people, JSON for programs. Times are Unix milliseconds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use wane::services::backup::{self, Restored};
use wane_backends::file::VerifiedFiles;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// When it was begun.
    pub created_at: u64,
    /// The backend that it was made from.
    pub backend: String,
    /// All records.
    pub records: u64,
    /// Those that never expire.
    pub permanent: u64,
    /// Those that have expired by now.
    pub expired: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// Records by keyspace.
    pub keyspaces: BTreeMap<&'static str, u64>,
}

impl From<backup::Summary> for Summary {
    fn from(summary: backup::Summary) -> Self {
        Self {
            created_at: summary.created_at.as_unix_millis(),
            backend: summary.backend,
            records: summary.records,
            permanent: summary.permanent,
            expired: summary.expired,
            bytes: summary.bytes,
            keyspaces: summary.keyspaces,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "created    {} from {}", utc(self.created_at), self.backend)?;
        writeln!(f, "size       {}", HumanBytes(self.bytes))?;
        writeln!(f, "records    {}", HumanCount(self.records))?;
        writeln!(f, "permanent  {}", HumanCount(self.permanent))?;
        write!(f, "expired    {}", HumanCount(self.expired))?;
        for (keyspace, records) in &self.keyspaces {
            write!(f, "\n  {keyspace:<18} {}", HumanCount(*records))?;
        }
        Ok(())
    }
}

/// What `wane backup` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    /// The file that was written.
    pub file: PathBuf,
    /// What it holds.
    #[serde(flatten)]
    pub summary: Summary,
}

impl fmt::Display for BackupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrote {}\n{}", self.file.display(), self.summary)
    }
}

/// What `wane verify` found to be sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The file or directory that was read.
    pub verified: PathBuf,
    /// What the files of a store hold, as they were found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// What it holds; of a store, as a backup made now would.
    #[serde(flatten)]
    pub summary: Summary,
}

/// What the files of a store hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Files {
    /// The format that they are in.
    pub format: u64,
    /// The last commit of the tree.
    pub commit: u64,
    /// Records in the tree, with those that have expired and were not removed yet.
    pub tree_records: u64,
    /// Values in a file of their own.
    pub large_values: u64,
    /// Their bytes.
    pub large_bytes: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Keys whose last change had not reached the tree.
    pub young: u64,
}

impl From<VerifiedFiles> for Files {
    fn from(VerifiedFiles { format, tree, log }: VerifiedFiles) -> Self {
        Self {
            format,
            commit: tree.commit,
            tree_records: tree.records,
            large_values: tree.large_values,
            large_bytes: tree.large_bytes,
            segments: log.segments,
            log_bytes: log.bytes,
            young: log.young,
        }
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, commit, .. } = self;
        writeln!(f, "files      format {format}, commit {commit}")?;
        let (records, values) = (HumanCount(self.tree_records), HumanCount(self.large_values));
        let bytes = HumanBytes(self.large_bytes);
        writeln!(f, "tree       {records} records, {values} large values of {bytes}")?;
        let (young, bytes) = (HumanCount(self.young), HumanBytes(self.log_bytes));
        write!(f, "log        {young} keys not yet in the tree, segments of {bytes}")
    }
}

impl VerifyReport {
    pub(super) fn of_backup(file: &Path, summary: backup::Summary) -> Self {
        Self { verified: file.to_path_buf(), files: None, summary: summary.into() }
    }

    pub(super) fn of_store(
        directory: &Path,
        files: VerifiedFiles,
        summary: backup::Summary,
    ) -> Self {
        Self { files: Some(files.into()), ..Self::of_backup(directory, summary) }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} is sound", self.verified.display())?;
        if let Some(files) = &self.files {
            writeln!(f, "{files}")?;
        }
        write!(f, "{}", self.summary)
    }
}

/// What `wane restore` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreReport {
    /// The directory of the store.
    pub data: PathBuf,
    /// Records written.
    pub records: u64,
    /// Those of them that never expire.
    pub permanent: u64,
    /// Records that had expired and were left out.
    pub expired: u64,
    /// Bytes of the backup.
    pub bytes: u64,
}

impl RestoreReport {
    pub(super) fn new(data: &Path, restored: Restored) -> Self {
        let Restored { records, permanent, expired, bytes } = restored;
        Self { data: data.to_path_buf(), records, permanent, expired, bytes }
    }
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "restored {} from {}", self.data.display(), HumanBytes(self.bytes))?;
        writeln!(f, "records    {}", HumanCount(self.records))?;
        writeln!(f, "permanent  {}", HumanCount(self.permanent))?;
        write!(f, "left out   {} that had expired", HumanCount(self.expired))
    }
}

/// An instant as people read it: `2001-09-09 01:46:40 UTC`.
fn utc(millis: u64) -> String {
    let seconds = millis / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The date so many days after 1970-01-01, counted from years that begin in March, so that a leap
/// day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01, in cycles of 400 years.
    let days = days.saturating_add(719_468);
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with `date -u -d @SECONDS`.
    #[test]
    fn instants_read_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_000_000_000, "2001-09-09 01:46:40 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000 + 999), text);
        }
        assert!(!utc(u64::MAX).is_empty(), "any number is some date");
    }
}
