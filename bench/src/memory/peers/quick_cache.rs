//! quick_cache: a sharded S3-FIFO cache, given room for everything so that nothing is evicted.
//!
//! It has no expiry; the value carries one. Insert and swap go through `entry`, which holds the
//! shard's write lock while the closure decides.

use ::quick_cache::sync::{Cache, EntryAction, EntryResult};
use bytes::Bytes;
use wane::clock::SharedClock;
use wane::store::{Key, Ttl};

use super::Stored;
use crate::memory::peer::Peer;

/// A quick_cache with expiries.
#[derive(Debug)]
pub(crate) struct QuickCache {
    cache: Cache<Key, Stored>,
    clock: SharedClock,
}

impl QuickCache {
    /// An empty cache for `records` records and as many again, as its shards fill unevenly.
    pub(crate) fn new(records: u64, clock: SharedClock) -> Self {
        Self { cache: Cache::new(records as usize * 2 + 400_000), clock }
    }
}

impl Peer for QuickCache {
    type Owned = Bytes;

    fn get(&self, key: &Key) -> Option<Bytes> {
        let now = self.clock.now();
        let stored = self.cache.get(key)?;
        (now < stored.expires_at).then_some(stored.value)
    }

    fn insert(&self, key: &Key, value: &[u8], life: Ttl) -> bool {
        let now = self.clock.now();
        let mut fresh =
            Some(Stored { value: Bytes::copy_from_slice(value), expires_at: now.after(life) });
        let entry = self.cache.entry(key, None, |_, current| {
            let expired = current.expires_at <= now;
            if let Some(fresh) = fresh.take_if(|_| expired) {
                *current = fresh;
            }
            EntryAction::Retain(expired)
        });
        match entry {
            EntryResult::Retained(inserted) => inserted,
            EntryResult::Vacant(guard) => fresh.is_some_and(|fresh| guard.insert(fresh).is_ok()),
            EntryResult::Replaced(..) | EntryResult::Removed(..) | EntryResult::Timeout => false,
        }
    }

    fn swap(&self, key: &Key, expected: &[u8], value: &[u8], life: Ttl) -> bool {
        let now = self.clock.now();
        let entry = self.cache.entry(key, None, |_, current| {
            let matches = now < current.expires_at && *current.value == *expected;
            if matches {
                *current =
                    Stored { value: Bytes::copy_from_slice(value), expires_at: now.after(life) };
            }
            EntryAction::Retain(matches)
        });
        match entry {
            EntryResult::Retained(swapped) => swapped,
            // A dropped guard takes its placeholder away again.
            EntryResult::Vacant(_)
            | EntryResult::Replaced(..)
            | EntryResult::Removed(..)
            | EntryResult::Timeout => false,
        }
    }

    fn remove(&self, key: &Key) {
        self.cache.remove(key);
    }
}
