//! Kills: the process ends between any two instructions, and the next one goes on.

use std::time::Duration;

use super::ledger::{Ledger, Sight};
use super::load::Load;
use super::{blank, check};
use crate::connection::Ended;
use crate::server::Server;
use crate::{count, loading, wait, wall_clock};

/// Every cycle works on what the one before has left.
#[test]
fn a_kill_in_the_middle_of_load_loses_nothing_and_revives_nothing() {
    let _machine = loading();
    let home = tempfile::tempdir().unwrap();
    let mut ledgers = blank();
    let kills = count("WANE_TEST_SERVER_KILLS", 5);
    let (mut ended_while_down, mut unanswered) = (0, 0);
    for cycle in 0..kills {
        let server = Server::start(home.path(), &[]);
        check(&server, &mut ledgers);
        let load = Load::start(&server, ledgers, cycle);
        wait(Duration::from_millis(150 + cycle * 211 % 500));
        let (key, admin_key) = (server.key.clone(), server.admin_key.clone());
        let app = format!("app-{cycle}");
        let app_key = server.make_app("acme", &app);
        let killed_at = wall_clock();
        server.kill();
        let (noted, ends) = load.end();
        unanswered += ends.len();
        // Some of the brief entries end before the server is back.
        wait(Duration::from_millis(600));

        let server = Server::start(home.path(), &[]);
        assert_eq!((&server.key, &server.admin_key), (&key, &admin_key), "keys are kept");
        let down = killed_at..=wall_clock();
        ended_while_down += Ledger::merge(noted.clone()).lived_and_ended(&down).1;
        ledgers = noted;
        check(&server, &mut ledgers);
        assert_eq!(server.administer("GET", "/api/v1/admin/apps", "").status, 200);
        let entries = format!("/api/v2/apps/acme/{app}/ttl");
        assert_eq!(server.ask_as(Some(&app_key), "GET", &entries, "").status, 200);
        server.kill();
    }
    let told: u64 = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    eprintln!(
        "{kills} kills under load: {told} acknowledged, none lost; {unanswered} requests \
         unanswered, {ended_while_down} entries ended while the server was down"
    );
    assert!(told > kills * 100, "the callers hardly came to work: {told}");
    assert!(ended_while_down > 0, "nothing ended while the server was down");
}

/// The control: what forgets is caught by the same check.
#[test]
fn a_server_that_forgets_is_caught() {
    let home = tempfile::tempdir().unwrap();
    let flags = ["--storage", "mem"];
    let server = Server::start(home.path(), &flags);
    let load = Load::start(&server, blank(), 1);
    wait(Duration::from_millis(200));
    server.kill();
    let (ledgers, ends) = load.end();
    assert!(ends.iter().all(|end| *end != Ended::Truncated), "{ends:?}");
    let server = Server::start(home.path(), &flags);
    let ledger = Ledger::merge(ledgers);
    let (live, _) = ledger.lived_and_ended(&(0..=wall_clock()));
    let wrongs = ledger.contradictions(&Sight::of(&server, "load-"));
    assert!(live > 10 && wrongs.len() >= live, "{live} lost, found {}", wrongs.len());
}
