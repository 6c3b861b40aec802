//! An event log in memory that refuses taken offsets, fails when told to, and looks at every event
//! whether its numbers keep the promise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use wane::services::sequencer::{Event, EventLog, Offset, SequenceId, WorkspaceId};
use wane::store::BoxError;

/// Where numbers are counted.
pub(super) type Counter = (WorkspaceId, SequenceId);

/// The offset of an append was taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken;

#[derive(Debug, Default)]
pub(super) struct MemoryLog {
    state: Mutex<State>,
    /// Reads fail.
    pub(super) failing: AtomicBool,
    /// Reads panic.
    pub(super) panicking: AtomicBool,
    /// Appends at taken offsets are let through, which no log must do.
    pub(super) careless: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    used: BTreeMap<Counter, BTreeSet<u64>>,
    broken: Option<String>,
    /// The reads, as offset and limit.
    reads: Vec<(u64, usize)>,
}

impl MemoryLog {
    pub(super) fn append(&self, event: Event) -> Result<(), Taken> {
        let mut state = self.state.lock();
        let free = state.events.len() as u64 + 1;
        if event.offset.0 != free && !self.careless.load(Ordering::Relaxed) {
            assert!(event.offset.0 < free, "an event was left out before {event:?}");
            return Err(Taken);
        }
        for (sequence, number) in &event.numbers {
            state.judge((event.workspace, *sequence), *number);
        }
        if event.offset.0 == free {
            state.events.push(event);
        }
        Ok(())
    }

    /// S3: notes a draw of a number that stands in the log.
    pub(super) fn look_at_draw(&self, workspace: WorkspaceId, sequence: SequenceId, number: u64) {
        let mut state = self.state.lock();
        let stands = |used: &BTreeSet<u64>| used.contains(&number);
        if state.used.get(&(workspace, sequence)).is_some_and(stands) {
            state.note(format!("S3: {number} of {workspace:?} {sequence:?} was drawn again"));
        }
    }

    /// Notes that the promise is broken.
    pub(super) fn note(&self, broken: String) {
        self.state.lock().note(broken);
    }

    /// What broke the promise first, if anything did.
    pub(super) fn broken(&self) -> Option<String> {
        self.state.lock().broken.clone()
    }

    /// The highest number of each counter among the events below `offset`.
    pub(super) fn highest_below(&self, offset: u64) -> BTreeMap<Counter, u64> {
        let mut highest = BTreeMap::new();
        for event in self.state.lock().events.iter().filter(|event| event.offset.0 < offset) {
            for (sequence, number) in &event.numbers {
                let last = highest.entry((event.workspace, *sequence)).or_insert(*number);
                *last = (*last).max(*number);
            }
        }
        highest
    }

    /// The offset of the next event.
    pub(super) fn end(&self) -> u64 {
        self.state.lock().events.len() as u64 + 1
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.state.lock().events.clone()
    }

    pub(super) fn reads(&self) -> Vec<(u64, usize)> {
        self.state.lock().reads.clone()
    }

    /// Loses an event, which no log must do.
    pub(super) fn lose(&self, offset: u64) {
        self.state.lock().events.retain(|event| event.offset.0 != offset);
    }
}

impl State {
    fn judge(&mut self, counter: Counter, number: u64) {
        let used = self.used.entry(counter).or_default();
        let last = used.last().copied();
        if !used.insert(number) {
            self.note(format!("S1: {number} of {counter:?} stands in the log twice"));
        } else if last.is_some_and(|last| last > number) {
            self.note(format!("S2: {number} of {counter:?} came after {last:?}"));
        }
    }

    fn note(&mut self, broken: String) {
        self.broken.get_or_insert(broken);
    }
}

impl EventLog for MemoryLog {
    async fn events_from(&self, offset: Offset, limit: usize) -> Result<Vec<Event>, BoxError> {
        assert!(!self.panicking.load(Ordering::Relaxed), "told to");
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        state.reads.push((offset.0, limit));
        if self.failing.load(Ordering::Relaxed) {
            return Err("the log does not answer".into());
        }
        let events = state.events.iter().filter(|event| event.offset >= offset);
        Ok(events.take(limit).cloned().collect())
    }
}
