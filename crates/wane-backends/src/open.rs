//! Opening a store: what can stand in the way, named by what the operator can do about it.

use std::path::PathBuf;

use wane::store::BoxError;

/// Why a store could not be opened or created. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum OpenError {
    /// The URL names no backend.
    #[error("{url:?} names no store; give mem: or file:DIRECTORY")]
    UnknownUrl { url: String },

    /// There is no store. Create one, or look for the right place.
    #[error("there is no store in {}; create one there, or name another directory", path.display())]
    Absent { path: PathBuf },

    /// There is a store already. Open it, or choose another place.
    #[error("there is a store in {} already; open it, or name another directory", path.display())]
    Exists { path: PathBuf },

    /// Another process has the store open. Stop it, or talk to it.
    #[error("the store in {} is open in another process; stop that one first", path.display())]
    InUse { path: PathBuf },

    /// The file is not what was written. It is left as it is: restore a backup beside it.
    #[error(
        "{} is damaged ({reason}); it was left as it is: move it away and restore a backup",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },

    /// A later version of this program wrote the file. Use that one.
    #[error(
        "{} has format {found}, this program knows formats up to {known}; use a newer one",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u64, known: u64 },

    /// The operating system refused.
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: BoxError },
}
