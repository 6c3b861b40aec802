//! The archive over HTTP: archived on demand and by itself, listed, checked, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::{ISPB, OTHER, Streams};
use crate::server::{Answer, Server, eventually};

const PATH: &str = "/api/v1/admin/archives";

/// Up to when everything came in that tests send.
const LATER: u64 = 4_000_000_000_000;

/// A server that archives to a directory.
fn with_archive(flags: &[&str]) -> (Streams, TempDir) {
    let place = tempfile::tempdir().unwrap();
    let archive = format!("dir:{}", place.path().join("archive").display());
    (Streams::with(&[&["--stream-archive", &archive], flags].concat()), place)
}

fn archive(server: &Server, body: &Json) -> Answer {
    server.administer("POST", PATH, &body.to_string())
}

#[track_caller]
fn archived(server: &Server, ispb: &str) -> Json {
    let answer = archive(server, &json!({"ispb": ispb, "from": 0, "to": LATER}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[track_caller]
fn list(server: &Server, query: &str) -> Json {
    let answer = server.administer("GET", &format!("{PATH}?ispb={ISPB}{query}"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn file_of(place: &TempDir, segment: &Json) -> PathBuf {
    place.path().join("archive").join(segment["name"].as_str().unwrap())
}

#[test]
fn messages_are_archived_once_listed_and_checked() {
    let (streams, place) = with_archive(&[]);
    let server = &streams.server;
    assert_eq!(list(server, "")["items"], json!([]), "nothing yet");
    streams.push_numbers(0..50);
    let report = archived(server, ISPB);
    assert_eq!((&report["segments"], &report["messages"]), (&json!(1), &json!(50)), "{report}");
    assert_eq!((&report["done"], &report["rows"]), (&json!(true), &json!(5)));
    let listed = list(server, "");
    let segment = &listed["items"][0];
    assert_eq!((&segment["firstRow"], &segment["endRow"]), (&json!(0), &json!(5)));
    let length = fs::metadata(file_of(&place, segment)).unwrap().len();
    assert_eq!(report["bytes"], json!(length));
    assert_eq!(report["reached"].as_u64().unwrap() + 1, segment["to"].as_u64().unwrap());
    assert_eq!((&listed["next"], &listed.get("verified")), (&Json::Null, &None));

    let again = archived(server, ISPB);
    assert_eq!((&again["segments"], &again["done"]), (&json!(0), &json!(true)));
    assert_eq!(again.get("reached"), None);
    let verified = list(server, "&verify=true");
    assert_eq!(verified["verified"], json!({"segments": 1, "rows": 5, "bytes": length}));
    assert_eq!(list(server, "&fromRow=1")["items"], json!([]));
    assert_eq!(archived(server, OTHER)["segments"], json!(0), "it never had a message");
    assert_eq!(streams.metric("wane_stream_archive_segments_total", ""), Some(1.0));
    assert_eq!(streams.metric("wane_stream_archive_lag_seconds", ""), Some(0.0));
}

#[test]
fn a_damaged_segment_is_named_and_everything_else_goes_on() {
    let (streams, place) = with_archive(&[]);
    let server = &streams.server;
    streams.push_numbers(0..10);
    archived(server, ISPB);
    streams.push_numbers(10..20);
    archived(server, ISPB);
    let segment = list(server, "")["items"][1].clone();
    let file = file_of(&place, &segment);
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [flipped, whole[..whole.len() - 1].to_vec(), Vec::new()] {
        fs::write(&file, damaged).unwrap();
        let told = server.administer("GET", &format!("{PATH}?ispb={ISPB}&verify=true"), "");
        assert_eq!((told.status, &*told.code()), (502, "archive_damaged"), "{}", told.body);
        assert!(told.body.contains(segment["name"].as_str().unwrap()), "{}", told.body);
    }
    fs::write(&file, whole).unwrap();
    assert_eq!(list(server, "&verify=true")["verified"]["rows"], json!(2));
    streams.push_numbers(20..30);
    assert_eq!(archived(server, ISPB)["rows"], json!(1));
}

#[test]
fn what_is_no_request_for_an_archive_is_refused_and_changes_nothing() {
    let (streams, _place) = with_archive(&[]);
    let server = &streams.server;
    streams.push_numbers(0..10);
    for (wrong, field) in [
        (json!({"ispb": "1234", "from": 0, "to": 1}), "ispb"),
        (json!({"ispb": ISPB, "from": 5, "to": 5}), "to"),
        (json!({"ispb": ISPB, "from": 6, "to": 5}), "to"),
        (json!({"ispb": ISPB, "from": -1, "to": 5}), "from"),
        (json!({"ispb": ISPB, "from": 0, "to": 1.5}), "to"),
        (json!({"ispb": ISPB, "from": 0}), "to"),
        (json!({"ispb": ISPB, "from": 0, "to": 1, "segments": 0}), "segments"),
        (json!({"ispb": ISPB, "from": 0, "to": 1, "segments": 65}), "segments"),
        (json!({"ispb": ISPB, "from": 0, "to": 1, "path": "/etc"}), "path"),
    ] {
        let answer = archive(server, &wrong);
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
        assert!(answer.body.contains(field), "{wrong}: {}", answer.body);
    }
    for query in ["", "?ispb=1", "?ispb=12345678&fromRow=x", "?ispb=12345678&verify=maybe", "?x=1"]
    {
        let answer = server.administer("GET", &format!("{PATH}{query}"), "");
        assert_eq!(answer.status, 400, "{query}: {}", answer.body);
    }
    assert_eq!(list(server, "")["items"], json!([]));
}

#[test]
fn without_an_archive_operators_are_told_which_setting_makes_one() {
    let streams = Streams::new();
    for answer in [
        archive(&streams.server, &json!({"ispb": ISPB, "from": 0, "to": 1})),
        streams.server.administer("GET", &format!("{PATH}?ispb={ISPB}"), ""),
    ] {
        assert_eq!((answer.status, &*answer.code()), (404, "absent"));
        assert!(answer.body.contains("stream_archive"), "{}", answer.body);
    }
}

/// An archive that cannot be used is told before anything is served.
#[test]
fn a_server_does_not_start_with_an_archive_that_is_none() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let archive = format!("dir:{}", file.display());
    let output = crate::server::wane()
        .args(["serve", "--storage", "mem", "--listen", "127.0.0.1:0"])
        .args(["--admin-listen", "127.0.0.1:0", "--stream-archive", &archive])
        .args([Path::new("--data"), place.path()])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the archive of pull streams"), "{told}");
}

/// Everything is due at once, as it is kept for a shorter time than it is archived before.
#[test]
fn the_server_archives_what_is_due_by_itself() {
    let flags = ["--stream-archive-every-ms", "50", "--stream-archive-before-hours", "800"];
    let (streams, _place) = with_archive(&flags);
    let server = &streams.server;
    streams.push_numbers(0..30);
    let rows = || -> u64 {
        let listed = list(server, "");
        let segments = listed["items"].as_array().unwrap();
        segments.iter().map(|segment| segment["rows"].as_u64().unwrap()).sum()
    };
    assert!(eventually(|| rows() == 3), "{}", rows());
    streams.push_numbers(30..40);
    assert!(eventually(|| rows() == 4), "{}", rows());
    assert_eq!(list(server, "&verify=true")["verified"]["rows"], json!(4));
    assert_eq!(archived(server, ISPB)["segments"], json!(0), "nothing is left");
    assert!(streams.metric("wane_stream_archive_rows_total", "").unwrap() >= 4.0);
    assert_eq!(streams.metric("wane_stream_archive_failures_total", ""), Some(0.0));
}

/// Nothing was changed by archiving: readers get what they would have got.
#[test]
fn archiving_changes_nothing_for_readers() {
    let (streams, _place) = with_archive(&[]);
    let sent = streams.push_numbers(0..20);
    let before = streams.standing();
    archived(&streams.server, ISPB);
    assert_eq!(streams.standing(), before);
    let first = streams.start();
    let second = streams.after(&first);
    assert_eq!([first.ids(), second.ids()].concat(), sent);
}
