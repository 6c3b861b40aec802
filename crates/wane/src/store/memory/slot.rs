//! A slot: the place of one record in memory, with a lock of its own.
//!
//! Whoever reads or changes a record holds its slot's lock and nothing else that another key could
//! need. Time is read under the lock, so that two callers cannot disagree about which came first:
//! the expiry or the change.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::store::{Current, Fence, Key, Record, Timestamp, Value};

/// Values up to this size are kept in the slot.
const INLINE_VALUE: usize = 38;

/// The place of one record.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: Mutex<SlotState>,
}

/// What a slot holds.
#[derive(Debug, Default)]
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
pub(super) struct Entry {
    pub(super) key: Key,
    value: Packed,
    /// Unix milliseconds; `NEVER` for a permanent record.
    expiry: u64,
    fence: Fence,
}

/// No expiry lies there: it is half a billion years ahead.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
enum Packed {
    Here { len: u8, bytes: [u8; INLINE_VALUE] },
    Shared(Bytes),
}

impl Entry {
    pub(super) fn new(key: Key, record: Record) -> Self {
        let mut entry =
            Self { key, value: Packed::Shared(Bytes::new()), expiry: NEVER, fence: Fence::NONE };
        entry.replace(record);
        entry
    }

    /// Takes on another record of the same key.
    pub(super) fn replace(&mut self, record: Record) {
        self.expiry = record.expires_at.map_or(NEVER, Timestamp::as_unix_millis);
        self.fence = record.fence;
        self.value = Packed::new(record.value);
    }

    pub(super) fn current(&self) -> Current<'_> {
        let value = match &self.value {
            Packed::Here { len, bytes } => &bytes[..usize::from(*len)],
            Packed::Shared(bytes) => bytes,
        };
        Current { value, expires_at: self.expires_at(), fence: self.fence }
    }

    pub(super) fn record(&self) -> Record {
        Record { value: self.value.unpack(), expires_at: self.expires_at(), fence: self.fence }
    }

    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        (self.expiry != NEVER).then(|| Timestamp::from_unix_millis(self.expiry))
    }

    /// The size of a value that did not fit into the slot.
    pub(super) fn bytes_outside(&self) -> usize {
        match &self.value {
            Packed::Here { .. } => 0,
            Packed::Shared(bytes) => bytes.len(),
        }
    }

    pub(super) fn is_live(&self, now: impl FnOnce() -> Timestamp) -> bool {
        // A permanent record needs no look at the clock.
        self.expiry == NEVER || now().as_unix_millis() < self.expiry
    }
}

impl Packed {
    fn new(value: Value) -> Self {
        if value.len() > INLINE_VALUE {
            return Self::Shared(value.into_bytes());
        }
        let mut bytes = [0; INLINE_VALUE];
        bytes[..value.len()].copy_from_slice(&value);
        Self::Here { len: value.len() as u8, bytes }
    }

    fn unpack(&self) -> Value {
        match self {
            Self::Here { len, bytes } => {
                Value::within_limits(Bytes::copy_from_slice(&bytes[..usize::from(*len)]))
            }
            Self::Shared(bytes) => Value::within_limits(bytes.clone()),
        }
    }
}

impl SlotState {
    /// The entry, if it is the one of `key`.
    pub(super) fn entry_of(&self, key: &Key) -> Option<&Entry> {
        self.entry.as_ref().filter(|entry| entry.key == *key)
    }
}
