//! Errors of backup and restoration: what is wrong, at which byte, and what to do.

use crate::store::{BoxError, Key, StoreError, Timestamp};

/// Why a backup could not be made, read or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum BackupError {
    /// The bytes begin like no backup does.
    #[error(
        "this is no backup: byte {offset} is not what a backup begins with; name a file that was \
         written by a backup"
    )]
    NotABackup { offset: u64 },

    /// A later version of this program wrote it. Use that one.
    #[error(
        "the {what} at byte {offset} is version {found}, this program knows versions up to {known}; \
         use a newer program"
    )]
    Newer { what: &'static str, offset: u64, found: u32, known: u32 },

    /// The bytes are not what was written. Take another copy.
    #[error("the backup is damaged at byte {offset}: {reason}; use another copy of it")]
    Damaged { offset: u64, reason: String },

    /// The bytes end before the backup does: the copy, or the backup itself, was cut off.
    #[error(
        "the backup ends at byte {offset}, within {within}; copy it again, or use another backup"
    )]
    Truncated { offset: u64, within: &'static str },

    /// Something follows the end of the backup.
    #[error(
        "the backup ends at byte {offset}, and something follows; cut it off there if you know why, \
         or copy it again"
    )]
    TrailingBytes { offset: u64 },

    /// The bytes could not be read.
    #[error("cannot read the backup at byte {offset}: {source}")]
    Read { offset: u64, source: BoxError },

    /// The store failed while it was backed up.
    #[error("the store failed: {source}; the backup is not complete, begin it again")]
    Store { source: StoreError },

    /// The store holds something already, and nothing was written to it.
    #[error("the store is not empty: it holds {key:?}; restore into an empty one")]
    NotEmpty { key: Key },

    /// The clock is behind the backup, and nothing was written.
    #[error(
        "the backup was made at {} and this clock says {} (Unix milliseconds); set the clock, then \
         restore again", created_at.as_unix_millis(), now.as_unix_millis()
    )]
    ClockBehind { created_at: Timestamp, now: Timestamp },

    /// The store failed while it was restored, and holds a part of the backup.
    #[error(
        "the store failed after {restored} records: {source}; what was restored is a part only: \
         restore again into an empty store"
    )]
    Interrupted { restored: u64, source: StoreError },

    /// Somebody else writes to the store, which holds a part of the backup.
    #[error(
        "something else writes {key:?} while the store is restored; stop it and restore again into \
         an empty store"
    )]
    Contended { key: Key },
}

impl BackupError {
    pub(super) fn damaged(offset: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { offset, reason: reason.into() }
    }
}
