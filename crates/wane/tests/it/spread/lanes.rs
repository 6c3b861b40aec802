//! A store whose range reads a test watches: how many there are, how many at once, and how many
//! bytes of their rows are alive. It can also answer in short and empty pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, Row,
    ScanPage, Store, StoreError, Value, Write,
};

/// A number that goes up and down, and the highest that it was.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn add(&self, amount: usize) {
        let now = self.now.fetch_add(amount, Ordering::SeqCst) + amount;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn subtract(&self, amount: usize) {
        self.now.fetch_sub(amount, Ordering::SeqCst);
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Bytes that are counted for as long as they live.
struct Counted {
    bytes: Bytes,
    gauge: Arc<Gauge>,
}

impl Counted {
    fn value(value: &Value, gauge: &Arc<Gauge>) -> Value {
        gauge.add(value.len());
        let bytes = value.clone().into_bytes();
        let counted = Self { bytes, gauge: Arc::clone(gauge) };
        Value::new(Bytes::from_owner(counted)).expect("it was a value before")
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauge.subtract(self.bytes.len());
    }
}

/// How pages are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    Full,
    /// One row at most, and an empty page wherever the clustering's last byte is odd.
    Stuttering,
    /// Rows of the partition whose name ends with this byte cannot be decoded.
    CorruptIn(u8),
}

#[derive(Debug, Clone)]
pub(super) struct Lanes<S> {
    inner: S,
    pages: Pages,
    pub(super) reads: Arc<AtomicUsize>,
    pub(super) under_way: Arc<Gauge>,
    pub(super) bytes: Arc<Gauge>,
}

impl<S: Store> Lanes<S> {
    pub(super) fn new(inner: S, pages: Pages) -> Self {
        let (under_way, bytes) = Default::default();
        Self { inner, pages, reads: Arc::default(), under_way, bytes }
    }

    /// The first row cannot be decoded.
    async fn corrupt(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
    ) -> Result<Page, StoreError> {
        let page = self.inner.read(partition, range, PageLimit::new(1)?).await?;
        match page.rows.into_iter().next() {
            Some(Row { key, .. }) => {
                Err(StoreError::Corrupt { key, reason: "a test says so".into() })
            }
            None => Ok(Page { rows: Vec::new(), rest: None }),
        }
    }

    async fn stuttering(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
    ) -> Result<Page, StoreError> {
        let mut page = self.inner.read(partition, range, PageLimit::new(1)?).await?;
        let Some(row) = page.rows.first() else { return Ok(page) };
        let clustering = row.key.clustering();
        let is_odd = clustering.last().is_some_and(|byte| byte % 2 == 1);
        // Not yet there: the reader is sent on to the row itself, with empty hands.
        if is_odd && range.start() != clustering {
            let rest = Some(range.starting_at(clustering.to_vec()));
            return Ok(Page { rows: Vec::new(), rest });
        }
        page.rest = range.after(clustering);
        Ok(page)
    }
}

impl<S: Store> Store for Lanes<S> {
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
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.under_way.add(1);
        let page = match self.pages {
            Pages::Stuttering => self.stuttering(partition, range).await,
            Pages::CorruptIn(end) if partition.as_bytes().ends_with(&[end]) => {
                self.corrupt(partition, range).await
            }
            Pages::Full | Pages::CorruptIn(_) => self.inner.read(partition, range, limit).await,
        };
        let page = page.map(|page| {
            let counted = |Row { key, record }| {
                let value = Counted::value(&record.value, &self.bytes);
                Row { key, record: Record { value, ..record } }
            };
            Page { rows: page.rows.into_iter().map(counted).collect(), rest: page.rest }
        });
        // Answers come late, so that as many calls are under way as are ever made at once.
        tokio::task::yield_now().await;
        self.under_way.subtract(1);
        page
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
        self.inner.insert_if_not_exists(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
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
