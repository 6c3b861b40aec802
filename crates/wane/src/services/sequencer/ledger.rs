//! What the caller's side and the background task share: the phase, and the numbers that wait.
//!
//! The next offset exists only while the sequencer is running, and it moves together with the
//! numbers of its event. So a batch holds every number of every event below its offset that was not
//! stored before, whenever it is taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::{Fault, SequencerError};
use super::event_log::Offset;
use super::records::{Counter, SequenceId, Stands, WorkspaceId};
use super::{Busy, Start};

/// What a sequencer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It learns from store and log which numbers were used. `start` answers busy.
    Recovering,
    /// It gives out numbers.
    Running {
        /// The offset of the next event.
        next: Offset,
    },
    /// Its background task has ended.
    Stopped,
}

/// How a sequencer is doing.
#[derive(Debug, Clone)]
pub struct Status {
    /// What it is doing.
    pub phase: Phase,
    /// Sequences whose numbers wait for the store.
    pub unflushed: usize,
    /// Events below this offset are known to be covered by the store.
    pub covered: Offset,
    /// What keeps the background task from going on; none while all is well.
    pub fault: Option<Arc<Fault>>,
}

/// A number drawn in the open transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw {
    pub(super) sequence: SequenceId,
    /// The last number before the transaction, if there was one.
    pub(super) before: Option<u64>,
    pub(super) last: u64,
}

/// A number on its way to the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) stands: Stands,
    pub(super) last: u64,
}

/// Numbers, and the offset that may be written once they are stored.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) numbers: Vec<(Counter, Pending)>,
    pub(super) next: Offset,
}

#[derive(Debug)]
pub(super) struct Ledger {
    max_unflushed: usize,
    state: Mutex<State>,
    /// Wakes the task: there is something to write, or no time left to gather more.
    work: Notify,
    /// Wakes the task: whatever it does, it is to recover.
    recovery: Notify,
    /// Wakes a caller that waits until it can start.
    progress: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Ordered, so that runs with the same seed are the same runs.
    pending: BTreeMap<Counter, Pending>,
    covered: Offset,
    closing: bool,
    fault: Option<Arc<Fault>>,
}

impl State {
    fn has_work(&self) -> bool {
        matches!(self.phase, Phase::Running { next } if next > self.covered)
    }

    /// Events below `offset` are stored, so nothing is in the way.
    fn reach(&mut self, offset: Offset) {
        self.covered = offset;
        self.fault = None;
    }
}

impl Ledger {
    pub(super) fn new(first_offset: Offset, max_unflushed: usize) -> Self {
        let state = State {
            phase: Phase::Recovering,
            pending: BTreeMap::new(),
            covered: first_offset,
            closing: false,
            fault: None,
        };
        Self {
            max_unflushed,
            state: Mutex::new(state),
            work: Notify::new(),
            recovery: Notify::new(),
            progress: Notify::new(),
        }
    }

    pub(super) fn status(&self) -> Status {
        let state = self.state.lock();
        Status {
            phase: state.phase,
            unflushed: state.pending.len(),
            covered: state.covered,
            fault: state.fault.clone(),
        }
    }

    /// Whether a transaction may start, and at which offset.
    pub(super) fn start(&self) -> Result<Start, SequencerError> {
        let state = self.state.lock();
        let next = match state.phase {
            Phase::Recovering => return Ok(Start::Busy(Busy::Recovering)),
            Phase::Stopped => return Err(SequencerError::Stopped),
            Phase::Running { next } => next,
        };
        if next.following().is_none() {
            return Err(SequencerError::OffsetsExhausted);
        }
        let numbers = state.pending.len();
        if numbers >= self.max_unflushed {
            return Ok(Start::Busy(Busy::Unflushed { numbers }));
        }
        Ok(Start::Started { offset: next })
    }

    /// Returns once something changed that may let a transaction start.
    pub(super) async fn progressed(&self) {
        self.progress.notified().await;
    }

    /// The last number of a counter, if it waits for the store.
    pub(super) fn pending(&self, counter: Counter) -> Option<u64> {
        self.state.lock().pending.get(&counter).map(|pending| pending.last)
    }

    /// Takes the numbers of an event that was written, and moves on to the next offset.
    pub(super) fn commit(
        &self,
        workspace: WorkspaceId,
        draws: &[Draw],
    ) -> Result<(), SequencerError> {
        let mut state = self.state.lock();
        let Phase::Running { next } = state.phase else { return Err(SequencerError::Stopped) };
        let next = next.following().ok_or(SequencerError::OffsetsExhausted)?;
        let idle = !state.has_work();
        for draw in draws {
            let counter = Counter { workspace, sequence: draw.sequence };
            let stands = draw.before.into();
            let entry = state.pending.entry(counter).or_insert(Pending { stands, last: draw.last });
            entry.last = draw.last;
        }
        state.phase = Phase::Running { next };
        let full = state.pending.len() >= self.max_unflushed;
        drop(state);
        // A task that has work looks for more by itself.
        if idle || full {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Drops everything and asks the task to recover.
    pub(super) fn forget(&self) -> Result<(), SequencerError> {
        let mut state = self.state.lock();
        if state.phase == Phase::Stopped {
            return Err(SequencerError::Stopped);
        }
        state.phase = Phase::Recovering;
        state.pending.clear();
        drop(state);
        self.recovery.notify_one();
        Ok(())
    }

    /// Asks the task to end once everything is stored.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_one();
    }
}

/// The side of the task.
impl Ledger {
    /// Returns when the task is to recover, whatever it is doing.
    pub(super) async fn recovery_asked(&self) {
        self.recovery.notified().await;
    }

    /// Everything up to `next` is stored: transactions may start there.
    pub(super) fn recovered(&self, next: Offset) {
        let mut state = self.state.lock();
        state.phase = Phase::Running { next };
        state.reach(next);
        drop(state);
        self.progress.notify_one();
    }

    /// A page of the log is stored, and the offset after it.
    pub(super) fn reached(&self, offset: Offset) {
        self.state.lock().reach(offset);
    }

    /// Returns whether there is something to write; waits while there is not, unless nothing more
    /// will come.
    pub(super) async fn has_work(&self) -> bool {
        loop {
            {
                let state = self.state.lock();
                if state.has_work() {
                    return true;
                }
                if state.closing && state.phase != Phase::Recovering {
                    return false;
                }
            }
            self.work.notified().await;
        }
    }

    /// Returns once gathering more would make somebody wait.
    pub(super) async fn is_urgent(&self) {
        loop {
            {
                let state = self.state.lock();
                if state.closing || state.pending.len() >= self.max_unflushed {
                    return;
                }
            }
            self.work.notified().await;
        }
    }

    /// Everything that waits. It goes on waiting until it is told to be written.
    pub(super) fn batch(&self) -> Option<Batch> {
        let state = self.state.lock();
        let Phase::Running { next } = state.phase else { return None };
        let numbers = state.pending.iter().map(|(counter, pending)| (*counter, *pending));
        Some(Batch { numbers: numbers.collect(), next })
    }

    /// The batch is stored, numbers and offset.
    pub(super) fn written(&self, batch: &Batch) {
        let mut state = self.state.lock();
        for (counter, written) in &batch.numbers {
            let Some(pending) = state.pending.get_mut(counter) else { continue };
            if pending.last == written.last {
                state.pending.remove(counter);
            } else {
                pending.stands = Stands::At(written.last);
            }
        }
        state.reach(batch.next);
        drop(state);
        self.progress.notify_one();
    }

    /// Notes what keeps the task from going on.
    pub(super) fn failed(&self, fault: Fault) {
        self.state.lock().fault = Some(Arc::new(fault));
    }

    /// Notes that the task has ended.
    pub(super) fn stopped(&self) {
        self.state.lock().phase = Phase::Stopped;
        self.progress.notify_one();
    }
}
