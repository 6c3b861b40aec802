//! Bringing the tree up to date: what is young and still lives goes into it, in the background.
//!
//! ```text
//! oldest generation -> what lives and is not known to a newer one -> transactions of the tree
//!                   -> the last one says how far the log has got -> the generation goes
//! ```
//!
//! A generation goes when the tree has all that is left of it, and its segment of the log with it.
//! Everything stopping half way costs nothing: the log is read back, and what comes again is as it
//! was. What was removed, or has expired, goes from the tree too where it had got there before.
//!
//! Sweeping rides along: a few due records with each transaction, thousands at a time once there is
//! nothing else to do, and then the file is made smaller if little is left in it.
//!
//! A failed transaction may or may not be on disk, and the store refuses everything from then on:
//! only opening the file again can tell. A full disk is the exception. The file is opened again at
//! once, which tells; readers go on, callers are refused once the log is full, and `clearing` sees to
//! it that there is room again.

mod clearing;
mod ripeness;

use std::collections::HashSet;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use wane::store::{BoxError, Timestamp};

use super::acknowledged::Acknowledged;
use super::directory::Directory;
use super::engine::{Applied, Batch, Chores, Engine, Settled, Snapshot, Unapplied};
use super::lent_storage::{Lender, LentStorage};
use super::room::Room;
use super::space::Extent;
use super::tentative_storage::TentativeStorage;
use super::view::{Oldest, Shared};
use super::young::{Generation, Row, StoredKey};

/// What is done along with a transaction of a checkpoint.
const BUSY: Chores = Chores { sweep: 32, pack: 0 };

/// What is done in one step while there is nothing else to do.
const IDLE: Chores = Chores { sweep: 2_048, pack: 0 };

/// Bytes of large values moved in one step while there is nothing else to do.
const PACK_IDLE: u64 = 8 << 20;

/// Rows of a generation that go into one transaction.
const ROWS: usize = 256 << 10;

/// Rows that are looked up in newer generations at a time: the writer waits meanwhile.
const LOOKED_UP: usize = 256;

/// How long nothing must have come before larger steps are taken.
const IDLE_AFTER: Duration = Duration::from_millis(10);

/// How long nothing must have been written before the file is made smaller.
const COMPACT_AFTER: Duration = Duration::from_secs(1);

/// How much others go before the thread that brings the tree up to date, as `nice` counts.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The longest sleep, so that an expiry far ahead needs no exact timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Files that have less than this together are left as they are, and so is a small one.
const COMPACT_ABOVE: u64 = 8 << 20;
const SMALL_FILE: u64 = 1 << 20;

/// Compaction copies what is left, and readers wait for it: no more than this is worth it. Large values
/// are moved a few at a time, and nobody waits.
const COMPACT_AT_MOST: u64 = 16 << 20;
const PACK_AT_MOST: u64 = 64 << 20;

/// How many times the size of its records a file may have. An ordinary B-tree takes about twice.
const COMPACT_FROM: u64 = 3;

/// Brings the tree of an open store up to date.
#[derive(Debug)]
pub(super) struct Checkpointer {
    engine: Engine,
    file: OpenFile,
    shared: Arc<Shared>,
    closing: Arc<AtomicBool>,
    /// Generations that are shown no longer, until nobody reads them any more: freeing one takes long,
    /// and nobody who is waited for should.
    outlived: Vec<Arc<Generation>>,
    /// Places of large values that are the tree's once the transaction under way is committed.
    offered: HashSet<u64>,
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
    /// The last commit of the tree.
    pub(super) acknowledged: Acknowledged,
}

/// Why a transaction failed.
#[derive(Debug)]
enum Failure {
    /// The disk is full, and nothing was applied.
    NoRoom,
    /// It may have been applied: the store has failed.
    InDoubt,
}

/// When to look whether the file can be made smaller.
#[derive(Debug)]
struct Compaction {
    /// Set by each commit, taken back by a look at the file.
    due: bool,
    /// What the file was last made to be, so that it is not tried again for little.
    size: u64,
}

/// Lets whoever is waited for have the cores first. The writer slows callers down where the tree does not
/// keep up, which gives it what it needs.
fn go_last() {
    // Elsewhere it is all threads of the process that a call like this one is about.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(backend = "file", %error, "the thread of the tree keeps its priority");
    }
}

/// What is swept along with so much that comes in: more, so that what has expired never piles up.
fn sweeping(settled: &[Settled]) -> Chores {
    Chores { sweep: BUSY.sweep.max(2 * settled.len()), ..BUSY }
}

impl Checkpointer {
    pub(super) fn new(
        engine: Engine,
        file: OpenFile,
        shared: Arc<Shared>,
        closing: Arc<AtomicBool>,
        next_due: Option<Timestamp>,
    ) -> Self {
        let (compaction, room) = (Compaction { due: true, size: 0 }, Room::new());
        Self {
            engine,
            file,
            shared,
            closing,
            outlived: Vec::new(),
            offered: HashSet::new(),
            next_due,
            compaction,
            room,
            unaccepted: None,
        }
    }

    /// Works until the store is closed, or has failed.
    pub(super) fn run(mut self, runtime: &Runtime) {
        go_last();
        if catch_unwind(AssertUnwindSafe(|| self.work(runtime))).is_err() {
            self.shared.fail("a page of the file is damaged");
        }
        self.shared.progress.notify_waiters();
    }

    fn work(&mut self, runtime: &Runtime) {
        while self.goes_on() {
            if self.closing.load(Ordering::SeqCst) {
                return self.finish();
            }
            let shared = Arc::clone(&self.shared);
            shared.seek_room(|is_wanted| self.step(runtime, is_wanted));
        }
    }

    /// Does what is to be done next, or waits for something to do.
    fn step(&mut self, runtime: &Runtime, room_is_wanted: bool) {
        self.outlived.retain(|outlived| Arc::strong_count(outlived) > 1);
        self.sort_sealed();
        let oldest = self.shared.oldest();
        if self.is_ripe(&oldest) && self.has_room() {
            self.checkpoint();
        } else if room_is_wanted || !runtime.block_on(self.rest(&oldest)) {
            self.tidy();
        }
    }

    /// Brings everything into the tree, and notes the time, so that what readers saw expire stays
    /// gone after reopening. The log has nothing to add from then on. What there is no room for stays
    /// in it.
    fn finish(&mut self) {
        self.shared.seal(None);
        while self.shared.oldest().sealed.is_some() {
            if !self.has_room() || self.bring_oldest().is_err() {
                return;
            }
        }
        if self.has_room() && self.commit(Batch::default(), Chores::default(), None).is_ok() {
            self.shared.segments.give_up_before(u64::MAX);
            self.shared.segments.remove_superfluous();
        }
    }

    /// Waits for something to do. `false` means that nothing came and there is time to tidy up.
    async fn rest(&self, oldest: &Oldest) -> bool {
        let now = self.shared.clock.now();
        let longest = if self.compaction.due { COMPACT_AFTER } else { LONGEST_SLEEP };
        let due = self.next_due.map_or(longest, |due| now.until(due));
        let due = due.min(ripeness::until_ripe(oldest, now));
        let longest = if self.outlived.is_empty() { longest } else { IDLE_AFTER };
        let due = due.clamp(IDLE_AFTER, longest);
        let pause = if self.room.is_lacking() { self.room.rest() } else { due };
        let sleep = self.shared.clock.sleep(pause);
        tokio::select! {
            biased;
            () = self.shared.wake.notified() => true,
            () = sleep => false,
        }
    }

    /// Puts the rows of sealed generations in order, where they are not yet.
    fn sort_sealed(&mut self) {
        for loose in self.shared.sealed().into_iter().filter(|sealed| !sealed.is_sorted()) {
            self.put_in_order(loose);
        }
    }

    /// Shows the same rows in order, and returns what is shown.
    fn put_in_order(&mut self, loose: Arc<Generation>) -> Arc<Generation> {
        let sorted = Arc::new(loose.sorted());
        self.shared.show_sorted(&loose, Arc::clone(&sorted));
        self.outlived.push(loose);
        sorted
    }

    /// Brings the oldest generation into the tree, after sealing it where it is not.
    fn checkpoint(&mut self) {
        match self.bring_oldest() {
            // A failure is noted where callers look for it; without room it is tried again.
            Ok(true) | Err(_) => {}
            Ok(false) => self.shared.seal(None),
        }
    }

    /// Brings the oldest sealed generation into the tree, if there is one.
    fn bring_oldest(&mut self) -> Result<bool, Failure> {
        let Some(oldest) = self.oldest_in_order() else { return Ok(false) };
        self.bring(&oldest)?;
        self.outlived.push(oldest);
        Ok(true)
    }

    /// The oldest sealed generation, in order. One may be sealed at any time, so that this is the one
    /// that was looked at: what is being brought must be what is shown until it has gone.
    fn oldest_in_order(&mut self) -> Option<Arc<Generation>> {
        let oldest = self.shared.oldest().sealed?;
        Some(if oldest.is_sorted() { oldest } else { self.put_in_order(oldest) })
    }

    /// Brings the oldest generation, which is sorted, into the tree, which is then told how far the
    /// log has got.
    ///
    /// Large values come with the last transaction: up to then their places are the generation's, and
    /// from then on the tree's.
    fn bring(&mut self, generation: &Arc<Generation>) -> Result<(), Failure> {
        let (small, large): (Vec<_>, Vec<_>) =
            generation.range(Bound::Unbounded).partition(|(_, row)| row.place().is_none());
        let mut parts: Vec<_> = small.chunks(ROWS).collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let settled = self.settled(generation, part);
            let chores = sweeping(&settled);
            self.commit(Batch { settled, logged: None }, chores, None)?;
            self.sort_sealed();
        }
        let mut settled = self.settled(generation, last);
        settled.extend(self.settled(generation, &large));
        let (logged, chores) = (Some(generation.sequence), sweeping(&settled));
        self.commit(Batch { settled, logged }, chores, Some(generation))?;
        Ok(())
    }

    /// What of these rows the tree must learn.
    fn settled(&self, generation: &Arc<Generation>, rows: &[(&StoredKey, &Row)]) -> Vec<Settled> {
        let now = self.shared.clock.now();
        let mut settled = Vec::with_capacity(rows.len());
        for rows in rows.chunks(LOOKED_UP) {
            let keys: Vec<_> = rows.iter().map(|(key, _)| Arc::clone(key)).collect();
            let known = self.shared.known_later(generation, &keys);
            for ((key, row), _) in keys.into_iter().zip(rows).zip(known).filter(|(_, known)| !known)
            {
                let held = row.1.held.clone().filter(|held| held.record.is_live(now));
                if held.is_some() || row.1.has_older {
                    settled.push(Settled { key, held, has_older: row.1.has_older });
                }
            }
        }
        settled
    }

    /// The places of large values that a generation holds and that have not become the tree's.
    fn left_behind(&self, generation: &Generation) -> Vec<Extent> {
        let placed = generation.range(Bound::Unbounded).filter_map(|(_, row)| row.place());
        let left = placed.filter(|place| !self.offered.contains(&place.offset));
        left.map(|place| Extent::around(place.offset, place.len)).collect()
    }

    /// Whether the store has not failed.
    fn goes_on(&self) -> bool {
        self.shared.check().is_ok()
    }

    /// Whether what opening the file again had to write is in it.
    pub(super) fn is_accepted(&self) -> bool {
        self.unaccepted.is_none()
    }

    /// Makes a batch durable and shows the tree with it, where `reached` is a generation that has
    /// reached it whole. Where that fails for another reason than a full disk, notes that for all
    /// callers.
    fn commit(
        &mut self,
        batch: Batch,
        chores: Chores,
        reached: Option<&Arc<Generation>>,
    ) -> Result<Applied, Failure> {
        let shared = Arc::clone(&self.shared);
        shared.while_busy(|| self.commit_or_start_over(batch, chores, reached))
    }

    fn commit_or_start_over(
        &mut self,
        batch: Batch,
        chores: Chores,
        reached: Option<&Arc<Generation>>,
    ) -> Result<Applied, Failure> {
        // It would be made in memory alone.
        if !self.is_accepted() {
            return Err(Failure::NoRoom);
        }
        let before = self.engine.last_commit();
        self.try_commit(batch, chores, reached).or_else(|unapplied| {
            if self.file.lender.only_lacked_room() {
                return self.start_over(before, unapplied, reached);
            }
            self.shared.fail(&unapplied.reason);
            Err(Failure::InDoubt)
        })
    }

    fn try_commit(
        &mut self,
        batch: Batch,
        chores: Chores,
        reached: Option<&Arc<Generation>>,
    ) -> Result<Applied, Unapplied> {
        let now = self.shared.clock.now();
        let places = batch.settled.iter().filter_map(|settled| settled.held.as_ref()?.place);
        self.offered = places.map(|place| place.offset).collect();
        // redb can panic on a page that rotted since it was verified.
        let applied = catch_unwind(AssertUnwindSafe(|| self.engine.apply(batch, chores, now)))
            .unwrap_or_else(|_| Err(BoxError::from("a page of the file is damaged").into()))?;
        self.file.acknowledged.note(applied.commit).map_err(BoxError::from)?;
        let freed = self.engine.take_moved().freed;
        self.show(freed, reached)?;
        self.next_due = applied.next_due;
        self.compaction.due = true;
        if !self.shared.reserve.lock().was_tried() {
            self.set_room_aside();
        }
        Ok(applied)
    }

    /// Shows the tree as it is after a commit that has `freed` something.
    fn show(
        &mut self,
        mut freed: Vec<Extent>,
        reached: Option<&Arc<Generation>>,
    ) -> Result<(), BoxError> {
        let tree = self.engine.snapshot()?;
        if let Some(generation) = reached {
            freed.extend(self.left_behind(generation));
        }
        self.shared.show_tree(tree, reached, freed);
        Ok(())
    }

    /// Goes on with another engine after one that ran out of room, and finds out what became of
    /// what it was to store after the commit `before`. Readers wait meanwhile.
    fn start_over(
        &mut self,
        before: u64,
        unapplied: Unapplied,
        reached: Option<&Arc<Generation>>,
    ) -> Result<Applied, Failure> {
        let Unapplied { reason, staged } = unapplied;
        let moved = self.engine.take_moved();
        let shared = Arc::clone(&self.shared);
        let reopened = shared.without_tree(|| self.reopen());
        // The engine that ran out of room and all that it has cached are freed here, beside readers.
        match reopened.map(|(last, _)| last) {
            Ok(last) if last == before => {
                shared.space.lock().give_up(moved.taken);
                Err(Failure::NoRoom)
            }
            // What did not fit was not needed.
            Ok(last) => {
                let staged = staged.filter(|staged| staged.commit == last);
                let shown = staged.ok_or(BoxError::from(reason)).and_then(|staged| {
                    self.show(moved.freed, reached)?;
                    Ok(staged)
                });
                shown.map_err(|error| {
                    shared.fail(&error.to_string());
                    Failure::InDoubt
                })
            }
            Err(error) => {
                shared.fail(&format!("{reason}, and then the file could not be opened: {error}"));
                Err(Failure::InDoubt)
            }
        }
    }

    /// Opens another engine. Returns its last commit and the engine that there was.
    fn reopen(&mut self) -> Result<((u64, Engine), Snapshot), BoxError> {
        let before = self.engine.last_commit();
        let OpenFile { directory, lender, acknowledged, .. } = &mut self.file;
        // What is found there is about to be shown.
        lender.sync()?;
        let space = Arc::clone(&self.shared.space);
        let opened = directory.open_engine(lender, space, self.engine.generation() + 1)?;
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
        let replaced = std::mem::replace(&mut self.engine, opened.engine);
        // The tree may need what the changes took that did not come to be.
        self.trim_values()?;
        // Making the file smaller needs room too: not again for little.
        self.compaction.size = self.shared.tree_size()?;
        // What is kept to be written over is of more use to the tree.
        self.shared.segments.remove_superfluous();
        self.room.ran_out(self.shared.clock.monotonic());
        self.shared.lacks_room.store(true, Ordering::SeqCst);
        Ok(((last, replaced), snapshot))
    }

    /// Does one step of what can wait.
    fn tidy(&mut self) {
        if !self.has_room() {
            return;
        }
        let now = self.shared.clock.now();
        if self.is_due(now) {
            let swept = self.commit(Batch::default(), IDLE, None);
            // A generation that is ripe by now goes before the next slice.
            if swept.is_err() || self.is_due(now) {
                return;
            }
        }
        // Here also right after a sweep: where records fall due all the time, there is never a rest
        // that is long enough for nothing else.
        if !self.compaction.due || !self.pack_if_worthwhile() {
            return;
        }
        if !self.is_made_up() || !self.is_accepted() {
            return;
        }
        self.set_room_aside();
        if let Err(error) = self.compact_if_worthwhile() {
            self.shared.fail(&error.to_string());
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
        if used < PACK_AT_MOST && self.is_worthwhile(end, used) {
            let pack = Chores { sweep: 0, pack: PACK_IDLE };
            match self.commit(Batch::default(), pack, None) {
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
            && self.shared.file_size().is_ok_and(|all| all > COMPACT_ABOVE)
    }

    fn compact_if_worthwhile(&mut self) -> Result<(), BoxError> {
        self.compaction.due = false;
        let left = self.engine.stored_bytes();
        let size = self.shared.tree_size()?;
        let is_worthwhile = left < COMPACT_AT_MOST && self.is_worthwhile(size, left);
        if !is_worthwhile || size <= self.compaction.size * 3 / 2 {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let (outcome, _replaced) = shared.while_busy(|| {
            shared.without_tree(|| match self.engine.compact() {
                // A scan still holds a snapshot, and nothing was begun.
                Err(redb::CompactionError::TransactionInProgress) => {
                    Ok(((Ok(false), None), self.engine.snapshot()?))
                }
                Err(_) if self.file.lender.only_lacked_room() => {
                    let ((_, replaced), snapshot) = self.reopen()?;
                    Ok(((Ok(true), Some(replaced)), snapshot))
                }
                compacted => Ok(((compacted.map(|()| true), None), self.engine.snapshot()?)),
            })
        })?;
        match outcome? {
            true => self.compaction.size = self.shared.tree_size()?,
            // Another time.
            false => self.compaction.due = true,
        }
        Ok(())
    }
}
