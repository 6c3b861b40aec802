//! `wane stream replay` as people type it: an operator orders, the institution reads.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

use crate::http::pull_stream::{ISPB, Streams};
use crate::server::wane;

/// The command of an operator, or with a key that of an institution.
fn replay(streams: &Streams, key: &str, words: &[&str]) -> Command {
    let mut command = wane();
    command.args(["stream", "replay", "--ispb", ISPB]).args(words);
    command.env("WANE_URL", format!("http://{}", streams.server.http));
    command.env("WANE_ADMIN_URL", format!("http://{}", streams.server.admin));
    command.env("WANE_DATA", streams.server.data());
    if !key.is_empty() {
        command.env("WANE_KEY", key);
    }
    command.stdin(Stdio::null());
    command
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn run(streams: &Streams, key: &str, words: &[&str]) -> (i32, String, String) {
    told(&replay(streams, key, words).output().unwrap())
}

const ALL: [&str; 6] =
    ["--from", "0", "--to", "2100-01-01T00:00:00Z", "--reason", "court order 17"];

#[test]
fn an_operator_orders_a_replay_and_the_institution_reads_it() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..25);
    let before = streams.standing();
    let (code, path, err) = run(&streams, "", &ALL);
    assert_eq!(code, 0, "{err}");
    let path = path.trim();
    assert!(path.starts_with(&format!("/api/v1/out/{ISPB}/replay/")), "{path}");
    // The whole day, where the answer takes less than a millisecond.
    let left = ["23h 59m", "1d 0h"].map(|left| format!("can read it there for {left}"));
    assert!(left.iter().any(|left| err.contains(left)), "{err}");

    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let (code, files, err) =
        run(&streams, &streams.reader, &["--read", path, "--out", out, "--client-id", "auditor"]);
    assert_eq!((code, &*err), (0, ""));
    let files: Vec<_> = files.lines().collect();
    assert_eq!(files.len(), 25);
    for ((file, id), number) in files.iter().zip(&known).zip(0..) {
        let name = format!("{}.xml", id.replace('/', "_").replace('+', "-"));
        assert!(file.ends_with(&name), "{file} is not {name}");
        assert_eq!(fs::read(file).unwrap(), crate::http::pull_stream::message(number));
    }
    assert_eq!(streams.standing(), before, "the stream is where it was");

    let (code, order, _) = run(&streams, "", &[&ALL[..], &["--json"]].concat());
    let order: Json = serde_json::from_str(&order).unwrap();
    assert!(code == 0 && order["expiresAt"].is_u64(), "{order}");
    let path = order["start"].as_str().unwrap();
    let (code, lines, err) = run(&streams, &streams.reader, &["--read", path, "--json"]);
    assert_eq!((code, lines.lines().count()), (0, 25), "{err}");
    let first: Json = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["id"], *known[0]);
}

/// Whatever ends the reading, it is told where to go on, and going on there loses nothing.
#[test]
fn a_reading_that_broke_off_goes_on_where_it_was() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..25);
    let (_, path, _) = run(&streams, "", &ALL);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    let out = out.to_str().unwrap();
    // A directory stands where the eleventh message is drafted.
    let name = |id: &str| format!("{}.xml.part", id.replace('/', "_").replace('+', "-"));
    let blocked = directory.path().join("out").join(name(&known[10]));
    fs::create_dir(&blocked).unwrap();
    let (code, _, err) = run(&streams, &streams.reader, &["--read", path.trim(), "--out", out]);
    assert_ne!(code, 0, "{err}");
    let marker = "go on with --read ";
    let next = err.lines().find_map(|line| line.split(marker).nth(1)).expect("where to go on");
    fs::remove_dir(&blocked).unwrap();
    let (code, _, err) = run(&streams, &streams.reader, &["--read", next, "--out", out]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read_dir(out).unwrap().count(), 25);
}

#[test]
fn what_is_wrong_with_a_replay_is_told() {
    let streams = Streams::new();
    let (code, _, err) = run(&streams, "", &ALL);
    assert_eq!(code, 4, "nothing came in: {err}");
    assert!(err.contains("no message came in"), "{err}");
    streams.push_numbers(0..3);
    for (words, word) in [
        (&["--from", "5", "--to", "5", "--reason", "why"][..], "to"),
        (&["--from", "0", "--to", "9", "--reason", ""], "reason"),
        (&["--from", "0", "--to", "tomorrow", "--reason", "why"], "Unix milliseconds"),
        (&["--from", "0", "--to", "9"], "--reason"),
        (&["--read", "/api/v1/out/12345678/stream/a.b.c"], "not the path of a replay"),
        (&["--read", "/api/v1/out/87654321/replay/a.b.c"], "not the path of a replay"),
        (&["--read", "x", "--from", "0"], "--from"),
        (&["--from", "0", "--to", "9", "--reason", "why", "--out", "."], "--out"),
    ] {
        // The key of the operator lies in a file.
        let key = if words.contains(&"--read") { &*streams.reader } else { "" };
        let (code, _, err) = run(&streams, key, words);
        assert_eq!(code, 2, "{words:?}: {err}");
        assert!(err.contains(word), "{words:?}: {err}");
    }
    let forged = format!("/api/v1/out/{ISPB}/replay/e30.e30.e30");
    let (code, _, err) = run(&streams, &streams.reader, &["--read", &forged]);
    assert!(code != 0 && err.contains("not valid"), "{err}");
    let (code, _, err) = run(&streams, "", &["--read", &forged]);
    assert!(code != 0 && err.contains("there is no key with the scope pull"), "{err}");
}
