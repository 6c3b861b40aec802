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

#[test]
fn an_election_is_won_observed_renewed_and_resigned() {
    let server = Server::in_memory();
    let run = |arguments: &[&str]| said(&run(&server, arguments));
    assert_eq!(run(&["election", "observe", "e"]).0, 4, "nobody ever campaigned");
    let (code, won) =
        run(&["--json", "election", "campaign", "e", "--holder", "me", "--ttl", "60"]);
    assert_eq!(code, 0, "{won}");
    let won: serde_json::Value = serde_json::from_str(&won).unwrap();
    let (id, token) = (won["leaseId"].as_str().unwrap(), won["token"].to_string());
    let (code, held) = run(&["election", "campaign", "e"]);
    assert_eq!(code, 3);
    assert!(held.contains("held by me, token 1"), "{held}");
    assert!(run(&["election", "observe", "e"]).1.starts_with("held by me, token: 1, left: 59s"));
    let lease = ["--lease-id", id, "--token", &token];
    assert_eq!(run(&[&["election", "renew", "e"], &lease[..]].concat()).0, 0);
    assert_eq!(run(&["election", "renew", "e", "--lease-id", id, "--token", "2"]).0, 3);
    assert_eq!(run(&["election", "renew", "e", "--lease-id", "x", "--token", "1"]).0, 2);
    assert_eq!(run(&[&["election", "resign", "e"], &lease[..]].concat()).0, 0);
    assert_eq!(run(&["election", "observe", "e"]).1, "held by nobody, last token: 1\n");
    assert_eq!(run(&["election", "campaign", "e", "--ttl", "500ms"]).0, 2);
    assert_eq!(run(&["election", "campaign", ""]).0, 2);
}

#[test]
fn a_command_is_run_with_the_token_and_its_exit_code_passed_on() {
    let server = Server::in_memory();
    let exec = |command: &str| run(&server, &["election", "campaign", "e", "--exec", command]);
    let done = exec("echo $WANE_ELECTION $WANE_TOKEN");
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(0), "e 1\n"));
    assert_eq!(exec("exit 42").status.code(), Some(42));
    let ttl = |guard: &str| {
        said(&run(&server, &["ttl", "set", "k", "v", "--ttl", "60", "--guard", guard]))
    };
    assert_eq!(ttl("e;2").0, 0);
    let (code, why) = ttl("e;1");
    assert_eq!(code, 3);
    assert!(why.contains("somebody else leads by now"), "{why}");
    assert_eq!(ttl("e").0, 2);
    assert_eq!(exec("kill -9 $$").status.code(), Some(137));
    // What it leaves behind does not outlive the lease.
    let left = exec("sleep 1000 & echo $!");
    let pid = text(&left.stdout).trim().to_owned();
    assert!(crate::server::eventually(|| !std::path::Path::new("/proc").join(&pid).exists()));
    let standing = said(&run(&server, &["election", "observe", "e"])).1;
    assert_eq!(standing, "held by nobody, last token: 4\n", "each was resigned");
}

#[test]
fn a_campaign_that_is_asked_to_stop_stops_its_command_and_resigns() {
    let server = Server::in_memory();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let command = r#"trap 'sleep 0.3; echo stopped >> "$LOG"; exit 7' TERM; echo begun >> "$LOG"
        while :; do sleep 0.05; done"#;
    let mut campaign = wane()
        .args(["--url", &format!("http://{}", server.http), "election", "campaign", "e"])
        .args(["--ttl", "2", "--exec", command, "--data"])
        .arg(server.data())
        .env("LOG", &log)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(crate::server::eventually(|| said() == "begun\n"));
    let pid = campaign.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(campaign.wait().unwrap().code(), Some(0));
    assert_eq!(said(), "begun\nstopped\n", "it had the time that it needed");
    let standing = server.ask("GET", "/api/v2/apps/demo/app/elections/e", "").json();
    assert!(standing["holder"].is_null(), "{standing}");
}

/// A server that is gone: the command is asked to stop, then killed, before the lease can end.
#[test]
fn a_command_ends_in_time_when_the_server_is_gone() {
    let _machine = crate::measuring();
    let server = Server::in_memory();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let command = r#"trap 'echo asked >> "$LOG"' TERM
        while :; do echo acts >> "$LOG"; sleep 0.02; done"#;
    let mut campaign = wane()
        .args(["--url", &format!("http://{}", server.http), "election", "campaign", "e"])
        .args(["--ttl", "3", "--exec", command, "--data"])
        .arg(server.data())
        .env("LOG", &log)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(crate::server::eventually(|| said().lines().count() > 3));
    server.signal("STOP");
    let passed = crate::stopwatch();
    assert_eq!(campaign.wait().unwrap().code(), Some(3));
    let whole = said();
    crate::wait(std::time::Duration::from_millis(200));
    assert_eq!(said(), whole, "nothing acts any more");
    assert!(whole.contains("asked"), "it was asked before it was killed");
    assert!(passed() < std::time::Duration::from_secs(6), "{:?}", passed());
}

#[test]
fn numbers_are_taken_and_shown() {
    let server = Server::in_memory();
    let run = |arguments: &[&str]| said(&run(&server, arguments));
    assert_eq!(run(&["sequence", "show", "orders"]).0, 4);
    assert_eq!(run(&["sequence", "next", "orders"]), (0, "1\n".into()));
    assert_eq!(run(&["sequence", "next", "orders", "--count", "10"]), (0, "2 11\n".into()));
    let keyed = ["sequence", "next", "orders", "--idempotency-key", "k"];
    assert_eq!(run(&keyed), (0, "12\n".into()));
    assert_eq!(run(&keyed), (0, "12\n".into()));
    assert_eq!(run(&[&keyed[..], &["--count", "2"]].concat()).0, 3);
    assert_eq!(run(&["sequence", "show", "orders"]), (0, "13\n".into()));
    let json = run(&["--json", "sequence", "next", "orders"]).1;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_json::json!({"first": 13, "count": 1}));
    assert_eq!(run(&["sequence", "next", "orders", "--count", "0"]).0, 2);
    assert_eq!(run(&["sequence", "next", "orders", "--guard", "e;1"]).0, 3);
}
