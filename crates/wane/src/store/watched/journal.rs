//! What happened lately, and what is due to expire: the memory behind the watches.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::event::{Inbox, Notice, WatchLimits};
use super::regions::Seat;
use crate::store::{Key, Record, Row, Timestamp, Value};

/// Recent notices in order, and the expiring records of watched ranges.
#[derive(Debug)]
pub(super) struct Journal {
    limits: WatchLimits,
    newest: u64,
    /// The newest notice that is no longer kept.
    forgotten: u64,
    recent: VecDeque<(Key, Notice)>,
    recent_bytes: usize,
    tracked: BTreeMap<Key, Tracked>,
    due: BTreeSet<(Timestamp, Key)>,
    /// How many watches are reading their rows, and the keys written meanwhile: what a page says
    /// of them is out of date.
    loads: usize,
    touched: HashSet<Key>,
}

/// An expiring record.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) value: Value,
    pub(super) expires_at: Timestamp,
    /// Under which instant it is filed in `due`.
    filed: Timestamp,
}

impl Tracked {
    pub(super) fn is(&self, record: &Record) -> bool {
        record.expires_at == Some(self.expires_at) && record.value == self.value
    }
}

impl Journal {
    /// An empty journal whose ids follow `start`.
    pub(super) fn new(start: u64, limits: WatchLimits) -> Self {
        Self {
            limits,
            newest: start,
            forgotten: start,
            recent: VecDeque::new(),
            recent_bytes: 0,
            tracked: BTreeMap::new(),
            due: BTreeSet::new(),
            loads: 0,
            touched: HashSet::new(),
        }
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Gives the next notice its id, keeps it, and hands it to the inboxes.
    pub(super) fn post<'a>(
        &mut self,
        key: &Key,
        inboxes: impl Iterator<Item = &'a Inbox>,
        notice: impl FnOnce(u64) -> Notice,
    ) {
        self.newest += 1;
        let notice = notice(self.newest);
        inboxes.for_each(|inbox| inbox.push(notice.clone(), &self.limits));
        self.recent_bytes += notice.size();
        self.recent.push_back((key.clone(), notice));
        while self.recent.len() > self.limits.recent_events
            || self.recent_bytes > self.limits.recent_bytes
        {
            let Some((_, oldest)) = self.recent.pop_front() else { break };
            self.recent_bytes -= oldest.size();
            self.forgotten = oldest.id();
        }
    }

    /// Whether every notice after `id` is still here.
    pub(super) fn reaches_back_to(&self, id: u64) -> bool {
        (self.forgotten..=self.newest).contains(&id)
    }

    /// Hands the notices after `id` that concern the seat to its inbox.
    pub(super) fn replay(&self, seat: &Seat, id: u64) {
        for (key, notice) in self.recent.iter().filter(|(_, notice)| notice.id() > id) {
            let inside = key.partition() == seat.partition.as_bytes()
                && seat.range.contains(key.clustering());
            if inside {
                seat.inbox.push(notice.clone(), &self.limits);
            }
        }
    }

    pub(super) fn tracked(&self, key: &Key) -> Option<&Tracked> {
        self.tracked.get(key)
    }

    /// Follows the record that now stands at `key`: an expiring one, or none.
    pub(super) fn follow(&mut self, key: &Key, record: Option<(&Value, Timestamp)>) {
        if self.loads > 0 {
            self.touched.insert(key.clone());
        }
        if let Some(old) = self.tracked.remove(key) {
            self.due.remove(&(old.filed, key.clone()));
        }
        if let Some((value, expires_at)) = record {
            let tracked = Tracked { value: value.clone(), expires_at, filed: expires_at };
            self.tracked.insert(key.clone(), tracked);
            self.due.insert((expires_at, key.clone()));
        }
    }

    /// Looks at the key again at this instant.
    pub(super) fn look_again(&mut self, key: &Key, at: Timestamp) {
        if let Some(tracked) = self.tracked.get_mut(key) {
            self.due.remove(&(tracked.filed, key.clone()));
            tracked.filed = at;
        }
        self.due.insert((at, key.clone()));
    }

    /// Whether the key is to be looked at now: it may have been renewed since it was taken.
    pub(super) fn is_due(&self, key: &Key, now: Timestamp) -> bool {
        self.tracked.get(key).is_none_or(|tracked| tracked.filed <= now)
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes up to `limit` keys that are due.
    pub(super) fn take_due(&mut self, now: Timestamp, limit: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        while keys.len() < limit && self.next_due().is_some_and(|at| at <= now) {
            keys.extend(self.due.pop_first().map(|(_, key)| key));
        }
        keys
    }

    pub(super) fn begin_load(&mut self) {
        self.loads += 1;
    }

    pub(super) fn end_load(&mut self) {
        self.loads -= 1;
        if self.loads == 0 {
            self.touched = HashSet::new();
        }
    }

    /// Follows the rows of a page that are not followed by a newer account.
    pub(super) fn adopt(&mut self, rows: &[Row]) {
        for Row { key, record } in rows {
            let Some(expires_at) = record.expires_at else { continue };
            if !self.touched.contains(key) && !self.tracked.contains_key(key) {
                let filed = expires_at;
                let value = record.value.clone();
                self.tracked.insert(key.clone(), Tracked { value, expires_at, filed });
                self.due.insert((filed, key.clone()));
            }
        }
    }

    /// Forgets the partition's records for which `keep` is false.
    pub(super) fn forget(&mut self, partition: &[u8], keep: impl Fn(&Key) -> bool) {
        let Ok(first) = Key::new(partition, b"") else { return };
        let rows = self.tracked.range(first..);
        let rows = rows.map(|(key, _)| key).take_while(|key| key.partition() == partition);
        let ended: Vec<_> = rows.filter(|key| !keep(key)).cloned().collect();
        for key in ended {
            if let Some(tracked) = self.tracked.remove(&key) {
                self.due.remove(&(tracked.filed, key));
            }
        }
    }

    /// Forgets every record.
    pub(super) fn clear(&mut self) {
        self.tracked.clear();
        self.due.clear();
    }

    /// How many records are followed.
    pub(super) fn followed(&self) -> usize {
        self.tracked.len()
    }
}
