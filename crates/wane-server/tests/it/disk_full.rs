//! A full disk: writes answer 503 and change nothing, reads go on, and it passes by itself.
//!
//! The data lie on a small tmpfs, whose room the test takes and gives back. Key files, the store and
//! the server's log are all on it, as they are on many machines. Mounting needs root: without it
//! the proof says loudly that it did not run, and fails where `CI` is set.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::connection::Connection;
use crate::server::{Answer, Server, eventually, wane};
use crate::{loading, stopwatch, wait};

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// What the test takes first and gives back.
const BALLAST: usize = 6 << 20;

/// Names of what is taken. Each is given back once: what is free at some later moment, and whether it
/// can be taken again, is up to the store.
const BALLASTS: [&str; 2] = ["ballast-1", "ballast-2"];

/// A disk of 32 MiB.
struct SmallDisk {
    root: TempDir,
}

impl SmallDisk {
    fn mounted() -> Result<Self, String> {
        let root = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"]).arg(root.path());
        let output = mount.output().map_err(|error| format!("{mount:?}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(Self { root }) } else { Err(format!("{mount:?}: {said}")) }
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn take(&self, ballast: &str) {
        fs::write(self.root.path().join(ballast), vec![7; BALLAST]).unwrap();
    }

    /// Takes all that is left.
    fn take_rest(&self, ballast: &str) {
        let mut file = fs::File::create(self.root.path().join(ballast)).unwrap();
        while std::io::Write::write_all(&mut file, &[7; 4_096]).is_ok() {}
    }

    fn give_back(&self, ballast: &str) {
        fs::remove_file(self.root.path().join(ballast)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A server that still runs must not keep the test from going on.
        drop(Command::new("umount").arg("-l").arg(self.root.path()).status());
    }
}

/// The disk, or a loud notice; in CI the notice is a failure.
fn small_disk() -> Option<SmallDisk> {
    let reason = match SmallDisk::mounted() {
        Ok(disk) => return Some(disk),
        Err(reason) => reason,
    };
    let in_ci = std::env::var("CI").is_ok_and(|ci| !["", "false", "0"].contains(&&*ci));
    assert!(!in_ci, "a full disk must be proven here, and cannot be: {reason}");
    eprintln!("****************************************************************");
    eprintln!("*** A FULL DISK WAS NOT TESTED. Run this as root.");
    eprintln!("*** {reason}");
    eprintln!("****************************************************************");
    None
}

/// One caller, and what it was told.
struct Caller {
    connection: Connection,
    next: usize,
    /// Keys that are there, by the life that they were given.
    kept: BTreeMap<String, String>,
    /// Keys that must not be there.
    refused: Vec<String>,
}

impl Caller {
    fn new(server: &Server) -> Self {
        let (kept, refused) = (BTreeMap::new(), Vec::new());
        Self { connection: Connection::open(server), next: 0, kept, refused }
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.connection.ask(method, path, body).unwrap()
    }

    /// Whether an entry of this size was written; where it was not, the answer says why.
    fn insert(&mut self, size: usize, millis: u64) -> bool {
        self.next += 1;
        let (key, value) = (format!("k{}", self.next), format!("{:0>size$}", self.next));
        let body = format!(r#"{{"value":"{value}","ttlMillis":{millis}}}"#);
        let answer = self.ask("POST", &format!("{TTL}/{key}"), &body);
        if answer.status == 201 {
            self.kept.insert(key, value);
            return true;
        }
        assert_eq!((answer.status, &*answer.code()), (503, "unavailable"), "{}", answer.body);
        assert!(answer.header("retry-after").is_some(), "{}", answer.head);
        self.refused.push(key);
        false
    }

    /// Writes until nothing fits any more, not even something small.
    fn fill(&mut self, millis: u64) {
        for size in [60_000, 6_000, 60] {
            let mut fits = 0;
            while self.insert(size, millis) {
                fits += 1;
                assert!(fits < 100_000, "the disk does not become full");
            }
        }
    }

    /// The latest of what was acknowledged is read back.
    fn check_some(&mut self) {
        let latest = self.kept.last_key_value().map(|(key, value)| (key.clone(), value.clone()));
        let Some((key, value)) = latest else { return };
        let answer = self.ask("GET", &format!("{TTL}/{key}"), "");
        assert_eq!((answer.status, &answer.json()["value"]), (200, &value.into()), "{key}");
    }

    /// Everything that was acknowledged is read back, and nothing that was refused.
    fn check(&mut self) {
        for (key, value) in self.kept.clone() {
            let answer = self.ask("GET", &format!("{TTL}/{key}"), "");
            assert_eq!(answer.status, 200, "{key}: {}", answer.body);
            assert_eq!(answer.json()["value"], *value, "{key}");
        }
        for key in self.refused.clone() {
            assert_eq!(self.ask("GET", &format!("{TTL}/{key}"), "").status, 404, "{key}");
        }
    }
}

const LONG: u64 = 900_000;

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_passes_when_room_returns() {
    let _machine = loading();
    let Some(disk) = small_disk() else { return };
    BALLASTS.iter().for_each(|ballast| disk.take(ballast));
    let server = Server::start(&disk.data(), &[]);
    let mut caller = Caller::new(&server);
    for (round, ballast) in BALLASTS.iter().enumerate() {
        caller.fill(LONG);
        caller.check();
        for path in ["/livez", "/readyz"] {
            assert_eq!(caller.ask("GET", path, "").status, 200, "reads go on");
        }
        let (kept, refused) = (caller.kept.len(), caller.refused.len());
        disk.give_back(ballast);
        let took = stopwatch();
        assert!(eventually(|| caller.insert(60_000, LONG)), "it does not pass: {}", server.log());
        eprintln!(
            "round {round}: full with {kept} entries, {refused} refused so far; passed {:?} after \
             room returned",
            took()
        );
        caller.check();
    }
    server.kill();
    let server = Server::start(&disk.data(), &[]);
    caller.connection = Connection::open(&server);
    caller.check();
}

/// Nobody gives anything back: what expires makes room inside of the file.
#[test]
fn a_disk_that_is_full_of_what_expires_passes_by_itself() {
    let _machine = loading();
    let Some(disk) = small_disk() else { return };
    let server = Server::start(&disk.data(), &[]);
    let mut caller = Caller::new(&server);
    assert!(caller.insert(100, LONG));
    let lasting = caller.kept.clone();
    caller.fill(2_500);
    let took = stopwatch();
    assert!(eventually(|| caller.insert(60_000, 2_500)), "it does not pass: {}", server.log());
    eprintln!("{} entries of 2.5 s filled the disk; passed after {:?}", caller.kept.len(), took());
    assert!(caller.kept.len() > 100, "the disk was hardly filled");
    caller.kept = lasting;
    caller.check();
}

/// Many callers at once, so that groups of writes meet the end of the disk.
#[test]
fn callers_at_once_on_a_full_disk_are_told_the_truth() {
    let _machine = loading();
    let Some(disk) = small_disk() else { return };
    disk.take(BALLASTS[0]);
    let server = Server::start(&disk.data(), &[]);
    let work = |number: usize| {
        let mut caller = Caller { next: number * 1_000_000, ..Caller::new(&server) };
        std::thread::spawn(move || {
            caller.fill(LONG);
            for _ in 0..50 {
                caller.insert(3_000, LONG);
                caller.check_some();
            }
            caller
        })
    };
    let callers: Vec<_> = (0..8).map(work).collect();
    wait(Duration::from_millis(2_000));
    disk.give_back(BALLASTS[0]);
    let callers: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&disk.data(), &[]);
    for mut caller in callers {
        assert!(!caller.refused.is_empty() && !caller.kept.is_empty());
        caller.connection = Connection::open(&server);
        caller.check();
    }
}

#[test]
fn a_server_on_a_full_disk_stops_in_order_and_starts_again() {
    let _machine = loading();
    let Some(disk) = small_disk() else { return };
    disk.take(BALLASTS[0]);
    let server = Server::start(&disk.data(), &[]);
    let mut caller = Caller::new(&server);
    caller.fill(LONG);
    assert_eq!(server.stop(), Some(0));
    disk.give_back(BALLASTS[0]);
    let server = Server::start(&disk.data(), &[]);
    caller.connection = Connection::open(&server);
    caller.check();
    assert!(caller.insert(60_000, LONG));
}

/// Whoever waits for the ready file waits as long as there is no room for it, and no longer.
#[test]
fn a_ready_file_comes_once_there_is_room_for_it() {
    let _machine = loading();
    let Some(disk) = small_disk() else { return };
    disk.take_rest("rest");
    let (home, ready) = (tempfile::tempdir().unwrap(), disk.root.path().join("ready.json"));
    let mut command = wane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command.arg("--data").arg(home.path()).arg("--ready-file").arg(&ready);
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(eventually(|| home.path().join("demo.key").exists()), "the server did not start");
    wait(Duration::from_millis(1_500));
    let runs = server.try_wait().unwrap().is_none();
    let is_early = ready.exists();
    disk.give_back("rest");
    let is_told = eventually(|| ready.exists());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(runs && !is_early && is_told, "runs {runs}, early {is_early}, told {is_told}");
}
