//! The memory backend: one process, nothing kept.
//!
//! A record lives in a slot with a lock of its own. Two indexes lead to slots: a hash table for
//! single keys and a tree per partition for ranges, both read without a lock. So a reader waits
//! for nobody but a writer of the same key, and a writer for nobody but another one nearby.
//!
//! | file | what |
//! |---|---|
//! | `slot` | a record's place and its lock |
//! | `points` | the hash index |
//! | `ranges`, `tree` | the ordered index: partitions, and the rows of one |
//! | `wheel`, `sweeper` | when to look at which slot, and the thread that does |
//! | `picture` | the whole store as it was when a scan began |
//!
//! Lock order: slot, segment of `points`, partition of `ranges`, then `wheel` or a picture.

mod picture;
mod points;
mod ranges;
mod slot;
mod sweeper;
mod tree;
mod wheel;

pub use picture::MemoryScanCursor;

use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::picture::{Moment, Pictures};
use self::points::{Points, SlotId};
use self::ranges::Ranges;
use self::slot::{Entry, Slot, SlotState};
use self::wheel::{Ticks, Wheel};
use super::{
    Change, ClusteringRange, Condition, Fence, Key, Outcome, Page, PageFill, PageLimit, Partition,
    Record, Remaining, ScanPage, Step, Store, StoreError, Timestamp, Write,
};
use crate::clock::SharedClock;

/// Rows that one page looks at before it goes on elsewhere, so that a stretch of expired rows
/// cannot hold up a reader.
const PAGE_WALK: usize = 20_000;

/// Rows whose slots are brought into the cache together, before the first of them is locked.
const AHEAD: usize = 16;

/// A store in memory. A handle is a cheap clone; the last one frees everything.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

/// What handles, the sweeper and open scans share.
#[derive(Debug)]
struct Core {
    clock: SharedClock,
    hasher: foldhash::quality::FixedState,
    points: Points,
    ranges: Ranges,
    ticks: Ticks,
    wheel: Mutex<Wheel>,
    pictures: Pictures,
    /// Wakes the sweeper out of a sleep without end.
    nudge: Notify,
    /// Set when memory could be given back.
    wasteful: AtomicBool,
    closing: AtomicBool,
}

impl MemoryStore {
    /// An empty store, with the thread that will clean it.
    ///
    /// Fails only where the operating system gives no thread.
    pub fn new(clock: SharedClock) -> std::io::Result<Self> {
        let ticks = Ticks::since(clock.now());
        let core = Arc::new(Core {
            // Seeded, so that nobody outside can choose keys that collide.
            hasher: foldhash::quality::FixedState::with_seed(clock.random_u64()),
            points: Points::new(),
            ranges: Ranges::new(clock.random_u64()),
            ticks,
            wheel: Mutex::new(Wheel::new(ticks)),
            pictures: Pictures::default(),
            nudge: Notify::new(),
            wasteful: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            clock,
        });
        let sweeper = Mutex::new(Some(sweeper::start(Arc::clone(&core))?));
        Ok(Self { inner: Arc::new(Inner { core, sweeper }) })
    }

    /// Bytes allocated for slots, the indexes, and values kept outside of slots. Walks them all.
    pub fn allocated_bytes(&self) -> usize {
        let Core { points, ranges, wheel, .. } = &*self.inner.core;
        let outside = points.all_ids().filter_map(|id| {
            points.visit(id, |slot| slot.lock().entry.as_ref().map(|e| e.bytes_outside()))?
        });
        let indexes = ranges.allocated_bytes() + wheel.lock().allocated_bytes();
        points.allocated_bytes() + indexes + outside.sum::<usize>()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.core.closing.store(true, Ordering::SeqCst);
        self.core.nudge.notify_one();
        if let Some(sweeper) = self.sweeper.lock().take() {
            // A sweeper that panicked has said so; there is nothing left to clean.
            drop(sweeper.join());
        }
    }
}

impl Core {
    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    fn get(&self, key: &Key) -> Option<Record> {
        self.points.find(self.hash(key), |_, slot| {
            let state = slot.lock();
            let entry = state.entry_of(key)?;
            Some(entry.is_live(|| self.clock.now()).then(|| entry.record()))
        })?
    }

    fn remaining(&self, key: &Key) -> Remaining {
        let found = self.points.find(self.hash(key), |_, slot| {
            // Under the lock: a renewal after this does not make it look late.
            let state = slot.lock();
            let expires_at = state.entry_of(key)?.expires_at();
            Some(expires_at.map(|expiry| (expiry, self.clock.now())))
        });
        match found {
            None => Remaining::Absent,
            Some(None) => Remaining::Permanent,
            Some(Some((expiry, now))) => {
                if now < expiry {
                    Remaining::For(now.until(expiry))
                } else {
                    Remaining::Absent
                }
            }
        }
    }

    /// Applies or refuses a change in one step.
    fn change(&self, key: &Key, change: Change<'_>) -> Result<Outcome, StoreError> {
        let hash = self.hash(key);
        let mut pending = Some(change);
        loop {
            let changed = self.points.find(hash, |id, slot| {
                let mut state = slot.lock();
                state.entry_of(key)?;
                Some(self.change_slot(id, &mut state, key, pending.take()?))
            });
            if let Some(outcome) = changed {
                return Ok(outcome);
            }
            if let Some(outcome) = self.change_absent(key, hash, &mut pending) {
                return outcome;
            }
        }
    }

    /// Changes a slot that holds the key's record, live or expired.
    fn change_slot(
        &self,
        id: SlotId,
        state: &mut SlotState,
        key: &Key,
        change: Change<'_>,
    ) -> Outcome {
        // Under the lock: whoever looks after this sees no earlier time.
        let moment = self.pictures.moment(|| self.clock.now());
        let live = state.entry.as_ref().filter(|entry| entry.is_live(|| moment.now));
        let step = change.decide(live.map(|entry| entry.current()), moment.now);
        let outcome = step.outcome(|| live.map(|entry| entry.record()));
        match step {
            // A reader who took the time before would show it.
            Step::Store(record) if !record.is_live(moment.now) => {
                self.remove(id, moment, state, key);
            }
            Step::Store(record) => {
                self.note_change(moment, state, key);
                if let Some(entry) = &mut state.entry {
                    entry.replace(record);
                }
                self.file(id, state);
            }
            Step::Remove(_) => self.remove(id, moment, state, key),
            Step::Refuse => {}
        }
        outcome
    }

    /// Applies a change to a key without a slot. `None` means that one has appeared.
    #[inline(never)]
    fn change_absent(
        &self,
        key: &Key,
        hash: u64,
        pending: &mut Option<Change<'_>>,
    ) -> Option<Result<Outcome, StoreError>> {
        if matches!(pending.as_ref()?.condition(), Condition::Equals(_)) {
            return Some(Ok(Outcome::Refused { current: None }));
        }
        let mut segment = self.points.change(hash);
        // Only tried, not waited for: whoever holds such a slot may be waiting for this segment.
        let appeared = self.points.find(hash, |_, slot| {
            let state = slot.try_lock();
            state.is_none_or(|state| state.entry_of(key).is_some()).then_some(())
        });
        if appeared.is_some() {
            return None;
        }
        let now = self.clock.now();
        let step = pending.take()?.decide(None, now);
        let outcome = step.outcome(|| None);
        if let Step::Store(record) = step
            && record.is_live(now)
        {
            let added = segment.add(hash, |id, state| {
                self.note_change(self.pictures.moment(|| now), state, key);
                state.entry = Some(Entry::new(key.clone(), record));
                self.ranges.insert(key, id);
                self.file(id, state);
            });
            if !added {
                let source = "it holds as many records as it can; delete some".into();
                return Some(Err(StoreError::Unavailable { backend: "memory", source }));
            }
        }
        Some(Ok(outcome))
    }

    /// Empties the key's slot and takes it out of both indexes.
    fn remove(&self, id: SlotId, moment: Moment, state: &mut SlotState, key: &Key) {
        self.note_change(moment, state, key);
        state.entry = None;
        let hash = self.hash(key);
        let mut segment = self.points.change(hash);
        self.ranges.remove(key);
        let wasteful = segment.remove(hash, id);
        if wasteful && !self.wasteful.swap(true, Ordering::SeqCst) {
            self.nudge.notify_one();
        }
    }

    /// Lets open pictures keep what is about to change.
    fn note_change(&self, moment: Moment, state: &mut SlotState, key: &Key) {
        let place = || (self.ranges.shard_of(key.partition()), key.clone());
        self.pictures.before_change(moment, state, place);
    }

    fn read(&self, partition: &Partition, range: &ClusteringRange, limit: PageLimit) -> Page {
        let Some(rows) = self.ranges.rows(partition.as_bytes()) else {
            return Page { rows: Vec::new(), rest: None };
        };
        let fill = PageFill::new(limit);
        let mut page = PageWalk { core: self, partition, now: self.clock.now(), fill };
        let mut ahead = ArrayVec::<tree::Row<SlotId>, AHEAD>::new();
        let mut walked = 0;
        let mut next = None;
        rows.walk(range.start(), |row| {
            if !range.contains(row.name.as_slice()) {
                return ControlFlow::Break(());
            }
            if ahead.len() >= page.fill.room().min(AHEAD) {
                next = page.take(&mut ahead);
            }
            walked += 1;
            if next.is_none() && (page.fill.is_full() || walked > PAGE_WALK) {
                next = Some(row.name.clone());
            }
            if next.is_some() {
                return ControlFlow::Break(());
            }
            self.points.visit(row.to, Slot::warm);
            ahead.push(row.clone());
            ControlFlow::Continue(())
        });
        let next = page.take(&mut ahead).or(next);
        let rest = next.map(|clustering| range.starting_at(clustering.as_slice().to_vec()));
        Page { rows: page.fill.into_rows(), rest }
    }
}

/// A page being filled.
struct PageWalk<'a> {
    core: &'a Core,
    partition: &'a Partition,
    now: Timestamp,
    fill: PageFill,
}

impl PageWalk<'_> {
    /// Adds those of `ahead` that still live, and returns the first that the page has no room for.
    fn take(&mut self, ahead: &mut ArrayVec<tree::Row<SlotId>, AHEAD>) -> Option<tree::Name> {
        for row in ahead.drain(..) {
            if self.fill.is_full() {
                return Some(row.name);
            }
            self.core.points.visit(row.to, |slot| {
                let state = slot.lock();
                let entry = state.entry.as_ref().filter(|entry| {
                    entry.key.clustering() == row.name.as_slice()
                        && entry.key.partition() == self.partition.as_bytes()
                });
                if let Some(entry) = entry.filter(|entry| entry.is_live(|| self.now)) {
                    self.fill.push(entry.key.clone(), entry.record());
                }
            });
        }
        None
    }
}

impl Store for MemoryStore {
    type ScanCursor = MemoryScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.inner.core.get(key))
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        Ok(keys.iter().map(|key| self.inner.core.get(key)).collect())
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        Ok(self.inner.core.read(partition, range, limit))
    }

    async fn scan(
        &self,
        after: Option<MemoryScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<MemoryScanCursor>, StoreError> {
        let mut cursor = after.unwrap_or_else(|| MemoryScanCursor::open(&self.inner.core));
        let (rows, more) = cursor.page(limit);
        Ok(ScanPage { rows, next: more.then_some(cursor) })
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let core = &self.inner.core;
        core.change(key, Change::put(write, || core.clock.now())?)
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let core = &self.inner.core;
        let checked = |(key, write)| Ok((key, Change::put(write, || core.clock.now())?));
        let changes = writes.into_iter().map(checked).collect::<Result<Vec<_>, StoreError>>()?;
        changes.into_iter().map(|(key, change)| core.change(&key, change)).collect()
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let core = &self.inner.core;
        core.change(key, Change::insert(write, || core.clock.now())?)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let core = &self.inner.core;
        core.change(key, Change::swap(expected, write, || core.clock.now())?)
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.inner.core.change(key, Change::delete(expected, fence))
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        Ok(self.inner.core.remaining(key))
    }
}
