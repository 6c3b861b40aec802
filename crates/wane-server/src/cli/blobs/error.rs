//! Why a file could not be put or got, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::cli::failure::{Exit, Failure, exit_of};
use crate::client::ClientError;

/// Why a command failed here, and not at the server.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum BlobCommandError {
    /// The file to write is there already.
    #[error("{} exists", path.display())]
    FileExists { path: PathBuf },

    /// What was begun there is of something else, or of nobody knows what.
    #[error("{} holds something else than the beginning of this BLOB", path.display())]
    PartOfAnother { path: PathBuf },

    /// Something was begun there, and the BLOB has a number of downloads.
    #[error(
        "{} cannot be continued: the downloads of this BLOB are numbered, and each takes one and \
         sends it from the beginning",
        path.display()
    )]
    NotResumed { path: PathBuf },

    /// Another process works on the same.
    #[error("another wane is working on {}", path.display())]
    Busy { path: PathBuf },

    /// A file could not be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },

    /// The transfer stopped where it can be taken up again.
    #[error("{source}; {kept} of {size} bytes are there")]
    Stopped { source: ClientError, kept: u64, size: u64, is_last: bool },

    /// The file did not stay what it was.
    #[error("{} changed while it was put, and nothing was kept", path.display())]
    Changed { path: PathBuf },

    /// An upload of which nobody knows whether it is there: its answer was lost.
    #[error("{source}")]
    Unknown { source: ClientError },
}

impl BlobCommandError {
    /// An upload was refused, or nobody knows.
    pub(super) fn of_upload(source: ClientError) -> Failure {
        match matches!(source, ClientError::UnknownOutcome { .. }) {
            true => Self::Unknown { source }.into(),
            false => source.into(),
        }
    }

    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { path: path.clone(), source }
    }

    /// How a command ends with this.
    pub(in crate::cli) fn exit(&self) -> Exit {
        match self {
            Self::FileExists { .. }
            | Self::PartOfAnother { .. }
            | Self::NotResumed { .. }
            | Self::Busy { .. } => Exit::Refused,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::Absent,
            Self::Io { .. } | Self::Changed { .. } => Exit::Failed,
            // Before the last piece there is certainly no BLOB.
            Self::Stopped { source, is_last, .. } => {
                let is_unknown = *is_last && exit_of(source) == Exit::Unknown;
                if is_unknown { Exit::Unknown } else { Exit::Failed }
            }
            Self::Unknown { .. } => Exit::Unknown,
        }
    }

    /// What to do.
    pub(in crate::cli) fn advice(&self) -> &'static str {
        match self {
            Self::FileExists { .. } => "give --force to replace it, or another name with -o",
            Self::PartOfAnother { .. } | Self::NotResumed { .. } => {
                "delete it, give --force to begin anew, or another name with -o"
            }
            Self::Busy { .. } => "wait until it has ended",
            Self::Io { .. } => "check the path, its permissions and the room on its disk",
            Self::Stopped { .. } => {
                "give the same command again: it goes on where this one stopped"
            }
            Self::Changed { .. } => "put it again once it stays as it is",
            Self::Unknown { .. } => {
                "put it again: the id of the other one, if it is there, is lost, and it expires"
            }
        }
    }
}
