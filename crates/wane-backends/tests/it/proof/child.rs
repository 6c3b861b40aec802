//! A process to be killed: the test binary itself, started again in a role.
//!
//! It runs one test of this binary, [`child_of_a_proof`], which does nothing unless the
//! environment gives it a role.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{SharedClock, SystemClock};
use wane_backends::OpenError;
use wane_backends::file::{FaultyDisk, FileStore};

use super::ledger::{self, Ledger, Line};
use super::workload::Workload;
use super::{beside_checkpoints, runtime, wait};
use crate::full_of_values::killed::fill_and_outlive;

/// What a child does until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Works with the store.
    Work,
    /// Opens the store, works a little, closes it, and again.
    Reopen,
    /// Works on a disk whose syncs do nothing: the control.
    WorkUnsynced,
    /// Tries to open the store once, and says what came of it.
    Open,
    /// Fills the disk, and has the store open while all of that expires.
    FillAndOutlive,
}

const ROLES: [(Role, &str); 5] = [
    (Role::Work, "work"),
    (Role::Reopen, "reopen"),
    (Role::WorkUnsynced, "work-unsynced"),
    (Role::Open, "open"),
    (Role::FillAndOutlive, "fill-and-outlive"),
];

/// A running child, which dies with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ledger: PathBuf,
}

impl Process {
    /// Starts a child that notes what it does in a new `ledger`.
    pub(crate) fn start(role: Role, directory: &Path, ledger: &Path, seed: u64) -> Self {
        let role = ROLES.iter().find(|(known, _)| *known == role).expect("a known role").1;
        let binary = std::env::current_exe().expect("the test binary");
        let child = Command::new(binary)
            .args(["--exact", "proof::child::child_of_a_proof", "--ignored", "--nocapture"])
            .env("WANE_TEST_ROLE", role)
            .env("WANE_TEST_DIRECTORY", directory)
            .env("WANE_TEST_LEDGER", ledger)
            .env("WANE_TEST_SEED", seed.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self { child: child.expect("the child starts"), ledger: ledger.into() }
    }

    /// Waits until the child has noted `line`, or has failed.
    pub(crate) fn await_line(&self, awaited: &Line) {
        for _ in 0..60_000 {
            let lines = ledger::read(&self.ledger);
            let done = |line: &Line| line == awaited || matches!(line, Line::Failed(_));
            if lines.iter().any(done) {
                return;
            }
            wait(Duration::from_millis(1));
        }
        panic!("the child did not come to {awaited:?}");
    }

    /// Waits until the child has ended by itself.
    pub(crate) fn end(mut self) {
        self.child.wait().expect("the child ends");
    }

    /// Kills the child as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
#[ignore = "the process that the proofs start"]
fn child_of_a_proof() {
    let Ok(name) = std::env::var("WANE_TEST_ROLE") else { return };
    let role = ROLES.iter().find(|(_, known)| *known == name).expect("a known role").0;
    let variable = |name| std::env::var(name).expect("a variable of the child");
    let directory = PathBuf::from(variable("WANE_TEST_DIRECTORY"));
    let seed = variable("WANE_TEST_SEED").parse().expect("a seed");
    let ledger = Arc::new(Ledger::append_to(Path::new(&variable("WANE_TEST_LEDGER"))));
    ledger.note(&Line::Started);
    let clock = SystemClock::shared();
    let callers = Workload { callers: 32, keys_each: 8, rounds: u64::MAX, seed };
    let done = match role {
        Role::Work => work(&directory, callers, &clock, &ledger),
        Role::Reopen => loop {
            let few = Workload { rounds: 3, ..callers };
            if let Err(error) = work(&directory, few, &clock, &ledger) {
                break Err(error);
            }
        },
        Role::WorkUnsynced => {
            let disk = FaultyDisk::seeded(seed).ignoring_syncs();
            let store = FileStore::open_on(&disk, &directory, Arc::clone(&clock));
            store.map(|store| work_with(&store, callers, &clock, &ledger))
        }
        Role::Open => FileStore::open(&directory, clock).map(drop),
        Role::FillAndOutlive => fill_and_outlive(&directory, &ledger),
    };
    if let Err(error) = done {
        ledger.note(&Line::Failed(format!("{error}: {error:?}")));
    }
}

fn work(
    directory: &Path,
    workload: Workload,
    clock: &SharedClock,
    ledger: &Arc<Ledger>,
) -> Result<(), OpenError> {
    let store = FileStore::open_or_create(directory, Arc::clone(clock))?;
    work_with(&store, workload, clock, ledger);
    Ok(())
}

fn work_with(store: &FileStore, workload: Workload, clock: &SharedClock, ledger: &Arc<Ledger>) {
    ledger.note(&Line::Opened);
    let shared = Arc::new(store.clone());
    let callers = workload.run(&shared, clock, ledger);
    runtime().block_on(beside_checkpoints(store, callers));
}
