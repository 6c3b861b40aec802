//! Reading beside the writer: what is young, and one snapshot of the tree below, shared by all.
//!
//! A group is decided at one instant and becomes visible when it is durable, which is later. What
//! it decided may depend on the time: a record that it renewed may pass its old expiry meanwhile,
//! one that it wrote may expire before anyone sees it. For readers to agree with its answers, the
//! group must seem to have happened at that instant. So the writer announces the instant and the
//! keys, and whoever reads one of them at a later time waits for the group to land.
//!
//! A reader takes the time first, then what it needs of the active generation, everything below and
//! the announcement together. A group announced after that is decided no earlier than the reader's
//! time, so a reader waits once at most. What lies below changes as a whole: a generation that has
//! reached the tree leaves at the instant at which the tree shows it.

mod busy;
mod oldest;
mod reading;
mod walk;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use wane::clock::SharedClock;
use wane::store::{BoxError, StoreError, Timestamp};

use self::busy::Busy;
pub(super) use self::oldest::Oldest;
pub(super) use self::walk::{ActiveRows, View};
use super::engine::Snapshot;
use super::log::Segments;
use super::queue::{KeyedChange, Lookup, Queue};
use super::reserve::Reserve;
use super::space::{Extent, Space};
use super::values::ValuesFile;
use super::waiting::Waiting;
use super::young::{Generation, Row, StoredKey, newest};

/// How many generations may wait for room in the tree before more of them are made in the hope of any.
const MOST_WAITING: usize = 16;

/// The room in the file of large values. The writer takes from it, the tree gives back.
pub(super) type SharedSpace = Arc<Mutex<Space<Below>>>;

/// What handles, the writer and whoever brings the tree up to date share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: SharedClock,
    pub(super) queue: Queue,
    pub(super) waiting: Waiting,
    pub(super) segments: Arc<Segments>,
    pub(super) space: SharedSpace,
    pub(super) values: Arc<ValuesFile>,
    pub(super) reserve: Mutex<Reserve>,
    /// Something was sealed, somebody is in a hurry, or the store is being closed.
    pub(super) wake: Notify,
    /// The tree was brought up to date, or cannot be.
    pub(super) progress: Notify,
    /// The frame up to which everything is to be brought into the tree as soon as possible.
    pub(super) hurry: AtomicU64,
    /// How often room was wanted, whether something was young or not.
    wanted: AtomicU64,
    /// Up to which of those it was looked for since.
    sought: AtomicU64,
    /// Whether the tree is being written: what goes wrong with reading it may be about to be mended.
    busy: Busy,
    /// The tree cannot be brought up to date for want of room.
    pub(super) lacks_room: AtomicBool,
    /// Held while a full disk empties itself, and while large values are written: they must not take
    /// what was given up for others to leave.
    pub(super) clearing: Mutex<()>,
    path: PathBuf,
    visible: RwLock<Visible>,
    failure: OnceLock<String>,
}

/// What readers see.
#[derive(Debug)]
struct Visible {
    active: Generation,
    /// None only while the file is compacted, and after that has failed.
    below: Option<Arc<Below>>,
    in_flight: Option<Arc<Group>>,
    /// When something was last logged.
    last: Timestamp,
    /// The latest time at which anything was decided that is shown, or removed from the tree. Nobody
    /// sees what is shown at an earlier time.
    as_of: Timestamp,
}

/// All that lies below the active generation.
#[derive(Debug)]
pub(super) struct Below {
    /// Oldest first.
    pub(super) sealed: Vec<Arc<Generation>>,
    pub(super) tree: Arc<Snapshot>,
    /// How many generations have reached the tree since it was opened.
    pub(super) checkpoints: u64,
}

impl Below {
    /// What lies below, before anything was logged on top of it.
    pub(super) fn new(sealed: Vec<Arc<Generation>>, tree: Snapshot) -> Self {
        Self { sealed, tree: Arc::new(tree), checkpoints: 0 }
    }

    /// The same, for another tree.
    fn over(&self, tree: Snapshot) -> Self {
        let (sealed, checkpoints) = (self.sealed.clone(), self.checkpoints);
        Self { sealed, tree: Arc::new(tree), checkpoints }
    }

    /// The same, as something that is not this one.
    fn again(&self) -> Self {
        let Self { sealed, tree, checkpoints } = self;
        Self { sealed: sealed.clone(), tree: Arc::clone(tree), checkpoints: *checkpoints }
    }
}

/// A group on its way to the disk.
#[derive(Debug)]
pub(super) struct Group {
    decided: Timestamp,
    keys: HashSet<StoredKey, foldhash::fast::RandomState>,
    landed: AtomicBool,
    landing: Notify,
}

impl Group {
    /// Whether the group changes this key.
    pub(super) fn touches(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// The keys that the group changes.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    /// Completes once the group is visible, or has failed.
    async fn landing(&self) {
        let landing = self.landing.notified();
        if !self.landed.load(Ordering::SeqCst) {
            landing.await;
        }
    }
}

impl Shared {
    pub(super) fn new(
        clock: SharedClock,
        path: PathBuf,
        segments: Arc<Segments>,
        space: SharedSpace,
        values: Arc<ValuesFile>,
        reserve: Reserve,
        below: Below,
    ) -> Self {
        let visible = Visible {
            active: Generation::default(),
            below: Some(Arc::new(below)),
            in_flight: None,
            last: Timestamp::from_unix_millis(0),
            as_of: Timestamp::from_unix_millis(0),
        };
        Self {
            clock,
            queue: Queue::default(),
            waiting: Waiting::default(),
            segments,
            space,
            values,
            reserve: Mutex::new(reserve),
            wake: Notify::new(),
            progress: Notify::new(),
            hurry: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            sought: AtomicU64::new(0),
            busy: Busy::default(),
            lacks_room: AtomicBool::new(false),
            clearing: Mutex::new(()),
            path,
            visible: RwLock::new(visible),
            failure: OnceLock::new(),
        }
    }

    /// Announces a group and returns the instant that decides it.
    pub(super) fn announce(&self, batch: &[KeyedChange]) -> Timestamp {
        let keys = batch.iter().map(|keyed| Arc::clone(&keyed.key)).collect();
        let mut visible = self.visible.write();
        // Under the lock: a reader that was before it has an earlier time.
        let decided = self.clock.now();
        let (landed, landing) = (AtomicBool::new(false), Notify::new());
        visible.in_flight = Some(Arc::new(Group { decided, keys, landed, landing }));
        decided
    }

    /// Takes the announcement back once the group is visible, or has failed.
    pub(super) fn land(&self) {
        let landed = self.visible.write().in_flight.take();
        if let Some(group) = landed {
            group.landed.store(true, Ordering::SeqCst);
            group.landing.notify_waiters();
        }
    }

    /// What the active generation knows of a key, and what lies below it, by the time of both.
    pub(super) fn newest(&self, key: &[u8]) -> Result<(Option<Row>, View), StoreError> {
        let visible = self.visible.read();
        let below = visible.below.clone().ok_or_else(|| self.failure())?;
        Ok((visible.active.get(key).cloned(), View { now: visible.as_of, below }))
    }

    /// Shows readers what was logged in the frame `sequence` of `segment`, after it was decided on top
    /// of `below`.
    pub(super) fn publish(
        &self,
        mut rows: Vec<(StoredKey, Row)>,
        below: &Arc<Below>,
        segment: u64,
        sequence: u64,
        decided: Timestamp,
    ) {
        let mut visible = self.visible.write();
        // What was active when it was decided may have been sealed since, or be in the tree by now.
        if !visible.below.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, below)) {
            rows.iter_mut().for_each(|(_, row)| row.has_older = true);
        }
        let active = &mut visible.active;
        (active.segment, active.sequence) = (segment, sequence);
        if active.since.is_none() {
            active.since = Some(decided);
            self.wake.notify_one();
        }
        visible.last = decided;
        visible.as_of = visible.as_of.max(decided);
        let active = &mut visible.active;
        let mut freed = Vec::new();
        for (key, row) in rows {
            let before = active.insert(key, row).and_then(|before| before.held?.place);
            freed.extend(before.map(|place| Extent::around(place.offset, place.len)));
        }
        if !freed.is_empty() {
            let again = visible.below.as_ref().map(|below| below.again());
            self.replace(&mut visible, again, freed);
        }
    }

    /// Shows something else below the active generation, and frees what may still be read through
    /// what was shown before. Everything that is shown goes by here, so that what is freed waits for
    /// all of it.
    fn replace(&self, visible: &mut Visible, below: Option<Below>, freed: Vec<Extent>) {
        let shown = std::mem::replace(&mut visible.below, below.map(Arc::new));
        let shown_by = shown.as_ref().map(Arc::downgrade).unwrap_or_default();
        self.space.lock().retire(shown_by, freed);
    }

    /// Ends the active generation, if there is anything in it; the next one goes on in `segment`, or
    /// in the same.
    pub(super) fn seal(&self, segment: Option<u64>) {
        let mut visible = self.visible.write();
        self.seal_visible(&mut visible);
        if let Some(segment) = segment {
            visible.active.segment = segment;
        }
    }

    /// Ends the active generation, and returns the last frame of what is sealed.
    fn seal_all(&self) -> u64 {
        let mut visible = self.visible.write();
        self.seal_visible(&mut visible);
        visible.active.sequence
    }

    fn seal_visible(&self, visible: &mut Visible) {
        let Some(below) = visible.below.as_ref().filter(|_| !visible.active.is_empty()) else {
            return;
        };
        let mut below = below.again();
        let next = visible.active.next();
        below.sealed.push(Arc::new(std::mem::replace(&mut visible.active, next)));
        self.replace(visible, Some(below), Vec::new());
        self.wake.notify_one();
    }

    /// Bytes of memory that the young generations take, roughly, and those of the active one.
    pub(super) fn weight(&self) -> (usize, usize) {
        let visible = self.visible.read();
        let active = visible.active.weight();
        let sealed = visible.below.iter().flat_map(|below| &below.sealed);
        (active + sealed.map(|generation| generation.weight()).sum::<usize>(), active)
    }

    /// Whether the tree has all that was logged. Nobody knows where there is no tree.
    pub(super) fn is_all_in_tree(&self) -> bool {
        let visible = self.visible.read();
        let below = visible.below.as_ref();
        visible.active.is_empty() && below.is_some_and(|below| below.sealed.is_empty())
    }

    /// Whether what was logged up to the frame `last`, all of it sealed, is in the tree.
    fn has_reached_tree(&self, last: u64) -> Result<bool, StoreError> {
        let visible = self.visible.read();
        let below = visible.below.as_ref().ok_or_else(|| self.failure())?;
        Ok(below.sealed.first().is_none_or(|oldest| oldest.sequence > last))
    }

    /// The oldest generation, whether it is sealed, and how many are.
    pub(super) fn oldest(&self) -> Oldest {
        let visible = self.visible.read();
        let sealed = visible.below.as_ref().map_or(&[][..], |below| &below.sealed);
        Oldest {
            sealed: sealed.first().cloned(),
            count: sealed.len(),
            since: sealed.first().map_or(visible.active.since, |oldest| oldest.since),
            has_large: sealed.first().map_or(visible.active.has_large, |oldest| oldest.has_large),
            last: visible.last,
        }
    }

    /// The sealed generations, oldest first.
    pub(super) fn sealed(&self) -> Vec<Arc<Generation>> {
        let visible = self.visible.read();
        visible.below.as_ref().map_or_else(Vec::new, |below| below.sealed.clone())
    }

    /// Shows a sealed generation in another form, with the same rows in it.
    pub(super) fn show_sorted(&self, loose: &Arc<Generation>, sorted: Arc<Generation>) {
        let mut visible = self.visible.write();
        let Some(shown) = visible.below.clone() else { return };
        let mut below = shown.again();
        if let Some(at) = below.sealed.iter().position(|sealed| Arc::ptr_eq(sealed, loose)) {
            below.sealed[at] = sorted;
            self.replace(&mut visible, Some(below), Vec::new());
        }
        drop(visible);
        // Whatever nobody else reads is freed outside of the lock.
        drop(shown);
    }

    /// Whether something young has died, which takes room until its generation goes.
    pub(super) fn has_died_young(&self, now: Timestamp) -> bool {
        let visible = self.visible.read();
        let sealed = visible.below.iter().flat_map(|below| &below.sealed);
        visible.active.has_dead(now) || sealed.into_iter().any(|sealed| sealed.has_dead(now))
    }

    /// Which of these keys a generation after `oldest` knows.
    pub(super) fn known_later(&self, oldest: &Arc<Generation>, keys: &[StoredKey]) -> Vec<bool> {
        let visible = self.visible.read();
        let sealed = visible.below.as_ref().map_or(&[][..], |below| &below.sealed);
        let later = sealed.iter().filter(|sealed| !Arc::ptr_eq(sealed, oldest));
        let later: Vec<_> = later.map(|sealed| &**sealed).chain([&visible.active]).collect();
        let known = |key: &StoredKey| later.iter().any(|later| later.get(key).is_some());
        keys.iter().map(known).collect()
    }

    /// Shows readers the tree as it is after a commit, and frees what that freed. Where `reached` is
    /// all in the tree, it goes at the same instant.
    pub(super) fn show_tree(
        &self,
        tree: Snapshot,
        reached: Option<&Arc<Generation>>,
        freed: Vec<Extent>,
    ) {
        let mut visible = self.visible.write();
        visible.as_of = visible.as_of.max(tree.time);
        let Some(shown) = visible.below.clone() else { return };
        let mut below = shown.over(tree);
        if let Some(reached) = reached {
            below.sealed.retain(|sealed| !Arc::ptr_eq(sealed, reached));
            below.checkpoints += 1;
        }
        let first = below.sealed.first().map_or(visible.active.segment, |first| first.segment);
        self.replace(&mut visible, Some(below), freed);
        drop(visible);
        // Whatever nobody else reads is freed outside of the lock.
        drop(shown);
        if reached.is_some() {
            self.segments.give_up_before(first);
        }
    }

    /// Runs `work`, which returns the tree to go on with, while no reader can look into it.
    pub(super) fn without_tree<T>(
        &self,
        work: impl FnOnce() -> Result<(T, Snapshot), BoxError>,
    ) -> Result<T, BoxError> {
        let mut visible = self.visible.write();
        let Some(Below { sealed, checkpoints, .. }) = visible.below.as_ref().map(|b| b.again())
        else {
            return Err("there is no tree to go on from".into());
        };
        self.replace(&mut visible, None, Vec::new());
        let (result, tree) = work()?;
        // It may be that of a commit which nobody was shown yet.
        visible.as_of = visible.as_of.max(tree.time);
        let tree = Arc::new(tree);
        self.replace(&mut visible, Some(Below { sealed, tree, checkpoints }), Vec::new());
        Ok(result)
    }

    /// Brings everything that is young by now into the tree.
    pub(super) async fn flush(&self) -> Result<(), StoreError> {
        let last = self.seal_all();
        self.hasten_up_to(last);
        loop {
            let progress = self.progress.notified();
            self.check()?;
            if self.has_reached_tree(last)? {
                return Ok(());
            }
            if self.lacks_room.load(Ordering::SeqCst) {
                let source = "the disk is full".into();
                return Err(StoreError::Unavailable { backend: "file", source });
            }
            progress.await;
        }
    }

    /// Has everything that is young by now brought into the tree. Where that has no room, each group asks
    /// for it: behind a few generations that wait, what comes then is left for one.
    pub(super) fn hasten(&self) {
        let mut visible = self.visible.write();
        let waiting = visible.below.as_ref().map_or(0, |below| below.sealed.len());
        if waiting < MOST_WAITING || !self.lacks_room.load(Ordering::SeqCst) {
            self.seal_visible(&mut visible);
        }
        let last = visible.active.sequence;
        drop(visible);
        self.hasten_up_to(last);
    }

    fn hasten_up_to(&self, last: u64) {
        self.hurry.fetch_max(last, Ordering::SeqCst);
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Has room looked for, and waits until that was done by a look that began after this.
    pub(super) async fn await_look_for_room(&self) {
        self.hasten();
        let wanted = self.wanted.load(Ordering::SeqCst);
        loop {
            let progress = self.progress.notified();
            if self.sought.load(Ordering::SeqCst) >= wanted || self.check().is_err() {
                return;
            }
            progress.await;
        }
    }

    /// Runs a step of bringing the tree up to date, which is told whether room is wanted.
    pub(super) fn seek_room(&self, step: impl FnOnce(bool)) {
        let wanted = self.wanted.load(Ordering::SeqCst);
        step(wanted > self.sought.load(Ordering::SeqCst));
        self.sought.store(wanted, Ordering::SeqCst);
        self.progress.notify_waiters();
    }

    /// Runs a commit of the tree.
    pub(super) fn while_busy<T>(&self, commit: impl FnOnce() -> T) -> T {
        self.busy.during(commit)
    }

    /// Fails the store, as its tree cannot be read, unless another engine has taken the place of the
    /// one that it was read by.
    pub(super) async fn unread(&self, generation: u64, reason: &str) {
        if !self.is_replaced(generation).await {
            self.fail(reason);
        }
    }

    /// What a change will meet below the young generations, looked up before it is queued.
    pub(super) fn look_up(&self, key: &[u8]) -> Result<Option<Lookup>, StoreError> {
        let visible = self.visible.read();
        if visible.active.get(key).is_some() {
            return Ok(None);
        }
        let below = visible.below.clone().ok_or_else(|| self.failure())?;
        drop(visible);
        if newest(&below.sealed, key).is_some() {
            return Ok(None);
        }
        // Whatever is wrong will show again, when the change is decided.
        let held = below.tree.get(key).ok();
        Ok(held.map(|held| Lookup { below, held }))
    }

    /// The size of the tree's file.
    pub(super) fn tree_size(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }

    /// The size of all files.
    pub(super) fn file_size(&self) -> std::io::Result<u64> {
        Ok(self.tree_size()? + self.values.len()? + self.segments.size())
    }

    /// Records in the tree and rows of the young generations. What is in both counts twice.
    pub(super) async fn stored(&self) -> Result<u64, StoreError> {
        let rows = |active: &Generation, _| active.len() as u64;
        let stored = |view: &View, active: &u64| {
            let sealed = view.below.sealed.iter().map(|sealed| sealed.len() as u64).sum::<u64>();
            Ok(view.below.tree.len()? + sealed + active)
        };
        self.read(|_| false, rows, stored).await
    }

    /// How many rows of the tree are kept in memory.
    #[cfg(feature = "testing")]
    pub(super) fn kept_rows(&self) -> usize {
        self.visible.read().below.as_ref().map_or(0, |below| below.tree.kept_rows())
    }

    /// Notes the first reason why the store can no longer be trusted.
    pub(super) fn fail(&self, reason: &str) {
        let advice = format!("{reason}; check the disk, then open the store again");
        // Later failures follow from the first one, which is already noted.
        drop(self.failure.set(advice));
    }

    /// What callers are told after a failure.
    pub(super) fn failure(&self) -> StoreError {
        let reason = self.failure.get().map_or("the store is closed", String::as_str);
        StoreError::Unavailable { backend: "file", source: reason.into() }
    }

    /// Fails once the store has.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.failure.get().is_some() { Err(self.failure()) } else { Ok(()) }
    }
}
