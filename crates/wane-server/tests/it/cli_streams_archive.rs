//! `wane stream archive` as operators type it: archived, listed, checked, and what is told of damage.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::http::pull_stream::{ISPB, Streams};
use crate::server::{Server, wane};

struct Desk {
    streams: Streams,
    archive: TempDir,
}

impl Desk {
    /// Calls for messages come back at once; segments are kept in a directory.
    fn new(flags: &[&str]) -> Self {
        let archive = tempfile::tempdir().unwrap();
        let place = format!("dir:{}", archive.path().display());
        let flags = [&["--storage", "mem", "--stream-archive", &place], flags].concat();
        Self { streams: Streams::of(Server::with(&flags)), archive }
    }

    /// Exit code, standard output and standard error.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        run(&self.streams.server, words)
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Json {
        let (code, out, err) = self.run(&[words, &["--json"]].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    fn push(&self, count: usize, length: usize) {
        let message = vec![b'x'; length];
        for from in (0..count).step_by(10) {
            let batch = vec![&message[..]; 10.min(count - from)];
            self.streams.push(&batch);
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let directory = self.archive.path().join("local").join(ISPB);
        let mut files: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn run(server: &Server, words: &[&str]) -> (i32, String, String) {
    let mut command = wane();
    command.args(["stream", "archive", "--ispb", ISPB]).args(words);
    command.env("WANE_ADMIN_URL", format!("http://{}", server.admin));
    let output = command.env("WANE_DATA", server.data()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_stream_is_archived_segment_by_segment_listed_and_checked() {
    let desk = Desk::new(&[]);
    // Three segments of 8 MiB at the most.
    desk.push(120, 180_000);
    let report = desk.json(&[]);
    assert_eq!((&report["ispb"], &report["messages"]), (&json!(ISPB), &json!(120)), "{report}");
    assert_eq!(report["segments"], json!(3), "{report}");
    assert_eq!(desk.json(&[])["segments"], json!(0), "nothing is copied again");
    let verified = desk.json(&["--verify"]);
    assert_eq!((&verified["segments"], &verified["rows"]), (&json!(3), &report["rows"]));
    assert_eq!(verified["bytes"], report["bytes"]);

    let (code, out, err) = desk.run(&["--list", "--json"]);
    assert_eq!(code, 0, "{err}");
    let listed: Vec<Json> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = listed.iter().map(|segment| segment["name"].as_str().unwrap()).collect();
    let files: Vec<_> = desk.files();
    let files: Vec<_> = files.iter().map(|file| file.strip_prefix(desk.archive.path())).collect();
    assert_eq!(files, names.iter().map(|name| Ok(Path::new(*name))).collect::<Vec<_>>());
    let (code, table, err) = desk.run(&["--verify"]);
    assert_eq!((code, &*err), (0, ""), "no progress where nobody watches");
    assert!(table.contains("segments") && table.contains('3'), "{table}");
}

#[test]
fn a_time_without_messages_is_nothing_to_archive() {
    let desk = Desk::new(&[]);
    desk.push(10, 100);
    assert_eq!(desk.json(&["--from", "0", "--to", "1000"])["segments"], json!(0));
    let (code, _, err) = desk.run(&["--from", "1000", "--to", "1000"]);
    assert_ne!(code, 0);
    assert!(err.contains("to"), "{err}");
    let (code, _, err) = desk.run(&["--verify", "--from", "1"]);
    assert_eq!(code, 2, "{err}");
    assert_eq!(desk.json(&[])["messages"], json!(10));
}

#[test]
fn damage_is_told_with_the_segment_and_a_failure() {
    let desk = Desk::new(&[]);
    desk.push(10, 100);
    desk.json(&[]);
    let file = &desk.files()[0];
    let mut bytes = fs::read(file).unwrap();
    bytes[60] ^= 0x20;
    fs::write(file, bytes).unwrap();
    let (code, out, err) = desk.run(&["--verify"]);
    assert_ne!(code, 0);
    assert_eq!(out, "");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(err.contains(name) && err.contains("damaged"), "{err}");
}

#[test]
fn without_an_archive_the_setting_is_named() {
    let streams = Streams::new();
    let (code, _, err) = run(&streams.server, &[]);
    assert_ne!(code, 0);
    assert!(err.contains("stream_archive"), "{err}");
}
