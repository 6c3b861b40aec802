//! Reading beside the writer: one snapshot for each commit, shared by all readers.
//!
//! A group happens at the instant that decides it, and is visible later. So the writer announces
//! the instant and the keys, and whoever reads one of them at a later time waits for the group.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::wane::clock::SharedClock;
use ::wane::store::{Record, StoreError, Timestamp};
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::engine::{ReadError, Snapshot};
use super::queue::{KeyedChange, Queue};

/// What handles and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: SharedClock,
    pub(super) queue: Queue,
    visible: RwLock<Visible>,
}

#[derive(Debug)]
struct Visible {
    snapshot: Arc<Snapshot>,
    in_flight: Option<Arc<Flight>>,
}

/// A group on its way to the disk.
#[derive(Debug)]
pub(super) struct Flight {
    decided: Timestamp,
    keys: HashSet<Vec<u8>>,
    landed: AtomicBool,
    landing: Notify,
}

impl Flight {
    /// Whether the group changes this key.
    pub(super) fn touches(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// The keys that the group changes.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    async fn landing(&self) {
        let landing = self.landing.notified();
        if !self.landed.load(Ordering::SeqCst) {
            landing.await;
        }
    }
}

impl Shared {
    pub(super) fn new(clock: SharedClock, snapshot: Snapshot) -> Self {
        let visible = Visible { snapshot: Arc::new(snapshot), in_flight: None };
        Self { clock, queue: Queue::default(), visible: RwLock::new(visible) }
    }

    /// Announces a group and returns the instant that decides it.
    pub(super) fn announce(&self, group: &[KeyedChange]) -> Timestamp {
        let keys = group.iter().map(|keyed| keyed.key.clone()).collect();
        let mut visible = self.visible.write();
        // Under the lock: a reader that was before it has an earlier time.
        let decided = self.clock.now();
        let (landed, landing) = (AtomicBool::new(false), Notify::new());
        visible.in_flight = Some(Arc::new(Flight { decided, keys, landed, landing }));
        decided
    }

    /// Shows readers the latest commit.
    pub(super) fn publish(&self, snapshot: Snapshot) {
        let old = std::mem::replace(&mut self.visible.write().snapshot, Arc::new(snapshot));
        // Freed outside of the lock.
        drop(old);
    }

    /// Takes the announcement back once the group is visible, or has failed.
    pub(super) fn land(&self) {
        let landed = self.visible.write().in_flight.take();
        if let Some(group) = landed {
            group.landed.store(true, Ordering::SeqCst);
            group.landing.notify_waiters();
        }
    }

    /// Runs `read` on the latest snapshot, after the group in flight where that `concerns` it.
    pub(super) async fn read<T>(
        &self,
        concerns: impl Fn(&Flight) -> bool,
        read: impl Fn(&View) -> Result<T, ReadError>,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        loop {
            let (view, in_flight) = self.view(now);
            if let Some(group) = in_flight.filter(|group| group.decided < now && concerns(group)) {
                drop(view);
                group.landing().await;
                continue;
            }
            return Ok(read(&view)?);
        }
    }

    fn view(&self, now: Timestamp) -> (View, Option<Arc<Flight>>) {
        let visible = self.visible.read();
        let snapshot = Arc::clone(&visible.snapshot);
        (View { now, snapshot }, visible.in_flight.clone())
    }
}

/// The store at one instant.
#[derive(Debug)]
pub(super) struct View {
    now: Timestamp,
    pub(super) snapshot: Arc<Snapshot>,
}

impl View {
    /// The record, unless it has expired.
    pub(super) fn live(&self, record: Record) -> Option<Record> {
        record.is_live(self.now).then_some(record)
    }
}
