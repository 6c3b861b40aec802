//! Heap bytes: what is live in the process, and what this thread allocates.
//!
//! jemalloc serves every contestant alike. It counts in per-thread caches, so counting costs next
//! to nothing and no shared counter slows the contestants that allocate most. Live bytes are
//! those of the size classes handed out, which is what a request really occupies.

use tikv_jemalloc_ctl::{epoch, stats, thread};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Bytes allocated and not freed, in the whole process.
pub(crate) fn live_bytes() -> u64 {
    epoch::advance().expect("the allocator refreshes its statistics");
    stats::allocated::read().expect("the allocator is built with statistics") as u64
}

/// What `work` adds to the live bytes, and its result.
pub(crate) fn added_by<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = live_bytes();
    let result = work();
    (result, live_bytes() as i64 - before as i64)
}

/// Bytes this thread ever asked for while `work` ran, freed or not: zero means no allocation.
pub(crate) fn allocated_by(work: impl FnOnce()) -> u64 {
    let counter = thread::allocatedp::read().expect("the allocator counts per thread");
    let before = counter.get();
    work();
    counter.get() - before
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn one_allocation_is_noticed_and_none_is_zero() {
        assert_eq!(allocated_by(|| assert_eq!(black_box(7), 7)), 0);
        assert!(allocated_by(|| drop(black_box(vec![0_u8; 100]))) >= 100);
    }

    #[test]
    fn live_bytes_rise_with_what_is_kept() {
        let (kept, added) = added_by(|| vec![0_u8; 50 << 20]);
        // Other tests run in the same process meanwhile, and free what they had.
        assert!(added >= kept.len() as i64 * 9 / 10, "{added} of {}", kept.len());
    }
}
