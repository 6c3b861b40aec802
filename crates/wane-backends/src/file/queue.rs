//! The queue before the writer: callers put jobs in, the writer takes them out in groups.
//!
//! A group is whatever has gathered. After a group of several callers the writer waits a moment
//! for as many to come back, since those just answered tend to ask again. A lone caller never waits
//! for anyone; after it the writer stays awake for a moment, because waking it would take as long as
//! a tenth of a commit.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};
use wane::store::{Outcome, StoreError};

use super::engine::KeyedChange;

/// How long the writer waits for the callers of the last group to come back.
const GATHER: Duration = Duration::from_micros(300);

/// How often a writer that is out of work looks again before it sleeps. Each look gives others the
/// core first; all of them take some tens of microseconds.
const LOOKS: usize = 32;

/// What a group may weigh: callers of a small write must not wait for gigabytes of others'.
const GROUP_BYTES: usize = 8 << 20;

/// What one caller asked for, and where its answers go.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) changes: Vec<KeyedChange>,
    pub(super) reply: oneshot::Sender<Answers>,
}

impl Job {
    /// Bytes to be written for it, roughly.
    fn weight(&self) -> usize {
        self.changes.iter().map(KeyedChange::weight).sum()
    }
}

/// One answer per change; an error answers the whole job.
pub(super) type Answers = Result<Vec<Result<Outcome, StoreError>>, StoreError>;

/// What the writer finds when it looks.
#[derive(Debug)]
pub(super) enum Taken {
    /// Jobs to do.
    Group(Vec<Job>),
    /// Nothing at the moment.
    Nothing,
    /// Nothing, and no more will come.
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes a writer that gathers.
    enough: Condvar,
    /// Wakes a writer that idles.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    jobs: Vec<Job>,
    /// How many jobs a gathering writer waits for; 0 when it does not gather.
    awaited: usize,
    closed: bool,
}

impl Queue {
    /// Adds a job, or gives it back where the queue is closed.
    pub(super) fn push(&self, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(job);
        }
        state.jobs.push(job);
        let first = state.jobs.len() == 1;
        let enough = state.awaited > 0 && state.jobs.len() >= state.awaited;
        drop(state);
        if enough {
            self.enough.notify_one();
        }
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes all jobs, after a moment's wait for as many as the last group had.
    pub(super) fn take(&self, last_group: usize) -> Taken {
        let mut state = self.state.lock();
        if last_group > 1 && !state.jobs.is_empty() && state.jobs.len() < last_group {
            state.awaited = last_group;
            self.enough.wait_for(&mut state, GATHER);
            state.awaited = 0;
        }
        if state.jobs.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        let mut weight = 0;
        let full = state.jobs.iter().position(|job| {
            weight += job.weight();
            weight > GROUP_BYTES
        });
        // A job that is heavier than a group makes a group of its own.
        let left = full.map_or(Vec::new(), |at| state.jobs.split_off(at.max(1)));
        Taken::Group(std::mem::replace(&mut state.jobs, left))
    }

    /// Returns once a job is there, or after a moment. For a writer that has just answered.
    pub(super) fn look_out(&self) {
        for _ in 0..LOOKS {
            let state = self.state.lock();
            if !state.jobs.is_empty() || state.closed {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Completes when a job has arrived, or the queue was closed, since the last look.
    pub(super) async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Refuses further jobs. Those already here are still to be taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_one();
        self.enough.notify_one();
    }
}
