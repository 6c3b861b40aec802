//! The budget: how many bytes of messages may wait to be written, for one institution and for all.
//!
//! A line holds thousands of producers, and each of them up to ten long messages: callers alone are no
//! measure of memory. What is over the budget is refused before it waits.
//!
//! Invariant: what is taken is given back when its [`Share`] is dropped, however that comes about.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Ispb;

/// Bytes that may wait for one institution: 32 MiB.
const FOR_ONE: usize = 32 << 20;

/// Bytes that may wait on this node: 256 MiB.
const FOR_ALL: usize = 256 << 20;

#[derive(Debug, Default)]
struct Taken {
    by_all: usize,
    by: HashMap<Ispb, usize>,
}

/// What has been taken.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<Taken>);

impl Budget {
    /// Takes so many bytes, unless that is too much.
    pub(super) fn take(self: &Arc<Self>, ispb: Ispb, bytes: usize) -> Option<Share> {
        let mut taken = self.0.lock();
        let by_one = taken.by.get(&ispb).copied().unwrap_or(0);
        if by_one + bytes > FOR_ONE || taken.by_all + bytes > FOR_ALL {
            return None;
        }
        taken.by_all += bytes;
        taken.by.insert(ispb, by_one + bytes);
        Some(Share { budget: Arc::clone(self), ispb, bytes })
    }
}

/// Bytes that were taken. Dropped, others may have them.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    ispb: Ispb,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.budget.0.lock();
        taken.by_all -= self.bytes;
        if let Some(by_one) = taken.by.get_mut(&self.ispb) {
            *by_one -= self.bytes;
            if *by_one == 0 {
                taken.by.remove(&self.ispb);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ispb(number: usize) -> Ispb {
        format!("{number:08}").parse().unwrap()
    }

    #[test]
    fn each_institution_and_all_together_have_their_limit() {
        let budget = Arc::new(Budget::default());
        let one = budget.take(ispb(0), FOR_ONE - 1).unwrap();
        assert!(budget.take(ispb(0), 2).is_none());
        let last = budget.take(ispb(0), 1).unwrap();
        let others: Vec<_> = (1..8).map(|n| budget.take(ispb(n), FOR_ONE).unwrap()).collect();
        assert!(budget.take(ispb(8), 1).is_none(), "all together");
        drop(last);
        assert!(budget.take(ispb(8), 1).is_some());
        drop((one, others));
        let taken = budget.0.lock();
        assert_eq!((taken.by_all, taken.by.len()), (0, 0), "all was given back");
    }
}
