//! Stores that break one rule each: the controls that a check must turn red on.

use std::sync::Arc;

use parking_lot::Mutex;
use wane::clock::{Clock, ManualClock, SharedClock};
use wane::conformance::{ModelCursor, ModelStore};
use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};

/// What a [`LyingStore`] does wrong. The first one is no lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Loses requests and answers, delays writes, and says `Unknown` each time: all allowed.
    LosesMessages,
    /// Looks first and writes later.
    ChecksThenWrites,
    /// Calls a write refused whose answer was lost.
    CallsUnknownRefused,
    /// Calls a write unavailable that it applied.
    CallsAppliedUnavailable,
    /// Applies a write twice whose answer was lost.
    AppliesTwice,
    /// Shows a record again that had expired.
    RevivesExpired,
    /// Acknowledges a write and forgets it.
    LosesAcknowledged,
    /// Lets a record expire so many milliseconds early.
    ExpiresEarly(u64),
}

/// The reference model behind a lie told about one call in ten.
#[derive(Debug)]
pub(crate) struct LyingStore {
    inner: ModelStore,
    clock: SharedClock,
    lie: Lie,
    dice: Arc<ManualClock>,
    /// Writes on their way.
    late: Mutex<Vec<Request>>,
    /// The record of the last successful get.
    shown: Mutex<Option<Record>>,
}

#[derive(Debug, Clone)]
enum Request {
    Put(Key, Write),
    Insert(Key, Write),
    Swap(Key, Vec<u8>, Write),
    Delete(Key, Vec<u8>, Fence),
}

impl LyingStore {
    pub(crate) fn new(clock: SharedClock, seed: u64, lie: Lie) -> Self {
        let inner = ModelStore::new(Arc::clone(&clock));
        let dice = ManualClock::seeded(seed);
        Self { inner, clock, lie, dice, late: Mutex::default(), shown: Mutex::default() }
    }

    fn one_in(&self, times: u64) -> bool {
        self.dice.random_u64().is_multiple_of(times)
    }

    async fn apply(&self, request: Request) -> Result<Outcome, StoreError> {
        match request {
            Request::Put(key, write) => self.inner.put(&key, write).await,
            Request::Insert(key, write) => self.inner.insert_if_not_exists(&key, write).await,
            Request::Swap(key, old, write) => self.inner.compare_and_swap(&key, &old, write).await,
            Request::Delete(key, old, fence) => {
                self.inner.compare_and_delete(&key, &old, fence).await
            }
        }
    }

    async fn change(&self, request: Request) -> Result<Outcome, StoreError> {
        self.deliver_late().await;
        if !self.one_in(10) && self.lie != Lie::ChecksThenWrites {
            return self.apply(request).await;
        }
        match self.lie {
            Lie::LosesMessages => self.lose(request).await,
            Lie::ChecksThenWrites => self.check_then_write(request).await,
            Lie::CallsUnknownRefused => {
                drop(self.apply(request).await?);
                Ok(Outcome::Refused { current: None })
            }
            Lie::CallsAppliedUnavailable => {
                drop(self.apply(request).await?);
                Err(StoreError::Unavailable { backend: "liar", source: "lost".into() })
            }
            Lie::AppliesTwice => {
                drop(self.apply(request.clone()).await?);
                self.late.lock().push(request);
                Err(unknown())
            }
            Lie::LosesAcknowledged => self.acknowledge(&request),
            Lie::RevivesExpired | Lie::ExpiresEarly(_) => self.apply(request).await,
        }
    }

    /// Arrives at once, later or never; in any case nobody hears of it.
    async fn lose(&self, request: Request) -> Result<Outcome, StoreError> {
        match self.dice.random_u64() % 3 {
            0 => drop(self.apply(request).await?),
            1 => self.late.lock().push(request),
            _ => {}
        }
        Err(unknown())
    }

    async fn deliver_late(&self) {
        let due = if self.one_in(8) { self.late.lock().pop() } else { None };
        if let Some(request) = due {
            drop(self.apply(request).await);
        }
    }

    async fn check_then_write(&self, request: Request) -> Result<Outcome, StoreError> {
        let (Request::Insert(key, write) | Request::Swap(key, _, write)) = &request else {
            return self.apply(request).await;
        };
        let current = self.inner.get(key).await?;
        let holds = match (&request, &current) {
            (Request::Swap(_, old, _), Some(current)) => *current.value == **old,
            (Request::Insert(..), None) => true,
            (_, None | Some(_)) => false,
        };
        if !holds {
            return Ok(Outcome::Refused { current });
        }
        tokio::task::yield_now().await;
        // A put cannot keep an expiry, so such a swap is done right.
        if write.life == Life::Keep {
            return self.apply(request).await;
        }
        self.inner.put(key, write.clone()).await
    }

    fn acknowledge(&self, request: &Request) -> Result<Outcome, StoreError> {
        let Request::Put(_, Write { life: Life::For(ttl), .. }) = request else {
            return Err(unknown());
        };
        let ttl = *ttl;
        Ok(Outcome::Applied { expires_at: Some(self.clock.now().after(ttl)) })
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { backend: "liar", source: "the answer was lost".into() }
}

impl Store for LyingStore {
    type ScanCursor = ModelCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.deliver_late().await;
        let found = self.inner.get(key).await?;
        let early = if let Lie::ExpiresEarly(millis) = self.lie { millis } else { 1 };
        let soon = self.clock.now().as_unix_millis() + early;
        let ending = |record: &Record| {
            record.expires_at.is_some_and(|expiry| expiry.as_unix_millis() <= soon)
        };
        if matches!(self.lie, Lie::ExpiresEarly(_)) {
            return Ok(found.filter(|record| !ending(record)));
        }
        if self.lie == Lie::RevivesExpired && found.is_none() {
            return Ok(self.shown.lock().clone().filter(ending));
        }
        if found.is_some() {
            self.shown.lock().clone_from(&found);
        }
        Ok(found)
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
        after: Option<ModelCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<ModelCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(Request::Put(key.clone(), write)).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(Request::Insert(key.clone(), write)).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.change(Request::Swap(key.clone(), expected.to_vec(), write)).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.change(Request::Delete(key.clone(), expected.to_vec(), fence)).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(key).await
    }
}
