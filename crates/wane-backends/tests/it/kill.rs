//! kill -9: whatever the moment, nothing acknowledged is lost and nothing gone comes back.

use std::time::Duration;

use crate::proof::child::{Process, Role};
use crate::proof::ledger::{self, Line};
use crate::proof::verifier::Verifier;
use crate::proof::{Chance, check_reopened, copied, count, expired_records_leave, wait};

/// The damage of all kills adds up in one directory. Every third process is killed while it opens
/// or closes the store again and again, the others amid the work of 32 callers.
#[test]
fn a_killed_process_loses_nothing_and_revives_nothing() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("store");
    let chance = Chance::seeded(1);
    let mut verifier = Verifier::default();
    let kills = count("WANE_TEST_KILLS", 50);
    for cycle in 0..kills {
        let ledger = home.path().join(format!("ledger-{cycle}"));
        let role = if cycle % 3 == 2 { Role::Reopen } else { Role::Work };
        let process = Process::start(role, &directory, &ledger, cycle);
        process.await_line(if role == Role::Work { &Line::Opened } else { &Line::Started });
        wait(Duration::from_micros(chance.below(250_000)));
        process.kill();
        verifier.replay(&ledger::read(&ledger));
        // Opening a store and closing it leaves a tree alone. So that what kills leave in the log adds
        // up too, it is mostly a copy that is opened.
        if cycle % 7 == 6 {
            check_reopened(&directory, &mut verifier);
        } else if directory.join("records.redb").exists() {
            check_reopened(copied(&directory).path(), &mut verifier);
        }
        verifier.assert_sound();
    }
    eprintln!("{kills} kills, {} acknowledged changes, none lost", verifier.acknowledged());
    assert!(verifier.acknowledged() > kills * 10, "the callers hardly came to work");
    expired_records_leave(&directory);
}

/// A store is created whole or not at all, and creating it again after a kill just works.
#[test]
fn a_process_killed_while_it_creates_a_store_leaves_a_store_or_none() {
    let chance = Chance::seeded(2);
    let kills = count("WANE_TEST_KILLS", 50) / 2;
    let mut created = 0;
    for cycle in 0..kills {
        let home = tempfile::tempdir().unwrap();
        let (directory, ledger) = (home.path().join("store"), home.path().join("ledger"));
        let process = Process::start(Role::Work, &directory, &ledger, cycle);
        process.await_line(&Line::Started);
        // Creating takes a few milliseconds, and what follows it matters as well.
        wait(Duration::from_micros(chance.below(if cycle % 2 == 0 { 12_000 } else { 100_000 })));
        process.kill();
        created += u64::from(directory.join("records.redb").exists());
        let mut verifier = Verifier::default();
        verifier.replay(&ledger::read(&ledger));
        check_reopened(&directory, &mut verifier);
        verifier.assert_sound();
    }
    assert!(kills < 10 || created > 0, "every kill came before the store was there");
    eprintln!("{kills} kills while creating, after {created} of which there was a store");
}
