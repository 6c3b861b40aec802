//! [`WatchedStore`]: reports changes made through it, and expiries as they fall due.
//!
//! A watch covers a range of one partition. Writes to watched keys post an [`Event`] when they
//! were applied; a task posts those of records that reached their expiry, within milliseconds.
//! Each event carries the value that was written or that went.
//!
//! - Events of one key come in the order in which the store applied them: a watched write holds
//!   a lock on its key (shared with few others) until its event is posted. Writes to keys that
//!   nobody watches take no lock.
//! - A watch misses nothing from the moment [`WatchedStore::watch`] returns, and says
//!   [`Notice::Gap`] rather than to miss something: when its reader is too slow, when it resumes
//!   from too far back, and when nobody knows whether a write was applied. Such a write may even
//!   arrive after the gap: its key is looked at again once it was decided, and what that shows is
//!   reported, or is another gap.
//! - An expiry is reported only after the store itself said that the record is gone. A renewed
//!   record is followed to its new expiry.
//! - A write whose future is dropped before its answer is a gap, for nobody heard the answer.
//!
//! Only this process's writes through this store and its clones are seen: on a store that others
//! share, theirs are not.
//!
//! Flow: `stripes` says whose turn it is, `regions` who watches, `journal` remembers, `board`
//! joins the three, `expiry` is the task. It starts with the first watch, on the runtime of that
//! call, and ends when the last handle is dropped; [`WatchedStore::close`] also waits for its
//! end. Memory: the expiring records of watched ranges, and the bounds of [`WatchLimits`].

mod board;
mod event;
mod expiry;
mod journal;
mod regions;
mod stripes;

pub use event::{Event, EventKind, Notice, Watch, WatchLimits};

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Timestamp, Value, Write, outwait,
};
use crate::clock::SharedClock;
use board::{Board, Change};

/// A [`Store`] that reports changes and expiries. A clone is a second handle on the same one.
#[derive(Debug)]
pub struct WatchedStore<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    board: Arc<Board>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl<S> Clone for WatchedStore<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> Drop for Shared<S> {
    fn drop(&mut self) {
        self.board.close();
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}

impl<S: Store> WatchedStore<S> {
    /// Watches over `inner` with the default limits. `clock` must be the one it expires by.
    pub fn new(inner: S, clock: SharedClock) -> Self {
        Self::with_limits(inner, clock, WatchLimits::default())
    }

    /// Watches over `inner`.
    pub fn with_limits(inner: S, clock: SharedClock, limits: WatchLimits) -> Self {
        let board = Arc::new(Board::new(clock, limits));
        Self { shared: Arc::new(Shared { inner, board, task: Mutex::default() }) }
    }

    /// Watches a range from now on. Reads the range once, to know what will expire.
    ///
    /// Waits for writes under way elsewhere in the store, and so as long as the slowest of them.
    /// Needs a tokio runtime with timers.
    pub async fn watch(
        &self,
        partition: &Partition,
        range: ClusteringRange,
    ) -> Result<Watch, StoreError> {
        self.open(partition, range, None).await
    }

    /// Watches a range on from the event `id`, the last one that the caller has seen.
    ///
    /// Where the events after it are no longer known, or the range was not watched all the time
    /// since, the first notice is a gap.
    pub async fn watch_from(
        &self,
        partition: &Partition,
        range: ClusteringRange,
        id: u64,
    ) -> Result<Watch, StoreError> {
        self.open(partition, range, Some(id)).await
    }

    /// Ends every watch, and returns when the task has ended. The store itself stays open.
    pub async fn close(&self) {
        self.shared.board.close();
        let task = self.shared.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // It ends by being cancelled, which is no failure here.
            drop(task.await);
        }
    }

    /// How many expiring records are followed, in all watched ranges together.
    pub fn followed(&self) -> usize {
        self.shared.board.followed()
    }

    async fn open(
        &self,
        partition: &Partition,
        range: ClusteringRange,
        from: Option<u64>,
    ) -> Result<Watch, StoreError> {
        self.start_task();
        let board = &self.shared.board;
        let (seat, needs_load) = board.enter(partition, range, from);
        let watch = Watch::new(Arc::clone(board), seat);
        if needs_load {
            let _load = Load { board };
            board.stripes.drain().await;
            if let Some(stray) = board.stray() {
                outwait(&self.shared.inner, &stray, &board.clock).await?;
            }
            self.load(&watch).await?;
        }
        Ok(watch)
    }

    async fn load(&self, watch: &Watch) -> Result<(), StoreError> {
        let seat = watch.seat();
        let mut rest = Some(seat.range.clone());
        while let Some(range) = rest {
            let page = self.shared.inner.read(&seat.partition, &range, PageLimit::MAX).await?;
            self.shared.board.adopt(seat, &page.rows);
            rest = page.rest;
        }
        self.shared.board.loaded(seat);
        Ok(())
    }

    /// Starts the task, again if the runtime that it ran on has ended.
    fn start_task(&self) {
        let mut task = self.shared.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let store = Arc::downgrade(&self.shared);
            let board = Arc::clone(&self.shared.board);
            *task = Some(tokio::spawn(expiry::watch_expiries(store, board)));
        }
    }

    /// Carries out a write and, where its key is watched, posts what became of it.
    async fn write(
        &self,
        key: &Key,
        intent: Intent<'_>,
        request: impl Future<Output = Result<Outcome, StoreError>> + Send,
    ) -> Result<Outcome, StoreError> {
        let board = &*self.shared.board;
        let passage = board.stripes.pass(key);
        if !board.regions.contain(key) {
            let unwatched = Unwatched { board, key };
            return unwatched.heard(request.await);
        }
        drop(passage);
        let _turn = board.stripes.lock(key).await;
        let doubt = Doubt { board, key };
        let began = board.clock.now();
        let result = request.await;
        match &result {
            Ok(outcome) => self.post(doubt, &intent, outcome, began),
            Err(error) => self.resolve(doubt, &intent, error, began).await,
        }
        result
    }

    fn post(&self, doubt: Doubt<'_>, intent: &Intent<'_>, outcome: &Outcome, began: Timestamp) {
        let key = doubt.settle();
        if let Outcome::Applied { expires_at } = outcome
            && let Some(change) = intent.change(*expires_at, began)
        {
            self.shared.board.post(key, change);
        }
    }

    /// Finds out what became of a write that failed. What it leaves in doubt becomes a gap.
    async fn resolve(
        &self,
        doubt: Doubt<'_>,
        intent: &Intent<'_>,
        error: &StoreError,
        began: Timestamp,
    ) {
        match error {
            StoreError::Invalid { .. } | StoreError::Unavailable { .. } => {
                doubt.settle();
            }
            StoreError::Unknown { .. } | StoreError::Corrupt { .. } => {
                let Ok(seen) = self.shared.inner.get(doubt.key).await else { return };
                if let Some(expires_at) = intent.stands(&seen, doubt.key, doubt.board)
                    && let Some(change) = intent.change(expires_at, began)
                {
                    self.shared.board.post(doubt.settle(), change);
                }
            }
        }
    }

    async fn put_watched(
        &self,
        watched: Vec<(usize, Key, Value)>,
        writes: Vec<(Key, Write)>,
    ) -> Result<Vec<Outcome>, StoreError> {
        let board = &*self.shared.board;
        let _turns = board.stripes.lock_all(watched.iter().map(|(_, key, _)| key)).await;
        let doubts: Vec<_> = watched.iter().map(|(_, key, _)| Doubt { board, key }).collect();
        let began = board.clock.now();
        let result = self.shared.inner.put_batch(writes).await;
        for (doubt, (position, _, value)) in doubts.into_iter().zip(&watched) {
            let intent = Intent::Write(EventKind::Put, value.clone());
            match &result {
                Ok(outcomes) => self.post(doubt, &intent, &outcomes[*position], began),
                Err(error) => self.resolve(doubt, &intent, error, began).await,
            }
        }
        result
    }
}

/// What a write is to change.
#[derive(Debug)]
enum Intent<'a> {
    Write(EventKind, Value),
    Delete(&'a [u8]),
}

impl Intent<'_> {
    /// The change, once applied. `None` for the delete of a value too long to be one.
    fn change(&self, expires_at: Option<Timestamp>, began: Timestamp) -> Option<Change> {
        let (kind, value) = match self {
            Self::Write(kind, value) => (*kind, value.clone()),
            Self::Delete(expected) => {
                (EventKind::Deleted, Value::new(Bytes::copy_from_slice(expected)).ok()?)
            }
        };
        Some(Change { kind, value, expires_at, began })
    }

    /// Whether what is seen is what was intended, and then the expiry to report.
    fn stands(&self, seen: &Option<Record>, key: &Key, board: &Board) -> Option<Option<Timestamp>> {
        match (self, seen) {
            // A record that stood there before shows nothing: the write may yet arrive.
            (Self::Write(_, value), Some(record))
                if record.value == *value && !board.knows(key, record) =>
            {
                Some(record.expires_at)
            }
            // Without knowing what stood there, an absent record may never have been.
            (Self::Delete(expected), None) => board.lived(key, expected).map(Some),
            (Self::Write(..) | Self::Delete(_), _) => None,
        }
    }
}

/// A watched write under way. Dropped unsettled, it becomes a gap.
#[derive(Debug)]
struct Doubt<'a> {
    board: &'a Board,
    key: &'a Key,
}

impl<'a> Doubt<'a> {
    /// The outcome is known.
    fn settle(self) -> &'a Key {
        let key = self.key;
        std::mem::forget(self);
        key
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.board.doubt(self.key);
    }
}

/// A write under way that nobody watches. Dropped before its answer, it is a stray.
#[derive(Debug)]
struct Unwatched<'a> {
    board: &'a Board,
    key: &'a Key,
}

impl Unwatched<'_> {
    /// The answer is there, and says whether the write is decided.
    fn heard<T>(self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if !matches!(answer, Err(StoreError::Unknown { .. })) {
            std::mem::forget(self);
        }
        answer
    }
}

impl Drop for Unwatched<'_> {
    fn drop(&mut self) {
        self.board.astray(self.key);
    }
}

/// A watch that reads its rows.
#[derive(Debug)]
struct Load<'a> {
    board: &'a Board,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.board.end_load();
    }
}

impl<S: Store> Store for WatchedStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.shared.inner.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.shared.inner.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.shared.inner.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.shared.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let intent = Intent::Write(EventKind::Put, write.value.clone());
        self.write(key, intent, self.shared.inner.put(key, write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let board = &*self.shared.board;
        // Counts for all of the batch, also for the keys that turn out to be watched.
        let _passage = writes.first().map(|(key, _)| board.stripes.pass(key));
        let positions = writes.iter().enumerate();
        let watched: Vec<_> = positions
            .filter(|(_, (key, _))| board.regions.contain(key))
            .map(|(position, (key, write))| (position, key.clone(), write.value.clone()))
            .collect();
        // One key stands for all of them that nobody watches.
        let first = writes.first().map(|(key, _)| key.clone());
        let unwatched = first.as_ref().map(|key| Unwatched { board, key });
        let result = match watched.is_empty() {
            true => self.shared.inner.put_batch(writes).await,
            false => self.put_watched(watched, writes).await,
        };
        match unwatched {
            Some(unwatched) => unwatched.heard(result),
            None => result,
        }
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        let intent = Intent::Write(EventKind::Inserted, write.value.clone());
        self.write(key, intent, self.shared.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let intent = Intent::Write(EventKind::Swapped, write.value.clone());
        self.write(key, intent, self.shared.inner.compare_and_swap(key, expected, write)).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let request = self.shared.inner.compare_and_delete(key, expected, fence);
        self.write(key, Intent::Delete(expected), request).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.shared.inner.query_ttl(key).await
    }
}
