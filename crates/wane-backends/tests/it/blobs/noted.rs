//! A store that notes every key that is written, and lies when told to.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Value, Write,
};

use super::chunk_number;

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    /// The write of this chunk is acknowledged and forgotten.
    Drop(u32),
    /// The writes of these chunks go to each other's place.
    Shuffle(u32, u32),
    /// This chunk is stored without its last byte.
    Shorten(u32),
    /// The removal of a chunk is acknowledged and forgotten.
    KeepWhatGoes,
    /// A swap is made whatever stands there.
    SwapBlindly,
    /// Fences are not looked at.
    IgnoreFences,
    /// A write that failed is acknowledged.
    HideErrors,
}

/// A store and the notes on it, which its clones share.
#[derive(Debug, Clone)]
pub(super) struct Noted<S> {
    pub(super) inner: S,
    notes: Arc<Notes>,
}

#[derive(Debug)]
pub(super) struct Notes {
    keys: Mutex<BTreeSet<Key>>,
    lie: Mutex<Lie>,
}

impl Notes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { keys: Mutex::default(), lie: Mutex::new(Lie::None) })
    }

    /// Every key that was written.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.keys.lock().iter().cloned().collect()
    }

    /// Sets what is wrong from here on.
    pub(super) fn tell(&self, lie: Lie) {
        *self.lie.lock() = lie;
    }

    fn lie(&self) -> Lie {
        *self.lie.lock()
    }

    fn note(&self, key: &Key) {
        self.keys.lock().insert(key.clone());
    }

    /// What is written where; `None` where nothing is.
    fn twisted(&self, key: &Key, write: Write) -> Option<(Key, Write)> {
        let elsewhere = |number: u32| {
            Key::new(key.partition(), &number.to_be_bytes()).expect("as short as the other")
        };
        let straight = (key.clone(), write.clone());
        let Some(number) = chunk_number(key) else { return Some(straight) };
        // What is written over a chunk that goes is empty.
        if write.value.is_empty() {
            return (self.lie() != Lie::KeepWhatGoes).then_some(straight);
        }
        match self.lie() {
            Lie::Drop(lost) if lost == number => None,
            Lie::Shuffle(one, other) if one == number => Some((elsewhere(other), write)),
            Lie::Shuffle(one, other) if other == number => Some((elsewhere(one), write)),
            Lie::Shorten(short) if short == number => {
                let shorter = &write.value[..write.value.len() - 1];
                let value = Value::copy_from_slice(shorter).expect("as short as the other");
                Some((key.clone(), Write { value, ..write }))
            }
            Lie::IgnoreFences => Some((key.clone(), write.fenced(Fence::NONE))),
            Lie::None
            | Lie::Drop(_)
            | Lie::Shuffle(..)
            | Lie::Shorten(_)
            | Lie::KeepWhatGoes
            | Lie::SwapBlindly
            | Lie::HideErrors => Some(straight),
        }
    }
}

impl<S> Noted<S> {
    pub(super) fn new(inner: S, notes: &Arc<Notes>) -> Self {
        Self { inner, notes: Arc::clone(notes) }
    }
}

const FORGOTTEN: Outcome = Outcome::Applied { expires_at: None };

impl<S: Store> Store for Noted<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.inner.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.notes.note(key);
        self.inner.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        writes.iter().for_each(|(key, _)| self.notes.note(key));
        let asked = writes.len();
        let twisted = writes.into_iter().filter_map(|(key, write)| self.notes.twisted(&key, write));
        let mut outcomes = match self.inner.put_batch(twisted.collect()).await {
            Err(_) if self.notes.lie() == Lie::HideErrors => Vec::new(),
            told => told?,
        };
        outcomes.resize(asked, FORGOTTEN);
        Ok(outcomes)
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.notes.note(key);
        match self.inner.insert_if_not_exists(key, write).await {
            Err(_) if self.notes.lie() == Lie::HideErrors => Ok(FORGOTTEN),
            told => told,
        }
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.notes.note(key);
        if self.notes.lie() == Lie::SwapBlindly {
            // So that others look before this one has written.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            return self.inner.put(key, write).await;
        }
        self.inner.compare_and_swap(key, expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.inner.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(key).await
    }
}
