//! The one writer of a store: it decides groups of changes, logs each with one sync, then answers.
//!
//! ```text
//! callers -> queue -> decide a group -> log it -> show it to readers -> answer
//! ```
//!
//! Nothing is shown before it is durable, and nobody is answered before it is shown. What a group
//! decides it decides against what it has decided already, the young generations and the tree, in
//! this order.
//!
//! A failed sync may or may not have reached the disk. Its callers are told so, and the store refuses
//! everything from then on: only opening it again can tell. A disk without room is the exception, as
//! logging needs none: callers are refused, and readers go on.

mod deciding;
mod pace;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Runtime;
use wane::store::{Outcome, StoreError, Timestamp};

use self::deciding::{Decided, Deciding};
use self::pace::Pace;
use super::acknowledged::Acknowledged;
use super::format::LARGE;
use super::large::LargeValues;
use super::lent_storage::is_lack_of_room;
use super::log::frame::Draft;
use super::log::{Log, Unlogged};
use super::queue::{Answers, Job, KeyedChange, Taken};
use super::view::{Below, Shared};
use super::young::{Row, StoredKey};

/// How long nobody must have come before the log is made smaller.
const SHRINK_AFTER: Duration = Duration::from_secs(1);

/// How long a group waits at most for room to be looked for, after one that had none.
const AWAIT_ROOM: Duration = Duration::from_secs(1);

/// Bytes of the largest frame.
const LARGEST_FRAME: usize = 1 << 30;

/// The writer's side of an open store.
#[derive(Debug)]
pub(super) struct Writer {
    log: Log,
    acknowledged: Acknowledged,
    large: LargeValues,
    shared: Arc<Shared>,
    pace: Pace,
    draft: Draft,
    encoded: Vec<u8>,
    /// There was no room for the last group.
    starved: bool,
    /// Jobs that had come when the last group was answered.
    waiting: usize,
}

/// Why a group was not applied, by what its callers are told.
#[derive(Debug)]
enum Failure {
    /// The disk is full, and nothing was applied.
    NoRoom,
    /// The store has failed before, and nothing was applied.
    Refused(StoreError),
    /// It is more than one frame holds, and nothing was applied.
    TooLarge,
    /// The tree could not be read, and nothing was applied.
    Unread {
        /// The engine that it was read by, counted.
        generation: u64,
        reason: String,
    },
    /// It may have been applied.
    InDoubt(String),
}

impl Failure {
    fn error(&self) -> StoreError {
        let backend = "file";
        match self {
            Self::NoRoom => StoreError::Unavailable { backend, source: "the disk is full".into() },
            Self::Refused(error) => {
                StoreError::Unavailable { backend, source: error.to_string().into() }
            }
            Self::TooLarge => {
                let reason = "it has more than 1 GiB, which cannot be logged at once; split it";
                StoreError::Invalid { field: "batch", reason: reason.into() }
            }
            Self::Unread { reason, .. } => {
                StoreError::Unavailable { backend, source: reason[..].into() }
            }
            Self::InDoubt(reason) => StoreError::Unknown { backend, source: reason[..].into() },
        }
    }
}

/// Without room nothing was applied; whatever else goes wrong leaves a doubt.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if is_lack_of_room(&error) { Self::NoRoom } else { Self::InDoubt(error.to_string()) }
    }
}

fn in_doubt(error: &io::Error) -> Failure {
    Failure::InDoubt(error.to_string())
}

impl From<Unlogged> for Failure {
    fn from(unlogged: Unlogged) -> Self {
        match unlogged {
            Unlogged::NoRoom => Self::NoRoom,
            Unlogged::InDoubt(error) => in_doubt(&error),
        }
    }
}

impl Writer {
    pub(super) fn new(
        log: Log,
        acknowledged: Acknowledged,
        shared: Arc<Shared>,
        young_bytes: usize,
    ) -> Self {
        let large = LargeValues::new(Arc::clone(&shared.values), Arc::clone(&shared.space));
        shared.seal(Some(log.segment()));
        let (draft, encoded) = (Draft::default(), Vec::new());
        let (pace, starved) = (Pace::new(young_bytes), false);
        Self { log, acknowledged, large, shared, pace, draft, encoded, starved, waiting: 0 }
    }

    /// Works until the queue is closed and empty, or the store fails. Callers that are left, and
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
        while self.shared.check().is_ok() {
            match self.shared.queue.take(self.pace.gathers(last_group)) {
                Taken::Closed => return,
                Taken::Group(mut jobs) => {
                    last_group = jobs.len();
                    if self.starved || self.shared.lacks_room.load(Ordering::SeqCst) {
                        jobs.iter_mut().for_each(Job::forget_lookups);
                        runtime.block_on(self.await_room());
                    }
                    if let Err(Failure::Unread { generation, reason }) = self.serve(jobs) {
                        runtime.block_on(self.shared.unread(generation, &reason));
                    }
                    self.shared.queue.look_out(last_group + self.waiting);
                }
                Taken::Nothing => {
                    if !runtime.block_on(self.rest()) {
                        self.shrink();
                    }
                }
            }
        }
    }

    /// Waits for a job. `false` means that nobody came for a while.
    async fn rest(&self) -> bool {
        tokio::select! {
            biased;
            () = self.shared.queue.arrival() => true,
            () = self.shared.clock.sleep(SHRINK_AFTER), if self.log.is_large() => false,
        }
    }

    /// Goes on in a small segment, once the tree has all that was logged.
    fn shrink(&mut self) {
        if !self.shared.is_all_in_tree() {
            return;
        }
        match self.log.shrink() {
            Ok(()) => {
                let segment = self.log.segment();
                self.shared.seal(Some(segment));
                self.shared.segments.give_up_before(segment);
                self.shared.segments.remove_superfluous();
            }
            // The segment that there is does as well.
            Err(error) => {
                tracing::warn!(backend = "file", %error, "the log cannot be made smaller")
            }
        }
    }

    /// Gives what has died young a moment to make room.
    async fn await_room(&self) {
        // Where none is made, the group is told so.
        drop(tokio::time::timeout(AWAIT_ROOM, self.shared.await_look_for_room()).await);
    }

    /// Applies a group and answers it.
    fn serve(&mut self, jobs: Vec<Job>) -> Result<(), Failure> {
        let mut batch = Vec::with_capacity(jobs.len());
        let mut replies = Vec::with_capacity(jobs.len());
        for Job { changes, reply } in jobs {
            replies.push((changes.len(), reply));
            batch.extend(changes);
        }
        let result = match self.pace.wait(&self.shared, &self.log) {
            true => self.commit(batch),
            false => Err(Failure::NoRoom),
        };
        self.starved = matches!(result, Err(Failure::NoRoom));
        self.waiting = self.shared.queue.len();
        let mut outcomes = result.map(Vec::into_iter);
        for (count, reply) in replies {
            let answers: Answers = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.by_ref().take(count).collect()),
                Err(failure) => Err(failure.error()),
            };
            // A caller that no longer waits has dropped its end, which is its right.
            drop(reply.send(answers));
        }
        outcomes.map(drop)
    }

    /// Makes a group durable and visible. Where that leaves a doubt, notes it for all callers to
    /// come.
    fn commit(
        &mut self,
        batch: Vec<KeyedChange>,
    ) -> Result<Vec<Result<Outcome, StoreError>>, Failure> {
        let shared = Arc::clone(&self.shared);
        let has_large = batch.iter().any(|keyed| keyed.weight() >= LARGE);
        let _not_clearing = has_large.then(|| shared.clearing.lock());
        if has_large && !self.has_room() {
            return Err(Failure::NoRoom);
        }
        let now = self.shared.announce(&batch);
        let result = self.decide(batch, now).and_then(|decided| {
            let Decided { rows, below, now, outcomes } = decided;
            if !rows.is_empty() {
                self.log(rows, &below, now)?;
            }
            self.large.keep();
            Ok(outcomes)
        });
        self.draft.clear();
        match &result {
            Ok(_) => {}
            Err(Failure::InDoubt(reason)) => {
                self.shared.fail(reason);
                // It may be in the log, with the places of its values.
                self.large.keep();
            }
            Err(
                Failure::NoRoom | Failure::Refused(_) | Failure::TooLarge | Failure::Unread { .. },
            ) => {
                self.large.abandon();
                // What has died young makes room once it is gone.
                self.shared.hasten();
            }
        }
        self.shared.land();
        result
    }

    /// Whether there is room for large values. Some is set aside before the first one, which may
    /// leave none.
    fn has_room(&self) -> bool {
        self.set_room_aside();
        !self.shared.lacks_room.load(Ordering::SeqCst)
    }

    fn set_room_aside(&self) {
        let mut reserve = self.shared.reserve.lock();
        if !reserve.was_tried() {
            reserve.fill();
        }
    }

    fn decide(&mut self, batch: Vec<KeyedChange>, now: Timestamp) -> Result<Decided, Failure> {
        let mut deciding = Deciding::new(&self.shared, &mut self.large, now)?;
        for change in batch {
            deciding.change(change)?;
        }
        Ok(deciding.decided())
    }

    /// Logs what keys come to hold, and shows it to readers.
    fn log(
        &mut self,
        rows: Vec<(StoredKey, Row)>,
        below: &Arc<Below>,
        now: Timestamp,
    ) -> Result<(), Failure> {
        self.large.flush()?;
        // Also where there was no room: what the system could not write it may have dropped.
        self.large.sync().map_err(|error| in_doubt(&error))?;
        for (key, row) in &rows {
            self.encoded.clear();
            if let Some(held) = &row.held {
                held.entry().encode(key, &mut self.encoded);
            }
            self.draft.push(key, &self.encoded);
        }
        if self.draft.size() > LARGEST_FRAME {
            return Err(Failure::TooLarge);
        }
        if !self.log.fits(&self.draft) {
            self.rotate()?;
        }
        let began = self.shared.clock.monotonic();
        let sequence = self.log.append(&mut self.draft, now)?;
        self.pace.synced(self.shared.clock.monotonic().saturating_sub(began));
        self.shared.waiting.synced(self.pace.sync());
        // It is in the log, whatever becomes of the note, which may say too little.
        self.acknowledged.note(sequence).map_err(|error| in_doubt(&error))?;
        self.shared.publish(rows, below, self.log.segment(), sequence, now);
        Ok(())
    }

    /// Begins another segment. A generation ends with its segment, also where only an empty one was
    /// begun.
    fn rotate(&mut self) -> Result<(), Failure> {
        // A log that grows may take what is left of a disk, and what has died needs some to leave.
        self.set_room_aside();
        let before = self.log.segment();
        let rotated = self.log.rotate(&self.draft);
        if self.log.segment() != before {
            self.shared.seal(Some(self.log.segment()));
        }
        Ok(rotated?)
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
