//! Why a call failed, and why a client cannot be made.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use wane::services::blobs::Sha256Sum;
use wane::services::elections::Standing;
use wane::store::Timestamp;

/// What was found where a condition did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    /// The value that stands there.
    pub value: Bytes,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
}

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed, named by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum ClientError {
    /// The condition did not hold and nothing was changed. `current` is what stood in the way,
    /// where there was something and the server says what.
    #[error("refused: {detail}")]
    Refused { current: Option<Current>, detail: String },

    /// A step of an election was refused and nothing was changed: where the election stands.
    #[error("refused: {detail}")]
    Contested { standing: Standing, detail: String },

    /// There is no such live record, application or key.
    #[error("absent")]
    Absent,

    /// The server says what is wrong. Nothing was applied.
    #[error("{detail} ({code}, HTTP {status})")]
    Problem { code: String, status: u16, detail: String, retry_after: Option<Duration> },

    /// No answer, and nothing was applied: it was never sent, or it was a read.
    #[error("cannot reach {url}: {source}")]
    Unreachable { url: String, source: BoxError },

    /// A write was sent and nobody knows what became of it. Read before deciding.
    #[error("the write may or may not have been applied: {source}")]
    UnknownOutcome { source: BoxError },

    /// The answer is not one of a `wane` server. Nothing was applied.
    #[error("not an answer of a wane server: {reason}")]
    Protocol { reason: String },

    /// What was to be sent could not be read. Nothing was applied.
    #[error("cannot read what is to be sent: {source}")]
    Source { source: io::Error },

    /// Other bytes came than were uploaded. Do not use them.
    #[error("what came has the SHA-256 {got} and not {expected}: it is not what was uploaded")]
    DigestMismatch { expected: Sha256Sum, got: Sha256Sum },

    /// A download that cannot go on broke: it is spent, and nothing of it is to be used.
    #[error("the transfer broke and this BLOB can be downloaded {left} more times: {source}")]
    Spent { left: u32, source: BoxError },
}

/// Why there can be no client for an endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum EndpointError {
    /// The URL. It is not repeated: there may be a password in it.
    #[error("the URL cannot be used: {reason}")]
    Url { reason: &'static str },

    /// The key has characters that cannot be sent.
    #[error("the key has characters that no key has")]
    Key,

    /// The file of certificate authorities.
    #[error("cannot take certificate authorities from {}: {reason}", path.display())]
    Ca { path: PathBuf, reason: String },

    /// The certificate that the client shows, or its private key.
    #[error("cannot take the certificate of the client from {}: {reason}", path.display())]
    Identity { path: PathBuf, reason: String },
}
