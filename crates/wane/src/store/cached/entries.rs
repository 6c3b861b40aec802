//! Entries: what is known of keys, bounded by the bytes that it takes.
//!
//! An entry is one allocation that holds the key too, and the table below holds two pointers to it:
//! so nearly all of the memory is in what an eviction frees. The table itself never shrinks; a cache
//! that held the smallest entries and then holds the largest takes up to a quarter more.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::store::{Key, Record};

/// What is known of a key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// The record, or that there is none.
    pub(super) record: Option<Record>,
    /// When the call that told of it was sent, in nanoseconds of the monotonic clock.
    pub(super) as_of: u64,
}

impl Entry {
    /// Remembers a record with memory of its own.
    pub(super) fn new(key: &Key, record: Option<&Record>, as_of: u64) -> Self {
        let record = record.map(|record| Record { value: record.value.copied(), ..*record });
        Self { key: key.clone(), record, as_of }
    }
}

/// Bytes of an entry beside what key and value take outside of it: itself, its counts, its two
/// places in a table that may be half empty, and what allocators add to three allocations.
const OVERHEAD: usize = size_of::<Entry>() + 144;

/// Bytes that a record of this key takes when cached.
fn weight(key: &Key, record: Option<&Record>) -> u64 {
    let value = record.map_or(0, |record| record.value.bytes_outside());
    (OVERHEAD + key.bytes_outside() + value) as u64
}

/// An entry, found by its key.
#[derive(Debug, Clone)]
struct Slot(Arc<Entry>);

impl Borrow<Key> for Slot {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Slot {}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

#[derive(Debug, Clone)]
struct Weights;

impl Weighter<Slot, Arc<Entry>> for Weights {
    fn weight(&self, _: &Slot, entry: &Arc<Entry>) -> u64 {
        weight(&entry.key, entry.record.as_ref())
    }
}

/// The entries. Readers share the lock of a shard; only adding and dropping take it whole.
pub(super) struct Entries {
    cache: Cache<Slot, Arc<Entry>, Weights, foldhash::quality::FixedState>,
    /// The heaviest entry that is kept.
    heaviest: u64,
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("len", &self.cache.len()).finish_non_exhaustive()
    }
}

/// A shard holds at least a few of the longest records.
const SHARD_BYTES: u64 = 4 << 20;

impl Entries {
    /// No entries, with room for `max_bytes`.
    pub(super) fn new(max_bytes: u64, seed: u64) -> Self {
        let shards = (max_bytes / SHARD_BYTES).clamp(1, 64);
        // Powers of two, or the cache would round up; and no byte more in all than allowed.
        let shards = 1 << shards.ilog2();
        let shard_bytes = max_bytes / shards;
        let items = usize::try_from(max_bytes / 512).unwrap_or(usize::MAX).max(64 * 32);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity(items)
            .weight_capacity(shard_bytes * shards)
            // Keys that are remembered only as seen before would take memory that is not counted.
            .ghost_allocation(0.0)
            .build()
            .expect("both capacities are given");
        let hasher = foldhash::quality::FixedState::with_seed(seed);
        let cache = Cache::with_options(options, Weights, hasher, DefaultLifecycle::default());
        Self { cache, heaviest: shard_bytes / 2 }
    }

    /// What is known of a key, however old.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.cache.get(key)
    }

    /// Whether an entry for this record would be kept at all.
    pub(super) fn have_room_for(&self, key: &Key, record: Option<&Record>) -> bool {
        weight(key, record) <= self.heaviest
    }

    /// Keeps an entry in place of what was known.
    pub(super) fn keep(&self, entry: Entry) {
        let entry = Arc::new(entry);
        self.cache.insert(Slot(Arc::clone(&entry)), entry);
    }

    pub(super) fn forget(&self, key: &Key) {
        self.cache.remove(key);
    }

    /// Forgets what is known of a key where that is another record.
    pub(super) fn forget_unless(&self, key: &Key, record: Option<&Record>) {
        self.cache.remove_if(key, |entry| entry.record.as_ref() != record);
    }

    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    /// Bytes that the entries take.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Fence, Value};

    fn key(number: u64) -> Key {
        Key::new(b"partition of some length", format!("row {number}").as_bytes()).unwrap()
    }

    fn record(bytes: usize) -> Record {
        let value = Value::new(vec![7; bytes]).unwrap();
        Record { value, expires_at: None, fence: Fence::NONE }
    }

    /// Bytes that are really allocated: entries and table, values and keys outside of entries.
    fn allocated(entries: &Entries) -> usize {
        let mut bytes = entries.cache.memory_used().total();
        entries.cache.iter().for_each(|(_, entry)| {
            // Two counts stand before what an Arc holds, and before a value that is shared.
            bytes += size_of::<Entry>() + 16;
            bytes += entry.key.bytes_outside();
            bytes += entry.record.as_ref().map_or(0, |record| record.value.bytes_outside() + 16);
        });
        bytes
    }

    #[test]
    fn bytes_stay_within_the_bound() {
        for (max_bytes, value) in [(1 << 20, 0), (1 << 20, 100), (8 << 20, 5_000), (64 << 20, 300)]
        {
            let entries = Entries::new(max_bytes, 1);
            let count = 3 * max_bytes / (value as u64 + OVERHEAD as u64);
            for number in 0..count {
                let record = record(value);
                entries.keep(Entry::new(&key(number), Some(&record), 0));
                assert!(entries.bytes() <= max_bytes);
            }
            let (allocated, counted) = (allocated(&entries) as u64, entries.bytes());
            assert!(allocated <= max_bytes, "{allocated} bytes of {max_bytes}");
            assert!(allocated <= counted, "{allocated} bytes, {counted} counted");
            assert!(counted > max_bytes / 2, "{counted} bytes of {max_bytes} are used");
        }
    }

    /// The worst case that the module admits.
    #[test]
    fn the_table_of_small_entries_takes_a_quarter_more_at_most() {
        let max_bytes = 16 << 20;
        let entries = Entries::new(max_bytes, 1);
        for number in 0..200_000 {
            entries.keep(Entry::new(&key(number), None, 0));
        }
        for number in 0..2_000 {
            entries.keep(Entry::new(&key(number), Some(&record(100_000)), 0));
        }
        let allocated = allocated(&entries) as u64;
        assert!(allocated <= max_bytes + max_bytes / 4, "{allocated} bytes of {max_bytes}");
    }

    #[test]
    fn an_entry_too_heavy_does_not_leave_an_older_one() {
        let entries = Entries::new(100_000, 1);
        let heavy = record(100_000);
        assert!(!entries.have_room_for(&key(1), Some(&heavy)));
        entries.keep(Entry::new(&key(1), Some(&record(10)), 0));
        assert!(entries.get(&key(1)).is_some());
        entries.keep(Entry::new(&key(1), Some(&heavy), 0));
        assert!(entries.get(&key(1)).is_none());
    }

    #[test]
    fn a_cached_value_keeps_no_larger_buffer_alive() {
        let buffer = bytes::Bytes::from(vec![7; 1 << 20]);
        let value = Value::new(buffer.slice(10..110)).unwrap();
        let record = Record { value, ..record(0) };
        let entry = Entry::new(&key(1), Some(&record), 0);
        drop(record);
        assert!(buffer.is_unique(), "the entry holds on to the buffer");
        assert_eq!(entry.record.unwrap().value.len(), 100);
    }
}
