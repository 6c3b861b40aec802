//! Snapshots of real servers: taken on time, restored, kept so many, and never half there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::http::pull_stream::{Streams, message};
use crate::server::{Server, eventually, wane};
use crate::shared::each_listed;
use crate::wait;

/// Every second, two of them.
const OFTEN: [&str; 4] = ["--backup-every-seconds", "1", "--backup-keep", "2"];

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// A place for a server's files and its snapshots.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A server that takes snapshots, with these flags.
    fn server(&self, flags: &[&str]) -> Server {
        let directory = self.path("snapshots");
        let directory = ["--backup-dir", directory.to_str().unwrap()];
        Server::start(&self.path("data"), &[&directory, flags].concat())
    }

    /// Files in the directory of snapshots, hidden ones too, the oldest first.
    fn files(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("snapshots")) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    /// Those that are whole.
    fn snapshots(&self) -> Vec<PathBuf> {
        let is_one = |name: &String| name.starts_with("wane-") && name.ends_with("Z.backup");
        let names = self.files().into_iter().filter(is_one);
        names.map(|name| self.path("snapshots").join(name)).collect()
    }
}

fn run(words: &[&str], paths: &[&Path]) -> Output {
    wane().args(words).args(paths).output().unwrap()
}

/// What the file holds, if it is sound.
#[track_caller]
fn verified(file: &Path) -> Json {
    let told = run(&["verify", "--json"], &[file]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    serde_json::from_slice(&told.stdout).unwrap()
}

/// Restores the file into this directory.
#[track_caller]
fn restored(file: &Path, data: &Path) {
    let told = run(&["restore", "--data"], &[data, file]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

fn insert(server: &Server, key: &str) {
    let body = r#"{"value":"v","ttlSeconds":86400}"#;
    assert_eq!(server.ask("POST", &format!("{TTL}/{key}"), body).status, 201);
}

fn has(server: &Server, key: &str) -> bool {
    server.ask("GET", &format!("{TTL}/{key}"), "").status == 200
}

fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.administer("GET", "/metrics", "").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {metrics}")).trim().parse().unwrap()
}

const DONE: &str = "wane_snapshots_total{outcome=\"done\"}";
const FAILED: &str = "wane_snapshots_total{outcome=\"failed\"}";

#[test]
fn snapshots_are_taken_on_time_kept_so_many_and_restored() {
    let place = Place::new();
    let streams = Streams::of(place.server(&OFTEN));
    let server = &streams.server;
    insert(server, "kept");
    let ids = streams.push(&[&message(1), &message(2)]);
    assert!(eventually(|| metric(server, DONE) >= 4.0), "{}", server.log());
    let snapshots = place.snapshots();
    assert!((2..=3).contains(&snapshots.len()), "two, and one in between: {:?}", place.files());
    assert!(metric(server, "wane_snapshot_last_done_timestamp_seconds ") > 1_700_000_000.0);
    assert!(metric(server, "wane_snapshot_last_bytes ") > 1_000.0);
    assert_eq!(metric(server, FAILED), 0.0, "{}", server.log());
    // It may have been removed since it was listed; the one after it was not.
    let last = snapshots.last().unwrap();
    let copy = place.path("copy.backup");
    fs::copy(last, &copy).unwrap();
    assert!(verified(&copy)["records"].as_u64().unwrap() > 5);

    let elsewhere = place.path("restored");
    restored(&copy, &elsewhere);
    let Streams { server, producer, reader } = streams;
    assert_eq!(server.stop(), Some(0));
    let left = place.files();
    assert!(left.iter().all(|name| name.ends_with("Z.backup")), "nothing half: {left:?}");
    let server = Server::start(&elsewhere, &["--stream-hold-ms", "300"]);
    assert!(has(&server, "kept"));
    let streams = Streams { server, producer, reader };
    let reply = streams.ask("GET", &crate::http::pull_stream::start("12345678"), &[]);
    assert_eq!(reply.header("pi-resourceid"), Some(&*ids[0]), "{}", reply.text());
    assert_eq!(reply.body, message(1));
}

/// Ended between any two instructions, again and again: what has the name of a snapshot is whole.
#[test]
fn a_kill_leaves_no_half_snapshot_under_its_name() {
    let place = Place::new();
    let server = Server::start(&place.path("data"), &[]);
    for number in 0..300 {
        let body = format!(r#"{{"value":"{}","ttlSeconds":86400}}"#, "v".repeat(20_000));
        assert_eq!(server.ask("POST", &format!("{TTL}/k{number}"), &body).status, 201);
    }
    drop(server);
    let mut interrupted = 0;
    for round in 0..12 {
        let server = place.server(&OFTEN);
        let is_at_it = || place.files().iter().any(|name| !name.ends_with("Z.backup"));
        assert!(eventually(is_at_it), "it takes none");
        wait(Duration::from_millis(round * 7));
        server.kill();
        interrupted += usize::from(is_at_it());
        for snapshot in place.snapshots() {
            assert!(verified(&snapshot)["records"].as_u64().unwrap() >= 300, "{snapshot:?}");
        }
    }
    assert!(interrupted > 0, "no kill came in the middle of one");
    let server = place.server(&OFTEN);
    let is_clean = || {
        metric(&server, DONE) >= 2.0
            && place.files().iter().filter(|name| name.contains("part")).count() <= 1
    };
    assert!(eventually(is_clean), "{:?}\n{}", place.files(), server.log());
    let snapshots = place.snapshots();
    let copy = place.path("copy.backup");
    fs::copy(snapshots.last().unwrap(), &copy).unwrap();
    drop(server);
    restored(&copy, &place.path("restored"));
    let server = Server::start(&place.path("restored"), &[]);
    assert!(has(&server, "k0") && has(&server, "k299"));
}

#[test]
fn a_snapshot_that_cannot_be_written_is_counted_and_serving_goes_on() {
    let place = Place::new();
    // A file is where the directory shall be.
    fs::write(place.path("snapshots"), b"in the way").unwrap();
    let server = place.server(&OFTEN);
    assert!(eventually(|| metric(&server, FAILED) >= 2.0), "{}", server.log());
    assert!(server.log().contains("no snapshot was taken"), "{}", server.log());
    insert(&server, "still-there");
    fs::remove_file(place.path("snapshots")).unwrap();
    assert!(eventually(|| metric(&server, DONE) >= 1.0), "{}", server.log());
    assert_eq!(server.stop(), Some(0));
    assert_eq!(place.snapshots().len(), place.files().len(), "{:?}", place.files());
}

#[test]
fn one_that_was_missed_is_made_up_for_and_none_is_taken_twice() {
    let place = Place::new();
    let server = place.server(&["--backup-at", "00:00"]);
    assert!(eventually(|| place.snapshots().len() == 1), "{}", server.log());
    assert!(eventually(|| metric(&server, DONE) == 1.0));
    drop(server);
    let server = place.server(&["--backup-at", "00:00"]);
    wait(Duration::from_millis(500));
    assert_eq!(metric(&server, DONE), 0.0, "{}", server.log());
    drop(server);
    let server = Server::start(&place.path("data"), &[]);
    assert_eq!(metric(&server, DONE), 0.0, "without a directory there are none");
    assert_eq!(place.snapshots().len(), 1);
}

/// Two nodes of one store: one of them takes snapshots, and the other one once it has gone.
#[test]
fn of_two_nodes_one_takes_snapshots() {
    each_listed(|flags| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(OFTEN).collect();
        let places = [Place::new(), Place::new()];
        let one = places[0].server(&flags);
        insert(&one, "kept");
        assert!(eventually(|| metric(&one, DONE) >= 1.0), "{}", one.log());
        let other = places[1].server(&flags);
        wait(Duration::from_secs(3));
        assert_eq!(places[1].files(), [""; 0], "{}", other.log());
        assert_eq!(one.stop(), Some(0));
        assert!(eventually(|| metric(&other, DONE) >= 1.0), "{}", other.log());
        restored(&places[1].snapshots()[0], &places[1].path("restored"));
    });
}
