//! What a call of the disk is for, by name, so that the proofs can end a store at each of them.
//!
//! Nothing in the store takes part in this: a disk knows which file a call is about, and what a test
//! says that the store is doing. Both together are a point, and whether it was passed can be told.

use std::collections::{BTreeMap, BTreeSet};

/// What a call does to the files of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskStep {
    /// Something of the tree is written.
    TreeWritten,
    /// What was written of the tree is made durable, as at the end of a transaction.
    TreeSynced,
    /// The file of the tree becomes larger or smaller.
    TreeResized,
    /// A large value is written beside the tree.
    ValuesWritten,
    /// Large values are made durable, before the log or the tree says where they are.
    ValuesSynced,
    /// The file of large values is cut off behind the last one.
    ValuesCut,
    /// A new file appears, for a segment that is to be.
    DraftCreated,
    /// It is given its size.
    DraftSized,
    /// It is filled with zeros.
    DraftFilled,
    /// One that the tree has made superfluous is renamed, to be written over.
    SegmentReused,
    /// The header of a segment that is to be is written.
    HeaderWritten,
    /// The header is made durable.
    HeaderSynced,
    /// A segment is given its name.
    SegmentNamed,
    /// Which segments there are is made durable.
    FolderSynced,
    /// A frame is written.
    FrameWritten,
    /// A frame is made durable.
    FrameSynced,
    /// A segment is removed.
    SegmentRemoved,
    /// Something that never became a segment is removed.
    DraftRemoved,
}

impl DiskStep {
    /// Whether it makes something durable, rather than changing it.
    pub(super) fn is_sync(self) -> bool {
        let syncs = [Self::TreeSynced, Self::ValuesSynced, Self::HeaderSynced];
        syncs.contains(&self) || [Self::FolderSynced, Self::FrameSynced].contains(&self)
    }
}

/// A step while the store does something, as the test calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultPoint {
    /// What the store does.
    pub phase: &'static str,
    /// What is called for.
    pub step: DiskStep,
}

/// The points that were passed, and the one where it ends.
#[derive(Debug, Default, Clone)]
pub(super) struct Points {
    phase: &'static str,
    passed: BTreeMap<FaultPoint, u64>,
    armed: Option<(FaultPoint, u64)>,
    /// Where nobody gets past, and whether somebody waits.
    held: BTreeSet<DiskStep>,
    waiting: bool,
}

impl Points {
    /// Has what comes next noted under this name.
    pub(super) fn begin(&mut self, phase: &'static str) {
        self.phase = phase;
    }

    /// Lets everything end at a point, once that was passed so many times.
    pub(super) fn arm(&mut self, point: FaultPoint, after: u64) {
        self.armed = Some((point, after));
    }

    /// How many times each was passed.
    pub(super) fn passed(&self) -> BTreeMap<FaultPoint, u64> {
        self.passed.clone()
    }

    /// Notes a step, and says whether everything ends at it.
    pub(super) fn pass(&mut self, step: DiskStep) -> bool {
        let point = FaultPoint { phase: self.phase, step };
        let passed = self.passed.entry(point).or_default();
        *passed += 1;
        self.armed == Some((point, *passed - 1))
    }

    /// Lets nobody get past a step, or everybody again.
    pub(super) fn hold(&mut self, step: DiskStep, is_held: bool) {
        if is_held {
            self.held.insert(step);
        } else {
            self.held.remove(&step);
        }
        self.waiting = false;
    }

    /// Whether whoever comes to a step has to wait.
    pub(super) fn is_held(&mut self, step: DiskStep) -> bool {
        let is_held = self.held.contains(&step);
        self.waiting |= is_held;
        is_held
    }

    /// Whether somebody waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting
    }
}
