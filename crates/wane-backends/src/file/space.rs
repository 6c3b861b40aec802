//! The room in the file of large values: what is free, and what will be.
//!
//! The tree lists what is in use; what lies between is free. A part that a commit freed may still
//! be read through an earlier snapshot, so it waits until every snapshot that shows it is gone.
//! Room is given out where it fits best, the lowest such place first, so that the parts of a value
//! stored in pieces lie side by side and the end of the file becomes free again.
//!
//! Invariant: no part is given out that a committed record or a living snapshot refers to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Weak;

/// Parts begin at multiples of this and take multiples of it.
pub(super) const BLOCK: u64 = 4_096;

/// A part of the file: where it begins, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Extent {
    /// The part that a value of `len` bytes at `offset` takes.
    pub(super) fn around(offset: u64, len: u32) -> Self {
        Self { offset, len: u64::from(len).next_multiple_of(BLOCK) }
    }
}

/// The room in a file whose snapshots are of the type `G`.
#[derive(Debug)]
pub(super) struct Space<G> {
    free: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    /// Nothing beyond is in use, and nothing of it is listed as free.
    end: u64,
    used: u64,
    /// Oldest first. Whatever a snapshot shows comes with it or after it.
    retired: VecDeque<Retired<G>>,
}

#[derive(Debug)]
struct Retired<G> {
    shown_by: Weak<G>,
    extents: Vec<Extent>,
}

impl<G> Space<G> {
    /// The room beside what is in use, which comes in the order of offsets.
    pub(super) fn beside(used: impl IntoIterator<Item = Extent>) -> Self {
        let mut space = Self {
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
            end: 0,
            used: 0,
            retired: VecDeque::new(),
        };
        for Extent { offset, len } in used {
            if offset > space.end {
                space.give_back(Extent { offset: space.end, len: offset - space.end });
            }
            space.end = offset + len;
            space.used += len;
        }
        space
    }

    /// Room for a value of `len` bytes.
    pub(super) fn take(&mut self, len: u32) -> Extent {
        let needed = Extent::around(0, len).len;
        let fitting = self.by_len.range((needed, 0)..).next().copied();
        let offset = fitting.map_or(self.end, |(_, offset)| offset);
        self.take_at(offset, needed)
    }

    /// Room for a value of `len` bytes before `offset`, where there is some.
    pub(super) fn take_before(&mut self, offset: u64, len: u32) -> Option<Extent> {
        let needed = Extent::around(0, len).len;
        let mut fitting = self.by_len.range((needed, 0)..);
        let &(_, lower) = fitting.find(|(_, lower)| *lower < offset)?;
        Some(self.take_at(lower, needed))
    }

    fn take_at(&mut self, offset: u64, len: u64) -> Extent {
        match self.free.remove(&offset) {
            None => self.end += len,
            Some(found) => {
                self.by_len.remove(&(found, offset));
                if found > len {
                    self.give_back(Extent { offset: offset + len, len: found - len });
                }
            }
        }
        self.used += len;
        Extent { offset, len }
    }

    /// Takes what a commit freed, which the snapshot before it still shows.
    pub(super) fn retire(&mut self, shown_by: Weak<G>, extents: Vec<Extent>) {
        self.used -= extents.iter().map(|extent| extent.len).sum::<u64>();
        self.retired.push_back(Retired { shown_by, extents });
        self.reclaim();
    }

    /// Takes back what was given out and that nobody has seen.
    pub(super) fn give_up(&mut self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            self.used -= extent.len;
            self.give_back(extent);
        }
    }

    /// Makes free what no snapshot shows any more.
    pub(super) fn reclaim(&mut self) {
        let mut living: VecDeque<Retired<G>> = VecDeque::new();
        for retired in std::mem::take(&mut self.retired) {
            if retired.shown_by.strong_count() > 0 {
                living.push_back(retired);
            } else if let Some(before) = living.back_mut() {
                // Those that are older than this one show it as well.
                before.extents.extend(retired.extents);
            } else {
                retired.extents.into_iter().for_each(|extent| self.give_back(extent));
            }
        }
        self.retired = living;
    }

    /// Cuts off what is free at the end, and says where the file can end.
    pub(super) fn trim(&mut self) -> u64 {
        if let Some((&offset, &len)) = self.free.last_key_value()
            && offset + len == self.end
        {
            self.free.remove(&offset);
            self.by_len.remove(&(len, offset));
            self.end = offset;
        }
        self.end
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Where the last part in use ends, and those that wait.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn give_back(&mut self, extent: Extent) {
        let Extent { mut offset, mut len } = extent;
        if len == 0 {
            return;
        }
        if let Some(after) = self.free.remove(&(offset + len)) {
            self.by_len.remove(&(after, offset + len));
            len += after;
        }
        if let Some((&before, &its_len)) = self.free.range(..offset).next_back()
            && before + its_len == offset
        {
            self.free.remove(&before);
            self.by_len.remove(&(its_len, before));
            (offset, len) = (before, its_len + len);
        }
        self.free.insert(offset, len);
        self.by_len.insert((len, offset));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const ONE: u32 = BLOCK as u32;

    fn at(block: u64, blocks: u64) -> Extent {
        Extent { offset: block * BLOCK, len: blocks * BLOCK }
    }

    #[test]
    fn room_is_what_lies_between_and_then_the_end() {
        let mut space = Space::<()>::beside([at(1, 1), at(4, 2)]);
        assert_eq!(space.used(), 3 * BLOCK);
        assert_eq!(space.take(ONE), at(0, 1), "the smallest that fits");
        assert_eq!(space.take(ONE + 1), at(2, 2));
        assert_eq!(space.take(1), at(6, 1), "nothing else is free");
        assert_eq!((space.used(), space.end()), (7 * BLOCK, 7 * BLOCK));
    }

    #[test]
    fn what_a_snapshot_shows_is_not_given_out() {
        let mut space = Space::beside([at(0, 4)]);
        let (older, newer) = (Arc::new(()), Arc::new(()));
        space.retire(Arc::downgrade(&older), vec![at(0, 1)]);
        space.retire(Arc::downgrade(&newer), vec![at(1, 1)]);
        drop(newer);
        space.reclaim();
        assert_eq!(space.take(ONE), at(4, 1), "the older one shows both");
        drop(older);
        space.reclaim();
        assert_eq!(space.take(2 * ONE), at(0, 2), "parts side by side are one");
    }

    #[test]
    fn what_nobody_has_seen_is_free_at_once() {
        let mut space = Space::<()>::beside([at(0, 1)]);
        let taken = [space.take(ONE), space.take(ONE)];
        space.give_up(taken);
        assert_eq!(space.used(), BLOCK);
        assert_eq!(space.take(2 * ONE), at(1, 2));
    }

    #[test]
    fn the_end_moves_back_over_what_is_free() {
        let mut space = Space::<()>::beside([at(0, 4)]);
        space.retire(Weak::new(), vec![at(1, 1), at(3, 1)]);
        assert_eq!(space.trim(), 3 * BLOCK);
        assert_eq!(space.take_before(2 * BLOCK, ONE), Some(at(1, 1)));
        assert_eq!(space.take_before(3 * BLOCK, ONE), None);
        assert_eq!(space.trim(), 3 * BLOCK);
        space.retire(Weak::new(), vec![at(0, 3)]);
        assert_eq!((space.trim(), space.used()), (0, 0));
    }
}
