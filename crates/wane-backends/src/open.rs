//! Opening a store: what can stand in the way, named by what the operator can do about it.

use std::path::PathBuf;

use wane::store::BoxError;

/// Why a store could not be opened or created. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum OpenError {
    /// The URL names no backend.
    #[error(
        "{url:?} names no store; give mem:, file:DIRECTORY, redis://.., cas1://.., cas3://.. or dynamodb://.."
    )]
    UnknownUrl { url: String },

    /// The URL names a backend, but not a store of it.
    #[error("{backend} cannot be opened as it was named: {reason}")]
    BadUrl { backend: &'static str, reason: String },

    /// This program was built without the backend.
    #[error("this build has no {backend}; build it with --features {feature}")]
    NotBuilt { backend: &'static str, feature: &'static str },

    /// No server answers. Start it, or wait for it.
    #[error("{backend} at {address} does not answer: {source}; check {check}")]
    Unreachable { backend: &'static str, address: String, check: &'static str, source: BoxError },

    /// A server answers and refuses. Waiting does not help.
    #[error("{backend} at {address} refuses: {source}; check {check}")]
    Refused { backend: &'static str, address: String, check: &'static str, source: BoxError },

    /// What is stored there was laid out otherwise. Open it as it was made, or name another store.
    #[error("the store in {backend} at {address} was laid out otherwise: {reason}")]
    Mismatch { backend: &'static str, address: String, reason: String },

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
