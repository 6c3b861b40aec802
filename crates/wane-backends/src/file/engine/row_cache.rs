//! Rows of the tree that were read lately, as the tree has them.
//!
//! A read of one record goes through four pages of the tree, each of which is found, counted and
//! searched. Most of that is waiting for memory. A row that is kept here is one look-up away.
//!
//! ```text
//! former   those that the last ones replaced; what is asked for again goes over
//! recent   what was read since; full, it becomes what is former, and what was is forgotten
//! ```
//!
//! A row is kept with the number of the commit that it was read at, and is forgotten when a commit
//! stores or removes its record. Invariant: the record of a row that is here is the one that the tree
//! holds since the commit it was read at. So whoever reads the tree as of a commit may take each row of
//! that commit and of those before.
//!
//! Keeping a row costs as much as reading it. So it is kept when it was asked for before, not long ago:
//! whoever goes through a large store once keeps next to nothing.
//!
//! No reader waits here: where somebody else has a lock, the tree is read, or the row is not kept.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::RwLock;

use crate::file::young::StoredKey;

/// Parts with a lock of their own. What a part forgets at once takes a fraction of a millisecond.
const SHARDS: usize = 256;

/// What a row takes beside its bytes: its place in a table that is three quarters full on average, and
/// what the allocator adds.
const OVERHEAD: usize = 48;

/// The longest row that is kept. Longer ones take more time to hand out than to find.
const LONGEST: usize = 2_048;

/// Bytes of rows that there is one word of notes for, and keys that a word notes before it begins anew.
const NOTED_BYTES: usize = 1_024;
const NOTED_KEYS: u32 = 4;

/// Rows that were read lately, up to a number of bytes.
#[derive(Debug)]
pub(super) struct RowCache {
    shards: Box<[RwLock<Shard>]>,
    hashes: RandomState,
    /// Which keys were asked for lately and not found, roughly: a bit for each.
    asked: Box<[AtomicU64]>,
    /// Bytes of the recent rows of one shard, at most.
    most: usize,
}

#[derive(Debug, Default)]
struct Shard {
    /// The last commit whose changes were forgotten.
    commit: u64,
    recent: HashSet<Row, RandomState>,
    former: HashSet<Row, RandomState>,
    /// Of the recent rows.
    bytes: usize,
}

/// The number of a commit, the length of the key, the key, and what the tree holds under it.
#[derive(Debug)]
struct Row(Box<[u8]>);

/// Where the length of the key begins, and where the key does.
const LENGTH: usize = size_of::<u64>();
const KEY: usize = LENGTH + size_of::<u16>();

impl Row {
    fn new(commit: u64, key: &[u8], bytes: &[u8]) -> Option<Self> {
        let length = u16::try_from(key.len()).ok()?;
        let row = [&commit.to_ne_bytes()[..], &length.to_ne_bytes(), key, bytes].concat();
        Some(Self(row.into()))
    }

    fn commit(&self) -> u64 {
        self.0.first_chunk().map_or(0, |commit| u64::from_ne_bytes(*commit))
    }

    /// The key, and what the tree holds under it.
    fn parts(&self) -> (&[u8], &[u8]) {
        let length = self.0[LENGTH..].first_chunk().map_or(0, |length| u16::from_ne_bytes(*length));
        self.0[KEY..].split_at(usize::from(length))
    }

    fn size(&self) -> usize {
        self.0.len() + OVERHEAD
    }
}

impl Borrow<[u8]> for Row {
    fn borrow(&self) -> &[u8] {
        self.parts().0
    }
}

impl Hash for Row {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().0.hash(state);
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.parts().0 == other.parts().0
    }
}

impl Eq for Row {}

impl RowCache {
    /// Room for so many bytes of rows of a tree whose last commit is given.
    pub(super) fn new(bytes: usize, commit: u64) -> Self {
        let shard = |_| RwLock::new(Shard { commit, ..Shard::default() });
        let shards = (0..SHARDS).map(shard).collect();
        let asked = (0..bytes / NOTED_BYTES + 1).map(|_| AtomicU64::new(0)).collect();
        Self { shards, hashes: RandomState::default(), asked, most: bytes / SHARDS / 2 }
    }

    /// Reads what the tree held under a key at a commit, if that is here.
    pub(super) fn get<T>(&self, key: &[u8], commit: u64, read: impl Fn(&[u8]) -> T) -> Option<T> {
        let shard = self.shard(self.hashes.hash_one(key));
        let found = {
            let shard = shard.try_read()?;
            if let Some(row) = shard.recent.get(key) {
                return (row.commit() <= commit).then(|| read(row.parts().1));
            }
            let row = shard.former.get(key).filter(|row| row.commit() <= commit)?;
            read(row.parts().1)
        };
        if let Some(mut shard) = shard.try_write() {
            shard.bring_over(key, self.most);
        }
        Some(found)
    }

    /// Keeps what the tree holds under a key as of a commit, unless there was another since, or
    /// nobody is likely to ask for it again.
    pub(super) fn keep(&self, key: &[u8], bytes: &[u8], commit: u64) {
        let hash = self.hashes.hash_one(key);
        if key.len() + bytes.len() > LONGEST || !self.was_asked_for(hash) {
            return;
        }
        let Some(row) = Row::new(commit, key, bytes) else { return };
        if let Some(mut shard) = self.shard(hash).try_write()
            && shard.commit == commit
        {
            shard.insert(row, self.most);
        }
    }

    /// Forgets what a commit changed. It must not be shown to anybody before.
    pub(super) fn forget(&self, changed: &[StoredKey], commit: u64) {
        // What is read of the commit before is not kept from here on.
        for shard in &self.shards {
            shard.write().commit = commit;
        }
        for key in changed {
            self.shard(self.hashes.hash_one(key)).write().remove(key);
        }
    }

    /// How many rows there are.
    #[cfg(feature = "testing")]
    pub(super) fn len(&self) -> usize {
        let shards = self.shards.iter().map(|shard| shard.read());
        shards.map(|shard| shard.recent.len() + shard.former.len()).sum()
    }

    /// Whether a key with this hash was asked for before. Notes that it was. A note that another caller
    /// writes over is lost, and a key may pass for another: nothing but time depends on it.
    fn was_asked_for(&self, hash: u64) -> bool {
        let (word, bit) = (hash as usize % self.asked.len(), 1 << (hash >> 58));
        let word = &self.asked[word];
        let noted = word.load(Ordering::Relaxed);
        if noted & bit != 0 {
            return true;
        }
        let others = if noted.count_ones() < NOTED_KEYS { noted } else { 0 };
        word.store(others | bit, Ordering::Relaxed);
        false
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // Tables go by the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    fn insert(&mut self, row: Row, most: usize) {
        if row.size() > most {
            return;
        }
        if self.bytes + row.size() > most {
            // As many will come: a table that grows looks each row up again.
            let next = HashSet::with_capacity_and_hasher(self.recent.len(), RandomState::default());
            self.former = std::mem::replace(&mut self.recent, next);
            self.bytes = 0;
        }
        self.bytes += row.size();
        if let Some(replaced) = self.recent.replace(row) {
            self.bytes -= replaced.size();
        }
    }

    fn bring_over(&mut self, key: &[u8], most: usize) {
        if let Some(row) = self.former.take(key) {
            self.insert(row, most);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(row) = self.recent.take(key) {
            self.bytes -= row.size();
            release(&mut self.recent);
        }
        if self.former.remove(key) {
            release(&mut self.former);
        }
    }
}

/// Gives the memory of a table back in which nothing is left.
fn release(rows: &mut HashSet<Row, RandomState>) {
    if rows.is_empty() {
        *rows = HashSet::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    fn cache() -> RowCache {
        RowCache::new(1 << 20, 1)
    }

    fn found(cache: &RowCache, key: &[u8], commit: u64) -> Option<Vec<u8>> {
        cache.get(key, commit, <[u8]>::to_vec)
    }

    /// Asks twice, as only what was asked for before is kept.
    fn keep(cache: &RowCache, key: &[u8], bytes: &[u8], commit: u64) {
        cache.keep(key, bytes, commit);
        cache.keep(key, bytes, commit);
    }

    fn bytes(cache: &RowCache) -> usize {
        let size = |rows: &HashSet<Row, RandomState>| rows.iter().map(Row::size).sum::<usize>();
        let shards = cache.shards.iter().map(|shard| shard.read());
        shards.map(|shard| size(&shard.recent) + size(&shard.former)).sum()
    }

    #[test]
    fn a_row_is_kept_when_it_is_asked_for_again() {
        let cache = cache();
        cache.keep(KEY, b"one", 1);
        assert_eq!(found(&cache, KEY, 1), None);
        cache.keep(KEY, b"one", 1);
        assert_eq!(found(&cache, KEY, 1).as_deref(), Some(&b"one"[..]));
        assert_eq!(found(&cache, b"other", 1), None);
    }

    #[test]
    fn a_row_stays_over_commits_that_leave_it_alone() {
        let cache = cache();
        keep(&cache, KEY, b"one", 1);
        cache.forget(&[b"other"[..].into()], 2);
        assert_eq!(found(&cache, KEY, 2).as_deref(), Some(&b"one"[..]));
        assert_eq!(found(&cache, KEY, 1).as_deref(), Some(&b"one"[..]));
    }

    #[test]
    fn what_a_commit_changed_is_forgotten() {
        let cache = cache();
        keep(&cache, KEY, b"one", 1);
        cache.forget(&[KEY.into()], 2);
        assert_eq!(found(&cache, KEY, 2), None);
        assert!(cache.shards.iter().all(|shard| shard.read().recent.capacity() == 0));
    }

    /// A reader that was overtaken by a commit would keep what the commit has changed.
    #[test]
    fn what_was_read_before_a_commit_is_not_kept_after_it() {
        let cache = cache();
        cache.forget(&[KEY.into()], 2);
        keep(&cache, KEY, b"one", 1);
        assert_eq!(found(&cache, KEY, 2), None);
    }

    #[test]
    fn whoever_reads_an_older_commit_is_not_given_a_newer_row() {
        let cache = cache();
        cache.forget(&[KEY.into()], 2);
        keep(&cache, KEY, b"two", 2);
        assert_eq!(found(&cache, KEY, 1), None);
        assert_eq!(found(&cache, KEY, 2).as_deref(), Some(&b"two"[..]));
    }

    #[test]
    fn there_are_never_more_bytes_than_there_may_be() {
        let cache = cache();
        let row = |number: u32| (number.to_be_bytes(), vec![7; number as usize % 900]);
        for number in 0..20_000 {
            let (key, value) = row(number);
            keep(&cache, &key, &value, 1);
            // Counting them takes long.
            assert!(!number.is_multiple_of(500) || bytes(&cache) <= 1 << 20);
        }
        assert!(bytes(&cache) > 1 << 18, "{}", bytes(&cache));
        let again = (0..20_000).map(row).filter(|(key, _)| found(&cache, key, 1).is_some()).count();
        assert!(again > 100, "{again} rows are found again");
        keep(&cache, KEY, &[7; LONGEST], 1);
        assert_eq!(found(&cache, KEY, 1), None);
    }

    #[test]
    fn what_is_asked_for_all_the_time_stays() {
        let cache = cache();
        keep(&cache, KEY, b"one", 1);
        for number in 0..20_000_u32 {
            keep(&cache, &number.to_be_bytes(), &[7; 500], 1);
            assert!(found(&cache, KEY, 1).is_some(), "after {number} others");
        }
        cache.forget(&[KEY.into()], 2);
        assert_eq!(found(&cache, KEY, 2), None);
    }
}
