//! The writer: takes a group from the queue, makes it durable, shows it, and answers.
//!
//! What has expired is removed a little with each group, and in larger steps once nobody has come
//! for a while. A failed commit ends the writer: all who wait, and those to come, are told.

use std::sync::Arc;
use std::time::Duration;

use ::wane::store::{Outcome, StoreError, Timestamp};
use tokio::runtime::Runtime;

use super::bytes::failed;
use super::engine::Engine;
use super::queue::{Answers, Job, KeyedChange, Taken};
use super::view::Shared;
use crate::BoxError;

/// Due records that are removed along with a group.
const BUSY_SWEEP: usize = 32;

/// Due records that are removed in one step while nobody waits.
const IDLE_SWEEP: usize = 2_048;

/// How long nobody must have come before the writer takes time for larger steps.
const IDLE_AFTER: Duration = Duration::from_millis(10);

/// How long the writer sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The writer's side of an open store.
#[derive(Debug)]
pub(super) struct Writer {
    engine: Engine,
    shared: Arc<Shared>,
    next_due: Option<Timestamp>,
}

impl Writer {
    pub(super) fn new(engine: Engine, shared: Arc<Shared>) -> Self {
        // Looked for with the first group.
        Self { engine, shared, next_due: None }
    }

    /// Works until the queue is closed and empty, or a commit fails.
    pub(super) fn run(mut self, runtime: &Runtime) {
        let mut last_group = 0;
        loop {
            let goes_on = match self.shared.queue.take(last_group) {
                Taken::Closed => return,
                Taken::Group(jobs) => {
                    last_group = jobs.len();
                    let goes_on = self.serve(jobs);
                    if last_group == 1 {
                        self.shared.queue.look_out();
                    }
                    goes_on
                }
                Taken::Nothing => runtime.block_on(self.rest()) || self.tidy(),
            };
            if !goes_on {
                return self.refuse_rest();
            }
        }
    }

    /// Waits for a job. `false` means that nobody came and there is time to tidy up.
    async fn rest(&self) -> bool {
        let now = self.shared.clock.now();
        let due = self.next_due.map_or(LONGEST_SLEEP, |due| now.until(due));
        let sleep = self.shared.clock.sleep(due.clamp(IDLE_AFTER, LONGEST_SLEEP));
        tokio::select! {
            biased;
            () = self.shared.queue.arrival() => true,
            () = sleep => false,
        }
    }

    /// Removes some of what is due. `false` means that the commit failed.
    fn tidy(&mut self) -> bool {
        let now = self.shared.clock.now();
        if self.next_due.is_none_or(|due| due > now) {
            return true;
        }
        self.commit(Vec::new(), IDLE_SWEEP).is_ok()
    }

    /// Applies a group and answers it. `false` means that the commit failed.
    fn serve(&mut self, jobs: Vec<Job>) -> bool {
        let mut group = Vec::with_capacity(jobs.len());
        let mut replies = Vec::with_capacity(jobs.len());
        for Job { changes, reply } in jobs {
            replies.push((changes.len(), reply));
            group.extend(changes);
        }
        let result = self.commit(group, BUSY_SWEEP);
        let failure = result.as_ref().err().map(ToString::to_string);
        let mut outcomes = result.unwrap_or_default().into_iter();
        for (count, reply) in replies {
            let answers: Answers = match &failure {
                None => Ok(outcomes.by_ref().take(count).collect()),
                Some(reason) => Err(failed(&reason[..])),
            };
            // A caller that no longer waits has dropped its end, which is its right.
            drop(reply.send(answers));
        }
        failure.is_none()
    }

    /// Makes a group durable and visible.
    fn commit(&mut self, group: Vec<KeyedChange>, sweep: usize) -> Result<Vec<Outcome>, BoxError> {
        let now = self.shared.announce(&group);
        let result = self.try_commit(group, sweep, now);
        self.shared.land();
        result
    }

    fn try_commit(
        &mut self,
        group: Vec<KeyedChange>,
        sweep: usize,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, BoxError> {
        let applied = self.engine.apply(group, sweep, now)?;
        self.shared.publish(self.engine.snapshot()?);
        self.next_due = applied.next_due;
        Ok(applied.outcomes)
    }

    /// Answers what is still queued once nothing is served any more.
    fn refuse_rest(&self) {
        self.shared.queue.close();
        while let Taken::Group(jobs) = self.shared.queue.take(0) {
            for job in jobs {
                drop(job.reply.send(Err(stopped())));
            }
        }
    }
}

/// What callers are told after a failed commit.
pub(super) fn stopped() -> StoreError {
    failed("the writer has stopped")
}
