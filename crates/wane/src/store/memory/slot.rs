//! A slot: the place of one record in memory, with a lock of its own.
//!
//! Whoever reads or changes a record holds its slot's lock and nothing else that another key could
//! need. Time is read under the lock, so that two callers cannot disagree about which came first:
//! the expiry or the change.

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::store::{Current, Fence, Key, Record, Timestamp, Value};

/// The place of one record: two cache lines, with lock, key and expiry in the first.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Slot {
    state: Mutex<SlotState>,
    second_line: AtomicU8,
}

impl Slot {
    /// Brings both lines of the slot into the cache at once. Taking a lock lets nothing overtake it,
    /// so without this the two would be waited for one after the other.
    pub(super) fn warm(&self) {
        black_box((self.state.is_locked(), self.second_line.load(Ordering::Relaxed)));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.warm();
        self.state.lock()
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, SlotState>> {
        self.state.try_lock()
    }
}

/// What a slot holds.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct SlotState {
    pub(super) entry: Option<Entry>,
    /// The tick under which the timing wheel lists this slot. It outlives the record: the next one
    /// in the slot is covered by the same listing.
    pub(super) filed: Option<Tick>,
    /// The picture in which the slot was last changed; see `picture`.
    pub(super) epoch: u32,
}

/// Time in the steps of the timing wheel, counted from 1 at the store's start.
pub(super) type Tick = std::num::NonZeroU32;

/// A key and its record, packed.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Unix milliseconds; `NEVER` for a permanent record.
    expiry: u64,
    fence: Fence,
    value: Value,
}

/// No expiry lies there: it is half a billion years ahead.
const NEVER: u64 = u64::MAX;

impl Entry {
    pub(super) fn new(key: Key, record: Record) -> Self {
        let expiry = record.expires_at.map_or(NEVER, Timestamp::as_unix_millis);
        Self { key, expiry, fence: record.fence, value: record.value }
    }

    /// Takes on another record of the same key.
    pub(super) fn replace(&mut self, record: Record) {
        self.expiry = record.expires_at.map_or(NEVER, Timestamp::as_unix_millis);
        self.fence = record.fence;
        self.value = record.value;
    }

    pub(super) fn current(&self) -> Current<'_> {
        Current { value: &self.value, expires_at: self.expires_at(), fence: self.fence }
    }

    pub(super) fn record(&self) -> Record {
        Record { value: self.value.clone(), expires_at: self.expires_at(), fence: self.fence }
    }

    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        (self.expiry != NEVER).then(|| Timestamp::from_unix_millis(self.expiry))
    }

    /// The size of a value that is not in the slot.
    pub(super) fn bytes_outside(&self) -> usize {
        self.value.bytes_outside()
    }

    pub(super) fn is_live(&self, now: impl FnOnce() -> Timestamp) -> bool {
        // A permanent record needs no look at the clock.
        self.expiry == NEVER || now().as_unix_millis() < self.expiry
    }
}

impl SlotState {
    /// The entry, if it is the one of `key`.
    pub(super) fn entry_of(&self, key: &Key) -> Option<&Entry> {
        self.entry.as_ref().filter(|entry| entry.key == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory per record and the time of a look-up both depend on it.
    #[test]
    fn a_slot_is_two_cache_lines() {
        assert_eq!(size_of::<Slot>(), 128);
    }
}
