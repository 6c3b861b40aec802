//! kill -9 while the reserve is given up.

use std::path::Path;
use std::time::Duration;

use super::filler::Filler;
use super::small_disk::{FileSystem, SmallDisk};
use super::{RESERVE, SOON, reserve};
use crate::proof::child::{Process, Role};
use crate::proof::ledger::{Ledger, Line};
use crate::proof::{Chance, count, wait};

/// What the child does: it fills the disk, and has the store open while all of that expires.
pub(crate) fn fill_and_outlive(directory: &Path, ledger: &Ledger) -> ! {
    let mut filler = Filler::open(directory);
    filler.next = 1 << 32;
    filler.fill();
    ledger.note(&Line::Opened);
    filler.outlive();
    loop {
        wait(Duration::from_millis(1));
        filler.clock.advance(Duration::from_millis(250));
    }
}

/// Every process is killed as soon as it has given some of the reserve up, or a moment later.
#[test]
fn a_process_killed_while_the_reserve_is_given_up_loses_nothing_and_leaves_no_full_disk() {
    let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 24) else { return };
    let home = tempfile::tempdir().unwrap();
    let chance = Chance::seeded(3);
    let mut filler = Filler::open(&disk.data());
    filler.keep(3);
    let kills = count("WANE_TEST_KILLS", 50).div_ceil(5);
    let mut short = 0;
    for cycle in 0..kills {
        filler = filler.closed();
        let ledger = home.path().join(format!("ledger-{cycle}"));
        let process = Process::start(Role::FillAndOutlive, &disk.data(), &ledger, cycle);
        process.await_line(&Line::Opened);
        for _ in 0..2_000 {
            if reserve(&disk.data()) < RESERVE {
                break;
            }
            wait(Duration::from_micros(50));
        }
        wait(Duration::from_micros(chance.below(1_500)));
        process.kill();
        short += u64::from(reserve(&disk.data()) < RESERVE);
        filler.reopen();
        filler.outlive();
        assert!(filler.passes_within(SOON).is_some(), "cycle {cycle}: still full");
        let is_whole_again = (0..400).any(|_| {
            filler.clock.advance(Duration::from_secs(1));
            wait(Duration::from_millis(5));
            reserve(&disk.data()) == RESERVE
        });
        assert!(is_whole_again, "cycle {cycle}: the reserve stays short");
        filler.check_kept();
    }
    eprintln!("{kills} kills, {short} of them with a short reserve");
    assert!(short > 0, "every kill came after the reserve was whole again");
}
