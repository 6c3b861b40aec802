//! The one writer of a file: it applies groups of changes, syncs once per group, then answers.
//!
//! ```text
//! callers -> queue -> decide and store a group -> sync -> publish the snapshot -> answer
//! ```
//!
//! Sweeping rides along: a few due records with each group while callers wait, thousands at a time
//! once nobody has come for a while, and then the file is made smaller if little is left in it.
//!
//! A failed commit may or may not be on disk. Its callers are told so, and the store refuses
//! everything from then on: only opening the file again can tell.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use wane::store::{BoxError, StoreError, Timestamp};

use super::acknowledged::Acknowledged;
use super::engine::{Applied, Engine, KeyedChange};
use super::queue::{Answers, Job, Taken};
use super::view::Shared;

/// Due records removed along with a group.
const SWEEP_BUSY: usize = 32;

/// Due records removed in one step while nobody waits.
const SWEEP_IDLE: usize = 2_048;

/// How long nobody must have come before the writer takes time for larger steps.
const IDLE_AFTER: Duration = Duration::from_millis(10);

/// How long nothing must have been written before the file is made smaller.
const COMPACT_AFTER: Duration = Duration::from_secs(1);

/// How long the writer sleeps at most, so that an expiry far ahead needs no exact timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// A file below this size is left as it is.
const COMPACT_ABOVE: u64 = 8 << 20;

/// Compaction copies what is left, and callers wait for it: no more than this is worth it.
const COMPACT_AT_MOST: u64 = 64 << 20;

/// How many times the size of its records a file may have. An ordinary B-tree takes about twice.
const COMPACT_FROM: u64 = 3;

/// The writer's side of an open store.
#[derive(Debug)]
pub(super) struct Writer {
    engine: Engine,
    shared: Arc<Shared>,
    acknowledged: Acknowledged,
    next_due: Option<Timestamp>,
    compaction: Compaction,
}

/// When to look whether the file can be made smaller.
#[derive(Debug)]
struct Compaction {
    /// Set by each commit, taken back by a look at the file.
    due: bool,
    /// What the file was last made to be, so that it is not tried again for little.
    size: u64,
}

impl Writer {
    pub(super) fn new(
        engine: Engine,
        shared: Arc<Shared>,
        acknowledged: Acknowledged,
        next_due: Option<Timestamp>,
    ) -> Self {
        let compaction = Compaction { due: true, size: 0 };
        Self { engine, shared, acknowledged, next_due, compaction }
    }

    /// Works until the queue is closed and empty, or the engine fails. Callers that are left, and
    /// those to come, are answered either way.
    pub(super) fn run(mut self, runtime: &Runtime) {
        if catch_unwind(AssertUnwindSafe(|| self.work(runtime))).is_err() {
            self.shared.fail("the writer has stopped at a damaged page");
            self.shared.land();
        }
        self.refuse_rest();
    }

    fn work(&mut self, runtime: &Runtime) {
        let mut last_group = 0;
        loop {
            let goes_on = match self.shared.queue.take(last_group) {
                Taken::Closed => {
                    // Notes the time, so that what readers saw expire stays gone after reopening.
                    // A failure is noted where callers would look for it, and none is left.
                    drop(self.commit(Vec::new(), 0));
                    false
                }
                Taken::Group(jobs) => {
                    last_group = jobs.len();
                    self.serve(jobs)
                }
                Taken::Nothing => runtime.block_on(self.rest()) || self.tidy(),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Waits for a job. `false` means that nobody came and there is time to tidy up.
    async fn rest(&self) -> bool {
        let now = self.shared.clock.now();
        let longest = if self.compaction.due { COMPACT_AFTER } else { LONGEST_SLEEP };
        let due = self.next_due.map_or(longest, |due| now.until(due));
        let sleep = self.shared.clock.sleep(due.clamp(IDLE_AFTER, longest));
        tokio::select! {
            biased;
            () = self.shared.queue.arrival() => true,
            () = sleep => false,
        }
    }

    /// Applies a group and answers it. `false` means that the engine has failed.
    fn serve(&mut self, jobs: Vec<Job>) -> bool {
        let mut batch = Vec::with_capacity(jobs.len());
        let mut replies = Vec::with_capacity(jobs.len());
        for Job { changes, reply } in jobs {
            replies.push((changes.len(), reply));
            batch.extend(changes);
        }
        let result = self.commit(batch, SWEEP_BUSY);
        let served = result.is_ok();
        let mut outcomes = result.map(|applied| applied.outcomes.into_iter());
        for (count, reply) in replies {
            let answers: Answers = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.by_ref().take(count).collect()),
                Err(error) => Err(unknown(error)),
            };
            // A caller that no longer waits has dropped its end, which is its right.
            drop(reply.send(answers));
        }
        served
    }

    /// Makes a batch durable and visible. On failure, notes why for all callers to come.
    fn commit(&mut self, batch: Vec<KeyedChange>, sweep: usize) -> Result<Applied, String> {
        let now = self.shared.announce(&batch);
        let result = self.try_commit(batch, sweep, now);
        if let Err(error) = &result {
            self.shared.fail(error);
        }
        self.shared.land();
        result
    }

    fn try_commit(
        &mut self,
        batch: Vec<KeyedChange>,
        sweep: usize,
        now: Timestamp,
    ) -> Result<Applied, String> {
        // redb can panic on a page that rotted since it was verified.
        let applied = catch_unwind(AssertUnwindSafe(|| self.engine.apply(batch, sweep, now)))
            .unwrap_or_else(|_| Err("a page of the file is damaged".into()))
            .and_then(|applied| {
                self.acknowledged.note(applied.commit)?;
                self.shared.publish(self.engine.snapshot()?);
                Ok(applied)
            })
            .map_err(|error: BoxError| error.to_string())?;
        self.next_due = applied.next_due;
        self.compaction.due = true;
        Ok(applied)
    }

    /// Does one step of what can wait. `false` means that the engine has failed.
    fn tidy(&mut self) -> bool {
        let now = self.shared.clock.now();
        let is_due = |due: Option<Timestamp>| due.is_some_and(|due| due <= now);
        if is_due(self.next_due) {
            if self.commit(Vec::new(), SWEEP_IDLE).is_err() {
                return false;
            }
            // Callers that came meanwhile go before the next slice.
            if is_due(self.next_due) {
                return true;
            }
        }
        // Here also right after a sweep: where records fall due all the time, the writer never
        // rests long enough to be woken for nothing else.
        if !self.compaction.due {
            return true;
        }
        match self.compact_if_worthwhile() {
            Ok(()) => true,
            Err(error) => {
                self.shared.fail(&error.to_string());
                false
            }
        }
    }

    fn compact_if_worthwhile(&mut self) -> Result<(), BoxError> {
        self.compaction.due = false;
        let left = self.engine.stored_bytes();
        let size = self.shared.file_size()?;
        let worthwhile = size > COMPACT_ABOVE
            && size > COMPACT_FROM * left
            && size > self.compaction.size * 3 / 2
            && left < COMPACT_AT_MOST;
        if !worthwhile {
            return Ok(());
        }
        let engine = &mut self.engine;
        let outcome = self.shared.without_snapshot(|| {
            let compacted = engine.compact();
            (compacted, engine.snapshot())
        })?;
        match outcome {
            Ok(()) => self.compaction.size = self.shared.file_size()?,
            // A scan still holds a snapshot: another time.
            Err(redb::CompactionError::TransactionInProgress) => self.compaction.due = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Answers what is still queued once nothing is served any more.
    fn refuse_rest(&self) {
        self.shared.queue.close();
        while let Taken::Group(jobs) = self.shared.queue.take(0) {
            for job in jobs {
                drop(job.reply.send(Err(self.shared.failure())));
            }
        }
    }
}

fn unknown(reason: &str) -> StoreError {
    StoreError::Unknown { backend: "file", source: reason.into() }
}
