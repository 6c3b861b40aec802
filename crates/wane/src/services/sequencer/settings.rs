//! How a sequencer is set up.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::SequencerError;
use super::event_log::Offset;
use super::records::{SequenceId, WorkspaceKind};
use crate::services::ClusterAppId;

/// Sequences that one kind of workspace may have.
pub const MAX_SEQUENCES: usize = 1_024;

/// The sequences of a kind of workspace, each with the first number that it gives out.
pub type Sequences = BTreeMap<SequenceId, u64>;

/// Whose numbers a sequencer gives out, and within which bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequencerSettings {
    /// The application.
    pub app: ClusterAppId,
    /// The partition of the application.
    pub partition: u16,
    /// The kinds of workspaces, and the sequences of each.
    pub kinds: BTreeMap<WorkspaceKind, Sequences>,
    /// The offset of the first event of a log. Default: 1.
    pub first_offset: Offset,
    /// Numbers kept in memory, about; others are read from the store. Default: 100,000.
    pub cache_size: usize,
    /// Sequences whose numbers wait for the store before `start` answers busy; one transaction may
    /// go beyond it. Default: 500.
    pub max_unflushed: usize,
    /// Numbers that are written side by side. Default: 16.
    pub concurrency: usize,
    /// How long numbers are gathered before they are written, so that one write serves many
    /// transactions. Default: 10 ms.
    pub gather: Duration,
    /// The pause after a first failure; each further one doubles it. Default: 10 ms.
    pub first_pause: Duration,
    /// The longest pause. Default: 2 s.
    pub longest_pause: Duration,
    /// Events that recovery asks the log for at a time. Default: 1,000.
    pub page: usize,
}

impl SequencerSettings {
    /// The settings of a partition, with the defaults.
    pub fn new(
        app: ClusterAppId,
        partition: u16,
        kinds: impl IntoIterator<Item = (WorkspaceKind, Sequences)>,
    ) -> Self {
        Self {
            app,
            partition,
            kinds: kinds.into_iter().collect(),
            first_offset: Offset(1),
            cache_size: 100_000,
            max_unflushed: 500,
            concurrency: 16,
            gather: Duration::from_millis(10),
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_secs(2),
            page: 1_000,
        }
    }

    /// Says which setting breaks a rule, if any does.
    pub(super) fn check(&self) -> Result<(), SequencerError> {
        let invalid =
            |field, reason: &str| Err(SequencerError::Invalid { field, reason: reason.to_owned() });
        if self.app == ClusterAppId::NONE {
            return invalid("app", "0 is no application");
        }
        let counts = [
            ("cache_size", self.cache_size),
            ("max_unflushed", self.max_unflushed),
            ("concurrency", self.concurrency),
            ("page", self.page),
        ];
        if let Some((field, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return invalid(field, "it must be at least 1");
        }
        if self.first_pause.is_zero() || self.longest_pause < self.first_pause {
            return invalid("first_pause", "it must be above zero and at most longest_pause");
        }
        if self.kinds.values().any(|sequences| sequences.len() > MAX_SEQUENCES) {
            return invalid("kinds", "a kind of workspace has at most 1024 sequences");
        }
        Ok(())
    }
}
