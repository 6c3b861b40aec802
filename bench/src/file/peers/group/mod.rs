//! redb behind a group commit: the simplest store that shares one sync between its callers.
//!
//! Callers hand changes to one writer thread, which decides a group of them in one redb
//! transaction, syncs once, publishes a snapshot and answers. Wane's own file store was this
//! before anything stood in front of its tree, so the peer tells what that is worth. Groups gather
//! as there, records and the lazy expiry index have the same bytes, and values of 80 KiB and more
//! lie in a file beside. Left out is what costs no time while all goes well: a full disk, damage
//! that is found late, compaction.
//!
//! | file | what |
//! |---|---|
//! | `queue` | jobs on their way to the writer, taken in groups |
//! | `writer` | the group commit and the sweep |
//! | `engine` | one transaction for a group |
//! | `view` | reading the last commit |
//! | `values` | large values, in a file beside the tree |
//! | `bytes` | the bytes on disk |

mod bytes;
mod engine;
mod queue;
mod values;
mod view;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::redb::StorageBackend;
use ::redb::backends::FileBackend;
use ::wane::clock::{SharedClock, SystemClock};
use ::wane::store::{
    Change, ClusteringRange, Key, PageFill, PageLimit, Partition, Row, StoreError, Write,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wane_backends::file::SlowDisk;

use self::bytes::{decode_key, encode_key, partition_prefix};
use self::engine::{Engine, ReadError};
use self::queue::{Answers, Job, KeyedChange};
use self::view::{Flight, Shared, View};
use self::writer::{Writer, stopped};
use crate::BoxError;
use crate::file::tasks::{TaskStore, Tasks};

/// The peer and the runtime of its callers.
pub(crate) type RedbGroup = Tasks<GroupStore>;

impl RedbGroup {
    /// Opens the store in the directory, or creates it.
    pub(crate) fn open(directory: &Path) -> Result<Self, BoxError> {
        Self::start(|| GroupStore::open(directory, SystemClock::shared(), |file| file))
    }

    /// The same on a disk whose syncs take longer.
    pub(crate) fn open_on_slow(disk: SlowDisk, directory: &Path) -> Result<Self, BoxError> {
        let disk = |file| disk.under(file);
        Self::start(|| GroupStore::open(directory, SystemClock::shared(), disk))
    }
}

/// A handle on the store, which closes with the last one.
#[derive(Debug, Clone)]
pub(crate) struct GroupStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl GroupStore {
    fn open<S: StorageBackend>(
        directory: &Path,
        clock: SharedClock,
        disk: impl Fn(FileBackend) -> S,
    ) -> Result<Self, BoxError> {
        std::fs::create_dir_all(directory)?;
        let engine = Engine::open(directory, disk)?;
        let shared = Arc::new(Shared::new(clock, engine.snapshot()?));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let writer = Writer::new(engine, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("redb-group-writer".into());
        let thread = thread.spawn(move || writer.run(&runtime))?;
        Ok(Self { inner: Arc::new(Inner { shared, writer: Mutex::new(Some(thread)) }) })
    }

    async fn submit(&self, changes: Vec<KeyedChange>) -> Answers {
        let (reply, answers) = oneshot::channel();
        if !self.inner.shared.queue.push(Job { changes, reply }) {
            return Err(stopped());
        }
        answers.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn change(&self, key: &Key, change: Change<'_>) -> Result<bool, StoreError> {
        let change = change.into_owned();
        let answers = self.submit(vec![KeyedChange { key: encode_key(key), change }]).await?;
        Ok(answers.iter().all(|outcome| outcome.is_applied()))
    }

    fn now(&self) -> ::wane::store::Timestamp {
        self.inner.shared.clock.now()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.writer.lock().take() {
            // A writer that panicked has already left its callers without an answer.
            drop(thread.join());
        }
    }
}

impl TaskStore for GroupStore {
    const NAME: &'static str = "redb group";

    async fn insert(&self, key: &Key, write: Write) -> Result<bool, StoreError> {
        self.change(key, Change::insert(write, || self.now())?).await
    }

    async fn swap(&self, key: &Key, expected: &[u8], write: Write) -> Result<bool, StoreError> {
        self.change(key, Change::swap(expected, write, || self.now())?).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<bool, StoreError> {
        let keyed = |(key, write)| {
            let change = Change::put(write, || self.now())?;
            Ok(KeyedChange { key: encode_key(&key), change })
        };
        let changes = writes.into_iter().map(keyed).collect::<Result<Vec<_>, StoreError>>()?;
        Ok(self.submit(changes).await?.iter().all(|outcome| outcome.is_applied()))
    }

    async fn get(&self, key: &Key) -> Result<bool, StoreError> {
        let stored = encode_key(key);
        let concerns = |group: &Flight| group.touches(&stored);
        let found = self.inner.shared.read(concerns, |view| match view.snapshot.get(&stored)? {
            Some(record) => Ok(view.live(record)),
            None => Ok(None),
        });
        Ok(std::hint::black_box(found.await?).is_some())
    }

    async fn range(
        &self,
        partition: &Partition,
        start: &[u8],
        limit: PageLimit,
    ) -> Result<usize, StoreError> {
        let prefix = partition_prefix(partition.as_bytes());
        let range = ClusteringRange::ALL.starting_at(start.to_vec());
        let concerns = |group: &Flight| {
            let mut clusterings = group.keys().filter_map(|key| key.strip_prefix(&*prefix));
            clusterings.any(|clustering| range.contains(clustering))
        };
        let page = self.inner.shared.read(concerns, |view| page(view, &prefix, &range, limit));
        Ok(std::hint::black_box(page.await?).len())
    }
}

fn page(
    view: &View,
    prefix: &[u8],
    range: &ClusteringRange,
    limit: PageLimit,
) -> Result<Vec<Row>, ReadError> {
    let start = [prefix, range.start()].concat();
    let mut fill = PageFill::new(limit);
    view.snapshot.walk(&start, |stored, record| {
        let Some(clustering) = stored.strip_prefix(prefix) else { return Ok(false) };
        if fill.is_full() || !range.contains(clustering) {
            return Ok(false);
        }
        if let Some(record) = view.live(record) {
            let key = decode_key(stored).map_err(|damaged| ReadError::Engine(damaged.into()))?;
            fill.push(key, record);
        }
        Ok(true)
    })?;
    Ok(fill.into_rows())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::wane::clock::ManualClock;
    use ::wane::store::{Life, Ttl, Value};

    use super::values::LARGE;
    use super::*;
    use crate::workload::{clustering, key, long_life, partition};

    fn write(value: &[u8]) -> Write {
        Write::new(Value::copy_from_slice(value).unwrap(), Life::For(long_life()))
    }

    /// A peer that forgot or refused what it should not would be beaten for nothing.
    #[test]
    fn what_was_answered_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let large = vec![7; LARGE];
        let opened = RedbGroup::open(directory.path()).unwrap();
        opened.runtime.block_on(async {
            let store = &opened.store;
            assert!(store.insert(&key(1), write(b"one")).await.unwrap());
            assert!(!store.insert(&key(1), write(b"again")).await.unwrap());
            assert!(!store.swap(&key(1), b"other", write(b"two")).await.unwrap());
            assert!(store.swap(&key(1), b"one", write(b"two")).await.unwrap());
            assert!(store.insert(&key(2), write(&large)).await.unwrap());
            let batch = vec![(key(3), write(b"three")), (key(4), write(&large))];
            assert!(store.put_batch(batch).await.unwrap());
        });
        drop(opened);
        let opened = RedbGroup::open(directory.path()).unwrap();
        opened.runtime.block_on(async {
            let store = &opened.store;
            assert!(store.insert(&key(5), write(&large)).await.unwrap());
            for (index, value) in [(1, &b"two"[..]), (2, &large), (4, &large), (5, &large)] {
                assert!(store.get(&key(index)).await.unwrap(), "{index}");
                assert!(store.swap(&key(index), value, write(b"")).await.unwrap(), "{index}");
            }
            assert!(!store.get(&key(6)).await.unwrap());
            let partition = Partition::new(partition(0).to_vec()).unwrap();
            let first = (1..=5).map(clustering).min().unwrap();
            let beyond = [&first[..], &[0]].concat();
            let range = |start, rows| store.range(&partition, start, PageLimit::new(rows).unwrap());
            assert_eq!(range(&[], 10).await.unwrap(), 5);
            assert_eq!(range(&first, 10).await.unwrap(), 5);
            assert_eq!(range(&beyond, 10).await.unwrap(), 4);
            assert_eq!(range(&[], 3).await.unwrap(), 3);
        });
    }

    #[test]
    fn what_has_expired_is_removed_and_what_was_renewed_is_not() {
        let (directory, clock) = (tempfile::tempdir().unwrap(), ManualClock::seeded(1));
        let open = || GroupStore::open(directory.path(), clock.clone(), |file| file);
        let opened = RedbGroup::start(open).unwrap();
        let brief = Ttl::from_secs(10).unwrap();
        let brief = || Write::new(Value::copy_from_slice(b"v").unwrap(), Life::For(brief));
        opened.runtime.block_on(async {
            let store = &opened.store;
            assert!(store.insert(&key(1), brief()).await.unwrap());
            assert!(store.insert(&key(2), brief()).await.unwrap());
            assert!(store.swap(&key(2), b"v", write(b"v")).await.unwrap());
        });
        let stored = |index| {
            let key = encode_key(&key(index));
            let shared = &opened.store.inner.shared;
            let read = shared.read(|_| false, |view| view.snapshot.get(&key));
            opened.runtime.block_on(read).unwrap().is_some()
        };
        assert!(stored(1) && stored(2));
        clock.advance(Duration::from_secs(11));
        // Along with whatever comes next.
        opened.runtime.block_on(opened.store.insert(&key(3), brief())).unwrap();
        assert!(!stored(1));
        assert!(stored(2));
    }
}
