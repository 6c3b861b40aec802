//! The board: where writes post their events, watches read them, and expiries come due.
//!
//! Invariant: whoever posts about a key holds the key's stripe. Locks are taken in one order:
//! stripe, regions, journal, inbox.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::event::{Event, EventKind, Notice, WatchLimits};
use super::journal::Journal;
use super::regions::{Regions, Seat};
use super::stripes::Stripes;
use crate::clock::SharedClock;
use crate::store::{ClusteringRange, Key, Partition, Record, Row, Timestamp, Value};

/// How long a record that should have expired may linger by another clock before the next look.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long to wait after a failed look.
const LOOK_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Earlier than any record: what was found may have been written while its predecessor lived.
const LONG_AGO: Timestamp = Timestamp::from_unix_millis(0);

/// Everything about watching that does not depend on the store watched.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) clock: SharedClock,
    pub(super) stripes: Stripes,
    pub(super) regions: Regions,
    limits: WatchLimits,
    journal: Mutex<Journal>,
    /// Keys of watched writes whose answer nobody heard, until they were looked at.
    doubtful: Mutex<HashSet<Key>>,
    /// The key of the last write that nobody watched and whose answer nobody heard.
    stray: Mutex<Option<Key>>,
    /// Tells the task that something is due earlier than it knew.
    changed: Notify,
}

/// A change as the store applied it.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) kind: EventKind,
    pub(super) value: Value,
    pub(super) expires_at: Option<Timestamp>,
    /// No later than when it was applied.
    pub(super) began: Timestamp,
}

impl Board {
    pub(super) fn new(clock: SharedClock, limits: WatchLimits) -> Self {
        // A process posts fewer than one event a microsecond, so the ids of a later start follow
        // those of an earlier one, and they stay exact in a double.
        let start = clock.now().as_unix_millis() * 1_000;
        Self {
            clock,
            stripes: Stripes::new(),
            regions: Regions::default(),
            limits,
            journal: Mutex::new(Journal::new(start, limits)),
            doubtful: Mutex::default(),
            stray: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Enters a watch, resuming after `from` where that is given. Returns its seat, and whether
    /// the rows of its range must still be read: then [`end_load`](Self::end_load) must follow.
    pub(super) fn enter(
        &self,
        partition: &Partition,
        range: ClusteringRange,
        from: Option<u64>,
    ) -> (Seat, bool) {
        let mut regions = self.regions.write();
        let mut journal = self.journal.lock();
        let seat = Seat { partition: partition.clone(), range, inbox: Default::default() };
        let since = regions.complete_since(partition, &seat.range);
        if let Some(from) = from {
            if since.is_some_and(|since| since <= from) && journal.reaches_back_to(from) {
                journal.replay(&seat, from);
            } else {
                seat.inbox.push(Notice::Gap { newest: journal.newest() }, &self.limits);
            }
        }
        regions.enter(&seat, since);
        if since.is_none() {
            journal.begin_load();
        }
        (seat, since.is_none())
    }

    /// Follows the rows of a page read for a new watch.
    pub(super) fn adopt(&self, seat: &Seat, rows: &[Row]) {
        let regions = self.regions.read();
        if regions.hold(seat) {
            self.update(|journal| journal.adopt(rows));
        }
    }

    /// All rows of the range were adopted: from here on nothing is missed.
    pub(super) fn loaded(&self, seat: &Seat) {
        let mut regions = self.regions.write();
        let newest = self.journal.lock().newest();
        regions.loaded(seat, newest);
    }

    pub(super) fn end_load(&self) {
        self.journal.lock().end_load();
    }

    pub(super) fn leave(&self, seat: &Seat) {
        let linger = u64::try_from(self.limits.linger.as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.now().as_unix_millis();
        let until = Timestamp::from_unix_millis(now.saturating_add(linger));
        self.regions.write().leave(seat, until);
        self.changed.notify_one();
    }

    /// Frees the keys of ranges that nobody came back to.
    pub(super) fn remove_ended(&self, now: Timestamp) {
        if self.regions.read().next_end().is_none_or(|end| now < end) {
            return;
        }
        let mut regions = self.regions.write();
        let partitions = regions.remove_ended(now);
        let mut journal = self.journal.lock();
        for partition in partitions {
            journal.forget(&partition, |key| regions.contain(key));
        }
    }

    /// Ends every watch and forgets every key.
    pub(super) fn close(&self) {
        let mut regions = self.regions.write();
        regions.close_all();
        self.journal.lock().clear();
        self.doubtful.lock().clear();
    }

    /// Posts a change that the store applied. A write before it that was in doubt is decided with it, and
    /// nobody will look at the key for its sake any more.
    pub(super) fn post(&self, key: &Key, change: Change) {
        if self.doubtful.lock().remove(key) {
            self.post_gap(key);
        }
        let regions = self.regions.read();
        let watched = regions.of(key).next().is_some();
        let inboxes = || regions.of(key).filter_map(|region| region.inbox());
        self.update(|journal| {
            let expired = outlived(journal, key, &change);
            journal.follow(key, change.stays().filter(|_| watched));
            if watched {
                for change in expired.into_iter().chain([change]) {
                    journal.post(key, inboxes(), |id| event(id, key, change));
                }
            }
        });
    }

    /// Posts a gap for a write whose outcome nobody knows, and has the key looked at again.
    pub(super) fn doubt(&self, key: &Key) {
        self.doubtful.lock().insert(key.clone());
        self.post_gap(key);
        self.look_again(key, self.clock.now());
    }

    fn post_gap(&self, key: &Key) {
        let regions = self.regions.read();
        let inboxes = regions.of(key).filter_map(|region| region.inbox());
        self.update(|journal| journal.post(key, inboxes, |newest| Notice::Gap { newest }));
    }

    /// Whether a write to the key may still be on its way.
    pub(super) fn is_doubtful(&self, key: &Key) -> bool {
        self.doubtful.lock().contains(key)
    }

    /// Notes a write that nobody watched and whose answer nobody heard. The last one stands for all
    /// before it: they are decided before it.
    pub(super) fn astray(&self, key: &Key) {
        *self.stray.lock() = Some(key.clone());
    }

    /// The key of that write.
    pub(super) fn stray(&self) -> Option<Key> {
        self.stray.lock().clone()
    }

    /// Whether this very record is the one that is followed.
    pub(super) fn knows(&self, key: &Key, record: &Record) -> bool {
        self.journal.lock().tracked(key).is_some_and(|tracked| tracked.is(record))
    }

    /// The expiry of the followed record, if it has this value and should still live.
    pub(super) fn lived(&self, key: &Key, value: &[u8]) -> Option<Timestamp> {
        let journal = self.journal.lock();
        let tracked = journal.tracked(key).filter(|tracked| *tracked.value == *value)?;
        (self.clock.now() < tracked.expires_at).then_some(tracked.expires_at)
    }

    pub(super) fn take_due(&self, now: Timestamp, limit: usize) -> Vec<Key> {
        self.journal.lock().take_due(now, limit)
    }

    pub(super) fn is_due(&self, key: &Key) -> bool {
        self.journal.lock().is_due(key, self.clock.now())
    }

    /// When there is something to do next.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let end = self.regions.read().next_end();
        let due = self.journal.lock().next_due();
        end.into_iter().chain(due).min()
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Brings the account of a key up to date with what the store says, and posts what differs.
    pub(super) fn correct(&self, key: &Key, seen: Option<Record>) {
        let now = self.clock.now();
        let tracked = self.journal.lock().tracked(key).cloned();
        if self.doubtful.lock().remove(key) && tracked.is_none() {
            // Whoever looked at the first gap may have been too early.
            self.post_gap(key);
        }
        match (tracked, seen) {
            (None, None) => {}
            // A look after a gap: what stands here is part of what the gap hides.
            (None, Some(record)) => self.follow(key, &record),
            (Some(tracked), Some(record)) if tracked.is(&record) => {
                let at = tracked.expires_at.max(later(now, LOOK_AGAIN));
                self.look_again(key, at);
            }
            (Some(_), Some(Record { value, expires_at, .. })) => {
                let began = LONG_AGO;
                self.post(key, Change { kind: EventKind::Put, value, expires_at, began });
            }
            (Some(tracked), None) => {
                let due = tracked.expires_at <= now;
                let kind = if due { EventKind::Expired } else { EventKind::Deleted };
                let expires_at = Some(tracked.expires_at);
                let change = Change { kind, value: tracked.value, expires_at, began: now };
                self.post(key, change);
            }
        }
    }

    /// The store could not be asked about a key.
    pub(super) fn look_after_failure(&self, key: &Key) {
        self.look_again(key, later(self.clock.now(), LOOK_AFTER_FAILURE));
    }

    /// How many expiring records are followed.
    pub(super) fn followed(&self) -> usize {
        self.journal.lock().followed()
    }

    fn look_again(&self, key: &Key, at: Timestamp) {
        self.update(|journal| journal.look_again(key, at));
    }

    fn follow(&self, key: &Key, record: &Record) {
        let regions = self.regions.read();
        if regions.of(key).next().is_some() {
            let expiring = record.expires_at.map(|expires_at| (&record.value, expires_at));
            self.update(|journal| journal.follow(key, expiring));
        }
    }

    /// Changes the journal, and tells the task if something is due earlier than before.
    fn update(&self, change: impl FnOnce(&mut Journal)) {
        let mut journal = self.journal.lock();
        let before = journal.next_due();
        change(&mut journal);
        let after = journal.next_due();
        drop(journal);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.changed.notify_one();
        }
    }
}

impl Change {
    /// The expiring record that the change leaves.
    fn stays(&self) -> Option<(&Value, Timestamp)> {
        match self.kind {
            EventKind::Inserted | EventKind::Swapped | EventKind::Put => {
                self.expires_at.map(|expires_at| (&self.value, expires_at))
            }
            EventKind::Deleted | EventKind::Expired => None,
        }
    }
}

/// The record that had expired before the change was applied and was not reported yet.
fn outlived(journal: &Journal, key: &Key, change: &Change) -> Option<Change> {
    let tracked = journal.tracked(key)?;
    let gone = match change.kind {
        // An insert is applied only where nothing lives any more.
        EventKind::Inserted => true,
        EventKind::Put => tracked.expires_at <= change.began,
        EventKind::Swapped | EventKind::Deleted | EventKind::Expired => false,
    };
    let expires_at = Some(tracked.expires_at);
    gone.then(|| Change {
        kind: EventKind::Expired,
        value: tracked.value.clone(),
        expires_at,
        ..*change
    })
}

fn event(id: u64, key: &Key, change: Change) -> Notice {
    let Change { kind, value, expires_at, .. } = change;
    Notice::Event(Event { id, kind, key: key.clone(), value, expires_at })
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_unix_millis(now.as_unix_millis() + by.as_millis() as u64)
}
