//! Combining: callers wait in line, and one task per busy sequence takes numbers for all of them.
//!
//! The first caller has the task spawned, those who come later join its line. The task takes whoever
//! waits into a round, and ends when nobody does; sequences that rest have neither task nor line.
//! It knows the record from its last swap, so that a busy sequence costs one swap a round and no
//! read. A caller that goes away leaves its place in line, and nothing else changes.
//!
//! Invariant: a line exists as long as its task does. A task that is ended early takes its line
//! with it, and who waits there is told.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::SequencesError;
use super::round::{Round, Sequence, Waiting};
use crate::clock::SharedClock;
use crate::services::names::Names;
use crate::store::{Key, Store};

/// How many callers may wait for one sequence.
pub const MAX_WAITING: usize = 4_096;

/// How often the task lets others run before the next round, as long as fewer wait than it has just
/// answered: they are about to come back, and share the swap if it waits for them.
const TURNS: usize = 2;

/// Lines that room is kept for when fewer are busy.
const SPARE_LINES: usize = 64;

type LinesByKey = HashMap<Key, VecDeque<Waiting>, FixedState>;

/// The lines of all sequences that are busy.
#[derive(Debug)]
pub(super) struct Lines<S> {
    pub(super) store: S,
    clock: SharedClock,
    names: Names,
    lines: Mutex<LinesByKey>,
}

impl<S: Store> Lines<S> {
    pub(super) fn new(store: S, clock: SharedClock) -> Self {
        let hasher = FixedState::with_seed(clock.random_u64());
        let lines = Mutex::new(HashMap::with_hasher(hasher));
        Self { store, clock, names: Names::default(), lines }
    }

    pub(super) fn at_work(&self) -> usize {
        self.lines.lock().len()
    }

    /// Lets a caller wait for its numbers. The task that gives them ends with `open`.
    pub(super) fn join(
        self: &Arc<Self>,
        key: Key,
        caller: Waiting,
        open: &watch::Sender<()>,
    ) -> Result<(), SequencesError> {
        let mut lines = self.lines.lock();
        let line = match lines.entry(key) {
            Entry::Occupied(line) => return wait_in(line.into_mut(), caller),
            Entry::Vacant(place) => {
                let (lines, key) = (Arc::clone(self), place.key().clone());
                place.insert(VecDeque::from([caller]));
                Attended { lines, key, has_ended: false }
            }
        };
        // A runtime that shuts down drops the task at once, and that takes the lock.
        drop(lines);
        tokio::spawn(attend(line, open.subscribe()));
        Ok(())
    }
}

fn wait_in(line: &mut VecDeque<Waiting>, caller: Waiting) -> Result<(), SequencesError> {
    if line.len() >= MAX_WAITING {
        line.retain(|caller| !caller.has_left());
        if line.len() >= MAX_WAITING {
            return Err(SequencesError::Busy);
        }
    }
    line.push_back(caller);
    Ok(())
}

/// Serves a line until it is empty, or the last handle is gone.
async fn attend<S: Store>(mut line: Attended<S>, mut open: watch::Receiver<()>) {
    tokio::select! {
        biased;
        // Nothing is ever sent: it ends with its sender.
        _ = open.changed() => {}
        () = line.serve() => {}
    }
}

/// The line of one sequence. Dropped before it has ended, it takes those who wait with it.
#[derive(Debug)]
struct Attended<S> {
    lines: Arc<Lines<S>>,
    key: Key,
    has_ended: bool,
}

impl<S: Store> Attended<S> {
    async fn serve(&mut self) {
        let (lines, key) = (Arc::clone(&self.lines), self.key.clone());
        let mut sequence = Sequence::new(&lines.store, &lines.clock, &lines.names, &key);
        let mut round = Round::default();
        while self.fill(&mut round) {
            let answered = round.len();
            sequence.serve(&mut round).await;
            self.let_come_back(answered).await;
        }
    }

    /// Takes the next round; nobody waits where there is none, and the line has ended.
    fn fill(&mut self, round: &mut Round) -> bool {
        let mut lines = self.lines.lines.lock();
        if let Some(line) = lines.get_mut(&self.key) {
            round.fill(line);
        }
        if round.len() > 0 {
            return true;
        }
        self.has_ended = true;
        remove(&mut lines, &self.key);
        false
    }

    async fn let_come_back(&self, answered: usize) {
        for _ in 0..TURNS {
            let waiting = self.lines.lines.lock().get(&self.key).map_or(0, VecDeque::len);
            if waiting >= answered {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl<S> Drop for Attended<S> {
    fn drop(&mut self) {
        if !self.has_ended {
            let left = remove(&mut self.lines.lines.lock(), &self.key);
            // Those who wait are woken outside of the lock.
            drop(left);
        }
    }
}

/// Takes a line out, and gives room back that many lines took once.
fn remove(lines: &mut LinesByKey, key: &Key) -> Option<VecDeque<Waiting>> {
    let line = lines.remove(key);
    if lines.capacity() > SPARE_LINES && lines.len() < lines.capacity() / 8 {
        lines.shrink_to(SPARE_LINES.max(lines.len() * 2));
    }
    line
}
