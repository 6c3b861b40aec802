//! Lines: callers that wait for an institution, and the one task that serves them.
//!
//! The first caller starts the task. It serves until nobody has come for a while, so that it knows
//! the state of a busy institution from its last write; institutions that rest have neither task
//! nor line. A caller that goes away leaves its place in line, and nothing else changes.
//!
//! Invariant: a line exists as long as its task does. A task that is ended early takes its line
//! with it, and who waits there is told.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Ispb, PullStreamError};
use crate::clock::{Clock, SharedClock};

/// How many callers may wait for one institution.
const MAX_WAITING: usize = 4_096;

/// Lines that room is kept for when fewer are busy.
const SPARE_LINES: usize = 64;

#[derive(Debug)]
struct Line<W> {
    waiting: VecDeque<W>,
    came: Arc<Notify>,
}

type LinesByIspb<W> = HashMap<Ispb, Line<W>, FixedState>;

/// The lines of one kind of caller.
#[derive(Debug)]
pub(super) struct Lines<W>(Mutex<LinesByIspb<W>>);

impl<W> Lines<W> {
    pub(super) fn new(clock: &dyn Clock) -> Arc<Self> {
        let hasher = FixedState::with_seed(clock.random_u64());
        Arc::new(Self(Mutex::new(HashMap::with_hasher(hasher))))
    }

    /// How many have a task.
    pub(super) fn at_work(&self) -> usize {
        self.0.lock().len()
    }

    /// Lets a caller wait. Whoever gets a line has to serve it.
    pub(super) fn join(
        self: &Arc<Self>,
        ispb: Ispb,
        caller: W,
    ) -> Result<Option<Attended<W>>, PullStreamError> {
        match self.0.lock().entry(ispb) {
            Entry::Occupied(mut line) => {
                let line = line.get_mut();
                if line.waiting.len() >= MAX_WAITING {
                    return Err(PullStreamError::Busy);
                }
                line.waiting.push_back(caller);
                line.came.notify_one();
                Ok(None)
            }
            Entry::Vacant(place) => {
                let came = Arc::new(Notify::new());
                let waiting = VecDeque::from([caller]);
                place.insert(Line { waiting, came: Arc::clone(&came) });
                Ok(Some(Attended { lines: Arc::clone(self), ispb, came, has_ended: false }))
            }
        }
    }
}

/// The line of one institution. Dropped before it has ended, it takes those who wait with it.
#[derive(Debug)]
pub(super) struct Attended<W> {
    lines: Arc<Lines<W>>,
    pub(super) ispb: Ispb,
    came: Arc<Notify>,
    has_ended: bool,
}

impl<W> Attended<W> {
    /// Looks at those who wait, and takes whom it will.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut VecDeque<W>) -> T) -> Option<T> {
        self.lines.0.lock().get_mut(&self.ispb).map(|line| look(&mut line.waiting))
    }

    /// Completes when somebody comes, or after so long.
    pub(super) async fn wait(&self, clock: &SharedClock, longest: Duration) {
        tokio::select! {
            biased;
            () = self.came.notified() => {}
            () = clock.sleep(longest) => {}
        }
    }

    /// Whether nobody comes for so long. False as soon as somebody waits.
    pub(super) async fn rests(&self, clock: &SharedClock, long: Duration) -> bool {
        let until = clock.monotonic() + long;
        loop {
            if self.look(|waiting| !waiting.is_empty()).unwrap_or(false) {
                return false;
            }
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return true;
            }
            // Somebody who was served already may have been heard.
            self.wait(clock, left).await;
        }
    }

    /// Ends the line if nobody waits.
    pub(super) fn end_if_empty(&mut self) -> bool {
        let mut lines = self.lines.0.lock();
        if lines.get(&self.ispb).is_some_and(|line| !line.waiting.is_empty()) {
            return false;
        }
        self.has_ended = true;
        remove(&mut lines, self.ispb);
        true
    }
}

impl<W> Drop for Attended<W> {
    fn drop(&mut self) {
        if !self.has_ended {
            let left = remove(&mut self.lines.0.lock(), self.ispb);
            // Those who wait are woken outside of the lock.
            drop(left);
        }
    }
}

/// Takes a line out, and gives room back that many lines took once.
fn remove<W>(lines: &mut LinesByIspb<W>, ispb: Ispb) -> Option<Line<W>> {
    let line = lines.remove(&ispb);
    if lines.capacity() > SPARE_LINES && lines.len() < lines.capacity() / 8 {
        lines.shrink_to(SPARE_LINES.max(lines.len() * 2));
    }
    line
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::clock::ManualClock;

    /// Who came while the task was busy was heard, and served with the others.
    #[test]
    fn a_rest_is_not_cut_short_by_who_was_served_already() {
        let manual = ManualClock::seeded(1);
        let (lines, clock): (_, SharedClock) = (Lines::new(&*manual), manual.clone());
        let ispb = "00000208".parse().unwrap();
        let line = lines.join(ispb, 1).unwrap().unwrap();
        assert!(lines.join(ispb, 2).unwrap().is_none(), "one task is enough");
        assert_eq!(line.look(std::mem::take), Some(VecDeque::from([1, 2])));
        let long = Duration::from_secs(1);
        assert_eq!(line.rests(&clock, long).now_or_never(), None, "it goes on resting");
        lines.join(ispb, 3).unwrap();
        assert_eq!(line.rests(&clock, long).now_or_never(), Some(false));
    }
}
