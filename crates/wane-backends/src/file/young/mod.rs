//! The young generations: what was logged and has not reached the tree.
//!
//! ```text
//! active     what is being logged; readers look into it under a lock
//! sealed     what was logged before, oldest first; nothing changes in it any more
//! ```
//!
//! State that expires mostly dies young. What is renewed, replaced or gone by the time that its
//! generation is brought into the tree never gets there.
//!
//! A generation says what a key came to hold, or that it came to hold nothing. The newest
//! generation that knows a key decides; where none does, the tree does.

mod merge;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use wane::store::{Record, Timestamp};

pub(super) use self::merge::Merge;
use super::format::{Entry, Place, StoredRecord};

/// What a key holds: a record, whose value is empty here where it lies elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) record: Record,
    pub(super) place: Option<Place>,
}

impl Held {
    /// As the log and the tree write it: filed under its expiry.
    pub(super) fn entry(&self) -> Entry {
        let record = self.record.clone();
        let filed = record.expires_at;
        Entry { stored: StoredRecord { record, filed }, place: self.place }
    }
}

impl From<Entry> for Held {
    fn from(Entry { stored, place }: Entry) -> Self {
        Self { record: stored.record, place }
    }
}

/// What a generation knows of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// What the key holds, or `None` where it was removed.
    pub(super) held: Option<Held>,
    /// Whether something older may be stored under the key, here or below.
    pub(super) has_older: bool,
}

impl Row {
    /// Where its large value lies, if it has one.
    pub(super) fn place(&self) -> Option<Place> {
        self.held.as_ref()?.place
    }
}

/// A key in its stored form.
pub(super) type StoredKey = Arc<[u8]>;

/// Bytes that a row takes beside its key and value: slot, index, order, and what allocating costs.
const ROW: usize = 240;

/// What was logged between two moments.
#[derive(Debug, Default)]
pub(super) struct Generation {
    slots: Vec<(StoredKey, Row)>,
    index: HashMap<StoredKey, u32, foldhash::fast::RandomState>,
    order: BTreeMap<StoredKey, u32>,
    weight: usize,
    /// The segment that its last frame is in.
    pub(super) segment: u64,
    /// Its last frame.
    pub(super) sequence: u64,
    /// When its first row came.
    pub(super) since: Option<Timestamp>,
    /// Whether it has held a large value, which takes room on the disk as long as it is young.
    pub(super) has_large: bool,
}

impl Generation {
    /// An empty one, which goes on in `segment` after the frame `sequence`.
    pub(super) fn after(segment: u64, sequence: u64) -> Self {
        Self { segment, sequence, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory that it takes, roughly.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Whether something that it holds has expired by now, or was removed.
    pub(super) fn has_dead(&self, now: Timestamp) -> bool {
        let is_live = |row: &Row| row.held.as_ref().is_some_and(|held| held.record.is_live(now));
        self.slots.iter().any(|(_, row)| !is_live(row))
    }

    /// What it knows of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Row> {
        if self.slots.is_empty() {
            return None;
        }
        self.index.get(key).map(|slot| &self.slots[*slot as usize].1)
    }

    /// Notes what a key holds from now on. Returns what the generation knew before.
    pub(super) fn insert(&mut self, key: StoredKey, row: Row) -> Option<Row> {
        self.weight += value_weight(&row);
        self.has_large |= row.held.as_ref().is_some_and(|held| held.place.is_some());
        if let Some(slot) = self.index.get(&key) {
            let known = &mut self.slots[*slot as usize].1;
            // What lies below has not changed by what came on top of it.
            let row = Row { has_older: known.has_older, ..row };
            let before = std::mem::replace(known, row);
            self.weight -= value_weight(&before);
            return Some(before);
        }
        // Rows are bounded by memory, far below this many.
        let slot = self.slots.len() as u32;
        self.weight += ROW + key.len();
        self.index.insert(Arc::clone(&key), slot);
        self.order.insert(Arc::clone(&key), slot);
        self.slots.push((key, row));
        None
    }

    /// Its rows from `start` on, in the order of keys.
    pub(super) fn range(
        &self,
        start: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&StoredKey, &Row)> + use<'_> {
        let range = self.order.range::<[u8], _>((start, Bound::Unbounded));
        range.map(|(key, slot)| (key, &self.slots[*slot as usize].1))
    }
}

fn value_weight(row: &Row) -> usize {
    row.held.as_ref().map_or(0, |held| held.record.value.len())
}

/// What the newest of `sealed`, which come oldest first, knows of a key.
pub(super) fn newest<'a>(sealed: &'a [Arc<Generation>], key: &[u8]) -> Option<&'a Row> {
    sealed.iter().rev().find_map(|generation| generation.get(key))
}
