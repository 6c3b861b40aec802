//! Turns: whether what a call has seen may still be told to others.
//!
//! Keys are divided over stripes. A stripe counts the writes under way and has an epoch, which every
//! begin and end of a write and every end of a read move on. What a call saw may be kept only if no
//! write was under way when it began and the epoch is still the one it began in: then nothing of its
//! stripe was learned or written meanwhile that could be newer.
//!
//! Whoever checks holds the stripe while it adds to the entries, and whoever begins a write while it
//! drops from them: between the check and the adding no write can begin.
//!
//! A call on another key of the stripe costs at most a chance to remember something.

use std::hash::BuildHasher;

use parking_lot::{Mutex, MutexGuard};

use crate::store::Key;

/// Enough for calls under way to seldom meet by chance; 24 KiB.
const STRIPES: usize = 1_024;

/// The state of a stripe.
#[derive(Debug, Default)]
pub(super) struct Turn {
    epoch: u64,
    writes: u32,
}

/// The moment at which a call began, if it may have something to tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began(Option<u64>);

impl Turn {
    pub(super) fn begin_read(&self) -> Began {
        Began((self.writes == 0).then_some(self.epoch))
    }

    /// Ends a read, and says whether what it saw may be kept.
    pub(super) fn end_read(&mut self, began: Began) -> bool {
        let undisturbed = began.0 == Some(self.epoch);
        self.epoch += 1;
        undisturbed
    }

    pub(super) fn begin_write(&mut self) -> Began {
        self.epoch += 1;
        let began = self.begin_read();
        self.writes += 1;
        began
    }

    /// Ends a write, and says whether what it left may be kept.
    pub(super) fn end_write(&mut self, began: Began) -> bool {
        self.writes -= 1;
        self.end_read(began)
    }
}

/// The stripes of all keys.
#[derive(Debug)]
pub(super) struct Turns {
    stripes: Box<[Mutex<Turn>]>,
    hasher: foldhash::fast::FixedState,
}

impl Turns {
    pub(super) fn new(seed: u64) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self { stripes, hasher: foldhash::fast::FixedState::with_seed(seed) }
    }

    /// The stripe of a key, held still.
    pub(super) fn of(&self, key: &Key) -> MutexGuard<'_, Turn> {
        self.stripes[self.hasher.hash_one(key) as usize % STRIPES].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_alone_may_tell() {
        let mut turn = Turn::default();
        let read = turn.begin_read();
        assert!(turn.end_read(read));
        let write = turn.begin_write();
        assert!(turn.end_write(write));
        let read = turn.begin_read();
        assert!(turn.end_read(read));
    }

    #[test]
    fn a_read_beside_a_write_may_not_tell_whichever_ends_first() {
        let mut turn = Turn::default();
        let (read, write) = (turn.begin_read(), turn.begin_write());
        assert!(!turn.end_read(read));
        assert!(!turn.end_write(write), "the read may have seen what came after the write");
        let (write, read) = (turn.begin_write(), turn.begin_read());
        assert!(turn.end_write(write));
        assert!(!turn.end_read(read), "it may have been read before the write");
    }

    #[test]
    fn of_two_writes_at_once_neither_may_tell() {
        for first_ends_first in [true, false] {
            let mut turn = Turn::default();
            let (one, other) = (turn.begin_write(), turn.begin_write());
            let (first, second) = if first_ends_first { (one, other) } else { (other, one) };
            assert!(!turn.end_write(first));
            assert!(!turn.end_write(second));
        }
    }

    #[test]
    fn of_two_reads_at_once_one_may_tell() {
        let mut turn = Turn::default();
        let (one, other) = (turn.begin_read(), turn.begin_read());
        assert!(turn.end_read(other));
        assert!(!turn.end_read(one));
    }
}
