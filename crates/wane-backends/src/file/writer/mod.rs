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
//! everything from then on: only opening the file again can tell. A full disk is the exception. The
//! file is opened again at once, which tells; readers go on, and callers are refused until there is
//! room, for which `clearing` sees to it.

mod clearing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Runtime;
use wane::store::{BoxError, StoreError, Timestamp};

use super::acknowledged::Acknowledged;
use super::directory::Directory;
use super::engine::{Applied, Chores, Engine, KeyedChange, Snapshot, Unapplied};
use super::lent_storage::{Lender, LentStorage};
use super::queue::{Answers, Job, Taken};
use super::reserve::Reserve;
use super::room::Room;
use super::tentative_storage::TentativeStorage;
use super::view::Shared;

/// What is done along with a group.
const BUSY: Chores = Chores { sweep: 32, pack: 0 };

/// What is done in one step while nobody waits.
const IDLE: Chores = Chores { sweep: 2_048, pack: 0 };

/// Bytes of large values moved in one step while nobody waits.
const PACK_IDLE: u64 = 8 << 20;

/// How long nobody must have come before the writer takes time for larger steps.
const IDLE_AFTER: Duration = Duration::from_millis(10);

/// How long nothing must have been written before the file is made smaller.
const COMPACT_AFTER: Duration = Duration::from_secs(1);

/// How long the writer sleeps at most, so that an expiry far ahead needs no exact timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Files that have less than this together are left as they are, and so is a small one.
const COMPACT_ABOVE: u64 = 8 << 20;
const SMALL_FILE: u64 = 1 << 20;

/// Compaction copies what is left, and callers wait for it: no more than this is worth it.
const COMPACT_AT_MOST: u64 = 64 << 20;

/// How many times the size of its records a file may have. An ordinary B-tree takes about twice.
const COMPACT_FROM: u64 = 3;

/// The writer's side of an open store.
#[derive(Debug)]
pub(super) struct Writer {
    engine: Engine,
    file: OpenFile,
    shared: Arc<Shared>,
    next_due: Option<Timestamp>,
    compaction: Compaction,
    room: Room,
    /// What opening the file again has to write, while there is no room even for that.
    unaccepted: Option<TentativeStorage<LentStorage>>,
}

/// The file that engines are opened on.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) directory: Directory,
    pub(super) lender: Lender,
    pub(super) acknowledged: Acknowledged,
    pub(super) reserve: Reserve,
}

/// Why a commit failed, by what its callers are told.
#[derive(Debug)]
enum Failure {
    /// The disk is full, and nothing was applied.
    NoRoom,
    /// It may have been applied.
    InDoubt(String),
}

impl Failure {
    fn error(&self) -> StoreError {
        let backend = "file";
        match self {
            Self::NoRoom => StoreError::Unavailable { backend, source: "the disk is full".into() },
            Self::InDoubt(reason) => StoreError::Unknown { backend, source: reason[..].into() },
        }
    }
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
        file: OpenFile,
        shared: Arc<Shared>,
        next_due: Option<Timestamp>,
    ) -> Self {
        let (compaction, room) = (Compaction { due: true, size: 0 }, Room::new());
        Self { engine, file, shared, next_due, compaction, room, unaccepted: None }
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
                    if !self.room.is_lacking() {
                        drop(self.commit(Vec::new(), Chores::default()));
                    }
                    false
                }
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
                return;
            }
        }
    }

    /// Waits for a job. `false` means that nobody came and there is time to tidy up.
    async fn rest(&self) -> bool {
        let now = self.shared.clock.now();
        let longest = if self.compaction.due { COMPACT_AFTER } else { LONGEST_SLEEP };
        let due = self.next_due.map_or(longest, |due| now.until(due));
        let due = due.clamp(IDLE_AFTER, longest);
        let pause = if self.room.is_lacking() { self.room.rest() } else { due };
        let sleep = self.shared.clock.sleep(pause);
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
        let result = if self.has_room() { self.commit(batch, BUSY) } else { Err(Failure::NoRoom) };
        let mut outcomes = result.map(|applied| applied.outcomes.into_iter());
        for (count, reply) in replies {
            let answers: Answers = match &mut outcomes {
                Ok(outcomes) => Ok(outcomes.by_ref().take(count).collect()),
                Err(failure) => Err(failure.error()),
            };
            // A caller that no longer waits has dropped its end, which is its right.
            drop(reply.send(answers));
        }
        self.goes_on()
    }

    /// Whether the engine has not failed.
    fn goes_on(&self) -> bool {
        self.shared.check().is_ok()
    }

    /// Makes a batch durable and visible. Where it fails for another reason than a full disk, notes
    /// that for all callers to come.
    fn commit(&mut self, batch: Vec<KeyedChange>, chores: Chores) -> Result<Applied, Failure> {
        let now = self.shared.announce(&batch);
        let result = self.try_commit(batch, chores, now).or_else(|unapplied| {
            if self.file.lender.only_lacked_room() {
                return self.start_over(unapplied);
            }
            self.shared.fail(&unapplied.reason);
            Err(Failure::InDoubt(unapplied.reason))
        });
        self.shared.land();
        result
    }

    fn try_commit(
        &mut self,
        batch: Vec<KeyedChange>,
        chores: Chores,
        now: Timestamp,
    ) -> Result<Applied, Unapplied> {
        // redb can panic on a page that rotted since it was verified.
        let mut applied = catch_unwind(AssertUnwindSafe(|| self.engine.apply(batch, chores, now)))
            .unwrap_or_else(|_| Err(BoxError::from("a page of the file is damaged").into()))?;
        self.file.acknowledged.note(applied.commit).map_err(BoxError::from)?;
        let shown_before = self.shared.publish(self.engine.snapshot().map_err(BoxError::from)?);
        self.engine.retire(shown_before, std::mem::take(&mut applied.freed));
        self.next_due = applied.next_due;
        self.compaction.due = true;
        if !self.file.reserve.was_tried() {
            self.set_room_aside();
        }
        Ok(applied)
    }

    /// Goes on with another engine after one that ran out of room, and finds out what became of
    /// the changes that it was to make. Readers wait meanwhile.
    fn start_over(&mut self, unapplied: Unapplied) -> Result<Applied, Failure> {
        let Unapplied { reason, staged } = unapplied;
        let before = self.engine.last_commit();
        let shared = Arc::clone(&self.shared);
        let shown = shared.shown();
        match shared.without_snapshot(|| self.reopen(shown)) {
            Ok(last) if last == before => Err(Failure::NoRoom),
            // What did not fit was not needed.
            Ok(last) => staged.filter(|staged| staged.commit == last).ok_or_else(|| {
                shared.fail(&reason);
                Failure::InDoubt(reason)
            }),
            Err(error) => {
                let reason = format!("{reason}, and then the file could not be opened: {error}");
                shared.fail(&reason);
                Err(Failure::InDoubt(reason))
            }
        }
    }

    /// Opens another engine and returns its last commit. Some may still read what was `shown`.
    fn reopen(&mut self, shown: Weak<Snapshot>) -> Result<(u64, Snapshot), BoxError> {
        let before = self.engine.last_commit();
        let OpenFile { directory, lender, acknowledged, .. } = &mut self.file;
        // What is found there is about to be shown.
        lender.sync()?;
        let mut opened = directory.open_engine(lender, self.engine.generation() + 1)?;
        let last = opened.found.commit;
        if last < before {
            return Err(format!("commit {before} was acknowledged, the file has {last}").into());
        }
        let unaccepted = match opened.storage.accept() {
            Ok(()) => None,
            Err(_) if lender.only_lacked_room() => Some(opened.storage),
            Err(error) => return Err(error.into()),
        };
        acknowledged.note(last)?;
        let snapshot = opened.engine.snapshot()?;
        self.next_due = opened.engine.next_due()?;
        self.unaccepted = unaccepted;
        opened.engine.take_over(&mut self.engine, shown);
        self.engine = opened.engine;
        // The tree may need what the changes took that did not come to be.
        self.trim_values()?;
        // Making the file smaller needs room too: not again for little.
        self.compaction.size = self.shared.tree_size()?;
        self.room.ran_out(self.shared.clock.monotonic());
        Ok((last, snapshot))
    }

    /// Does one step of what can wait. `false` means that the engine has failed.
    fn tidy(&mut self) -> bool {
        if !self.has_room() {
            return self.goes_on();
        }
        let now = self.shared.clock.now();
        if self.is_due(now) {
            if self.commit(Vec::new(), IDLE).is_err() {
                return self.goes_on();
            }
            // Callers that came meanwhile go before the next slice.
            if self.is_due(now) {
                return true;
            }
        }
        // Here also right after a sweep: where records fall due all the time, the writer never
        // rests long enough to be woken for nothing else.
        if !self.compaction.due {
            return true;
        }
        if !self.pack_if_worthwhile() {
            return self.goes_on();
        }
        self.set_room_aside();
        match self.compact_if_worthwhile() {
            Ok(()) => true,
            Err(error) => {
                self.shared.fail(&error.to_string());
                false
            }
        }
    }

    /// Whether something is to be removed.
    fn is_due(&self, now: Timestamp) -> bool {
        self.next_due.is_some_and(|due| due <= now)
    }

    /// Makes the file of large values smaller. `false` means that there is more to do, or that the
    /// engine has failed.
    fn pack_if_worthwhile(&mut self) -> bool {
        let (used, end) = self.engine.values_extent();
        if self.is_worthwhile(end, used) {
            let pack = Chores { sweep: 0, pack: PACK_IDLE };
            match self.commit(Vec::new(), pack) {
                Ok(applied) if applied.packed == 0 => {}
                Ok(_) | Err(_) => return false,
            }
        }
        if let Err(error) = self.trim_values() {
            self.shared.fail(&error.to_string());
            return false;
        }
        true
    }

    /// Gives back what is free at the end of the file of large values.
    fn trim_values(&mut self) -> std::io::Result<()> {
        match self.engine.trim_values() {
            Err(_) if self.file.lender.only_lacked_room() => Ok(()),
            trimmed => trimmed,
        }
    }

    /// Whether a file of this size with so many bytes in it should be made smaller.
    fn is_worthwhile(&self, size: u64, left: u64) -> bool {
        size > SMALL_FILE
            && size > COMPACT_FROM * left
            && left < COMPACT_AT_MOST
            && self.shared.file_size().is_ok_and(|all| all > COMPACT_ABOVE)
    }

    fn compact_if_worthwhile(&mut self) -> Result<(), BoxError> {
        self.compaction.due = false;
        let left = self.engine.stored_bytes();
        let size = self.shared.tree_size()?;
        if !self.is_worthwhile(size, left) || size <= self.compaction.size * 3 / 2 {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let shown = shared.shown();
        let outcome = shared.without_snapshot(|| match self.engine.compact() {
            Err(_) if self.file.lender.only_lacked_room() => Ok((Ok(()), self.reopen(shown)?.1)),
            compacted => Ok((compacted, self.engine.snapshot()?)),
        })?;
        match outcome {
            Ok(()) => self.compaction.size = self.shared.tree_size()?,
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
