//! Power cuts: a file system that is shut down under the working process.
//!
//! The store lies on ext4 in a file of its own. The shutdown call of the file system drops what was
//! written and not synced, as a power cut does to the page cache, and the next mount recovers. The
//! ledger lies outside. This needs root and loop devices: without them the proof says loudly that
//! it did not run, and fails where `CI` is set.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::SystemClock;
use wane_backends::OpenError;
use wane_backends::file::FileStore;

use crate::proof::child::{Process, Role};
use crate::proof::ledger::{self, Line};
use crate::proof::verifier::{Verifier, Wrong};
use crate::proof::{Chance, check_reopened, count, expired_records_leave, wait};

/// The shutdown call that ext4 and xfs share, without writing the journal first.
const SHUT_DOWN: &str = "
import fcntl, os, struct, sys
root = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(root, 0x8004587d, struct.pack('I', 2))
";

/// A file system whose power can be cut.
#[derive(Debug)]
struct CutDisk {
    home: TempDir,
}

impl CutDisk {
    /// A mounted file system, or why this machine cannot have one.
    fn mounted() -> Result<Self, String> {
        let disk = Self { home: tempfile::tempdir().expect("a temporary directory") };
        let image = std::fs::File::create(disk.image()).expect("an image");
        image.set_len(96 << 20).expect("room for an image");
        std::fs::create_dir(disk.root()).expect("a place to mount");
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk.image()))?;
        disk.mount()?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.home.path().join("image")
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("root")
    }

    fn mount(&self) -> Result<(), String> {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.root()))
    }

    /// Cuts the power while `process` works, and brings the file system back.
    fn cut(&self, process: Process) {
        run(Command::new("python3").args(["-S", "-c", SHUT_DOWN]).arg(self.root()))
            .expect("the file system shuts down");
        process.kill();
        self.unmount().expect("the file system is given up");
        self.mount().expect("the file system recovers");
    }

    fn unmount(&self) -> Result<(), String> {
        let mut last = Ok(());
        for _ in 0..1_500 {
            last = run(Command::new("umount").arg(self.root()));
            if last.is_ok() {
                break;
            }
            wait(Duration::from_millis(20));
        }
        last
    }
}

impl Drop for CutDisk {
    fn drop(&mut self) {
        // After a failed mount there is nothing to give up.
        drop(run(Command::new("umount").arg("-l").arg(self.root())));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{command:?}: {said}"))
}

/// The disk, or a loud notice; in CI the notice is a failure.
fn disk() -> Option<CutDisk> {
    let reason = match CutDisk::mounted() {
        Ok(disk) => return Some(disk),
        Err(reason) => reason,
    };
    let in_ci = std::env::var("CI").is_ok_and(|ci| !["", "false", "0"].contains(&&*ci));
    assert!(!in_ci, "power cuts must be proven here, and cannot be: {reason}");
    eprintln!("****************************************************************");
    eprintln!("*** POWER CUTS WERE NOT TESTED. Run this as root with loop devices.");
    eprintln!("*** {reason}");
    eprintln!("****************************************************************");
    None
}

/// Every fifth cut meets a store that is being created; all others add up in one store.
#[test]
fn a_power_cut_loses_nothing_and_revives_nothing() {
    let Some(disk) = disk() else { return };
    let ledgers = tempfile::tempdir().unwrap();
    let directory = disk.root().join("store");
    let chance = Chance::seeded(3);
    let mut verifier = Verifier::default();
    let cuts = count("WANE_TEST_POWER_CUTS", 30);
    for cycle in 0..cuts {
        let ledger = ledgers.path().join(format!("ledger-{cycle}"));
        if cycle % 5 == 4 {
            cut_while_creating(&disk, &ledger, Duration::from_micros(chance.below(120_000)));
            continue;
        }
        let role = if cycle % 3 == 2 { Role::Reopen } else { Role::Work };
        let process = Process::start(role, &directory, &ledger, cycle);
        process.await_line(&Line::Opened);
        wait(Duration::from_micros(chance.below(300_000)));
        disk.cut(process);
        verifier.replay(&until_the_cut(&ledger));
        check_reopened(&directory, &mut verifier);
        verifier.assert_sound();
    }
    eprintln!("{cuts} power cuts, {} acknowledged changes, none lost", verifier.acknowledged());
    assert!(verifier.acknowledged() > cuts * 10, "the callers hardly came to work");
    expired_records_leave(&directory);
}

/// The ledger without the complaints of a process whose disk is gone.
fn until_the_cut(ledger: &Path) -> Vec<Line> {
    let gone = |line: &Line| matches!(line, Line::Failed(reason) if reason.contains("os error 5"));
    ledger::read(ledger).into_iter().filter(|line| !gone(line)).collect()
}

fn cut_while_creating(disk: &CutDisk, ledger: &Path, after: Duration) {
    let directory = disk.root().join("new").join("store");
    let process = Process::start(Role::Work, &directory, ledger, 1);
    process.await_line(&Line::Started);
    wait(after);
    disk.cut(process);
    let mut verifier = Verifier::default();
    verifier.replay(&until_the_cut(ledger));
    check_reopened(&directory, &mut verifier);
    verifier.assert_sound();
    std::fs::remove_dir_all(disk.root().join("new")).expect("the store is removed");
}

/// The control: a store that acknowledges before it syncs is caught by the same proof.
#[test]
fn a_store_that_acknowledges_before_sync_is_caught_by_a_power_cut() {
    let Some(disk) = disk() else { return };
    let directory = disk.root().join("store");
    let ledger = disk.home.path().join("ledger");
    drop(FileStore::create(&directory, SystemClock::shared()).unwrap());
    run(Command::new("sync").arg("-f").arg(disk.root())).unwrap();
    let process = Process::start(Role::WorkUnsynced, &directory, &ledger, 1);
    process.await_line(&Line::Opened);
    wait(Duration::from_millis(300));
    disk.cut(process);
    let mut verifier = Verifier::default();
    verifier.replay(&ledger::read(&ledger));
    assert!(verifier.acknowledged() > 0, "nothing was acknowledged");
    // Where its files do not fit together any more, it does not even open.
    match FileStore::open(&directory, SystemClock::shared()) {
        Err(OpenError::Damaged { .. }) => return,
        opened => drop(opened.expect("the store opens or is damaged")),
    }
    check_reopened(&directory, &mut verifier);
    assert!(verifier.wrongs().contains(&Wrong::Lost), "not caught: {:?}", verifier.wrongs());
}
