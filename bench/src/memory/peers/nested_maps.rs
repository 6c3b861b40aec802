//! Maps in a map behind one lock, as the reference system keeps its memory.
//!
//! There is no order: a range collects the partition's keys and sorts them. Reads return a copy
//! of the bytes, and nothing that expired ever leaves.

use std::collections::HashMap;
use std::sync::RwLock;

use wane::clock::SharedClock;
use wane::store::{Key, Timestamp, Ttl};

use crate::memory::peer::{Peer, RangeQuery};

type Rows = HashMap<Vec<u8>, (Vec<u8>, Timestamp)>;

/// Rows by partition.
#[derive(Debug)]
pub(crate) struct NestedMaps {
    partitions: RwLock<HashMap<Vec<u8>, Rows>>,
    clock: SharedClock,
}

impl NestedMaps {
    /// No partitions.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { partitions: RwLock::default(), clock }
    }
}

impl Peer for NestedMaps {
    type Owned = Vec<u8>;

    fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let partitions = self.partitions.read().expect("no writer panics");
        let (value, expires_at) = partitions.get(key.partition())?.get(key.clustering())?;
        (self.clock.now() < *expires_at).then(|| value.clone())
    }

    fn insert(&self, key: &Key, value: &[u8], life: Ttl) -> bool {
        let now = self.clock.now();
        let mut partitions = self.partitions.write().expect("no writer panics");
        let rows = partitions.entry(key.partition().to_vec()).or_default();
        let live = rows.get(key.clustering()).is_some_and(|(_, expires_at)| now < *expires_at);
        if !live {
            rows.insert(key.clustering().to_vec(), (value.to_vec(), now.after(life)));
        }
        !live
    }

    fn swap(&self, key: &Key, expected: &[u8], value: &[u8], life: Ttl) -> bool {
        let now = self.clock.now();
        let mut partitions = self.partitions.write().expect("no writer panics");
        let rows = partitions.get_mut(key.partition());
        let Some(current) = rows.and_then(|rows| rows.get_mut(key.clustering())) else {
            return false;
        };
        let matches = now < current.1 && current.0 == expected;
        if matches {
            *current = (value.to_vec(), now.after(life));
        }
        matches
    }

    fn remove(&self, key: &Key) {
        let mut partitions = self.partitions.write().expect("no writer panics");
        if let Some(rows) = partitions.get_mut(key.partition()) {
            rows.remove(key.clustering());
        }
    }

    fn range(&self, query: &RangeQuery, limit: usize) -> Option<usize> {
        let now = self.clock.now();
        let partitions = self.partitions.read().expect("no writer panics");
        let rows = partitions.get(query.partition.as_bytes())?;
        let mut keys: Vec<&Vec<u8>> = rows.keys().collect();
        keys.sort_unstable();
        let from_start = keys.into_iter().skip_while(|key| key.as_slice() < query.range.start());
        let live = from_start.filter(|key| rows.get(*key).is_some_and(|row| now < row.1));
        let page: Vec<_> = live
            .take(limit)
            .filter_map(|key| rows.get(key).map(|row| (key.clone(), row.0.clone())))
            .collect();
        Some(std::hint::black_box(page).len())
    }
}
