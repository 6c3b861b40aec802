//! A store that lets others run before each write, so that nodes of one process meet, and that lies
//! when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use wane::clock::SystemClock;
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, Life, Outcome, Page, PageLimit, Partition, Record,
    Remaining, ScanPage, Store, StoreError, Write,
};

/// How long a swap in two steps lets others run.
const BETWEEN_STEPS: Duration = Duration::from_millis(5);

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    /// A swap looks, lets others run, and writes over whatever stands there then.
    SwapsInTwoSteps,
    /// A write of which nobody knows what became is said to be applied.
    TakesUnclearForApplied,
    /// One row of the log in so many is acknowledged, and never written.
    ForgetsRows(u64),
}

/// A store and the lie that its clones share.
#[derive(Debug, Clone)]
pub(super) struct Doctored<S> {
    inner: S,
    told: Arc<Told>,
}

/// What a store was told to do.
#[derive(Debug)]
pub(super) struct Told {
    lie: Mutex<Lie>,
    rows: AtomicU64,
}

impl Told {
    pub(super) fn new(lie: Lie) -> Arc<Self> {
        Arc::new(Self { lie: Mutex::new(lie), rows: AtomicU64::new(0) })
    }

    fn lie(&self) -> Lie {
        *self.lie.lock()
    }

    /// Whether the row is acknowledged and forgotten.
    fn forgets(&self, key: &Key) -> bool {
        let Lie::ForgetsRows(one_in) = self.lie() else { return false };
        let is_log = Keyspace::of(key.partition()) == Some(Keyspace::PullStreamLog);
        let is_row = is_log && !key.clustering().is_empty();
        is_row && self.rows.fetch_add(1, Ordering::SeqCst) % one_in == one_in - 1
    }
}

impl<S: Store> Doctored<S> {
    pub(super) fn new(inner: S, told: &Arc<Told>) -> Self {
        Self { inner, told: Arc::clone(told) }
    }

    async fn swap_in_two_steps(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let found = self.inner.get(key).await?;
        if found.as_ref().is_none_or(|record| *record.value != *expected) {
            return Ok(Outcome::Refused { current: found });
        }
        SystemClock::shared().sleep(BETWEEN_STEPS).await;
        // A put has no life to keep.
        let kept = found.and_then(|record| record.expires_at);
        let kept = kept.map_or(Life::Permanent, Life::Until);
        let life = if write.life == Life::Keep { kept } else { write.life };
        self.inner.put(key, Write { life, ..write }).await
    }

    /// The answer, or what is made of it.
    fn answer(
        &self,
        life: Life,
        answer: Result<Outcome, StoreError>,
    ) -> Result<Outcome, StoreError> {
        match (self.told.lie(), life, answer) {
            // What the stream writes for a while is written for so long from now on.
            (
                Lie::TakesUnclearForApplied,
                Life::Permanent | Life::For(_),
                Err(StoreError::Unknown { .. }),
            ) => Ok(Outcome::Applied { expires_at: None }),
            (_, _, answer) => answer,
        }
    }
}

impl<S: Store> Store for Doctored<S> {
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
        tokio::task::yield_now().await;
        self.inner.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        if self.told.forgets(key) {
            return Ok(Outcome::Applied { expires_at: None });
        }
        let life = write.life;
        self.answer(life, self.inner.insert_if_not_exists(key, write).await)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        if self.told.lie() == Lie::SwapsInTwoSteps {
            return self.swap_in_two_steps(key, expected, write).await;
        }
        let life = write.life;
        self.answer(life, self.inner.compare_and_swap(key, expected, write).await)
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
