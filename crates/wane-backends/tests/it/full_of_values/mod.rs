//! A disk that large values have filled to the last block: what expires makes room, and nobody
//! helps.
//!
//! The disk is a small file system of its own, tmpfs or ext4. The control is the same store without
//! its reserve: it stays full for good. Mounting needs root: without it the proof says loudly that
//! it did not run, and fails where `CI` is set.

mod blobs;
mod filler;
pub(crate) mod killed;
mod small_disk;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use self::filler::Filler;
use self::small_disk::{FileSystem, SmallDisk};
use crate::proof::wait;

/// What a store sets aside.
const RESERVE: u64 = 4 << 20;

/// Seconds of the store's clock within which a disk empties itself, or never does.
const SOON: u64 = 90;
const NEVER: u64 = 900;

fn reserve(data: &Path) -> u64 {
    fs::metadata(data.join("reserve")).map_or(0, |file| file.len())
}

/// Whether what was given up is set aside again before long.
fn is_made_up(filler: &Filler, disk: &SmallDisk) -> bool {
    (0..SOON).any(|_| {
        filler.clock.advance(Duration::from_secs(1));
        wait(Duration::from_millis(20));
        reserve(&disk.data()) == RESERVE
    })
}

#[test]
fn a_disk_full_of_values_that_expire_empties_itself() {
    for file_system in [FileSystem::Tmpfs, FileSystem::Ext4] {
        let Some(disk) = SmallDisk::of(file_system, 48) else { return };
        let mut filler = Filler::open(&disk.data());
        filler.keep(3);
        for round in 1..=3 {
            let values = filler.fill();
            assert!(values > 250, "{file_system:?}: only {values} values filled the disk");
            assert_eq!(reserve(&disk.data()), RESERVE, "room is set aside while others need it");
            filler.outlive();
            let took = filler.passes_within(SOON);
            let took = took.unwrap_or_else(|| panic!("{file_system:?}, round {round}: still full"));
            eprintln!(
                "{file_system:?}, round {round}: {values} values expired; passed in {took} s"
            );
            assert!(is_made_up(&filler, &disk), "{} are set aside", reserve(&disk.data()));
            filler.check_kept();
        }
    }
}

/// The control: with a directory in its place there is no reserve.
#[test]
fn without_a_reserve_a_disk_full_of_values_stays_full() {
    let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 24) else { return };
    fs::create_dir_all(disk.data().join("reserve")).unwrap();
    let mut filler = Filler::open(&disk.data());
    filler.keep(3);
    filler.fill();
    filler.outlive();
    assert_eq!(filler.passes_within(NEVER), None, "this disk empties itself without a reserve");
    filler.check_kept();
}

/// What is free then lies inside of the file, before values that stay: they are moved, as far as the
/// reserve needs it.
#[test]
fn values_that_stay_at_the_end_of_the_file_do_not_keep_a_disk_full() {
    let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 48) else { return };
    let mut filler = Filler::open(&disk.data());
    for _ in 0..20 {
        assert!(filler.put(102_400, 8));
    }
    // These lie behind, and are too many for the file to be made smaller for their sake.
    while filler.keeps(1) {}
    filler.fill();
    filler.outlive();
    assert!(filler.passes_within(SOON).is_some(), "still full");
    assert!(is_made_up(&filler, &disk), "{} are set aside", reserve(&disk.data()));
    filler.check_kept();
}

/// Whatever a crash has left of the reserve, and whatever has become of the rest.
#[test]
fn a_full_disk_empties_itself_after_a_crash_at_any_step_of_giving_the_reserve_up() {
    for left in 0..=4 {
        let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 24) else { return };
        let mut filler = Filler::open(&disk.data());
        filler.keep(3);
        filler.fill();
        let mut filler = filler.closed();
        let file = OpenOptions::new().write(true).open(disk.data().join("reserve")).unwrap();
        file.set_len(left << 20).unwrap();
        filler.reopen();
        assert_eq!(reserve(&disk.data()), RESERVE, "it is filled up on opening");
        filler.outlive();
        assert!(filler.passes_within(SOON).is_some(), "{left} MiB were left: still full");
        filler.check_kept();
    }
}

/// On a disk with less room than is set aside the store works as without a reserve.
#[test]
fn a_disk_too_small_for_a_reserve_does_no_harm() {
    let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 3) else { return };
    let mut filler = Filler::open(&disk.data());
    filler.keep(2);
    filler.fill();
    assert_eq!(reserve(&disk.data()), 0);
    let mut filler = filler.closed();
    filler.reopen();
    filler.check_kept();
}

/// Small values go on as long as the log has room. What waits for the tree meanwhile does not fall to pieces:
/// each piece would be looked into by every read, and be a commit of its own once there is room.
#[test]
fn what_waits_for_a_full_disk_stays_in_few_pieces() {
    const WRITES: u64 = 60;
    let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 48) else { return };
    let mut filler = Filler::open(&disk.data());
    assert!(filler.put(1_000, 200));
    let ballast = disk.data().with_file_name("ballast");
    fill_up(&ballast);
    assert!(!filler.flushes(), "the tree had room on a full disk");
    (0..WRITES).for_each(|_| assert!(filler.put(1_000, 1), "the log had no room"));
    let waiting = filler.store().waiting_generations();
    assert!((2..=20).contains(&waiting), "{waiting} generations after {WRITES} writes");
    fs::remove_file(ballast).unwrap();
    assert!(filler.passes_within(SOON).is_some() && filler.flushes(), "still full");
    assert_eq!(filler.store().waiting_generations(), 0);
    for number in 0..200 + WRITES {
        assert!(filler.holds(number), "{number} is missing");
    }
}

/// Takes all that a disk has left.
fn fill_up(path: &Path) {
    let mut ballast = fs::File::create(path).expect("the disk has room for a name");
    for piece in [1 << 20, 4 << 10, 1] {
        while ballast.write_all(&vec![7; piece]).is_ok() {}
    }
}
