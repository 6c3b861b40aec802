//! Reading beside the writer: one snapshot per commit, shared by all readers.
//!
//! A group is decided at one instant and becomes visible when it is durable, which is later. What
//! it decided may depend on the time: a record that it renewed may pass its old expiry meanwhile,
//! one that it wrote may expire before anyone sees it. For readers to agree with its answers, the
//! group must seem to have happened at that instant. So the writer announces the instant and the
//! keys, and whoever reads one of them at a later time waits for the group to land.
//!
//! A reader takes the time first, then snapshot and announcement together. A group announced after
//! that is decided no earlier than the reader's time, so a reader waits once at most.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use tokio::sync::Notify;
use wane::clock::SharedClock;
use wane::store::{BoxError, Record, StoreError, Timestamp};

use super::engine::{KeyedChange, ReadError, Snapshot};
use super::queue::Queue;
use super::values::ValuesFile;

/// What handles and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: SharedClock,
    pub(super) queue: Queue,
    path: PathBuf,
    values: Arc<ValuesFile>,
    visible: RwLock<Visible>,
    failure: OnceLock<String>,
}

/// What readers see.
#[derive(Debug)]
struct Visible {
    /// None only while the file is compacted, and after that has failed.
    snapshot: Option<Arc<Snapshot>>,
    in_flight: Option<Arc<Group>>,
}

/// A group on its way to the disk.
#[derive(Debug)]
pub(super) struct Group {
    decided: Timestamp,
    keys: HashSet<Vec<u8>>,
    landed: AtomicBool,
    landing: Notify,
}

impl Group {
    /// Whether the group changes this key.
    pub(super) fn touches(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// The keys that the group changes.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Completes once the group is visible, or has failed.
    async fn landing(&self) {
        let landing = self.landing.notified();
        if !self.landed.load(Ordering::SeqCst) {
            landing.await;
        }
    }
}

impl Shared {
    pub(super) fn new(
        clock: SharedClock,
        path: PathBuf,
        values: Arc<ValuesFile>,
        snapshot: Snapshot,
    ) -> Self {
        let visible = Visible { snapshot: Some(Arc::new(snapshot)), in_flight: None };
        Self {
            clock,
            queue: Queue::default(),
            path,
            values,
            visible: RwLock::new(visible),
            failure: OnceLock::new(),
        }
    }

    /// Announces a group and returns the instant that decides it.
    pub(super) fn announce(&self, batch: &[KeyedChange]) -> Timestamp {
        let keys = batch.iter().map(|keyed| keyed.key.clone()).collect();
        let mut visible = self.visible.write();
        // Under the lock: a reader that was before it has an earlier time.
        let decided = self.clock.now();
        let (landed, landing) = (AtomicBool::new(false), Notify::new());
        visible.in_flight = Some(Arc::new(Group { decided, keys, landed, landing }));
        decided
    }

    /// Takes the announcement back once the group is visible, or has failed.
    pub(super) fn land(&self) {
        let landed = self.visible.write().in_flight.take();
        if let Some(group) = landed {
            group.landed.store(true, Ordering::SeqCst);
            group.landing.notify_waiters();
        }
    }

    /// Shows readers the latest commit. Returns what they were shown before, which some may still
    /// read.
    pub(super) fn publish(&self, snapshot: Snapshot) -> Weak<Snapshot> {
        let old = self.visible.write().snapshot.replace(Arc::new(snapshot));
        // Freed outside of the lock.
        old.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// What readers are shown.
    pub(super) fn shown(&self) -> Weak<Snapshot> {
        self.visible.read().snapshot.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// Runs `work`, which returns the snapshot to go on with, while no reader can take one.
    pub(super) fn without_snapshot<T>(
        &self,
        work: impl FnOnce() -> Result<(T, Snapshot), BoxError>,
    ) -> Result<T, BoxError> {
        let mut visible = self.visible.write();
        visible.snapshot = None;
        let (result, snapshot) = work()?;
        visible.snapshot = Some(Arc::new(snapshot));
        Ok(result)
    }

    /// The size of the tree's file.
    pub(super) fn tree_size(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }

    /// The size of all files.
    pub(super) fn file_size(&self) -> std::io::Result<u64> {
        Ok(self.tree_size()? + self.values.len()?)
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

    /// Runs `read` on the latest snapshot, after the group in flight where that `concerns` it.
    pub(super) async fn read<T>(
        &self,
        concerns: impl Fn(&Group) -> bool,
        read: impl Fn(&View) -> Result<T, ReadError>,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        loop {
            let (view, in_flight) = self.view(now)?;
            if let Some(group) = in_flight.filter(|group| group.decided < now && concerns(group)) {
                drop(view);
                group.landing().await;
                continue;
            }
            match read(&view) {
                Err(ReadError::Engine(error)) if !self.is_replaced(&view).await => {
                    return Err(self.refused(ReadError::Engine(error)));
                }
                Err(ReadError::Engine(_)) => {}
                Err(ReadError::Record(error)) => return Err(error),
                Ok(found) => return Ok(found),
            }
        }
    }

    /// What the caller is told about a read that failed. An unreadable file fails the store.
    pub(super) fn refused(&self, error: ReadError) -> StoreError {
        match error {
            ReadError::Record(error) => error,
            ReadError::Engine(error) => {
                self.fail(&error.to_string());
                self.failure()
            }
        }
    }

    /// Whether another engine has taken the place of the one that `view` reads from. An engine
    /// that ran out of room reads no more either, and is replaced before its group lands.
    pub(super) async fn is_replaced(&self, view: &View) -> bool {
        let in_flight = self.visible.read().in_flight.clone();
        if let Some(group) = in_flight {
            group.landing().await;
        }
        let visible = self.visible.read();
        let current = visible.snapshot.as_ref().map(|snapshot| snapshot.generation);
        current.is_some_and(|current| current != view.snapshot.generation)
    }

    /// A view for longer than a moment: it does not depend on any group in flight.
    pub(super) async fn settled_view(&self) -> Result<View, StoreError> {
        let now = self.clock.now();
        if let (_, Some(group)) = self.view(now)? {
            group.landing().await;
        }
        Ok(self.view(now)?.0)
    }

    fn view(&self, now: Timestamp) -> Result<(View, Option<Arc<Group>>), StoreError> {
        self.check()?;
        let visible = self.visible.read();
        let snapshot = visible.snapshot.clone().ok_or_else(|| self.failure())?;
        Ok((View { now, snapshot }, visible.in_flight.clone()))
    }
}

/// The store at one instant.
#[derive(Debug)]
pub(super) struct View {
    pub(super) now: Timestamp,
    pub(super) snapshot: Arc<Snapshot>,
}

impl View {
    /// The record, unless it has expired.
    pub(super) fn live(&self, record: Record) -> Option<Record> {
        record.is_live(self.now).then_some(record)
    }
}
