//! Why messages were not sent, not kept or not acknowledged, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use wane::services::pull_stream::ResourceId;

use crate::cli::failure::{Exit, exit_of};
use crate::client::ClientError;

/// What a shell says of a program that Ctrl-C ended.
const INTERRUPTED: Exit = Exit::Of(130);

/// Why a command of pull streams failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum StreamCommandError {
    /// A file that no server takes for a message.
    #[error("{file} is no message: {reason}")]
    NoMessage { file: String, reason: String },

    /// A file or a directory that could not be used.
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },

    /// Another process writes the same message.
    #[error("another wane is writing {}", path.display())]
    Busy { path: PathBuf },

    /// The server, or the way to it.
    #[error("{source}")]
    Server { source: ClientError },

    /// Not all files were sent.
    #[error("{source}{report}")]
    Push { source: Box<StreamCommandError>, report: PushReport },

    /// There is no slot for another reader.
    #[error("{source}")]
    Full { source: ClientError },

    /// The server did not come back while somebody had patience.
    #[error("{source}; it did not come back for half a minute")]
    Lost { source: ClientError },

    /// The command that was run for a message did not succeed.
    #[error("the command failed for {id}: {how}")]
    CommandFailed { id: ResourceId, how: String },

    /// Everything was kept and nobody knows whether it was acknowledged.
    #[error("{source}; what came last is written, and may come again")]
    NotEnded { source: ClientError },

    /// There is nothing to replay.
    #[error("no message came in in that time")]
    NothingToReplay,

    /// The batch of a replay that was read before is gone.
    #[error("what was read last is past its retention, and not in the archive")]
    ReplayGone,

    /// The server archives nowhere.
    #[error("the server has no archive")]
    NoArchive,

    /// Somebody asked twice.
    #[error("stopped at once: what came last is not acknowledged, and comes again")]
    Interrupted,
}

impl StreamCommandError {
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { path: path.clone(), source }
    }

    /// What the server said, where it is that.
    pub(in crate::cli) fn client_error(&self) -> Option<&ClientError> {
        match self {
            Self::Server { source }
            | Self::Full { source }
            | Self::Lost { source }
            | Self::NotEnded { source } => Some(source),
            Self::Push { source, .. } => source.client_error(),
            Self::NoMessage { .. }
            | Self::Io { .. }
            | Self::Busy { .. }
            | Self::CommandFailed { .. }
            | Self::NothingToReplay
            | Self::ReplayGone
            | Self::NoArchive
            | Self::Interrupted => None,
        }
    }

    /// How a command ends with this.
    pub(in crate::cli) fn exit(&self) -> Exit {
        match self {
            Self::NoMessage { .. } => Exit::Usage,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::Absent,
            Self::NoArchive => Exit::Absent,
            Self::Busy { .. } => Exit::Refused,
            Self::NothingToReplay | Self::ReplayGone => Exit::Absent,
            Self::Server { source } | Self::NotEnded { source } => exit_of(source),
            Self::Push { source, .. } => source.exit(),
            // What was written is written, and the rest was not asked for.
            Self::Io { .. }
            | Self::Full { .. }
            | Self::Lost { .. }
            | Self::CommandFailed { .. } => Exit::Failed,
            Self::Interrupted => INTERRUPTED,
        }
    }

    /// What to do, or whose advice is to be given.
    pub(in crate::cli) fn advice(&self) -> Result<String, &ClientError> {
        let advice = match self {
            Self::NoMessage { .. } => "give files that hold one message each, of up to 200 KiB",
            Self::Io { .. } => "check the path, its permissions and the room on its disk",
            Self::NothingToReplay => {
                "check the times: from is included, to is not, and messages go with their retention"
            }
            Self::ReplayGone => {
                "go on with the path that was told last, or have the replay ordered again"
            }
            Self::Busy { .. } => "give each reader a directory of its own",
            Self::NoArchive => {
                "start the server with stream_archive, such as dir:PATH or s3://BUCKET/PREFIX"
            }
            Self::Push { report, .. } if !report.unknown.is_empty() => {
                "find out whether the institution gets those before sending them again: sent twice \
                 they are two messages"
            }
            Self::Push { source, .. } => return source.advice(),
            Self::Server { source } => return Err(source),
            Self::Full { source: ClientError::Problem { retry_after: Some(pause), .. } } => {
                let seconds = pause.as_secs();
                return Ok(format!(
                    "try again in {seconds} s, when a lease may have ended, or wait with --follow"
                ));
            }
            Self::Full { .. } => "try again when another reader has ended, or wait with --follow",
            Self::CommandFailed { .. } => {
                "see to it and pull again: what was not acknowledged comes again"
            }
            Self::Lost { .. } | Self::NotEnded { .. } | Self::Interrupted => {
                "pull again: what was not acknowledged comes again, under the same ids"
            }
        };
        Ok(advice.into())
    }

    /// What a failure says beside its code, for programs.
    pub(in crate::cli) fn members(&self) -> Map<String, Value> {
        match self {
            Self::Push { report, .. } => report.members(),
            Self::NoMessage { .. }
            | Self::Io { .. }
            | Self::Busy { .. }
            | Self::Server { .. }
            | Self::Full { .. }
            | Self::Lost { .. }
            | Self::CommandFailed { .. }
            | Self::NotEnded { .. }
            | Self::NothingToReplay
            | Self::ReplayGone
            | Self::NoArchive
            | Self::Interrupted => Map::new(),
        }
    }
}

/// What became of each file.
#[derive(Debug, Default)]
pub(in crate::cli) struct PushReport {
    pub(super) sent: Vec<(String, ResourceId)>,
    /// They may be in the stream, all or the first of them.
    pub(super) unknown: Vec<String>,
    pub(super) unsent: Vec<String>,
}

impl PushReport {
    pub(super) fn files(&self) -> usize {
        self.sent.len() + self.unknown.len() + self.unsent.len()
    }

    fn members(&self) -> Map<String, Value> {
        let sent = self.sent.iter().map(|(file, id)| json!({"file": file, "id": id.to_string()}));
        Map::from_iter([
            ("sent".to_owned(), sent.collect()),
            ("unknown".to_owned(), self.unknown.clone().into()),
            ("notSent".to_owned(), self.unsent.clone().into()),
        ])
    }
}

impl fmt::Display for PushReport {
    /// Nothing for one file: the reason says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files() < 2 {
            return Ok(());
        }
        let (sent, unknown, unsent) = (self.sent.len(), self.unknown.len(), self.unsent.len());
        write!(
            f,
            "; of {} files, sent: {sent}, unknown: {unknown}, not sent: {unsent}",
            self.files()
        )
    }
}
