//! The cache: which entries may be served, and what calls leave in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entries::{Entries, Entry};
use super::turns::{Began, Turns};
use super::{CacheSettings, CacheStats};
use crate::clock::SharedClock;
use crate::store::{Key, Record, Remaining};

/// What a call has told of a key.
#[derive(Debug)]
pub(super) enum Seen {
    /// This record, or that there is none.
    Record(Option<Record>),
    /// Too little to know the record.
    Unsaid,
}

/// What handles share.
#[derive(Debug)]
pub(super) struct Cache {
    entries: Entries,
    turns: Turns,
    /// In nanoseconds.
    max_stale: u64,
    clock: SharedClock,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A read under way. Dropped, it leaves nothing: nobody was told what it saw.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(super) struct Reading {
    began: Began,
    as_of: u64,
}

impl Cache {
    pub(super) fn new(settings: CacheSettings, clock: SharedClock) -> Self {
        Self {
            // Seeded, so that nobody outside can choose keys that collide.
            entries: Entries::new(settings.max_bytes, clock.random_u64()),
            turns: Turns::new(clock.random_u64()),
            max_stale: u64::try_from(settings.max_stale.as_nanos()).unwrap_or(u64::MAX),
            clock,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// What may be answered about a key.
    pub(super) fn find(&self, key: &Key) -> Option<Arc<Entry>> {
        let found = self.entries.get(key).filter(|entry| {
            let expiry = entry.record.as_ref().and_then(|record| record.expires_at);
            self.is_fresh(entry) && expiry.is_none_or(|expiry| self.clock.now() < expiry)
        });
        self.count(found.is_some());
        found
    }

    /// What may be answered about the life of a key's record.
    pub(super) fn find_remaining(&self, key: &Key) -> Option<Remaining> {
        let entry = self.entries.get(key).filter(|entry| self.is_fresh(entry));
        let found = entry.and_then(|entry| match &entry.record {
            None => Some(Remaining::Absent),
            Some(record) => match record.remaining(self.clock.now()) {
                // Expired by this clock: only the store can say.
                Remaining::Absent => None,
                remaining @ (Remaining::Permanent | Remaining::For(_)) => Some(remaining),
            },
        });
        self.count(found.is_some());
        found
    }

    fn is_fresh(&self, entry: &Entry) -> bool {
        self.monotonic().saturating_sub(entry.as_of) < self.max_stale
    }

    fn count(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a read that asks the store. Must come before the request is sent.
    pub(super) fn begin_read(&self, key: &Key) -> Reading {
        let as_of = self.monotonic();
        Reading { began: self.turns.of(key).begin_read(), as_of }
    }

    /// Ends a read that was answered.
    pub(super) fn end_read(&self, key: &Key, reading: Reading, seen: &Seen) {
        let entry = self.entry(key, seen, reading.as_of);
        let mut turn = self.turns.of(key);
        if turn.end_read(reading.began) {
            self.learn(key, entry);
            return;
        }
        // Somebody learned something meanwhile. What is newer cannot be told: keep what agrees.
        match seen {
            Seen::Record(record) => self.entries.forget_unless(key, record.as_ref()),
            Seen::Unsaid => self.entries.forget(key),
        }
    }

    /// Begins a write, and forgets what is known of its key. Must come before it is sent.
    pub(super) fn begin_write<'a>(&'a self, key: &'a Key) -> Writing<'a> {
        let as_of = self.monotonic();
        let mut turn = self.turns.of(key);
        let began = turn.begin_write();
        self.entries.forget(key);
        Writing { cache: self, key, began, as_of, left: None }
    }

    /// The entry for what a call has seen, if there is room for it.
    fn entry(&self, key: &Key, seen: &Seen, as_of: u64) -> Option<Entry> {
        let Seen::Record(record) = seen else { return None };
        let has_room = self.entries.have_room_for(key, record.as_ref());
        has_room.then(|| Entry::new(key, record.as_ref(), as_of))
    }

    /// Replaces what is known of a key, if only by nothing. The caller holds the key's turn.
    fn learn(&self, key: &Key, entry: Option<Entry>) {
        match entry {
            Some(entry) => self.entries.keep(entry),
            None => self.entries.forget(key),
        }
    }

    fn monotonic(&self) -> u64 {
        // 584 years of nanoseconds fit.
        self.clock.monotonic().as_nanos() as u64
    }

    pub(super) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            entries: self.entries.len() as u64,
            bytes: self.entries.bytes(),
        }
    }
}

/// A write under way. Dropped without an end, its outcome is unknown.
#[derive(Debug)]
#[must_use]
pub(super) struct Writing<'a> {
    cache: &'a Cache,
    key: &'a Key,
    began: Began,
    as_of: u64,
    left: Option<Entry>,
}

impl Writing<'_> {
    /// Ends a write that was answered.
    pub(super) fn end(mut self, seen: &Seen) {
        self.left = self.cache.entry(self.key, seen, self.as_of);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut turn = self.cache.turns.of(self.key);
        let undisturbed = turn.end_write(self.began);
        self.cache.learn(self.key, self.left.take().filter(|_| undisturbed));
    }
}
