//! Reading beside the writer: one snapshot per commit, shared by all readers.
//!
//! A group is decided at one instant and becomes visible when it is durable, which is later. In
//! between a record that the group renewed may pass its old expiry. A reader that then called it
//! absent would see it come back with the next snapshot. So the writer announces the instant of
//! the group in flight, and a reader that meets a record expired since then waits for the group.
//! The order matters: a reader takes the time first, the announcement second, the snapshot third.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use tokio::sync::Notify;
use wane::clock::SharedClock;
use wane::store::{BoxError, Record, StoreError, Timestamp};

use super::engine::{ReadError, Snapshot};
use super::queue::Queue;

/// Announced while no group is in flight.
const NONE_IN_FLIGHT: u64 = u64::MAX;

/// What handles and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: SharedClock,
    pub(super) queue: Queue,
    path: PathBuf,
    /// None only while the file is compacted, and after that has failed.
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    in_flight: AtomicU64,
    landings: AtomicU64,
    landed: Notify,
    failure: OnceLock<String>,
}

impl Shared {
    pub(super) fn new(clock: SharedClock, path: PathBuf, snapshot: Snapshot) -> Self {
        Self {
            clock,
            queue: Queue::default(),
            path,
            snapshot: RwLock::new(Some(Arc::new(snapshot))),
            in_flight: AtomicU64::new(NONE_IN_FLIGHT),
            landings: AtomicU64::new(0),
            landed: Notify::new(),
            failure: OnceLock::new(),
        }
    }

    /// Announces a group and returns the instant that decides it.
    pub(super) fn decide_begins(&self) -> Timestamp {
        // Zero until the instant is known: whoever looks in between waits.
        self.in_flight.store(0, Ordering::SeqCst);
        let now = self.clock.now();
        self.in_flight.store(now.as_unix_millis(), Ordering::SeqCst);
        now
    }

    /// Takes the announcement back once the group is visible, or has failed.
    pub(super) fn decide_ends(&self) {
        self.in_flight.store(NONE_IN_FLIGHT, Ordering::SeqCst);
        self.landings.fetch_add(1, Ordering::SeqCst);
        self.landed.notify_waiters();
    }

    /// Shows readers the latest commit.
    pub(super) fn publish(&self, snapshot: Snapshot) {
        let old = self.snapshot.write().replace(Arc::new(snapshot));
        // Freed outside of the lock.
        drop(old);
    }

    /// Runs `work`, which returns the snapshot to go on with, while no reader can take one.
    pub(super) fn without_snapshot<T>(
        &self,
        work: impl FnOnce() -> (T, Result<Snapshot, redb::Error>),
    ) -> Result<T, BoxError> {
        let mut current = self.snapshot.write();
        *current = None;
        let (result, snapshot) = work();
        *current = Some(Arc::new(snapshot?));
        Ok(result)
    }

    pub(super) fn file_size(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }

    /// Notes the first reason why the store can no longer be trusted.
    pub(super) fn fail(&self, reason: &str) {
        let advice = format!("{reason}; check the disk, then open the store again");
        // Later failures follow from the first one, which is already noted.
        drop(self.failure.set(advice));
    }

    /// What callers are told after a failure.
    pub(super) fn failure(&self) -> StoreError {
        let reason = self.failure.get().map_or("the store is closed", String::as_str);
        StoreError::Unavailable { backend: "file", source: reason.into() }
    }

    /// Fails once the store has.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.failure.get().is_some() { Err(self.failure()) } else { Ok(()) }
    }

    /// Runs `read` on the latest snapshot, after the group in flight where that could matter.
    pub(super) async fn read<T>(
        &self,
        read: impl Fn(&View) -> Result<T, ReadError>,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        loop {
            let landings = self.landings.load(Ordering::SeqCst);
            let result = read(&self.view(now)?);
            match result {
                Ok(found) => return Ok(found),
                // Groups that begin after this one are decided after `now`: one wait is enough.
                Err(ReadError::Unsettled) => self.landing(landings).await,
                Err(error) => return Err(self.refused(error)),
            }
        }
    }

    /// What the caller is told about a read that failed. An unreadable file fails the store.
    pub(super) fn refused(&self, error: ReadError) -> StoreError {
        match error {
            ReadError::Record(error) => return error,
            ReadError::Engine(error) => self.fail(&error.to_string()),
            ReadError::Unsettled => self.fail("a settled view was unsettled"),
        }
        self.failure()
    }

    /// A view for longer than a moment: it does not depend on any group in flight.
    pub(super) async fn settled_view(&self) -> Result<View, StoreError> {
        let now = self.clock.now();
        self.landing(self.landings.load(Ordering::SeqCst)).await;
        Ok(View { in_flight: NONE_IN_FLIGHT, ..self.view(now)? })
    }

    fn view(&self, now: Timestamp) -> Result<View, StoreError> {
        self.check()?;
        let in_flight = self.in_flight.load(Ordering::SeqCst);
        let snapshot = self.snapshot.read().clone().ok_or_else(|| self.failure())?;
        Ok(View { now, in_flight, snapshot })
    }

    /// Completes once no group is in flight that was when `landings` was read.
    async fn landing(&self, landings: u64) {
        let landed = self.landed.notified();
        let in_flight = self.in_flight.load(Ordering::SeqCst) != NONE_IN_FLIGHT;
        if in_flight && self.landings.load(Ordering::SeqCst) == landings {
            landed.await;
        }
    }
}

/// The store at one instant.
#[derive(Debug)]
pub(super) struct View {
    pub(super) now: Timestamp,
    pub(super) snapshot: Arc<Snapshot>,
    in_flight: u64,
}

impl View {
    /// The record, unless it has expired.
    pub(super) fn live(&self, record: Record) -> Result<Option<Record>, ReadError> {
        match record.expires_at {
            Some(expiry) if expiry <= self.now => {
                let unsettled = expiry.as_unix_millis() > self.in_flight;
                if unsettled { Err(ReadError::Unsettled) } else { Ok(None) }
            }
            Some(_) | None => Ok(Some(record)),
        }
    }
}
