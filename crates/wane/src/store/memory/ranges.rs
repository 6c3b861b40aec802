//! The ordered index: for each partition a tree of its rows, found without a lock by readers.
//!
//! Partitions are divided over shards, and a shard publishes its map whole. A partition appears
//! with its first row and goes with its last: writers that meet one on its way out look again.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::points::SlotId;
use super::tree::{Row, Tree};
use crate::store::Key;

/// Few enough to cost nothing when empty, enough to keep the maps small.
pub(super) const SHARDS: usize = 256;

type Map = BTreeMap<Arc<[u8]>, Arc<Rows>>;

/// The rows of one partition.
#[derive(Debug, Default)]
pub(super) struct Rows {
    tree: Tree,
    /// Held by whoever changes the tree; true once the partition has left its shard.
    gone: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Shard {
    map: ArcSwap<Map>,
    /// Held by whoever replaces the map.
    changing: Mutex<()>,
}

/// The index over all partitions.
#[derive(Debug)]
pub(super) struct Ranges {
    shards: Box<[Shard]>,
    hasher: foldhash::fast::FixedState,
}

impl Ranges {
    pub(super) fn new(seed: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { shards, hasher: foldhash::fast::FixedState::with_seed(seed) }
    }

    /// The number of the shard that a partition is in.
    pub(super) fn shard_of(&self, partition: &[u8]) -> usize {
        use std::hash::BuildHasher;
        self.hasher.hash_one(partition) as usize % SHARDS
    }

    /// The rows of a partition.
    pub(super) fn rows(&self, partition: &[u8]) -> Option<Arc<Rows>> {
        self.shards[self.shard_of(partition)].map.load().get(partition).cloned()
    }

    /// The first partition of a shard at or after a bound, with its rows.
    pub(super) fn next_partition(
        &self,
        shard: usize,
        from: Bound<&[u8]>,
    ) -> Option<(Arc<[u8]>, Arc<Rows>)> {
        let map = self.shards[shard].map.load();
        let mut after = map.range::<[u8], _>((from, Bound::Unbounded));
        after.next().map(|(partition, rows)| (Arc::clone(partition), Arc::clone(rows)))
    }

    pub(super) fn insert(&self, key: &Key, id: SlotId) {
        let row = Row { clustering: key.clustering().into(), id };
        loop {
            let rows = self.rows(key.partition());
            let rows = rows.unwrap_or_else(|| self.add_partition(key.partition()));
            let gone = rows.gone.lock();
            if !*gone {
                return rows.tree.insert(row);
            }
        }
    }

    pub(super) fn remove(&self, key: &Key) {
        let Some(rows) = self.rows(key.partition()) else { return };
        let mut gone = rows.gone.lock();
        rows.tree.remove(key.clustering());
        if rows.tree.is_empty() && !*gone {
            *gone = true;
            self.remove_partition(key.partition());
        }
    }

    fn add_partition(&self, partition: &[u8]) -> Arc<Rows> {
        let shard = &self.shards[self.shard_of(partition)];
        let _changing = shard.changing.lock();
        let map = shard.map.load();
        if let Some(rows) = map.get(partition) {
            return Arc::clone(rows);
        }
        let rows = Arc::<Rows>::default();
        let mut next = Map::clone(&map);
        next.insert(partition.into(), Arc::clone(&rows));
        shard.map.store(Arc::new(next));
        rows
    }

    fn remove_partition(&self, partition: &[u8]) {
        let shard = &self.shards[self.shard_of(partition)];
        let _changing = shard.changing.lock();
        let mut next = Map::clone(&shard.map.load());
        next.remove(partition);
        shard.map.store(Arc::new(next));
    }
}

impl Rows {
    /// Hands the rows from `start` on to `visit`, in order, until it breaks.
    pub(super) fn walk(&self, start: &[u8], visit: impl FnMut(&Row) -> ControlFlow<()>) {
        self.tree.walk(start, visit);
    }
}
