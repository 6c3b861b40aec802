//! Quotas: what an application holds, counted to the entry and to the byte.
//!
//! A ledger is counted from the store when it is first needed, and kept from then on: each write
//! books what it changed, and expiries are booked by the clock. Whoever writes has the turn of its
//! key, so that nobody else in this process changes what it replaces, and is present in the ledger
//! until its outcome is booked. A count waits until nobody is present.
//!
//! A write whose outcome is unknown, or that nobody waited for, has the ledger counted anew.
//! Costs about 40 bytes for each instant at which something expires.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedRwLockReadGuard, RwLock};

use super::{AppTtlError, ClusterAppId};
use crate::clock::SharedClock;
use crate::store::{
    ClusteringRange, Key, PageLimit, Partition, Record, Store, StoreError, Timestamp, Write,
};

/// Keys that can have their turn at once.
const STRIPES: usize = 1_024;

/// How much an application may hold. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Entries.
    pub keys: Option<u64>,
    /// Bytes of keys and values.
    pub bytes: Option<u64>,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Entries.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl Size {
    fn of(key: &Key, value: &[u8]) -> Self {
        Self { keys: 1, bytes: (key.clustering().len() + value.len()) as u64 }
    }

    /// What is more in `self` than in `other`.
    fn beyond(self, other: Self) -> Self {
        Self {
            keys: self.keys.saturating_sub(other.keys),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Size {
    fn sub_assign(&mut self, other: Self) {
        *self = self.beyond(other);
    }
}

/// The ledgers of all applications, and the turns of their keys.
#[derive(Debug)]
pub(super) struct Ledgers {
    ledgers: Mutex<HashMap<ClusterAppId, Arc<Ledger>>>,
    turns: Box<[Arc<AsyncMutex<()>>]>,
    hasher: foldhash::quality::FixedState,
    recount: Option<Duration>,
}

/// The turn of a key: nobody else in this process writes to it meanwhile.
pub(super) type Turn = OwnedMutexGuard<()>;

impl Ledgers {
    /// Ledgers that are counted anew at this interval, if one is given.
    pub(super) fn new(recount: Option<Duration>, seed: u64) -> Self {
        Self {
            ledgers: Mutex::default(),
            turns: (0..STRIPES).map(|_| Arc::default()).collect(),
            hasher: foldhash::quality::FixedState::with_seed(seed),
            recount,
        }
    }

    pub(super) async fn turn(&self, key: &Key) -> Turn {
        let stripe = self.hasher.hash_one(key) as usize % STRIPES;
        Arc::clone(&self.turns[stripe]).lock_owned().await
    }

    pub(super) fn of(&self, app: ClusterAppId) -> Arc<Ledger> {
        let mut ledgers = self.ledgers.lock();
        let new = || Arc::new(Ledger { recount: self.recount, ..Ledger::default() });
        Arc::clone(ledgers.entry(app).or_insert_with(new))
    }
}

/// What one application holds.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Shared by those who write, exclusive to the one who counts.
    gate: Arc<RwLock<()>>,
    books: Mutex<Books>,
    recount: Option<Duration>,
}

#[derive(Debug, Default)]
struct Books {
    /// When the store was counted; `None` where that must be done first.
    counted: Option<Duration>,
    /// What there is, and what is set aside for writes under way.
    size: Size,
    /// What expires when.
    due: BTreeMap<Timestamp, Size>,
    /// Everything due up to this instant has left.
    settled_to: Option<Timestamp>,
}

impl Ledger {
    /// What the application holds now.
    pub(super) async fn usage<S: Store>(
        self: &Arc<Self>,
        store: &S,
        partition: &Partition,
        clock: &SharedClock,
    ) -> Result<Size, StoreError> {
        let presence = self.counted(store, partition, clock).await?;
        let mut books = presence.ledger.books.lock();
        books.settle_to(clock.now());
        Ok(books.size)
    }

    /// Enters the ledger once it is counted.
    pub(super) async fn counted<S: Store>(
        self: &Arc<Self>,
        store: &S,
        partition: &Partition,
        clock: &SharedClock,
    ) -> Result<Presence, StoreError> {
        loop {
            let entered = Arc::clone(&self.gate).read_owned().await;
            if self.is_counted(clock) {
                return Ok(Presence { ledger: Arc::clone(self), _entered: entered });
            }
            drop(entered);
            let _alone = self.gate.write().await;
            if !self.is_counted(clock) {
                let books = Books::count(store, partition, clock).await?;
                *self.books.lock() = books;
            }
        }
    }

    fn is_counted(&self, clock: &SharedClock) -> bool {
        let counted = self.books.lock().counted;
        let is_fresh = |at: Duration| {
            self.recount.is_none_or(|interval| clock.monotonic().saturating_sub(at) < interval)
        };
        counted.is_some_and(is_fresh)
    }
}

impl Books {
    async fn count<S: Store>(
        store: &S,
        partition: &Partition,
        clock: &SharedClock,
    ) -> Result<Self, StoreError> {
        let mut books = Self { counted: Some(clock.monotonic()), ..Self::default() };
        let mut rest = Some(ClusteringRange::ALL);
        while let Some(range) = rest {
            let page = store.read(partition, &range, PageLimit::MAX).await?;
            for row in &page.rows {
                books.add(Size::of(&row.key, &row.record.value), row.record.expires_at);
            }
            rest = page.rest;
        }
        Ok(books)
    }

    /// Takes out what has expired.
    fn settle_to(&mut self, now: Timestamp) {
        while let Some(due) = self.due.first_entry().filter(|due| *due.key() <= now) {
            self.size -= due.remove();
        }
        self.settled_to = self.settled_to.max(Some(now));
    }

    fn has_left(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|expiry| self.settled_to.is_some_and(|settled| expiry <= settled))
    }

    fn add(&mut self, size: Size, expires_at: Option<Timestamp>) {
        if self.has_left(expires_at) {
            return;
        }
        self.size += size;
        if let Some(expiry) = expires_at {
            *self.due.entry(expiry).or_default() += size;
        }
    }

    fn remove(&mut self, size: Size, expires_at: Option<Timestamp>) {
        if self.has_left(expires_at) {
            return;
        }
        self.size -= size;
        let Some(expiry) = expires_at else { return };
        if let Some(due) = self.due.get_mut(&expiry) {
            *due -= size;
            if *due == Size::default() {
                self.due.remove(&expiry);
            }
        }
    }
}

/// What a write takes away and what it leaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    before: Option<(Size, Option<Timestamp>)>,
    after: Option<Size>,
}

impl Change {
    pub(super) fn of(key: &Key, before: Option<&Record>, write: Option<&Write>) -> Self {
        Self {
            before: before.map(|record| (Size::of(key, &record.value), record.expires_at)),
            after: write.map(|write| Size::of(key, &write.value)),
        }
    }

    fn growth(&self) -> Size {
        let before = self.before.map_or(Size::default(), |(size, _)| size);
        self.after.unwrap_or_default().beyond(before)
    }
}

/// Being in a ledger: it is not counted anew meanwhile.
#[derive(Debug)]
pub(super) struct Presence {
    ledger: Arc<Ledger>,
    _entered: OwnedRwLockReadGuard<()>,
}

impl Presence {
    /// Sets aside what the change adds, if the quota allows that.
    pub(super) fn reserve(
        self,
        change: Change,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Growth, AppTtlError> {
        let held = change.growth();
        let mut books = self.ledger.books.lock();
        books.settle_to(now);
        let size = books.size;
        check("keys", size.keys, held.keys, quota.keys)?;
        check("bytes", size.bytes, held.bytes, quota.bytes)?;
        books.size += held;
        drop(books);
        Ok(Growth { presence: self, change, held, settled: false })
    }
}

fn check(what: &'static str, held: u64, more: u64, limit: Option<u64>) -> Result<(), AppTtlError> {
    match limit {
        Some(limit) if more > 0 && held + more > limit => {
            Err(AppTtlError::OverQuota { what, held, limit })
        }
        Some(_) | None => Ok(()),
    }
}

/// What is set aside for a write under way. Dropped unsettled, it has the ledger counted anew.
#[derive(Debug)]
pub(super) struct Growth {
    presence: Presence,
    change: Change,
    held: Size,
    settled: bool,
}

impl Growth {
    /// The write was applied, and what it left expires at this instant.
    pub(super) fn applied(mut self, expires_at: Option<Timestamp>) {
        self.settled = true;
        let mut books = self.presence.ledger.books.lock();
        books.size -= self.held;
        if let Some((size, expires_at)) = self.change.before {
            books.remove(size, expires_at);
        }
        if let Some(size) = self.change.after {
            books.add(size, expires_at);
        }
    }

    /// The write was not applied.
    pub(super) fn undone(mut self) {
        self.settled = true;
        self.presence.ledger.books.lock().size -= self.held;
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if !self.settled {
            self.presence.ledger.books.lock().counted = None;
        }
    }
}
