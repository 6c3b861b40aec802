//! Who may write when: a lock per group of keys for watched writes, a count for the others.
//!
//! A watched write holds the lock of its key's stripe from before it is applied until its event
//! is posted, so that events of a key come in the order of its writes. A write that nobody
//! watches only passes: it is counted while it is under way. A new watch waits for those that
//! passed before it was entered, and so misses no write that did not know of it.
//!
//! Passers are counted by era. [`Stripes::drain`] begins a new era and waits until nobody of the
//! old one is left; passers that come meanwhile count for the new era and delay nobody.

use std::hash::BuildHasher;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::store::Key;

/// How many groups keys fall into.
const STRIPES: usize = 512;

/// Locks and counts by key.
#[derive(Debug)]
pub(super) struct Stripes {
    hasher: foldhash::fast::RandomState,
    stripes: Box<[Stripe]>,
    era: AtomicUsize,
    drain: Mutex<()>,
    passed: Notify,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    lock: Mutex<()>,
    /// Passers of even and of odd eras.
    passing: [AtomicUsize; 2],
}

/// A write that nobody watches, under way.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    stripes: &'a Stripes,
    stripe: &'a Stripe,
    era: usize,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.stripe.passing[self.era % 2].fetch_sub(1, Ordering::SeqCst);
        if self.stripes.era.load(Ordering::SeqCst) != self.era {
            self.stripes.passed.notify_waiters();
        }
    }
}

impl Stripes {
    pub(super) fn new() -> Self {
        Self {
            hasher: foldhash::fast::RandomState::default(),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            era: AtomicUsize::new(0),
            drain: Mutex::default(),
            passed: Notify::new(),
        }
    }

    fn index(&self, key: &Key) -> usize {
        self.hasher.hash_one(key) as usize % STRIPES
    }

    /// Waits for the turn of a watched write.
    pub(super) async fn lock(&self, key: &Key) -> MutexGuard<'_, ()> {
        self.stripes[self.index(key)].lock.lock().await
    }

    /// Waits for the turn of writes to all of these keys.
    pub(super) async fn lock_all(
        &self,
        keys: impl Iterator<Item = &Key>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let mut indices: Vec<_> = keys.map(|key| self.index(key)).collect();
        // In one order for everyone, so that no two batches wait for each other.
        indices.sort_unstable();
        indices.dedup();
        let mut turns = Vec::with_capacity(indices.len());
        for index in indices {
            turns.push(self.stripes[index].lock.lock().await);
        }
        turns
    }

    /// Counts a write as under way. Whether it is watched must be asked after this, not before.
    pub(super) fn pass(&self, key: &Key) -> Passage<'_> {
        let stripe = &self.stripes[self.index(key)];
        loop {
            let era = self.era.load(Ordering::SeqCst);
            stripe.passing[era % 2].fetch_add(1, Ordering::SeqCst);
            let passage = Passage { stripes: self, stripe, era };
            // A new era may have begun in between, and its drain may not have seen this count.
            if self.era.load(Ordering::SeqCst) == era {
                return passage;
            }
        }
    }

    /// Returns once every write that began to pass before this call has ended.
    pub(super) async fn drain(&self) {
        let _turn = self.drain.lock().await;
        let era = self.era.load(Ordering::SeqCst);
        // A drain that was cancelled may have left passers of the era before.
        self.all_passed(era + 1).await;
        self.era.store(era + 1, Ordering::SeqCst);
        self.all_passed(era).await;
    }

    async fn all_passed(&self, era: usize) {
        loop {
            let mut passed = pin!(self.passed.notified());
            passed.as_mut().enable();
            let none = |stripe: &Stripe| stripe.passing[era % 2].load(Ordering::SeqCst) == 0;
            if self.stripes.iter().all(none) {
                return;
            }
            passed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn key(number: u32) -> Key {
        Key::new(b"p", &number.to_be_bytes()).unwrap()
    }

    #[test]
    fn a_drain_waits_for_those_before_it_and_not_for_those_after() {
        let stripes = Stripes::new();
        let before = stripes.pass(&key(1));
        let mut drain = pin!(stripes.drain());
        assert!(poll(drain.as_mut()).is_pending());
        let after = stripes.pass(&key(2));
        assert!(poll(drain.as_mut()).is_pending());
        drop(before);
        assert!(poll(drain.as_mut()).is_ready());
        drop(after);
    }

    #[test]
    fn a_drain_also_waits_for_those_that_a_cancelled_drain_left() {
        let stripes = Stripes::new();
        let before = stripes.pass(&key(1));
        {
            let mut cancelled = pin!(stripes.drain());
            assert!(poll(cancelled.as_mut()).is_pending());
        }
        let mut drain = pin!(stripes.drain());
        assert!(poll(drain.as_mut()).is_pending());
        drop(before);
        assert!(poll(drain.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn a_batch_locks_a_stripe_once_however_often_it_comes() {
        let stripes = Stripes::new();
        let keys: Vec<_> = (0..2_000).map(key).collect();
        let turns = stripes.lock_all(keys.iter().chain(&keys)).await;
        assert!(turns.len() <= STRIPES);
        let mut other = pin!(stripes.lock(&keys[7]));
        assert!(poll(other.as_mut()).is_pending());
        drop(turns);
        // Awaited, not polled: a task that took this many locks may have to yield first.
        drop(other.await);
    }
}
