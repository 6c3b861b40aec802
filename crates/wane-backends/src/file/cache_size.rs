//! How much of the tree is kept in memory: a quarter of what the process may use, up to 1 GiB.
//!
//! A read that misses the cache copies and checks a page, at about three times the price of one
//! that does not. So the bound is generous where there is room, and small machines and containers
//! keep theirs. What is read is cached as it is read: a small store never takes this much.
//!
//! Three quarters are for pages, which every read needs; the rest is for [rows](super::engine), which
//! spare a read of one record the way through them.

use std::path::Path;

/// As much as any store keeps.
const MOST: u64 = 1 << 30;

/// What is kept where nobody says how much memory there is.
const UNTOLD: u64 = 256 << 20;

/// The share of memory that a store may fill: one part of this many.
const SHARE: u64 = 4;

/// The share of that which is for rows: one part of this many.
const ROWS: usize = 4;

/// The bound on cached pages, in bytes.
pub(super) fn pages() -> usize {
    let all = all();
    all - all / ROWS
}

/// The bound on cached rows, in bytes.
pub(super) fn rows() -> usize {
    all() / ROWS
}

fn all() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    share_of([machine, container(Path::new("/sys/fs/cgroup/memory.max"))])
}

fn share_of(limits: [Option<u64>; 2]) -> usize {
    let share = limits.into_iter().flatten().min().map_or(UNTOLD, |memory| memory / SHARE);
    share.min(MOST) as usize
}

/// `MemTotal:       24576000 kB`
fn mem_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// A number of bytes, or `max` where nobody set one.
fn container(limit: &Path) -> Option<u64> {
    std::fs::read_to_string(limit).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_machine_and_container_sets_the_bound() {
        let (small, large) = (Some(512 << 20), Some(64 << 30));
        assert_eq!(share_of([large, small]), 128 << 20);
        assert_eq!(share_of([small, None]), 128 << 20);
        assert_eq!(share_of([large, None]), 1 << 30);
        assert_eq!(share_of([None, None]), 256 << 20);
    }

    #[test]
    fn a_machine_tells_its_memory_in_kibibytes() {
        let text = "MemFree:  1 kB\nMemTotal:       2048 kB\nBuffers: 7 kB\n";
        assert_eq!(mem_total(text), Some(2 << 20));
        assert_eq!(mem_total("MemTotal: many kB"), None);
    }
}
