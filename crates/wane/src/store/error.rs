//! Errors of the store, named by what the caller can do about them.

use super::Key;

/// A boxed cause, as the engine or driver below reported it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a [`Store`](super::Store) call failed.
///
/// "Not found" and "did not match" are answers, not errors: see the return types of
/// [`Store`](super::Store).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum StoreError {
    /// The request breaks a limit of the contract. Fix the caller; retrying cannot help.
    #[error("invalid {field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// Nothing was applied. Retry after a pause.
    #[error("{backend} is unavailable: {source}")]
    Unavailable { backend: &'static str, source: BoxError },

    /// The write may or may not have been applied. Read before deciding.
    #[error("{backend} did not confirm the write: {source}")]
    Unknown { backend: &'static str, source: BoxError },

    /// A stored record cannot be decoded. Stop: an operator must look at the data.
    #[error("corrupt record at {key:?}: {reason}")]
    Corrupt { key: Key, reason: String },
}

impl StoreError {
    /// The request breaks a limit: `field` names it, `reason` says what would be legal.
    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    /// The same error for another caller, its cause as text: causes of drivers cannot be cloned.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Invalid { field, reason } => Self::invalid(field, reason.clone()),
            Self::Unavailable { backend, source } => {
                Self::Unavailable { backend, source: source.to_string().into() }
            }
            Self::Unknown { backend, source } => {
                Self::Unknown { backend, source: source.to_string().into() }
            }
            Self::Corrupt { key, reason } => {
                Self::Corrupt { key: key.clone(), reason: reason.clone() }
            }
        }
    }
}
