//! Application TTL storage: keys and values with a life, apart for each application.
//!
//! An application's entries are one partition of keyspace 4; the clustering is the user's key. Every
//! limit is checked before the store is touched. A write reads its key first: where the condition
//! does not hold the read is the answer, and where it does the quota knows what the write will add.
//! The condition is checked again by the write itself, in one step.
//!
//! A storage that is [`fenced`](AppTtlStorage::fenced) writes for one leader: its writes stamp their
//! entries, and are refused where a later leader has stamped one.
//!
//! Invariant: what an application holds never exceeds its quota on a store that this process has to
//! itself. On a shared one each node counts anew once in a while, and the excess is bounded by what
//! all nodes write between two counts.
//!
//! Flow: `entry` checks what callers give, `quota` counts, `bucket` names, `events` watches under
//! ids that `disguise` makes.

mod bucket;
mod disguise;
mod entry;
mod events;
mod quota;

pub use bucket::Bucket;
pub use entry::{AppTtlError, Entry, MAX_KEY, MAX_VALUE, Page, Renewal};
pub use events::{AppTtlEvent, AppTtlEventKind, AppTtlNotice, AppTtlWatch};
pub use quota::{Quota, Size};

use std::sync::Arc;
use std::time::Duration;

use self::entry::{checked_key, checked_life, checked_value};
use self::quota::Ledgers;
use super::ClusterAppId;
use crate::clock::SharedClock;
use crate::store::{
    ClusteringRange, Fence, Key, Keyspace, Outcome, PageLimit, Partition, Record, Remaining, Store,
    StoreError, Write,
};

/// How often an unconditional write tries again when somebody else was faster.
const ATTEMPTS: usize = 16;

/// The storage of all applications. A clone is a second handle.
#[derive(Debug)]
pub struct AppTtl<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    store: S,
    clock: SharedClock,
    ledgers: Ledgers,
    /// Behind the ids of events; see `disguise`.
    secret: u64,
}

impl<S> Clone for AppTtl<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> AppTtl<S> {
    /// Storage in a store that no other process writes to.
    pub fn new(store: S, clock: SharedClock) -> Self {
        Self::with_recount(store, clock, None)
    }

    /// Storage in a store that others write to as well: what each application holds is counted
    /// anew at this interval.
    pub fn recounting(store: S, clock: SharedClock, interval: Duration) -> Self {
        Self::with_recount(store, clock, Some(interval))
    }

    fn with_recount(store: S, clock: SharedClock, interval: Option<Duration>) -> Self {
        let ledgers = Ledgers::new(interval, clock.random_u64());
        let secret = clock.random_u64();
        Self { shared: Arc::new(Shared { store, clock, ledgers, secret }) }
    }

    /// The storage of one application, held to `quota`.
    pub fn of(&self, app: ClusterAppId, quota: Quota) -> AppTtlStorage<S> {
        AppTtlStorage { shared: Arc::clone(&self.shared), app, quota, fence: Fence::NONE }
    }
}

/// The storage of one application.
#[derive(Debug)]
pub struct AppTtlStorage<S> {
    shared: Arc<Shared<S>>,
    app: ClusterAppId,
    quota: Quota,
    fence: Fence,
}

impl<S> Clone for AppTtlStorage<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<S: Store> AppTtlStorage<S> {
    /// The same storage for the writes of one leader: each carries `fence`, stamps what it writes,
    /// and is [`AppTtlError::Fenced`] where the entry has a higher stamp, whatever else is wrong.
    ///
    /// An entry that was deleted or has expired has no stamp any more: there the writes of an
    /// earlier leader get through.
    pub fn fenced(&self, fence: Fence) -> Self {
        Self { fence, ..self.clone() }
    }

    /// Returns the live entry at `key`.
    pub async fn ttl_get(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, AppTtlError> {
        let record = self.shared.store.get(&self.key(key.as_ref())?).await?;
        Ok(record.and_then(|record| Entry::at(record, self.shared.clock.now())))
    }

    /// Writes where no live entry is. Refused with the one that is.
    pub async fn insert_if_not_exists(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Outcome, AppTtlError> {
        let key = self.key(key.as_ref())?;
        let write = Write::new(checked_value("value", value.as_ref())?, checked_life(ttl)?);
        let writing = self.writing(&key).await?;
        let current = self.current(&key).await?;
        if current.is_some() {
            return Ok(Outcome::Refused { current });
        }
        self.add(&key, write, writing).await
    }

    /// Replaces a live `expected` by `new` with a life of its own. Refused with what stands there.
    pub async fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        renewal: Renewal,
    ) -> Result<Outcome, AppTtlError> {
        let key = self.key(key.as_ref())?;
        let expected = checked_value("expectedValue", expected.as_ref())?;
        let new = checked_value("newValue", new.as_ref())?;
        let write = Write::new(new, renewal.checked()?);
        let writing = self.writing(&key).await?;
        match self.current(&key).await? {
            Some(record) if record.value == expected => {
                self.replace(&key, &record, write, writing).await
            }
            current => Ok(Outcome::Refused { current }),
        }
    }

    /// Removes a live `expected`. Refused with what stands there.
    pub async fn compare_and_delete(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
    ) -> Result<Outcome, AppTtlError> {
        let key = self.key(key.as_ref())?;
        let expected = checked_value("expectedValue", expected.as_ref())?;
        let writing = self.writing(&key).await?;
        match self.current(&key).await? {
            Some(record) if record.value == expected => self.remove(&key, &record, writing).await,
            current => Ok(Outcome::Refused { current }),
        }
    }

    /// Returns what is left of the entry's life.
    pub async fn query_ttl(&self, key: impl AsRef<[u8]>) -> Result<Remaining, AppTtlError> {
        Ok(self.shared.store.query_ttl(&self.key(key.as_ref())?).await?)
    }

    /// Gives a live entry another life and leaves its value. Refused where there is none.
    pub async fn touch(
        &self,
        key: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Outcome, AppTtlError> {
        let key = self.key(key.as_ref())?;
        let life = checked_life(ttl)?;
        self.until_settled(&key, |current| {
            current.map(|record| Write::new(record.value.clone(), life))
        })
        .await
    }

    /// Writes over whatever is there.
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Outcome, AppTtlError> {
        let key = self.key(key.as_ref())?;
        let write = Write::new(checked_value("value", value.as_ref())?, checked_life(ttl)?);
        self.until_settled(&key, |_| Some(write.clone())).await
    }

    /// Removes whatever is there; says whether anything was.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, AppTtlError> {
        let key = self.key(key.as_ref())?;
        for _ in 0..ATTEMPTS {
            let writing = self.writing(&key).await?;
            let Some(record) = self.current(&key).await? else { return Ok(false) };
            if self.remove(&key, &record, writing).await?.is_applied() {
                return Ok(true);
            }
        }
        Err(AppTtlError::Contended)
    }

    /// Returns a page of live entries whose key begins with `prefix`, ascending by bytes, after the
    /// key `after` if one is given.
    pub async fn scan(
        &self,
        prefix: impl AsRef<[u8]>,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<Page, AppTtlError> {
        let partition = self.partition()?;
        let mut range = entry::range(prefix.as_ref(), after)?;
        loop {
            let page = self.shared.store.read(&partition, &range, limit).await?;
            match page.rest {
                // A stretch of expired entries, and nothing to name as the last one.
                Some(rest) if page.rows.is_empty() => range = rest,
                rest => return Ok(Page::new(page.rows, rest.is_some(), self.shared.clock.now())),
            }
        }
    }

    /// The view of one bucket: keys that begin with its name.
    pub fn bucket(&self, name: &str) -> Bucket<'_, S> {
        Bucket::new(self, name)
    }

    /// What the application holds, expired entries left out.
    pub async fn usage(&self) -> Result<Size, AppTtlError> {
        let shared = &*self.shared;
        let ledger = shared.ledgers.of(self.app);
        Ok(ledger.usage(&shared.store, &self.partition()?, &shared.clock).await?)
    }

    fn partition(&self) -> Result<Partition, StoreError> {
        Partition::new(self.partition_bytes().to_vec())
    }

    fn partition_bytes(&self) -> [u8; 8] {
        self.app.partition(Keyspace::AppTtl)
    }

    fn key(&self, key: &[u8]) -> Result<Key, AppTtlError> {
        checked_key(key)?;
        // The store's limit is one byte less for keys that begin with a zero byte.
        let too_long = |_| AppTtlError::KeyTooLong { len: key.len() };
        Key::new(&self.partition_bytes(), key).map_err(too_long)
    }

    fn range(&self, prefix: &[u8]) -> Result<ClusteringRange, AppTtlError> {
        entry::range(prefix, None)
    }

    /// Writes what `plan` makes of the live entry, again as long as somebody else is faster. Refused
    /// where it makes nothing.
    async fn until_settled(
        &self,
        key: &Key,
        plan: impl Fn(Option<&Record>) -> Option<Write>,
    ) -> Result<Outcome, AppTtlError> {
        for _ in 0..ATTEMPTS {
            let writing = self.writing(key).await?;
            let current = self.current(key).await?;
            let Some(write) = plan(current.as_ref()) else {
                return Ok(Outcome::Refused { current });
            };
            let outcome = match &current {
                Some(record) => self.replace(key, record, write, writing).await?,
                None => self.add(key, write, writing).await?,
            };
            if outcome.is_applied() {
                return Ok(outcome);
            }
        }
        Err(AppTtlError::Contended)
    }

    /// The live entry that a write is about to meet, if our fence lets us write to it.
    async fn current(&self, key: &Key) -> Result<Option<Record>, AppTtlError> {
        let current = self.shared.store.get(key).await?;
        self.checked_fence(current.as_ref())?;
        Ok(current)
    }

    fn checked_fence(&self, current: Option<&Record>) -> Result<(), AppTtlError> {
        let newer = current.map_or(Fence::NONE, |record| record.fence);
        if self.fence == Fence::NONE || newer <= self.fence {
            return Ok(());
        }
        Err(AppTtlError::Fenced { fence: self.fence, newer })
    }

    async fn add(
        &self,
        key: &Key,
        write: Write,
        writing: quota::Writing,
    ) -> Result<Outcome, AppTtlError> {
        let growth = self.reserve(quota::Change::of(key, None, Some(&write)), writing)?;
        let outcome = self.shared.store.insert_if_not_exists(key, write.fenced(self.fence)).await;
        self.settle(growth, outcome)
    }

    async fn replace(
        &self,
        key: &Key,
        current: &Record,
        write: Write,
        writing: quota::Writing,
    ) -> Result<Outcome, AppTtlError> {
        let growth = self.reserve(quota::Change::of(key, Some(current), Some(&write)), writing)?;
        let write = write.fenced(self.fence);
        let outcome = self.shared.store.compare_and_swap(key, &current.value, write).await;
        self.settle(growth, outcome)
    }

    async fn remove(
        &self,
        key: &Key,
        current: &Record,
        writing: quota::Writing,
    ) -> Result<Outcome, AppTtlError> {
        let growth = self.reserve(quota::Change::of(key, Some(current), None), writing)?;
        let outcome = self.shared.store.compare_and_delete(key, &current.value, self.fence).await;
        self.settle(growth, outcome)
    }

    /// Begins a write: nobody else here writes to the key, and what is there is in the ledger.
    async fn writing(&self, key: &Key) -> Result<quota::Writing, AppTtlError> {
        let shared = &*self.shared;
        let ledger = shared.ledgers.of(self.app);
        loop {
            let presence = ledger.counted(&shared.store, &self.partition()?, &shared.clock).await?;
            let turn = shared.ledgers.turn(key).await;
            if !presence.is_in_doubt(key) {
                return Ok(quota::Writing::new(presence, turn));
            }
        }
    }

    /// Sets aside what the write will add, or says that the quota does not allow it.
    fn reserve(
        &self,
        change: quota::Change,
        writing: quota::Writing,
    ) -> Result<quota::Growth, AppTtlError> {
        writing.reserve(change, self.quota, self.shared.clock.now())
    }

    /// Books what became of the write, and passes it on: a refusal by a higher fence as what it is.
    fn settle(
        &self,
        growth: quota::Growth,
        outcome: Result<Outcome, StoreError>,
    ) -> Result<Outcome, AppTtlError> {
        match &outcome {
            Ok(Outcome::Applied { expires_at }) => growth.applied(*expires_at),
            Ok(Outcome::Refused { .. })
            | Err(StoreError::Invalid { .. } | StoreError::Unavailable { .. }) => growth.undone(),
            // Dropped unsettled, the growth leaves a doubt.
            Err(_) => drop(growth),
        }
        let outcome = outcome?;
        if let Outcome::Refused { current } = &outcome {
            self.checked_fence(current.as_ref())?;
        }
        Ok(outcome)
    }
}
