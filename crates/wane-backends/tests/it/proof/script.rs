//! One caller that does what it is told, on a clock that stands still unless it is moved.
//!
//! What it was told is noted as the ledger of other callers is, in memory.

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{Clock, ManualClock};
use wane::store::{Fence, Life, Outcome, Store, StoreError, Write};
use wane_backends::file::FileStore;

use super::ledger::{Answer, Line, Operation, Verb, store_key, value};

/// A key and the number of the value that it comes to hold.
pub(crate) type Numbered = (String, u64);

/// Numbers stand for values of 9 KB, of 90 KB, which lie beside the tree, and of a few bytes.
pub(crate) const fn medium(number: u64) -> u64 {
    61 * number
}

pub(crate) const fn large(number: u64) -> u64 {
    61 * number + 60
}

pub(crate) const fn small(number: u64) -> u64 {
    61 * number + 5
}

/// Keys of one kind with the same number each.
pub(crate) fn all(kind: &str, keys: std::ops::Range<u64>, number: u64) -> Vec<Numbered> {
    keys.map(|key| (format!("{kind}/{key}"), number)).collect()
}

/// What the caller did, and what it was told.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    clock: Arc<ManualClock>,
    lines: Vec<Line>,
}

impl Caller {
    /// One that has done nothing yet.
    pub(crate) fn new(clock: &Arc<ManualClock>) -> Self {
        Self { clock: Arc::clone(clock), lines: Vec::new() }
    }

    /// The same caller, on another clock that goes on where this one stands.
    pub(crate) fn again(&self) -> Self {
        let clock = ManualClock::starting_at(self.clock.now(), 1);
        Self { clock, lines: self.lines.clone() }
    }

    pub(crate) fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Puts all rows at once.
    pub(crate) async fn put(
        &mut self,
        store: &FileStore,
        rows: &[Numbered],
        life: Life,
    ) -> Result<(), StoreError> {
        for (key, number) in rows {
            let (verb, number) = (Verb::Put, *number);
            self.begin(key, Operation { verb, expected: 0, number, life, fence: 0 });
        }
        let write = |(key, number): &Numbered| Write::new(value(key, *number), life);
        let writes = rows.iter().map(|row| (store_key(&row.0), write(row))).collect();
        let outcomes = store.put_batch(writes).await;
        for (at, (key, _)) in rows.iter().enumerate() {
            let outcome = outcomes.as_ref().map(|outcomes| outcomes[at].clone());
            self.end(key, &outcome);
        }
        outcomes.map(drop)
    }

    /// Deletes rows, one after the other.
    pub(crate) async fn delete(
        &mut self,
        store: &FileStore,
        rows: &[Numbered],
    ) -> Result<(), StoreError> {
        for (key, expected) in rows {
            let (verb, life) = (Verb::Delete, Life::Permanent);
            let expected = *expected;
            self.begin(key, Operation { verb, expected, number: 0, life, fence: 0 });
            let (at, expected) = (store_key(key), value(key, expected));
            let outcome = store.compare_and_delete(&at, &expected, Fence::NONE).await;
            self.end(key, &outcome.as_ref().map(Clone::clone));
            drop(outcome?);
        }
        Ok(())
    }

    fn begin(&mut self, key: &str, operation: Operation) {
        let at = self.clock.now().as_unix_millis();
        self.lines.push(Line::Began { caller: 0, key: key.to_owned(), at, operation });
    }

    fn end(&mut self, key: &str, outcome: &Result<Outcome, &StoreError>) {
        let at = self.clock.now().as_unix_millis();
        let answer = Answer::of_write(key, outcome);
        self.lines.push(Line::Ended { caller: 0, key: key.to_owned(), at, answer });
    }
}
