//! The caller's log of events, as recovery reads it: the truth about which numbers were used.
//!
//! What a log must keep, or numbers may be given out twice:
//!
//! - **One event per offset, for ever.** An append at a taken offset is refused. So of two
//!   sequencers that believe in the same next offset one gets its event through, and the other's
//!   numbers are never used.
//! - **What was shown stays.** An acknowledged append is returned by every later read, and an event
//!   that was returned once is neither lost nor changed, acknowledged or not.
//! - **No gaps.** Events that are not yet covered by the stored offset are kept; those below it may
//!   be removed.
//! - **All numbers.** An event names, for each sequence, at least the highest number drawn for it.

use std::fmt::{self, Debug};
use std::sync::Arc;

use super::records::{SequenceId, WorkspaceId};
use crate::store::BoxError;

/// A place in the log of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The place of the next event; none after the last one that there can be.
    pub(super) fn following(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An event of the log, as far as numbers go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where it stands.
    pub offset: Offset,
    /// The workspace that its numbers were drawn for.
    pub workspace: WorkspaceId,
    /// The numbers that it uses. A sequence may come more than once, in any order.
    pub numbers: Vec<(SequenceId, u64)>,
}

/// The log of one partition. The header of its module says what it must keep.
pub trait EventLog: Debug + Send + Sync + 'static {
    /// Returns the events from `offset` on, each one offset after the one before, at most about
    /// `limit` of them. Only an empty page says that the log ends before `offset`.
    fn events_from(
        &self,
        offset: Offset,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Event>, BoxError>> + Send;
}

impl<L: EventLog> EventLog for Arc<L> {
    async fn events_from(&self, offset: Offset, limit: usize) -> Result<Vec<Event>, BoxError> {
        (**self).events_from(offset, limit).await
    }
}
