//! Why a listener could not be started, or its certificates not be read.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What stands in the way of listening, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum ListenError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; choose another address, or stop what holds it")]
    Bind { addr: SocketAddr, source: io::Error },

    /// A limit has a value that cannot work.
    #[error("limit {limit}: {reason}")]
    Limit { limit: &'static str, reason: &'static str },

    /// A TLS file cannot be read.
    #[error(
        "cannot read the {what} file {}: {source}; check the path and that this user may read it",
        path.display()
    )]
    Unreadable { what: &'static str, path: PathBuf, source: io::Error },

    /// A TLS file does not hold what it should.
    #[error("the {what} file {} {reason}", path.display())]
    Unfit { what: &'static str, path: PathBuf, reason: String },

    /// Certificate and key are each well-formed, but cannot be used together.
    #[error(
        "the key {} cannot be used with the certificate {}: {source}; give the key that the \
         certificate was issued for, and put that certificate first in its file",
        key.display(), certificate.display()
    )]
    KeyMismatch { certificate: PathBuf, key: PathBuf, source: rustls::Error },
}
