//! Quotas: what an application holds, counted to the entry and to the byte.
//!
//! A ledger is counted from the store when it is first needed, and kept from then on: each write
//! books what it changed, and expiries are booked by the clock. Whoever writes is present in the ledger
//! from before it reads what it replaces until its outcome is booked, and has the turn of its key, so
//! that nobody else in this process changes that. A count waits until nobody is present; nobody waits
//! for a count who has a turn, as all applications share the turns.
//!
//! A write whose outcome is unknown, or that nobody waited for, leaves a doubt: what it may have added
//! stays set aside until the next writer has looked at its key, once the write is decided.
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
    outwait,
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
    failures: Mutex<Failures>,
    recount: Option<Duration>,
}

/// How often the books could not be put in order, and why not when that was tried last.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<StoreError>,
}

impl Failures {
    fn note(&mut self, error: &StoreError) {
        self.count += 1;
        self.last = Some(error.again());
    }

    /// The last one, if there were more than so many.
    fn beyond(&self, count: u64) -> Option<StoreError> {
        self.last.as_ref().filter(|_| self.count > count).map(StoreError::again)
    }
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
    /// What may have become of writes whose outcome nobody heard.
    doubts: Vec<Doubt>,
}

/// A write whose outcome nobody heard, and what is set aside for it.
#[derive(Debug)]
struct Doubt {
    key: Key,
    held: Size,
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

    /// Enters the ledger once it is counted. Where the store fails whoever puts it in order, all who
    /// waited for that are told so: it would take each of them as long to hear the same.
    pub(super) async fn counted<S: Store>(
        self: &Arc<Self>,
        store: &S,
        partition: &Partition,
        clock: &SharedClock,
    ) -> Result<Presence, StoreError> {
        let failures = self.failures.lock().count;
        loop {
            let entered = Arc::clone(&self.gate).read_owned().await;
            if self.is_counted(clock) {
                return Ok(Presence { ledger: Arc::clone(self), _entered: entered });
            }
            drop(entered);
            let _alone = self.gate.write().await;
            if self.is_counted(clock) {
                continue;
            }
            if let Some(error) = self.failures.lock().beyond(failures) {
                return Err(error);
            }
            let ordered = self.put_in_order(store, partition, clock).await;
            ordered.inspect_err(|error| self.failures.lock().note(error))?;
        }
    }

    /// Looks at what is in doubt, and counts where that must be done. Nobody may be present.
    async fn put_in_order<S: Store>(
        &self,
        store: &S,
        partition: &Partition,
        clock: &SharedClock,
    ) -> Result<(), StoreError> {
        self.clear_up(store, clock).await?;
        if !self.is_counted(clock) {
            let books = Books::count(store, partition, clock).await?;
            *self.books.lock() = books;
        }
        Ok(())
    }

    /// Whether the books can be gone by.
    fn is_counted(&self, clock: &SharedClock) -> bool {
        let books = self.books.lock();
        let is_fresh = |at: Duration| {
            self.recount.is_none_or(|interval| clock.monotonic().saturating_sub(at) < interval)
        };
        books.doubts.is_empty() && books.counted.is_some_and(is_fresh)
    }

    /// Books what became of the writes in doubt. Nobody may be present.
    async fn clear_up<S: Store>(&self, store: &S, clock: &SharedClock) -> Result<(), StoreError> {
        let last = || self.books.lock().doubts.last().map(|doubt| doubt.key.clone());
        while let Some(key) = last() {
            outwait(store, &key, clock).await?;
            let found = store.get(&key).await?;
            let mut books = self.books.lock();
            if let Some(doubt) = books.doubts.pop() {
                books.size -= doubt.held;
            }
            if let Some(record) = found {
                books.add(Size::of(&key, &record.value), record.expires_at);
            }
        }
        Ok(())
    }
}

impl Books {
    async fn count<S: Store>(
        store: &S,
        partition: &Partition,
        clock: &SharedClock,
    ) -> Result<Self, StoreError> {
        let mut books = Self::default();
        let mut rest = Some(ClusteringRange::ALL);
        while let Some(range) = rest {
            let page = store.read(partition, &range, PageLimit::MAX).await?;
            for row in &page.rows {
                books.add(Size::of(&row.key, &row.record.value), row.record.expires_at);
            }
            rest = page.rest;
        }
        // One that took longer than it holds for is good for somebody all the same.
        books.counted = Some(clock.monotonic());
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
#[derive(Debug)]
pub(super) struct Change {
    key: Key,
    before: Option<(Size, Option<Timestamp>)>,
    after: Option<Size>,
}

impl Change {
    pub(super) fn of(key: &Key, before: Option<&Record>, write: Option<&Write>) -> Self {
        Self {
            key: key.clone(),
            before: before.map(|record| (Size::of(key, &record.value), record.expires_at)),
            after: write.map(|write| Size::of(key, &write.value)),
        }
    }
}

/// Being in a ledger: it is not counted anew meanwhile.
#[derive(Debug)]
pub(super) struct Presence {
    ledger: Arc<Ledger>,
    _entered: OwnedRwLockReadGuard<()>,
}

impl Presence {
    /// Whether somebody else's write to the key came to be in doubt since the ledger was entered.
    pub(super) fn is_in_doubt(&self, key: &Key) -> bool {
        self.ledger.books.lock().doubts.iter().any(|doubt| doubt.key == *key)
    }
}

/// Being in a ledger with the turn of a key.
#[derive(Debug)]
pub(super) struct Writing {
    presence: Presence,
    /// Given up last: whoever has the turn next finds the doubts of whoever had it before.
    _turn: Turn,
}

impl Writing {
    pub(super) fn new(presence: Presence, turn: Turn) -> Self {
        Self { presence, _turn: turn }
    }

    /// Sets aside what the change adds, if the quota allows that, and what it replaces: that gives
    /// nobody room by expiring while the change is under way, which may renew it.
    pub(super) fn reserve(
        self,
        change: Change,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Growth, AppTtlError> {
        let mut books = self.presence.ledger.books.lock();
        books.settle_to(now);
        let before = change.before.filter(|(_, expires_at)| !books.has_left(*expires_at));
        let mut held = before.map_or(Size::default(), |(size, _)| size);
        let growth = change.after.unwrap_or_default().beyond(held);
        check("keys", books.size.keys, growth.keys, quota.keys)?;
        check("bytes", books.size.bytes, growth.bytes, quota.bytes)?;
        if let Some((size, expires_at)) = before {
            books.remove(size, expires_at);
        }
        held += growth;
        books.size += held;
        drop(books);
        Ok(Growth { writing: self, change, held, settled: false })
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

/// What is set aside for a write under way. Dropped unsettled, it leaves a doubt.
#[derive(Debug)]
pub(super) struct Growth {
    writing: Writing,
    change: Change,
    held: Size,
    settled: bool,
}

impl Growth {
    /// The write was applied, and what it left expires at this instant.
    pub(super) fn applied(self, expires_at: Option<Timestamp>) {
        let stays = self.change.after.map(|size| (size, expires_at));
        self.settle(stays);
    }

    /// The write was not applied.
    pub(super) fn undone(self) {
        let stays = self.change.before;
        self.settle(stays);
    }

    fn settle(mut self, stays: Option<(Size, Option<Timestamp>)>) {
        self.settled = true;
        let mut books = self.writing.presence.ledger.books.lock();
        books.size -= self.held;
        if let Some((size, expires_at)) = stays {
            books.add(size, expires_at);
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if !self.settled {
            let doubt = Doubt { key: self.change.key.clone(), held: self.held };
            self.writing.presence.ledger.books.lock().doubts.push(doubt);
        }
    }
}
