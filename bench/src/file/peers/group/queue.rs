//! The queue before the writer: callers put jobs in, the writer takes them out in groups.
//!
//! A group is whatever has gathered. After a group of several callers the writer waits a moment
//! for as many to come back; a lone caller waits for nobody, and the writer stays awake after it.
//! After a group of megabytes it waits as long as more large values, and nothing else, keep coming.

use std::time::Duration;

use ::wane::store::{Change, Effect, Outcome, StoreError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use super::values::LARGE;

/// How long the writer waits for the callers of the last group to come back.
const GATHER: Duration = Duration::from_micros(300);

/// How often a writer that is out of work looks again before it sleeps.
const LOOKS: usize = 32;

/// What a group may weigh.
const GROUP_BYTES: usize = 8 << 20;

/// A group of so many bytes is part of something larger, and the next one is let gather so many.
const STREAM: usize = 1 << 20;
const STREAM_GROUP: usize = 4 << 20;

/// How long nothing must have come for the writer to wait no longer.
const QUIET: Duration = Duration::from_millis(1);

/// A change with the key it is for, in its stored form.
#[derive(Debug)]
pub(super) struct KeyedChange {
    pub(super) key: Vec<u8>,
    pub(super) change: Change<'static>,
}

impl KeyedChange {
    fn weight(&self) -> usize {
        match self.change.effect() {
            Effect::Write(write) => self.key.len() + write.value.len(),
            Effect::Delete(_) => self.key.len(),
        }
    }
}

/// What one caller asked for, and where its answers go.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) changes: Vec<KeyedChange>,
    pub(super) reply: oneshot::Sender<Answers>,
}

impl Job {
    fn weight(&self) -> usize {
        self.changes.iter().map(KeyedChange::weight).sum()
    }
}

/// One answer for each change.
pub(super) type Answers = Result<Vec<Outcome>, StoreError>;

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
    weight: usize,
    /// Jobs that hold no large value.
    light: usize,
    awaited: Option<Awaited>,
    /// Bytes of the last group.
    last_weight: usize,
    closed: bool,
}

/// What is worth waiting for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    /// So many jobs.
    Jobs(usize),
    /// So many bytes, or a job that must not wait for them.
    Bytes(usize),
}

impl State {
    fn take(&mut self) -> Vec<Job> {
        let mut weight = 0;
        let full = self.jobs.iter().position(|job| {
            weight += job.weight();
            weight > GROUP_BYTES
        });
        // A job that is heavier than a group makes a group of its own.
        let left = full.map_or(Vec::new(), |at| self.jobs.split_off(at.max(1)));
        let group = std::mem::replace(&mut self.jobs, left);
        let left = self.jobs.iter().map(Job::weight);
        let left_weight = left.clone().sum();
        self.light = left.filter(|weight| *weight < LARGE).count();
        self.last_weight = self.weight - left_weight;
        self.weight = left_weight;
        group
    }

    fn has(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Jobs(jobs) => self.jobs.len() >= jobs,
            Awaited::Bytes(bytes) => self.weight >= bytes || self.light > 0 || self.closed,
        }
    }
}

impl Queue {
    /// Adds a job; `false` where the queue is closed.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let weight = job.weight();
        state.weight += weight;
        state.light += usize::from(weight < LARGE);
        state.jobs.push(job);
        let first = state.jobs.len() == 1;
        let enough = state.awaited.is_some_and(|awaited| state.has(awaited));
        drop(state);
        if enough {
            self.enough.notify_one();
        }
        if first {
            self.arrived.notify_one();
        }
        true
    }

    /// Takes all jobs, after a moment's wait for as many as the last group had.
    pub(super) fn take(&self, last_group: usize) -> Taken {
        let mut state = self.state.lock();
        if !state.jobs.is_empty() {
            if state.last_weight >= STREAM {
                self.gather_stream(&mut state);
            } else if last_group > 1 && !state.has(Awaited::Jobs(last_group)) {
                self.gather(&mut state, Awaited::Jobs(last_group), GATHER);
            }
        }
        if state.jobs.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        Taken::Group(state.take())
    }

    fn gather_stream(&self, state: &mut MutexGuard<'_, State>) {
        let awaited = Awaited::Bytes(STREAM_GROUP);
        let mut before = 0;
        while state.jobs.len() > before && !state.has(awaited) {
            before = state.jobs.len();
            self.gather(state, awaited, QUIET);
        }
    }

    fn gather(&self, state: &mut MutexGuard<'_, State>, awaited: Awaited, longest: Duration) {
        state.awaited = Some(awaited);
        self.enough.wait_for(state, longest);
        state.awaited = None;
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
