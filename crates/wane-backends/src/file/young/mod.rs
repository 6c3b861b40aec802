//! The young generations: what was logged and has not reached the tree.
//!
//! ```text
//! active     what is being logged; readers look into it under a lock
//! sealed     what was logged before, oldest first; nothing changes in it any more
//! sorted     the same, put in order in the background, as ranges read what lies side by side
//! ```
//!
//! State that expires mostly dies young. What is renewed, replaced or gone by the time that its
//! generation is brought into the tree never gets there.
//!
//! A generation says what a key came to hold, or that it came to hold nothing. The newest
//! generation that knows a key decides; where none does, the tree does.

mod copied;
mod merge;
mod order;

use std::collections::{BTreeMap, HashMap, btree_map, hash_map};
use std::ops::Bound;
use std::slice;
use std::sync::Arc;

use wane::store::{Record, Timestamp, Value};

pub(super) use self::copied::CopiedRows;
pub(super) use self::merge::Merge;
use self::order::OrderedKey;
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
    /// Whether the key holds something that has not expired.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.held.as_ref().is_some_and(|held| held.record.is_live(now))
    }

    /// Where its large value lies, if it has one.
    pub(super) fn place(&self) -> Option<Place> {
        self.held.as_ref()?.place
    }

    /// The same in memory of its own.
    fn copied(&self) -> Self {
        let held = self.held.as_ref().map(|held| {
            let record = Record { value: copied(&held.record.value), ..held.record };
            Held { record, place: held.place }
        });
        Self { held, has_older: self.has_older }
    }
}

/// The value in memory of its own: a caller's may be a part of something much larger.
pub(super) fn copied(value: &Value) -> Value {
    // It was a value before, so it is one.
    Value::copy_from_slice(value).unwrap_or_else(|_| value.clone())
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
    /// The order of keys, where slots do not come in it.
    order: Option<BTreeMap<OrderedKey, u32>>,
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
    /// An empty one, which begins in `segment`.
    pub(super) fn of(segment: u64) -> Self {
        Self { segment, ..Self::default() }
    }

    /// An empty one, which goes on in the same segment, and is likely to have as many rows.
    pub(super) fn next(&self) -> Self {
        let Self { segment, sequence, .. } = *self;
        let slots = Vec::with_capacity(self.len());
        let index = HashMap::with_capacity_and_hasher(self.len(), Default::default());
        Self { slots, index, segment, sequence, ..Self::default() }
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
        self.slots.iter().any(|(_, row)| !row.is_live(now))
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
        // Rows are bounded by memory, far below this many.
        let slot = self.slots.len() as u32;
        match self.index.entry(Arc::clone(&key)) {
            hash_map::Entry::Vacant(vacant) => vacant.insert(slot),
            hash_map::Entry::Occupied(known) => {
                let known = &mut self.slots[*known.get() as usize].1;
                // What lies below has not changed by what came on top of it.
                let row = Row { has_older: known.has_older, ..row };
                let before = std::mem::replace(known, row);
                self.weight -= value_weight(&before);
                return Some(before);
            }
        };
        self.weight += ROW + key.len();
        let order = self.order.get_or_insert_with(|| ordered(&self.slots));
        order.insert(OrderedKey::new(&key), slot);
        self.slots.push((key, row));
        None
    }

    /// Whether its rows lie side by side in the order of keys.
    pub(super) fn is_sorted(&self) -> bool {
        self.order.is_none()
    }

    /// The same rows side by side in the order of keys, with their keys and values.
    pub(super) fn sorted(&self) -> Self {
        let rows = self.range(Bound::Unbounded);
        let slots: Vec<_> = rows.map(|(key, row)| ((**key).into(), row.copied())).collect();
        let index = slots.iter().zip(0..).map(|((key, _), slot)| (Arc::clone(key), slot)).collect();
        Self { slots, index, order: None, ..*self }
    }

    /// Its rows from `start` on, in the order of keys.
    pub(super) fn range(&self, start: Bound<&[u8]>) -> Rows<'_> {
        let Some(order) = &self.order else {
            let first = self.slots.partition_point(|(key, _)| match start {
                Bound::Included(start) => **key < *start,
                Bound::Excluded(start) => **key <= *start,
                Bound::Unbounded => false,
            });
            return Rows::Sorted(self.slots[first..].iter());
        };
        // With its first bytes at hand, as those it is compared with have theirs.
        let start = start.map(|start| OrderedKey::new(&start.into()));
        Rows::Ordered(order.range((start, Bound::Unbounded)), &self.slots)
    }
}

/// The order of keys of slots.
fn ordered(slots: &[(StoredKey, Row)]) -> BTreeMap<OrderedKey, u32> {
    slots.iter().zip(0..).map(|((key, _), slot)| (OrderedKey::new(key), slot)).collect()
}

/// Rows of a generation in the order of keys.
pub(super) enum Rows<'a> {
    /// Wherever their slots are.
    Ordered(btree_map::Range<'a, OrderedKey, u32>, &'a [(StoredKey, Row)]),
    /// Side by side.
    Sorted(slice::Iter<'a, (StoredKey, Row)>),
}

impl<'a> Iterator for Rows<'a> {
    type Item = (&'a StoredKey, &'a Row);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Ordered(order, slots) => {
                let (_, slot) = order.next()?;
                let (key, row) = &slots[*slot as usize];
                Some((key, row))
            }
            Self::Sorted(rows) => rows.next().map(|(key, row)| (key, row)),
        }
    }
}

fn value_weight(row: &Row) -> usize {
    row.held.as_ref().map_or(0, |held| held.record.value.len())
}

/// What the newest of `sealed`, which come oldest first, knows of a key.
pub(super) fn newest<'a>(sealed: &'a [Arc<Generation>], key: &[u8]) -> Option<&'a Row> {
    sealed.iter().rev().find_map(|generation| generation.get(key))
}
