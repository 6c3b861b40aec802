//! The command line as people type it: the real binary, against a real server and without one.

use std::process::Output;

use crate::server::{Server, wane};

/// Runs a command against this server, with the keys that it made.
fn run(server: &Server, arguments: &[&str]) -> Output {
    wane()
        .args(["--url", &format!("http://{}", server.http)])
        .args(["--admin-url", &format!("http://{}", server.admin)])
        .args(arguments)
        .env("WANE_DATA", server.data())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The exit code and what was said where it belongs.
fn said(output: &Output) -> (i32, String) {
    let code = output.status.code().unwrap();
    let said = if code == 0 { &output.stdout } else { &output.stderr };
    (code, text(said))
}

#[test]
fn entries_live_and_exit_codes_tell_what_happened() {
    let server = Server::on_file();
    let run = |arguments: &[&str]| said(&run(&server, arguments));
    assert_eq!(run(&["ttl", "insert", "hello", "world", "--ttl", "900"]).0, 0);
    assert_eq!(run(&["ttl", "get", "hello"]), (0, "world".into()));
    let (code, why) = run(&["ttl", "insert", "hello", "again", "--ttl", "900"]);
    assert_eq!(code, 3);
    assert!(why.contains("there stands world"), "{why}");
    assert_eq!(run(&["ttl", "swap", "hello", "wrong", "x", "--ttl", "60"]).0, 3);
    assert_eq!(run(&["ttl", "swap", "hello", "world", "again", "--keep-expiry"]).0, 0);
    assert_eq!(run(&["ttl", "touch", "hello", "--ttl", "2h"]).0, 0);
    let (code, table) = run(&["ttl", "scan"]);
    assert_eq!(code, 0);
    assert!(table.contains("hello") && table.contains("1h 59m"), "{table}");
    assert_eq!(run(&["ttl", "delete", "hello", "--expected", "x"]).0, 3);
    assert_eq!(run(&["ttl", "delete", "hello", "--expected", "again"]).0, 0);
    let (code, why) = run(&["ttl", "get", "hello"]);
    assert_eq!(code, 4);
    assert!(why.contains("absent"), "{why}");
    assert_eq!(run(&["ttl", "insert", "k", "v", "--ttl", "0"]).0, 2);
    assert_eq!(run(&["ttl", "insert", "k"]).0, 2);
}

#[test]
fn an_app_is_made_used_limited_and_its_key_revoked() {
    let server = Server::in_memory();
    let made = run(&server, &["--json", "app", "create", "acme/two"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let ttl = |arguments: &[&str]| {
        let mut all = vec!["--key", &key, "ttl", "--app", "acme/two"];
        all.extend(arguments);
        said(&run(&server, &all)).0
    };
    assert_eq!(ttl(&["set", "k", "v", "--ttl", "60"]), 0);
    assert_eq!(said(&run(&server, &["app", "create", "acme/two"])).0, 3);
    assert_eq!(said(&run(&server, &["app", "limits", "acme/two", "--max-keys", "1"])).0, 0);
    let (id, secret) = key.split_once('.').unwrap();
    let listed = said(&run(&server, &["app", "list"])).1;
    assert!(listed.contains("acme/two") && listed.contains(id), "{listed}");
    assert!(!listed.contains(secret));
    assert_eq!(said(&run(&server, &["app", "key", "revoke", "acme/two", id])).0, 0);
    assert_eq!(ttl(&["get", "k"]), 1, "felt at once");
    let said = run(&server, &["--key", &key, "ttl", "--app", "acme/two", "get", "k"]);
    assert!(!text(&said.stderr).contains(secret), "a key is not repeated");
}

#[test]
fn a_running_server_is_backed_up_and_restored_elsewhere_with_lives_going_on() {
    let server = Server::on_file();
    assert_eq!(said(&run(&server, &["ttl", "insert", "kept", "v", "--ttl", "900"])).0, 0);
    let before = server.ask("GET", "/api/v2/apps/demo/app/ttl/kept", "").json();
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("b.wane"), directory.path().join("data"));
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    assert_eq!(said(&run(&server, &["backup", file])).0, 0);
    assert_eq!(said(&run(&server, &["backup", file])).0, 3, "a backup is not overwritten");
    assert_eq!(said(&run(&server, &["verify", file])).0, 0);
    let live = server.data().to_str().unwrap();
    let (code, why) = said(&run(&server, &["restore", file, "--data", live]));
    assert_eq!(code, 3, "a live store is not overwritten: {why}");
    assert_eq!(said(&run(&server, &["restore", file, "--data", data])).0, 0);
    for key in ["demo.key", "admin.key"] {
        std::fs::copy(server.data().join(key), format!("{data}/{key}")).unwrap();
    }
    server.kill();
    let restored = Server::start(data.as_ref(), &[]);
    let after = restored.ask("GET", "/api/v2/apps/demo/app/ttl/kept", "").json();
    assert_eq!((&after["value"], &after["expiresAt"]), (&before["value"], &before["expiresAt"]));
}

#[test]
fn without_a_server_it_says_what_was_tried_and_what_to_do() {
    let arguments = ["--url", "http://127.0.0.1:1", "--key", "1-a.b", "ttl", "get", "k"];
    let (code, why) = said(&wane().args(arguments).output().unwrap());
    assert_eq!(code, 1);
    assert!(why.contains("http://127.0.0.1:1") && why.contains("wane serve"), "{why}");
}

#[test]
fn serve_says_what_is_wrong_with_its_settings_and_ends_with_two() {
    for (arguments, says) in [
        (&["serve", "--listen", "0.0.0.0:0"][..], "set insecure"),
        (&["serve", "--storage", "disk"], "give mem, file, redis"),
        (&["serve", "--listen", "nowhere"], "listen"),
        (&["serve", "--lisen", "x"], "--listen"),
    ] {
        let (code, why) = said(&wane().args(arguments).output().unwrap());
        assert_eq!(code, 2, "{arguments:?}: {why}");
        assert!(why.contains(says), "{arguments:?}: {why}");
    }
    let printed = wane().args(["serve", "--print-settings", "--data", "/d"]).output().unwrap();
    assert!(text(&printed.stdout).contains("data = \"/d\""), "{}", text(&printed.stdout));
}
