//! Streams read by the clients that people have, each a process of its own: curl in ten lines, and
//! Python with requests. Then the same under kills of readers and servers, with every message
//! accounted for.
//!
//! Python's libraries come from scripts/oauth-clients. Where they are missing that is said and the
//! test skipped; where CI is set it is a failure.

mod curl;
mod killed;
mod ledger;
mod load;
mod python;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use self::ledger::Line;
use crate::http::pull_stream::{ISPB, Streams};

/// The program, and the libraries that it is run with.
const PROGRAM: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stream_clients/python_reader.py");
const PYTHON: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/oauth-clients/venv/bin/python");

/// Python with its libraries; none where it is not installed.
fn python() -> Option<PathBuf> {
    let in_ci = std::env::var("CI").is_ok_and(|ci| !["", "false", "0"].contains(&&*ci));
    installed(Path::new(PYTHON), in_ci)
}

fn installed(python: &Path, in_ci: bool) -> Option<PathBuf> {
    let missing = format!("{} is missing: scripts/oauth-clients installs it", python.display());
    assert!(python.exists() || !in_ci, "{missing}");
    if !python.exists() {
        println!("skipped: {missing}");
    }
    python.exists().then(|| python.to_path_buf())
}

/// Control: where CI is set missing libraries are a failure, as nobody reads what was skipped.
#[test]
fn python_that_is_missing_is_named_with_what_to_do() {
    let none = Path::new("no-such-python");
    assert_eq!(installed(none, false), None);
    assert!(std::panic::catch_unwind(|| installed(none, true)).is_err());
    assert!(installed(Path::new(env!("CARGO_BIN_EXE_wane")), true).is_some());
}

/// How a reader reads.
#[derive(Debug, Clone, Copy)]
struct Habits {
    accept: &'static str,
    encoding: &'static str,
    /// Of so many tokens it uses one twice; 0 for none.
    again: u64,
    /// How long it has something to do with what it got, in milliseconds.
    work: u64,
    /// It acknowledges before it keeps.
    careless: bool,
    /// It ends after so many messages.
    count: Option<usize>,
}

const MANY: Habits = Habits {
    accept: "multipart/mixed",
    encoding: "identity",
    again: 3,
    work: 0,
    careless: false,
    count: None,
};

/// A process that reads a stream. Dropped, it is killed.
struct Reader {
    process: Child,
    log: PathBuf,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Reader {
    /// Starts one at these servers, the first of which it asks first.
    fn start(python: &Path, urls: &[String], key: &str, log: &Path, habits: Habits) -> Self {
        let name = log.file_stem().unwrap().to_str().unwrap();
        let told = json!({
            "urls": urls, "first": 0, "ispb": ISPB, "key": key, "name": name, "log": log,
            "accept": habits.accept, "encoding": habits.encoding, "again": habits.again,
            "work": habits.work,
            "careless": habits.careless, "count": habits.count,
        });
        let said = std::fs::File::create(log.with_extension("said")).unwrap();
        let process = Command::new(python)
            .args(["-B", PROGRAM, &told.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(said))
            .spawn()
            .unwrap();
        Self { process, log: log.to_path_buf() }
    }

    /// Ends it at once, as a crash does.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// What it complained about.
    fn said(&self) -> String {
        std::fs::read_to_string(self.log.with_extension("said")).unwrap_or_default()
    }

    #[track_caller]
    fn assert_at_work(&mut self) {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended: {}", self.log.display(), self.said());
    }
}

/// The lines of a log. Only the last may be cut, by a kill.
fn lines(log: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let name = log.file_stem().unwrap().to_str().unwrap();
    let line = |line: &str| -> Json { serde_json::from_str(line).unwrap() };
    whole.lines().filter_map(|text| Line::of(name, &line(text))).collect()
}

fn url(streams: &Streams) -> String {
    format!("http://{}", streams.server.http)
}
