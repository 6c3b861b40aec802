//! Two processes on one directory: the second is refused at once, until the first is gone.

use std::time::Duration;

use wane::clock::SystemClock;
use wane_backends::file::FileStore;

use crate::proof::child::{Process, Role};
use crate::proof::ledger::{self, Line};

#[test]
fn a_second_process_is_refused_at_once_and_let_in_once_the_first_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let (directory, ledger) = (home.path().join("store"), home.path().join("ledger"));
    let first = Process::start(Role::Work, &directory, &home.path().join("first"), 1);
    first.await_line(&Line::Opened);

    let clock = SystemClock::shared();
    let before = clock.monotonic();
    Process::start(Role::Open, &directory, &ledger, 1).end();
    let took = clock.monotonic() - before;
    let refused = ledger::read(&ledger);
    let said = |line: &Line| matches!(line, Line::Failed(reason) if reason.contains("InUse"));
    assert!(refused.iter().any(said), "{refused:?}");
    assert!(took < Duration::from_secs(1), "the second process was refused after {took:?}");
    eprintln!("a second process starts and is refused within {took:?}");

    first.kill();
    let opened = FileStore::open(&directory, clock);
    assert!(opened.is_ok(), "{opened:?}");
}

/// The process that holds the store goes on as if nothing had happened.
#[test]
fn a_refused_process_does_not_harm_the_one_that_has_the_store() {
    let home = tempfile::tempdir().unwrap();
    let (directory, ledger) = (home.path().join("store"), home.path().join("ledger"));
    let clock = SystemClock::shared();
    let store = FileStore::create(&directory, clock.clone()).unwrap();
    Process::start(Role::Open, &directory, &ledger, 1).end();
    let mut verifier = crate::proof::verifier::Verifier::default();
    crate::proof::runtime().block_on(verifier.check(&store, &clock));
    verifier.assert_sound();
}
