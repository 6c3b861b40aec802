//! dashmap: a sharded hash map. Swap holds the shard's write lock through `get_mut`.

use std::hash::{BuildHasher, RandomState};

use ::dashmap::DashMap;
use ::dashmap::mapref::entry::Entry;
use bytes::Bytes;
use wane::clock::SharedClock;
use wane::store::{Key, Ttl};

use super::Stored;
use crate::memory::peer::Peer;

/// A dashmap with expiries.
pub(crate) struct Dashmap<H = RandomState> {
    map: DashMap<Key, Stored, H>,
    clock: SharedClock,
}

impl<H: BuildHasher + Clone + Default> Dashmap<H> {
    /// An empty map.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { map: DashMap::with_hasher(H::default()), clock }
    }
}

impl<H: BuildHasher + Clone + Send + Sync> Peer for Dashmap<H> {
    type Owned = Bytes;

    fn get(&self, key: &Key) -> Option<Bytes> {
        let now = self.clock.now();
        let stored = self.map.get(key)?;
        (now < stored.expires_at).then(|| stored.value.clone())
    }

    fn insert(&self, key: &Key, value: &[u8], life: Ttl) -> bool {
        let now = self.clock.now();
        let stored = Stored { value: Bytes::copy_from_slice(value), expires_at: now.after(life) };
        match self.map.entry(key.clone()) {
            Entry::Occupied(occupied) if now < occupied.get().expires_at => false,
            Entry::Occupied(mut expired) => {
                expired.insert(stored);
                true
            }
            Entry::Vacant(vacant) => {
                vacant.insert(stored);
                true
            }
        }
    }

    fn swap(&self, key: &Key, expected: &[u8], value: &[u8], life: Ttl) -> bool {
        let now = self.clock.now();
        let Some(mut stored) = self.map.get_mut(key) else { return false };
        let matches = now < stored.expires_at && *stored.value == *expected;
        if matches {
            *stored = Stored { value: Bytes::copy_from_slice(value), expires_at: now.after(life) };
        }
        matches
    }

    fn remove(&self, key: &Key) {
        self.map.remove(key);
    }
}
