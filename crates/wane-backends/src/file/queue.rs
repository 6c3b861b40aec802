//! The queue before the writer: callers put jobs in, the writer takes them out in groups.
//!
//! A group is whatever has gathered. Those just answered tend to ask again, and a sync costs the same
//! for all of them as for half. So after a group the writer looks out for its callers to come back,
//! beside those who came meanwhile, as long as they keep coming; on a slow disk it waits for them. A
//! lone caller never waits for anyone; after it the writer stays awake for a moment, because waking it
//! would take as long as a tenth of a commit.
//!
//! After a group of megabytes more tends to come, as of an upload, and what a commit takes beside
//! its bytes is saved where they come in fewer groups. So as long as nothing waits but large values,
//! more of them keep coming, and not all who are expected are back, the writer lets them gather,
//! asleep: whoever sends them has much to do with them first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use wane::store::{Change, Effect, Outcome, StoreError};

use super::format::LARGE;
use super::view::Below;
use super::young::{Held, StoredKey};

/// How long the writer waits for the callers of the last group to come back.
const GATHER: Duration = Duration::from_micros(300);

/// How often a writer looks again for a lone caller, and for one of several, before it goes on. Each
/// look gives others the core first; all of them take some tens of microseconds.
const LOOKS_FOR_ONE: usize = 32;
const LOOKS_FOR_MORE: usize = 64;

/// A group of so many callers is worth its sync.
const ENOUGH: usize = 64;

/// What a group may weigh: callers of a small write must not wait for gigabytes of others'.
const GROUP_BYTES: usize = 8 << 20;

/// A group of so many bytes is part of something larger, and the next one is let gather so many.
const STREAM: usize = 1 << 20;
const STREAM_GROUP: usize = 4 << 20;

/// How long nothing must have come for the writer to wait no longer.
const QUIET: Duration = Duration::from_millis(1);

/// A change with the key it is for.
#[derive(Debug)]
pub(super) struct KeyedChange {
    pub(super) key: StoredKey,
    pub(super) change: Change<'static>,
    /// What its caller found in the tree, where the young generations knew nothing of the key: looking
    /// it up takes longer than all that the writer does for the change.
    pub(super) lookup: Option<Lookup>,
}

/// What was found in a tree.
#[derive(Debug)]
pub(super) struct Lookup {
    /// Where it was looked up. As long as it is kept, large values stay where they are.
    pub(super) below: Arc<Below>,
    pub(super) held: Option<Held>,
}

impl KeyedChange {
    /// Bytes of key and value.
    pub(super) fn weight(&self) -> usize {
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
    /// Lets go of what its caller found in the tree, so that the room of what has died can be used.
    pub(super) fn forget_lookups(&mut self) {
        self.changes.iter_mut().for_each(|keyed| keyed.lookup = None);
    }

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
    /// How many jobs are here, for looks without the lock: whoever comes needs that.
    len: AtomicUsize,
    /// Wakes a writer that gathers.
    enough: Condvar,
    /// Wakes a writer that idles.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    jobs: Vec<Job>,
    /// Their bytes, roughly.
    weight: usize,
    /// Jobs that hold no large value.
    light: usize,
    /// What a gathering writer waits for.
    awaited: Option<Awaited>,
    /// Bytes of the last group.
    last_weight: usize,
    /// Jobs that are expected after it.
    expected: usize,
    closed: bool,
}

/// What is worth waiting for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    /// So many jobs.
    Jobs(usize),
    /// So many bytes, or jobs, or one that must not wait for them.
    Stream { bytes: usize, jobs: usize },
}

impl State {
    /// The jobs of a group.
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
            Awaited::Stream { bytes, jobs } => {
                let is_enough = self.weight >= bytes || self.jobs.len() >= jobs;
                is_enough || self.light > 0 || self.closed
            }
        }
    }
}

impl Queue {
    /// Adds a job, or gives it back where the queue is closed.
    pub(super) fn push(&self, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(job);
        }
        let weight = job.weight();
        state.weight += weight;
        state.light += usize::from(weight < LARGE);
        state.jobs.push(job);
        self.len.store(state.jobs.len(), Ordering::Relaxed);
        let first = state.jobs.len() == 1;
        let enough = state.awaited.is_some_and(|awaited| state.has(awaited));
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
        let group = state.take();
        self.len.store(state.jobs.len(), Ordering::Relaxed);
        Taken::Group(group)
    }

    /// Waits while large values keep coming and nothing else does.
    fn gather_stream(&self, state: &mut MutexGuard<'_, State>) {
        let awaited = Awaited::Stream { bytes: STREAM_GROUP, jobs: state.expected };
        let mut before = 0;
        while state.jobs.len() > before && !state.has(awaited) {
            before = state.jobs.len();
            self.gather(state, awaited, QUIET);
        }
    }

    /// Waits until what is awaited is there, or for so long.
    fn gather(&self, state: &mut MutexGuard<'_, State>, awaited: Awaited, longest: Duration) {
        state.awaited = Some(awaited);
        self.enough.wait_for(state, longest);
        state.awaited = None;
    }

    /// Returns once so many jobs are here, or none has come for a moment. For a writer that has just
    /// answered. After megabytes it returns at once: whoever sends them needs the core.
    pub(super) fn look_out(&self, expected: usize) {
        let mut state = self.state.lock();
        state.expected = expected;
        let is_stream = state.last_weight >= STREAM;
        drop(state);
        if is_stream {
            return;
        }
        let expected = expected.min(ENOUGH);
        let most = if expected > 1 { LOOKS_FOR_MORE } else { LOOKS_FOR_ONE };
        let (mut seen, mut looks) = (self.len(), 0);
        while seen < expected && looks < most {
            std::thread::yield_now();
            let here = self.len();
            looks = if here > seen { 0 } else { looks + 1 };
            seen = here;
        }
    }

    /// How many jobs are here.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use wane::store::{Key, Life, Timestamp, Value, Write};

    use super::*;
    use crate::file::format::encode_key;

    fn job(size: usize) -> Job {
        let write = Write::new(Value::new(vec![0; size]).unwrap(), Life::Permanent);
        let change = Change::put(write, || Timestamp::from_unix_millis(0)).unwrap();
        let key = encode_key(&Key::new(b"queue", b"").unwrap()).into();
        let changes = vec![KeyedChange { key, change, lookup: None }];
        Job { changes, reply: oneshot::channel().0 }
    }

    fn push(queue: &Queue, size: usize, count: usize) {
        (0..count).for_each(|_| assert!(queue.push(job(size)).is_ok()));
    }

    fn taken(queue: &Queue) -> usize {
        match queue.take(0) {
            Taken::Group(jobs) => jobs.len(),
            Taken::Nothing | Taken::Closed => 0,
        }
    }

    #[test]
    fn a_group_is_no_heavier_than_it_may_be_and_what_is_left_comes_next() {
        let queue = Queue::default();
        push(&queue, 100_000, 100);
        let first = taken(&queue);
        assert!((75..=84).contains(&first), "{first}");
        push(&queue, 10, 1);
        assert_eq!(taken(&queue), 101 - first);
        assert_eq!(taken(&queue), 0);
    }

    #[test]
    fn callers_that_are_expected_are_looked_out_for_and_not_for_long() {
        let queue = Queue::default();
        push(&queue, 10, 3);
        assert_eq!(queue.len(), 3);
        queue.look_out(3);
        std::thread::scope(|scope| {
            scope.spawn(|| push(&queue, 10, 2));
            // Whether they come in time or not, it ends.
            queue.look_out(5);
        });
        assert_eq!(taken(&queue), 5);
        assert_eq!(queue.len(), 0);
        queue.look_out(1);
    }

    #[test]
    fn a_stream_is_waited_for_until_there_is_enough_or_something_else_comes() {
        let awaited = Awaited::Stream { bytes: STREAM_GROUP, jobs: 60 };
        let queue = Queue::default();
        push(&queue, 100_000, 20);
        assert!(!queue.state.lock().has(awaited), "more may come");
        assert!(queue.state.lock().has(Awaited::Stream { bytes: STREAM_GROUP, jobs: 20 }), "all");
        push(&queue, 100_000, 25);
        assert!(queue.state.lock().has(awaited), "enough");
        assert_eq!(taken(&queue), 45);
        push(&queue, 100_000, 1);
        push(&queue, 10, 1);
        assert!(queue.state.lock().has(awaited), "a small one does not wait for large ones");
        assert_eq!(taken(&queue), 2);
        push(&queue, 100_000, 1);
        assert!(!queue.state.lock().has(awaited), "the small one is forgotten");
        queue.close();
        assert!(queue.state.lock().has(awaited), "nothing more will come");
    }

    /// Whoever sends one large value after the other, each once the last was answered, is not kept
    /// waiting for what nobody sends.
    #[test]
    fn a_stream_that_ends_is_taken_as_it_is() {
        let queue = Queue::default();
        push(&queue, 100_000, 20);
        assert_eq!(taken(&queue), 20);
        push(&queue, 100_000, 3);
        assert_eq!(taken(&queue), 3, "after a moment without more");
        push(&queue, 100_000, 1);
        assert_eq!(taken(&queue), 1);
    }
}
