//! The timing wheel: which slots to look at when, in steps of an eighth of a second.
//!
//! Five levels of 64 buckets: the lowest holds the next 64 ticks one by one, each further level
//! 64 times as much per bucket. When a bucket of an upper level comes up, what is in it is filed
//! again below. Filing is lazy: a slot is listed once, under the expiry of its first record, and a
//! renewal leaves that listing alone. Only when it comes up is the slot asked when to look again.
//!
//! Invariant: a slot that holds a record with an expiry is listed under `filed`, and `filed` is
//! no later than that expiry. Listings that no longer say what their slot's `filed` says are
//! leftovers, dropped when they come up.

use super::points::SlotId;
use super::slot::Tick;
use crate::store::Timestamp;

/// How long a tick is.
pub(super) const TICK_MILLIS: u64 = 125;

const LEVELS: usize = 5;
const LEVEL_BITS: u32 = 6;
const BUCKETS: usize = 1 << LEVEL_BITS;

/// A slot listed under a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing {
    pub(super) id: SlotId,
    pub(super) tick: Tick,
}

/// How instants are counted in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticks {
    origin: Timestamp,
}

impl Ticks {
    /// Counts from `origin`.
    pub(super) fn since(origin: Timestamp) -> Self {
        Self { origin }
    }

    /// The first tick at whose beginning `instant` has come.
    pub(super) fn tick_of(self, instant: Timestamp) -> Tick {
        let tick = self.millis(instant).div_ceil(TICK_MILLIS);
        u32::try_from(tick).ok().map_or(Tick::MAX, |tick| Tick::new(tick).unwrap_or(Tick::MIN))
    }

    /// The last tick that has begun at `now`.
    fn reached(self, now: Timestamp) -> u32 {
        u32::try_from(self.millis(now) / TICK_MILLIS).unwrap_or(u32::MAX)
    }

    fn millis(self, instant: Timestamp) -> u64 {
        instant.as_unix_millis().saturating_sub(self.origin.as_unix_millis())
    }
}

/// The buckets, and the tick up to which they were emptied.
#[derive(Debug)]
pub(super) struct Wheel {
    ticks: Ticks,
    current: u32,
    levels: [Level; LEVELS],
    listed: usize,
}

#[derive(Debug)]
struct Level {
    buckets: [Vec<Listing>; BUCKETS],
    /// A bit for each bucket that is not empty.
    filled: u64,
}

impl Wheel {
    /// An empty wheel.
    pub(super) fn new(ticks: Ticks) -> Self {
        let level = || Level { buckets: std::array::from_fn(|_| Vec::new()), filled: 0 };
        Self { ticks, current: 0, levels: std::array::from_fn(|_| level()), listed: 0 }
    }

    /// Lists a slot. A tick that has passed comes up with the next one.
    pub(super) fn list(&mut self, listing: Listing) {
        let tick = listing.tick.get().max(self.current.saturating_add(1));
        let level = level_of(tick, self.current);
        let bucket = bucket_of(tick, level);
        let level = &mut self.levels[level];
        level.buckets[bucket].push(listing);
        level.filled |= 1 << bucket;
        self.listed += 1;
    }

    /// How many listings there are, leftovers included.
    pub(super) fn listed(&self) -> usize {
        self.listed
    }

    /// Bytes allocated for listings.
    pub(super) fn allocated_bytes(&self) -> usize {
        let buckets = self.levels.iter().flat_map(|level| &level.buckets);
        buckets.map(|bucket| bucket.capacity() * size_of::<Listing>()).sum()
    }

    /// Moves towards `now` until listings come up, and returns them; `None` once `now` is reached.
    pub(super) fn advance(&mut self, now: Timestamp) -> Option<Vec<Listing>> {
        let target = self.ticks.reached(now);
        while self.current < target {
            self.current = self.next_stop(target);
            let due = self.take_due();
            if !due.is_empty() {
                self.listed -= due.len();
                return Some(due);
            }
        }
        None
    }

    /// Takes every listing out.
    pub(super) fn clear(&mut self) {
        for level in &mut self.levels {
            level.buckets.iter_mut().for_each(|bucket| drop(std::mem::take(bucket)));
            level.filled = 0;
        }
        self.listed = 0;
    }

    /// The next tick at which any bucket could come up, but no later than `target`.
    fn next_stop(&self, target: u32) -> u32 {
        let empty_levels = self.levels.iter().take_while(|level| level.filled == 0).count();
        if empty_levels == LEVELS {
            return target;
        }
        // With the lowest levels empty, nothing comes up before the next bucket of the level above.
        let step = 1_u64 << (LEVEL_BITS * empty_levels as u32);
        let next = (u64::from(self.current) / step + 1) * step;
        u32::try_from(next).unwrap_or(u32::MAX).min(target)
    }

    /// Takes what comes up at the current tick: of each level whose turn it is, one bucket.
    fn take_due(&mut self) -> Vec<Listing> {
        let mut due = Vec::new();
        for level in 0..LEVELS {
            if level > 0 && !self.current.is_multiple_of(1 << (LEVEL_BITS * level as u32)) {
                break;
            }
            let bucket = bucket_of(self.current, level);
            let level = &mut self.levels[level];
            if level.filled & (1 << bucket) != 0 {
                level.filled &= !(1 << bucket);
                let listings = std::mem::take(&mut level.buckets[bucket]);
                // Whole, where it is alone: writers wait while it is copied.
                if due.is_empty() {
                    due = listings;
                } else {
                    due.extend(listings);
                }
            }
        }
        due
    }
}

/// The level at which `tick` is told apart from `current`: the one of their highest unequal bit.
fn level_of(tick: u32, current: u32) -> usize {
    let highest = (tick ^ current).checked_ilog2().unwrap_or(0);
    (highest / LEVEL_BITS).min(LEVELS as u32 - 1) as usize
}

fn bucket_of(tick: u32, level: usize) -> usize {
    (tick >> (LEVEL_BITS * level as u32)) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tick: u64) -> Timestamp {
        Timestamp::from_unix_millis(tick * TICK_MILLIS)
    }

    /// Every listing comes up at its tick or before, and is filed again until it is due.
    #[test]
    fn every_listing_comes_up_in_time() {
        let mut wheel = Wheel::new(Ticks::since(at(0)));
        let ticks = (0..1_000).map(|number: u64| 1 + number * number * number % 300_000_000);
        let mut waiting: Vec<_> = ticks.collect();
        for (number, tick) in waiting.iter().enumerate() {
            let (id, tick) = (SlotId::numbered(number as u32), wheel.ticks.tick_of(at(*tick)));
            wheel.list(Listing { id, tick });
        }
        waiting.sort_unstable();
        let mut came = Vec::new();
        for now in waiting.clone() {
            while let Some(due) = wheel.advance(at(now)) {
                for listing in due {
                    if u64::from(listing.tick.get()) <= now {
                        came.push(u64::from(listing.tick.get()));
                    } else {
                        wheel.list(listing);
                    }
                }
            }
            let expected = waiting.iter().filter(|tick| **tick <= now).count();
            assert_eq!(came.len(), expected, "at tick {now}");
        }
        assert_eq!(wheel.listed(), 0);
    }

    #[test]
    fn a_tick_that_has_passed_comes_up_next() {
        let mut wheel = Wheel::new(Ticks::since(at(0)));
        assert!(wheel.advance(at(1_000)).is_none());
        wheel.list(Listing { id: SlotId::numbered(0), tick: wheel.ticks.tick_of(at(3)) });
        assert!(wheel.advance(at(1_000)).is_none());
        assert!(wheel.advance(at(1_001)).is_some());
    }

    #[test]
    fn years_pass_in_few_steps() {
        let mut wheel = Wheel::new(Ticks::since(at(0)));
        let year = 365 * 24 * 3_600 * 1_000 / TICK_MILLIS;
        wheel.list(Listing { id: SlotId::numbered(0), tick: wheel.ticks.tick_of(at(year)) });
        let mut steps = 0;
        while let Some(due) = wheel.advance(at(year)) {
            steps += 1;
            let current = wheel.current;
            due.into_iter().filter(|l| l.tick.get() > current).for_each(|l| wheel.list(l));
        }
        assert!(steps <= LEVELS, "{steps} steps");
        assert_eq!(wheel.listed(), 0);
    }
}
