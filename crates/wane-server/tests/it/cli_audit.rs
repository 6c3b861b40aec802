//! `wane audit` as people type it: the real binary, a real server, and a file that somebody edited.

use std::process::Command;

use serde_json::Value as Json;

use crate::http::pull_stream::audited::edit_row;
use crate::http::pull_stream::{ISPB, Streams};
use crate::server::{Server, eventually, wane};

/// Exit code, standard output and standard error of a command of the operator.
fn audit(server: &Server, words: &[&str]) -> (i32, String, String) {
    let mut command: Command = wane();
    command.arg("audit").args(words).args(["--ispb", ISPB]);
    command.env("WANE_ADMIN_URL", format!("http://{}", server.admin));
    let output = command.env("WANE_DATA", server.data()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn exported(server: &Server, words: &[&str]) -> Vec<Json> {
    let (code, out, err) = audit(server, &[&["export"], words].concat());
    assert_eq!(code, 0, "{err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_audit_is_exported_verified_and_found_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let streams = Streams::of(Server::start(&data, &["--stream-hold-ms=100"]));
    assert_eq!(exported(&streams.server, &[]), [Json::Null; 0], "nothing happened yet");
    streams.push(&[b"<a/>", b"<b/>"]);
    for _ in 0..3 {
        assert_eq!(streams.ask("GET", "/api/v1/out/12345678/stream/forged", &[]).status, 401);
    }
    let started = streams.ask("GET", "/api/v1/out/12345678/stream/start", &[]);
    assert_eq!(started.status, 200);
    assert!(eventually(|| exported(&streams.server, &[]).len() == 4));
    let all = exported(&streams.server, &[]);
    let at = |entry: &Json| entry["at"].as_u64().unwrap();
    let since = at(&all[3]).to_string();
    let late: Vec<_> = all.iter().filter(|entry| at(entry) >= at(&all[3])).cloned().collect();
    assert_eq!(exported(&streams.server, &["--from", &since]), late);
    assert_eq!(exported(&streams.server, &["--to", &at(&all[0]).to_string()]), [Json::Null; 0]);
    let (code, _, err) = audit(&streams.server, &["export", "--from=2", "--to=1"]);
    assert_eq!(code, 2, "{err}");

    let (code, out, err) = audit(&streams.server, &["verify"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.lines().any(|line| line.starts_with("remarks") && line.ends_with("3")), "{out}");
    let Streams { server, .. } = streams;
    assert_eq!(server.stop(), Some(0));

    edit_row(&data, ISPB, b'r', 0, "\"at\":1");
    let server = Server::start(&data, &["--wait"]);
    let (code, out, err) = audit(&server, &["verify"]);
    assert_eq!((code, &*out), (1, ""), "{err}");
    assert!(err.contains("row 0 of the remarks"), "{err}");
    let (code, out, _) = audit(&server, &["verify", "--json"]);
    let told: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["code"]), (1, &Json::from("audit_broken")));
}
