//! What callers do wrong, and what goes wrong behind them.

use super::event_log::Offset;
use super::records::{SequenceId, WorkspaceId, WorkspaceKind};
use crate::store::{BoxError, StoreError};

/// Why a call of a [`Sequencer`](super::Sequencer) failed. A call that fails leaves the transaction
/// as it was; a sequencer that has stopped has none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum SequencerError {
    /// A setting breaks a rule. Nothing was started.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// No transaction is open. Call `start` first.
    #[error("{call} without a transaction; call start first")]
    NotStarted { call: &'static str },

    /// A transaction is open. End it first.
    #[error("the transaction at offset {offset} is open; end it by flush or actualize first")]
    AlreadyStarted { offset: Offset },

    /// The settings name no such kind of workspace.
    #[error("workspaces of kind {} are not in the settings", kind.0)]
    UnknownKind { kind: WorkspaceKind },

    /// The kind of the workspace has no such sequence.
    #[error("workspaces of kind {} have no sequence {} in the settings", kind.0, sequence.0)]
    UnknownSequence { kind: WorkspaceKind, sequence: SequenceId },

    /// The sequence has given out its last number.
    #[error("sequence {} of workspace {} is exhausted", sequence.0, workspace.0)]
    NumbersExhausted { workspace: WorkspaceId, sequence: SequenceId },

    /// The log has no further offset.
    #[error("the log of the partition has no offset left")]
    OffsetsExhausted,

    /// The background task has ended, which it does only when the log or the store panics. Make a
    /// new sequencer: it recovers from the log.
    #[error("the sequencer has stopped; make a new one")]
    Stopped,

    /// The store failed to answer. The transaction is still open: ask again, or actualize.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What keeps the background task from going on. It tries again until it succeeds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum Fault {
    /// The store failed. A corrupt record, and one that has fallen, needs an operator.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// The event log failed.
    #[error("the event log failed: {0}")]
    Log(#[source] BoxError),

    /// Events are missing. Numbers may have been used there, so that none is given out.
    #[error("the event log has offset {found} where {expected} was due")]
    LogGap { expected: Offset, found: Offset },

    /// The last event that there can be was read.
    #[error("the event log has no offset left")]
    LogFull,
}
