//! What is remembered of many for a while, in bounded memory.
//!
//! Each entry says when it is over. Those that are over are dropped whenever there are twice as
//! many entries as were left the last time, so that each insert costs little and memory falls
//! back by itself. Beyond [`MOST`] everything is forgotten: what is kept here only makes things
//! slower for those who ask too often, and other limits still hold.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Entries that are kept at a time.
const MOST: usize = 100_000;

/// Entries that are not worth looking through.
const FEW: usize = 1_024;

/// Entries that are over at some time of the monotonic clock.
#[derive(Debug)]
pub(super) struct Fading<K, V> {
    entries: HashMap<K, (V, Duration)>,
    look_through_at: usize,
}

impl<K, V> Default for Fading<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), look_through_at: FEW }
    }
}

impl<K: Eq + Hash, V> Fading<K, V> {
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    pub(super) fn insert(&mut self, key: K, value: V, over_at: Duration, now: Duration) {
        if self.entries.len() >= self.look_through_at {
            self.entries.retain(|_, (_, over_at)| *over_at > now);
            if self.entries.len() >= MOST {
                self.entries.clear();
            }
            self.entries.shrink_to(self.entries.len() * 2);
            self.look_through_at = (self.entries.len() * 2).clamp(FEW, MOST);
        }
        self.entries.insert(key, (value, over_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_over_is_forgotten_and_what_is_not_stays() {
        let mut fading = Fading::default();
        fading.insert(0, "kept", Duration::MAX, Duration::ZERO);
        for (key, at) in (1..50_000).zip(1_u32..) {
            fading.insert(key, "over soon", SECOND * (at + 10), SECOND * at);
        }
        assert!(fading.entries.len() <= FEW + 1, "{}", fading.entries.len());
        assert_eq!(fading.get_mut(&0), Some(&mut "kept"));
        assert_eq!(fading.get_mut(&1), None);
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let mut fading = Fading::default();
        for key in 0..MOST * 2 + 10 {
            fading.insert(key, (), Duration::MAX, Duration::ZERO);
            assert!(fading.entries.len() <= MOST);
        }
    }
}
