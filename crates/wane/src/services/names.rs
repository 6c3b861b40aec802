//! Names of elections and sequences: what they may be, and how many. Both are records for ever, so an
//! application may have only so many of each.
//!
//! What the store holds is counted when a new name comes up, and again after a while; in between
//! each new name is added. So the bound holds on a store of one process, and on a shared one up to
//! what all nodes add between two counts. A name that was not written after all counts until then.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::store::{ClusteringRange, Key, PageLimit, Partition, Store, StoreError};

/// The longest name, in bytes.
pub const MAX_NAME: usize = 1_024;

/// Names that an application may have of each kind.
pub const MAX_NAMES: usize = 100_000;

/// How long a count is added to before the store is counted anew.
const COUNTED_FOR: Duration = Duration::from_secs(300);

/// Says what would be legal where a name is not.
pub(super) fn checked(name: &str) -> Result<(), String> {
    // The store's limit is one byte less for keys that begin with a zero byte.
    if !name.starts_with('\0') && (1..=MAX_NAME).contains(&name.len()) {
        return Ok(());
    }
    Err(format!("give 1 to {MAX_NAME} bytes of UTF-8, the first of them not zero"))
}

/// The names of one kind, by application.
#[derive(Debug)]
pub(super) struct Names {
    most: usize,
    counts: Mutex<HashMap<Vec<u8>, Count>>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    names: usize,
    counted_at: Duration,
}

/// Whether there is room for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Left,
    None,
}

impl Default for Names {
    fn default() -> Self {
        Self::up_to(MAX_NAMES)
    }
}

impl Names {
    fn up_to(most: usize) -> Self {
        Self { most, counts: Mutex::default() }
    }

    /// Adds a new name, if there is room for one.
    pub(super) async fn add<S: Store>(
        &self,
        key: &Key,
        store: &S,
        clock: &SharedClock,
    ) -> Result<Room, StoreError> {
        if let Some(room) = self.take(key, clock) {
            return Ok(room);
        }
        let counted_at = clock.monotonic();
        let names = count(key, store, self.most).await?;
        self.counts.lock().insert(key.partition().to_vec(), Count { names, counted_at });
        Ok(self.take(key, clock).unwrap_or(Room::None))
    }

    /// Takes a place; `None` where the store must be counted first.
    fn take(&self, key: &Key, clock: &SharedClock) -> Option<Room> {
        let mut counts = self.counts.lock();
        let count = counts.get_mut(key.partition())?;
        if clock.monotonic().saturating_sub(count.counted_at) >= COUNTED_FOR {
            counts.remove(key.partition());
            return None;
        }
        if count.names >= self.most {
            return Some(Room::None);
        }
        count.names += 1;
        Some(Room::Left)
    }
}

/// The names that there are, or as many as matter.
async fn count<S: Store>(key: &Key, store: &S, most: usize) -> Result<usize, StoreError> {
    let partition = Partition::new(key.partition().to_vec())?;
    let (mut names, mut rest) = (0, Some(ClusteringRange::ALL));
    while let Some(range) = rest.filter(|_| names < most) {
        let page = store.read(&partition, &range, PageLimit::MAX).await?;
        names += page.rows.len();
        rest = page.rest;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::{Life, MemoryStore, Value, Write};

    fn key(app: u8, name: u32) -> Key {
        Key::new(&[0, 0, 0, 1, app], &name.to_be_bytes()[1..]).unwrap()
    }

    #[tokio::test]
    async fn names_are_counted_from_the_store_and_bounded_for_each_application() {
        let clock = ManualClock::seeded(1);
        let shared: SharedClock = clock.clone();
        let store = MemoryStore::new(Arc::clone(&shared)).unwrap();
        let put = async |key: &Key| {
            let write = Write::new(Value::default(), Life::Permanent);
            assert!(store.put(key, write).await.unwrap().is_applied());
        };
        put(&key(1, 1 << 16)).await;
        put(&key(1, 2 << 16)).await;
        let names = Names::up_to(4);
        let add = async |app| names.add(&key(app, 9), &store, &shared).await.unwrap();
        assert_eq!(
            [add(1).await, add(1).await, add(1).await],
            [Room::Left, Room::Left, Room::None]
        );
        assert_eq!(add(2).await, Room::Left, "another application");
        clock.advance(COUNTED_FOR);
        assert_eq!(add(1).await, Room::Left, "two were never written");
    }
}
