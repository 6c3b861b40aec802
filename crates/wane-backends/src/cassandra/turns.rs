//! Turns: within this process, a partition has one writer or many readers at a time.
//!
//! Cassandra serialises the conditional statements of a partition by Paxos, where racers retry
//! and may time out without an answer. Callers of one process queue here instead: in order,
//! without a ballot lost.
//!
//! The turn is also what makes expiry exact beside a write. A write decides by the time at which it
//! has its turn, and is applied some milliseconds later. No reader of this process looks at the
//! partition in between, so none is told "expired" of a record that such a write still renews. A
//! writer's turn can outlive its caller for the same reason: it ends with the write.
//!
//! Partitions share a fixed number of locks. Two that meet in one wait for each other needlessly,
//! never wrongly.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockWriteGuard, RwLock, RwLockReadGuard};
use tokio::time::timeout;

/// How many partitions can be under way at once.
const LOCKS: usize = 4_096;

/// How long a call queues. Nothing was sent by then, so the answer is certain.
const PATIENCE: Duration = Duration::from_secs(10);

/// The queue of a partition did not move on in time.
#[derive(Debug, thiserror::Error)]
#[error("other calls to the partition were not answered for {} s", PATIENCE.as_secs())]
pub(super) struct StillWaiting;

#[derive(Debug)]
pub(super) struct Turns {
    locks: Box<[Arc<RwLock<()>>]>,
    hasher: RandomState,
}

impl Turns {
    pub(super) fn new() -> Self {
        let locks = (0..LOCKS).map(|_| Arc::default()).collect();
        Self { locks, hasher: RandomState::new() }
    }

    /// The partition for a writer.
    pub(super) async fn alone(
        &self,
        partition: &[u8],
    ) -> Result<OwnedRwLockWriteGuard<()>, StillWaiting> {
        let lock = Arc::clone(self.lock(partition));
        match Arc::clone(&lock).try_write_owned() {
            Ok(turn) => Ok(turn),
            Err(_) => timeout(PATIENCE, lock.write_owned()).await.map_err(|_| StillWaiting),
        }
    }

    /// The partition for a reader among readers.
    pub(super) async fn together(
        &self,
        partition: &[u8],
    ) -> Result<RwLockReadGuard<'_, ()>, StillWaiting> {
        let lock = self.lock(partition);
        match lock.try_read() {
            Ok(turn) => Ok(turn),
            Err(_) => timeout(PATIENCE, lock.read()).await.map_err(|_| StillWaiting),
        }
    }

    fn lock(&self, partition: &[u8]) -> &Arc<RwLock<()>> {
        let at = self.hasher.hash_one(partition) as usize % LOCKS;
        &self.locks[at]
    }
}
