//! Updates that wait to be sent: the last one of each institution, in the order of their first.
//!
//! Invariant: at most [`MOST`] wait, whatever the server does. A later update takes the place of an
//! earlier one, which nobody needs to see any more.

use std::collections::{HashMap, VecDeque};

use wane::services::pull_stream::{Ispb, SlotView};

/// Institutions whose updates wait at most.
pub(super) const MOST: usize = 4_096;

/// The slots of an institution as of a write.
#[derive(Debug, Clone)]
pub(super) struct Update {
    pub(super) ispb: Ispb,
    pub(super) version: u64,
    pub(super) slots: Vec<SlotView>,
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    Waits,
    /// One of the two did not have to be sent.
    Superseded,
    /// There is no room.
    Dropped,
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Pending {
    order: VecDeque<Ispb>,
    latest: HashMap<Ispb, Update>,
}

impl Pending {
    pub(super) fn put(&mut self, update: Update) -> Put {
        if let Some(waiting) = self.latest.get_mut(&update.ispb) {
            if waiting.version < update.version {
                *waiting = update;
            }
            return Put::Superseded;
        }
        if self.latest.len() >= MOST {
            return Put::Dropped;
        }
        self.order.push_back(update.ispb);
        self.latest.insert(update.ispb, update);
        Put::Waits
    }

    /// The first so many.
    pub(super) fn take(&mut self, most: usize) -> Vec<Update> {
        let count = self.order.len().min(most);
        let first = self.order.drain(..count);
        first.filter_map(|ispb| self.latest.remove(&ispb)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(number: usize, version: u64) -> Update {
        let ispb = format!("{number:08}").parse().unwrap();
        Update { ispb, version, slots: Vec::new() }
    }

    #[test]
    fn the_last_update_of_each_waits_and_no_more_than_there_is_room_for() {
        let mut pending = Pending::default();
        assert_eq!(pending.put(update(1, 5)), Put::Waits);
        assert_eq!(pending.put(update(2, 1)), Put::Waits);
        assert_eq!(pending.put(update(1, 7)), Put::Superseded);
        assert_eq!(pending.put(update(1, 6)), Put::Superseded, "an older one does not replace it");
        let taken: Vec<_> = pending.take(9).iter().map(|update| update.version).collect();
        assert_eq!(taken, [7, 1]);
        assert!(pending.take(9).is_empty());

        for number in 0..MOST {
            assert_eq!(pending.put(update(number, 1)), Put::Waits);
        }
        assert_eq!(pending.put(update(MOST, 1)), Put::Dropped);
        assert_eq!(pending.put(update(3, 2)), Put::Superseded, "it needs no room");
        assert_eq!(pending.take(10).len(), 10);
        assert_eq!(pending.put(update(MOST, 1)), Put::Waits);
    }
}
