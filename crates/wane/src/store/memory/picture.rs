//! Pictures: the whole store as it was at one moment, taken while writers go on.
//!
//! A scan opens a picture, which begins a new epoch. Each slot remembers the epoch of its last
//! change. A writer that is the first to change a slot in the present epoch leaves what was there
//! before in the open pictures. So a slot whose epoch is older than a picture still shows what the
//! picture shows, and for any other the picture itself knows; a key that it does not know was not
//! there.
//!
//! A change has a [`Moment`], taken under the slot's lock: its time and its epoch agree about every
//! picture, for no moment is given while one is opened. A change that is not in a picture keeps every
//! change that came after it out as well: a picture is a state the store was really in.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};

use super::Core;
use super::points::SlotId;
use super::slot::SlotState;
use crate::store::{Key, PageFill, PageLimit, Record, Row, Timestamp};

/// Rows that a scan takes from the index at a time.
const STRIDE: usize = 256;

/// A key in the order of scans: by shard, then by key.
type Place = (usize, Key);

/// The open pictures.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    /// Odd while a picture is opened.
    epoch: AtomicU32,
    open: RwLock<Vec<Arc<Picture>>>,
}

/// When a change happens: by the clock, and in which epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    epoch: u32,
}

#[derive(Debug)]
struct Picture {
    epoch: u32,
    taken_at: Timestamp,
    /// What changed since, as it was before.
    before: Mutex<BTreeMap<Place, Record>>,
}

impl Pictures {
    /// The present moment by the clock.
    pub(super) fn moment(&self, clock: impl Fn() -> Timestamp) -> Moment {
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch % 2 == 1 {
                // Whoever opens a picture holds this until it is open.
                drop(self.open.read());
                continue;
            }
            let now = clock();
            if self.epoch.load(Ordering::SeqCst) == epoch {
                return Moment { now, epoch };
            }
        }
    }

    /// To be called under the slot's lock before its entry is changed at this moment, for the sake of
    /// `place`.
    pub(super) fn before_change(
        &self,
        moment: Moment,
        state: &mut SlotState,
        place: impl FnOnce() -> Place,
    ) {
        let (since, epoch) = (state.epoch, moment.epoch);
        if since == epoch {
            return;
        }
        state.epoch = epoch;
        // Where nothing is, nothing is noted: keys that come and go would be, again and again.
        if state.entry.is_none() {
            return;
        }
        let open = self.open.read();
        if open.is_empty() {
            return;
        }
        let place = place();
        let Some(record) = state.entry_of(&place.1).map(|entry| entry.record()) else { return };
        for picture in open.iter().filter(|open| since < open.epoch && open.epoch <= epoch) {
            // The first change is the one that the picture must not show.
            let mut before = picture.before.lock();
            before.entry(place.clone()).or_insert_with(|| record.clone());
        }
    }

    fn open(&self, clock: impl FnOnce() -> Timestamp) -> Arc<Picture> {
        let mut open = self.open.write();
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst) + 2;
        let picture = Arc::new(Picture { epoch, taken_at: clock(), before: Mutex::default() });
        open.push(Arc::clone(&picture));
        self.epoch.store(epoch, Ordering::SeqCst);
        picture
    }

    fn close(&self, picture: &Arc<Picture>) {
        self.open.write().retain(|open| !Arc::ptr_eq(open, picture));
    }
}

/// Where a scan of memory goes on: after a key, in the picture that the scan began with.
///
/// While it is kept, changed records are kept as they were, too.
#[derive(Debug)]
pub struct MemoryScanCursor {
    core: Arc<Core>,
    picture: Arc<Picture>,
    after: Option<Place>,
}

impl Drop for MemoryScanCursor {
    fn drop(&mut self) {
        self.core.pictures.close(&self.picture);
    }
}

impl MemoryScanCursor {
    pub(super) fn open(core: &Arc<Core>) -> Self {
        let picture = core.pictures.open(|| core.clock.now());
        Self { core: Arc::clone(core), picture, after: None }
    }

    /// The next page, and whether there may be more.
    pub(super) fn page(&mut self, limit: PageLimit) -> (Vec<Row>, bool) {
        let mut fill = PageFill::new(limit);
        loop {
            let rows = self.stride();
            if rows.is_empty() {
                return (fill.into_rows(), false);
            }
            for (place, id) in rows {
                if fill.is_full() {
                    return (fill.into_rows(), true);
                }
                if let Some(record) = self.resolve(&place, id) {
                    fill.push(place.1.clone(), record);
                }
                self.after = Some(place);
            }
        }
    }

    /// The next keys that are or were in the store, with their slots if they have one.
    fn stride(&self) -> BTreeMap<Place, Option<SlotId>> {
        // The index first: what leaves it later is in the picture by the time that is read.
        let indexed = indexed_after(&self.core, self.after.as_ref());
        let upto = match indexed.last() {
            Some((place, _)) if indexed.len() >= STRIDE => Bound::Included(place.clone()),
            Some(_) | None => Bound::Unbounded,
        };
        let from = self.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let before = self.picture.before.lock();
        let changed = before.range((from, upto)).map(|(place, _)| (place.clone(), None));
        let mut rows: BTreeMap<_, _> = changed.take(STRIDE).collect();
        drop(before);
        // Where there are more, they come first: indexed rows beyond them wait for the next stride.
        let last = rows.last_key_value().map(|(place, _)| place.clone());
        let last = last.filter(|_| rows.len() >= STRIDE);
        let indexed = indexed.into_iter();
        let within = indexed.filter(|(place, _)| last.as_ref().is_none_or(|last| place <= last));
        rows.extend(within.map(|(place, id)| (place, Some(id))));
        rows
    }

    /// The record that the picture shows at `place`.
    fn resolve(&self, place: &Place, id: Option<SlotId>) -> Option<Record> {
        let unchanged = id.and_then(|id| {
            self.core.points.visit(id, |slot| {
                let state = slot.lock();
                let is_older = state.epoch < self.picture.epoch;
                state.entry_of(&place.1).filter(|_| is_older).map(|entry| entry.record())
            })?
        });
        let before = || self.picture.before.lock().get(place).cloned();
        unchanged.or_else(before).filter(|record| record.is_live(self.picture.taken_at))
    }
}

/// Up to a stride of rows from the index, in the order of scans.
fn indexed_after(core: &Core, after: Option<&Place>) -> Vec<(Place, SlotId)> {
    let mut found = Vec::new();
    let first_shard = after.map_or(0, |(shard, _)| *shard);
    for shard in first_shard..super::ranges::SHARDS {
        let key = after.filter(|(in_shard, _)| *in_shard == shard).map(|(_, key)| key);
        let first = key.map_or(&[][..], |key| key.partition());
        let mut next = core.ranges.next_partition(shard, first, None);
        while let Some((partition, rows)) = next {
            let partition = partition.as_slice();
            let key = key.filter(|key| key.partition() == partition);
            let start = key.map_or(&[][..], |key| key.clustering());
            rows.walk(start, |row| {
                let clustering = row.name.as_slice();
                if key.is_none_or(|key| key.clustering() != clustering) {
                    found.push(((shard, Key::join(partition, clustering)), row.to));
                }
                if found.len() < STRIDE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            if found.len() >= STRIDE {
                return found;
            }
            next = core.ranges.next_partition(shard, partition, Some(partition));
        }
    }
    found
}
