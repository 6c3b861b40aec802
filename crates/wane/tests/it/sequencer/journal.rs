//! A store that notes which writes were acknowledged, and in which order; and, as the control of
//! the crash tests, one that acknowledges numbers before they are safe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};

/// An acknowledged write: whose record, and its value.
pub(super) type Entry = (Keyspace, u64);

#[derive(Debug)]
pub(super) struct JournalStore<S> {
    pub(super) inner: S,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    journal: Mutex<Vec<Entry>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    /// Numbers that were acknowledged and are not safe yet, where the store is that careless.
    unsafe_numbers: Option<Mutex<BTreeMap<Key, Record>>>,
}

impl<S: Clone> Clone for JournalStore<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> JournalStore<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, shared: Arc::default() }
    }

    /// A store that keeps numbers, unlike offsets, in memory only.
    pub(super) fn careless(inner: S) -> Self {
        let unsafe_numbers = Some(Mutex::default());
        Self { inner, shared: Arc::new(Shared { unsafe_numbers, ..Shared::default() }) }
    }

    /// The writes since the last call.
    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.shared.journal.lock())
    }

    /// How many writes were under way at once.
    pub(super) fn most_under_way(&self) -> usize {
        self.shared.most_under_way.load(Ordering::Relaxed)
    }

    /// Loses what is not safe.
    pub(super) fn cut_power(&self) {
        if let Some(numbers) = &self.shared.unsafe_numbers {
            numbers.lock().clear();
        }
    }

    fn unsafe_numbers(&self, key: &Key) -> Option<&Mutex<BTreeMap<Key, Record>>> {
        let numbers = self.shared.unsafe_numbers.as_ref()?;
        (Keyspace::of(key.partition()) == Some(Keyspace::SequencerNumbers)).then_some(numbers)
    }

    async fn write(
        &self,
        key: &Key,
        write: Write,
        request: impl Future<Output = Result<Outcome, StoreError>> + Send,
    ) -> Result<Outcome, StoreError> {
        let under_way = self.shared.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.most_under_way.fetch_max(under_way, Ordering::Relaxed);
        let outcome = match self.unsafe_numbers(key) {
            None => request.await,
            Some(numbers) => {
                let Write { value, fence, .. } = write.clone();
                numbers.lock().insert(key.clone(), Record { value, expires_at: None, fence });
                Ok(Outcome::Applied { expires_at: None })
            }
        };
        self.shared.under_way.fetch_sub(1, Ordering::Relaxed);
        if matches!(outcome, Ok(Outcome::Applied { .. })) {
            let keyspace = Keyspace::of(key.partition()).expect("a keyspace");
            let number = u64::from_be_bytes((*write.value).try_into().expect("8 bytes"));
            self.shared.journal.lock().push((keyspace, number));
        }
        outcome
    }
}

impl<S: Store> Store for JournalStore<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let unsafe_number =
            self.unsafe_numbers(key).and_then(|numbers| numbers.lock().get(key).cloned());
        match unsafe_number {
            Some(record) => Ok(Some(record)),
            None => self.inner.get(key).await,
        }
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
        self.inner.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(key, write.clone(), self.inner.insert_if_not_exists(key, write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.write(key, write.clone(), self.inner.compare_and_swap(key, expected, write)).await
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
