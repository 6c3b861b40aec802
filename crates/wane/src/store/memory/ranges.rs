//! The ordered index: for each partition a tree of its rows, found without a lock by readers.
//!
//! Partitions are divided over shards, and those of a shard are rows of a tree themselves. A
//! partition appears with its first row and goes with its last: writers that meet one on its way out
//! look again.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::points::SlotId;
use super::tree::{Name, Row, Tree};
use crate::store::Key;

/// Few enough to cost nothing when empty, enough for writers not to meet.
pub(super) const SHARDS: usize = 256;

/// The rows of one partition.
#[derive(Debug, Default)]
pub(super) struct Rows {
    tree: Tree<SlotId>,
    /// Held by whoever changes the tree; true once the partition has left its shard.
    gone: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Shard {
    partitions: Tree<Arc<Rows>>,
    /// Held by whoever adds or removes a partition.
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
        self.shards[self.shard_of(partition)].partitions.get(partition)
    }

    /// The first partition of a shard from `start` on that is not `but`, with its rows.
    pub(super) fn next_partition(
        &self,
        shard: usize,
        start: &[u8],
        but: Option<&[u8]>,
    ) -> Option<(Name, Arc<Rows>)> {
        let mut found = None;
        self.shards[shard].partitions.walk(start, |partition| {
            if but == Some(partition.name.as_slice()) {
                return ControlFlow::Continue(());
            }
            found = Some((partition.name.clone(), Arc::clone(&partition.to)));
            ControlFlow::Break(())
        });
        found
    }

    pub(super) fn insert(&self, key: &Key, id: SlotId) {
        let row = Row { name: key.clustering().into(), to: id };
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
        shard.partitions.get(partition).unwrap_or_else(|| {
            let rows = Arc::<Rows>::default();
            shard.partitions.insert(Row { name: partition.into(), to: Arc::clone(&rows) });
            rows
        })
    }

    fn remove_partition(&self, partition: &[u8]) {
        let shard = &self.shards[self.shard_of(partition)];
        let _changing = shard.changing.lock();
        shard.partitions.remove(partition);
    }

    /// Bytes allocated for partitions and their rows. Walks them all.
    pub(super) fn allocated_bytes(&self) -> usize {
        let of_shard = |shard: &Shard| {
            let mut bytes = shard.partitions.allocated_bytes();
            shard.partitions.walk(&[], |partition| {
                bytes += size_of::<Rows>() + partition.to.tree.allocated_bytes();
                ControlFlow::Continue(())
            });
            bytes
        };
        self.shards.iter().map(of_shard).sum()
    }
}

impl Rows {
    /// Hands the rows from `start` on to `visit`, in order, until it breaks.
    pub(super) fn walk(&self, start: &[u8], visit: impl FnMut(&Row<SlotId>) -> ControlFlow<()>) {
        self.tree.walk(start, visit);
    }
}
