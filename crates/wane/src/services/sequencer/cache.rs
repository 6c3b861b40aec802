//! The last numbers of counters in memory, bounded by how many they are.
//!
//! Only numbers of finished transactions are kept here, and each of them is pending or stored as
//! well: losing an entry costs a look there and nothing else. What was not used for long goes first.

use std::fmt;

use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

use super::records::Counter;

pub(super) struct NumberCache {
    numbers: Cache<Counter, u64, UnitWeighter, foldhash::quality::FixedState>,
}

impl fmt::Debug for NumberCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NumberCache").field("len", &self.numbers.len()).finish_non_exhaustive()
    }
}

impl NumberCache {
    pub(super) fn new(size: usize, seed: u64) -> Self {
        let hasher = foldhash::quality::FixedState::with_seed(seed);
        let lifecycle = DefaultLifecycle::default();
        Self { numbers: Cache::with(size, size as u64, UnitWeighter, hasher, lifecycle) }
    }

    pub(super) fn last(&self, counter: Counter) -> Option<u64> {
        self.numbers.get(&counter).copied()
    }

    pub(super) fn remember(&mut self, counter: Counter, last: u64) {
        self.numbers.insert(counter, last);
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
    }
}
