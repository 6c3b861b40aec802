//! `wane device` as people type it: the real binary as the device, another one as the app, and the
//! real server between them.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rqrr::PreparedImage;
use serde_json::Value as Json;

use crate::server::{Server, eventually, wane};

/// How much longer than the tests of others these may take: devices poll every five seconds.
const ROUNDS: usize = 4;

/// A command with the keys of this server.
fn command(server: &Server, words: &[&str]) -> Command {
    let mut command = wane();
    command.args(["--url", &format!("http://{}", server.http)]);
    command.args(["--admin-url", &format!("http://{}", server.admin)]);
    command.args(words).env("WANE_DATA", server.data());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The exit code and what was said where it belongs.
fn run(server: &Server, words: &[&str]) -> (i32, String) {
    let output = command(server, words).output().unwrap();
    let code = output.status.code().unwrap();
    (code, text(if code == 0 { &output.stdout } else { &output.stderr }))
}

fn json(server: &Server, words: &[&str]) -> Json {
    let (code, said) = run(server, &[words, &["--json"]].concat());
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(&said).unwrap()
}

/// A device that waits.
struct Device {
    process: Child,
    out: ChildStdout,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Device {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Device {
    /// Starts one, and returns once it shows its code.
    fn start(server: &Server, words: &[&str]) -> Self {
        let device = Self::spawn(command(server, &[&["device", "start"], words].concat()));
        assert!(eventually(|| device.said().contains("waiting for approval")), "{}", device.said());
        device
    }

    fn spawn(mut command: Command) -> Self {
        // The device has no key: the app's would be no use to it.
        let mut process = command.env_remove("WANE_DATA").spawn().unwrap();
        let out = process.stdout.take().unwrap();
        let mut err = process.stderr.take().unwrap();
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut part = [0; 4_096];
            while let Ok(read @ 1..) = err.read(&mut part) {
                heard.lock().extend_from_slice(&part[..read]);
            }
        });
        Self { process, out, said }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock()).into_owned()
    }

    /// The code that it shows.
    fn code(&self) -> String {
        let said = self.said().replace("\x1b[1m", "").replace("\x1b[0m", "");
        let line = said.lines().find(|line| line.starts_with("    ") && line.contains(" - "));
        line.unwrap_or_else(|| panic!("{said}")).replace(' ', "")
    }

    /// Its exit code and its standard output.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut has_ended = || self.process.try_wait().unwrap().is_some();
        let ended = (0..ROUNDS).any(|_| eventually(&mut has_ended));
        assert!(ended, "it still waits: {}", self.said());
        let mut out = String::new();
        self.out.read_to_string(&mut out).unwrap();
        (self.process.wait().unwrap().code(), out)
    }
}

/// What a phone reads off a terminal that is black where nothing is drawn.
fn scanned(said: &str) -> Vec<String> {
    let mut rows: Vec<Vec<bool>> = Vec::new();
    for line in said.lines().filter_map(|line| line.strip_prefix("\x1b[38;5;16;48;5;231m")) {
        let line = line.strip_suffix("\x1b[0m").unwrap();
        rows.push(line.chars().map(|c| matches!(c, '\u{2588}' | '\u{2580}')).collect());
        rows.push(line.chars().map(|c| matches!(c, '\u{2588}' | '\u{2584}')).collect());
    }
    let Some(width) = rows.first().map(Vec::len) else { return Vec::new() };
    let grey = |x: usize, y: usize| if rows[y / 4][x / 4] { 0 } else { 255 };
    let mut image = PreparedImage::prepare_from_greyscale(width * 4, rows.len() * 4, grey);
    image.detect_grids().iter().map(|grid| grid.decode().unwrap().1).collect()
}

fn is_active(server: &Server, token: &str) -> Json {
    let body = format!("token={token}");
    let request = format!(
        "POST /oauth/demo/app/introspect HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {}\r\n\r\n{body}",
        server.key,
        body.len()
    );
    crate::server::raw(server.http, request.as_bytes()).json()
}

#[test]
fn a_device_is_linked_listed_and_revoked() {
    let server = Server::on_file();
    let device = Device::start(&server, &["--color", "always", "--scope", "read"]);
    let code = device.code();
    let link = format!("http://{}/device?user_code={code}", server.http);
    assert_eq!(scanned(&device.said()), [link], "a phone reads the link off the terminal");

    // As a person types it: in small letters and without the dash.
    let typed = code.to_lowercase().replace('-', "");
    let approved = json(&server, &["device", "approve", &typed, "--subject", "alice"]);
    let id = approved["deviceId"].as_str().unwrap().to_owned();
    assert_eq!(run(&server, &["device", "deny", &code]).0, 3, "it is decided");
    let all_said = Arc::clone(&device.said);
    let (exit, out) = device.ended();
    // What it said last may be read after it has ended.
    let linked = format!("linked, device id: {id}, scope: read, left: 179d");
    eventually(|| text(&all_said.lock()).contains(&linked));
    let said = text(&all_said.lock());
    assert_eq!(exit, Some(0), "{said}");
    let token = out.strip_suffix('\n').unwrap().to_owned();
    assert!(!token.is_empty() && !token.contains(char::is_whitespace), "the token and no more");
    assert!(said.contains(&linked), "{said}");
    assert!(!said.contains(&token));

    let active = is_active(&server, &token);
    assert_eq!((&active["active"], &active["sub"]), (&true.into(), &"alice".into()));
    let listed = json(&server, &["device", "list", "--subject", "alice"]);
    assert_eq!(listed["items"][0]["deviceId"], id.as_str());
    assert_eq!(listed["items"][0]["scope"], "read");
    assert_eq!(listed["items"][0]["address"], "127.0.0.1");
    let (_, table) = run(&server, &["device", "list"]);
    assert!(table.contains("Demo device") && table.contains(&id), "{table}");
    let nobody = json(&server, &["device", "list", "--subject", "bob"]);
    assert_eq!(nobody["items"], Json::Array(vec![]));

    assert_eq!(run(&server, &["device", "revoke", "--", &id]), (0, "revoked\n".into()));
    assert_eq!(run(&server, &["device", "revoke", "--", &id]).0, 4);
    assert_eq!(is_active(&server, &token)["active"], false);
    let log = server.log();
    for secret in [&*token, &code, &typed] {
        assert!(!log.contains(secret), "the server logged it");
    }
}

/// Three ends that a program must tell apart. The shortest life of a code is a minute.
#[test]
fn denied_expired_and_interrupted_have_exit_codes_of_their_own() {
    let server = Server::in_memory();
    let brief = ["app", "client", "add", "demo/app", "Brief", "--id", "brief", "--code-life", "1m"];
    assert_eq!(run(&server, &brief), (0, "client  brief\n".into()));
    let forgotten = Device::start(&server, &["--client", "brief", "--json"]);
    let denied = Device::start(&server, &["--json"]);
    let interrupted = Device::start(&server, &[]);

    assert_eq!(run(&server, &["device", "deny", &denied.code()]), (0, "denied\n".into()));
    let (code, why) = run(&server, &["device", "approve", &denied.code(), "--subject", "alice"]);
    assert_eq!(code, 3, "{why}");
    assert!(!why.contains(&denied.code()), "{why}");
    let pid = interrupted.process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(interrupted.ended(), (Some(130), String::new()));

    let (exit, out) = denied.ended();
    let object: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, &object["code"]), (Some(3), &"access_denied".into()));
    let code = forgotten.code();
    let (exit, out) = forgotten.ended();
    let object: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, &object["code"]), (Some(4), &"expired_token".into()));
    // A device stops a second early, so that its last poll is in time.
    crate::wait(Duration::from_secs(2));
    assert_eq!(run(&server, &["device", "approve", &code, "--subject", "alice"]).0, 4);
    assert_eq!(json(&server, &["device", "list"])["items"], Json::Array(vec![]));
}

/// A device on a shelf does not know that the server is being replaced.
#[test]
fn a_device_waits_through_a_restart_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    let address = server.http;
    let device = Device::start(&server, &["--json"]);
    server.kill();
    assert!(eventually(|| device.said().contains("still waiting")), "{}", device.said());
    let server = Server::start_at(address, &data, &[]);
    approve_with_own_token(&server, &device.code());
    let (exit, out) = device.ended();
    assert_eq!(exit, Some(0));
    let object: Json = serde_json::from_str(&out).unwrap();
    assert_eq!(object["access_token"], "the app's own token");
    assert_eq!((&object["token_type"], &object["scope"]), (&"Bearer".into(), &"read write".into()));
}

/// Nobody sees the token in the list of processes.
fn approve_with_own_token(server: &Server, code: &str) {
    let words = ["device", "approve", code, "--subject", "alice", "--link-token", "-"];
    let mut child = command(server, &words).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"the app's own token\n").unwrap();
    let output: Output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_confidential_client_proves_itself_by_its_secret() {
    let server = Server::in_memory();
    let add = ["app", "client", "add", "demo/app", "Kiosk", "--confidential", "--id", "kiosk"];
    let added = json(&server, &[&add[..], &["--scope", "read"]].concat());
    assert_eq!(added["clientId"], "kiosk");
    let secret = added["clientSecret"].as_str().unwrap().to_owned();
    assert_eq!(run(&server, &add).0, 3, "the id is taken");
    let file = server.data().join("kiosk.secret");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let start = |server: &Server, file: Option<&Path>, scope: &str| {
        let mut words = vec!["device", "start", "--client", "kiosk", "--scope", scope];
        words.extend(
            file.map(|file| ["--client-secret-file", file.to_str().unwrap()]).iter().flatten(),
        );
        command(server, &words)
    };
    let refused = start(&server, None, "read").output().unwrap();
    let why = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("--client-secret-file"), "{why}");
    let refused = start(&server, Some(&file), "write").output().unwrap();
    let why = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("invalid_scope") && !why.contains(&secret), "{why}");

    let device = Device::spawn(start(&server, Some(&file), "read"));
    assert!(eventually(|| device.said().contains("waiting for approval")), "{}", device.said());
    assert_eq!(run(&server, &["device", "approve", &device.code(), "--subject", "bob"]).0, 0);
    let (exit, token) = device.ended();
    assert_eq!(exit, Some(0));
    assert_eq!(is_active(&server, token.trim())["client_id"], "kiosk");

    let remove = ["app", "client", "remove", "demo/app", "kiosk"];
    assert_eq!(run(&server, &remove), (0, "removed\n".into()));
    assert_eq!(run(&server, &remove).0, 4);
    assert_eq!(start(&server, Some(&file), "read").output().unwrap().status.code(), Some(1));
    assert!(!server.log().contains(&secret), "the server logged it");
}

#[test]
fn clients_are_listed_and_given_new_secrets() {
    let server = Server::in_memory();
    let add = ["app", "client", "add", "demo/app", "Kiosk", "--confidential", "--id", "kiosk"];
    let old = json(&server, &add)["clientSecret"].as_str().unwrap().to_owned();
    let listed = json(&server, &["app", "client", "list", "demo/app"]);
    let ids: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|it| &it["clientId"]).collect();
    assert_eq!(ids, ["demo", "kiosk"]);
    let (_, table) = run(&server, &["app", "client", "list", "demo/app"]);
    assert!(
        table.contains("kiosk   Kiosk        confidential") && !table.contains(&old),
        "{table}"
    );
    let secret = ["app", "client", "secret", "demo/app"];
    let new = json(&server, &[&secret[..], &["kiosk"]].concat());
    assert_ne!(new["clientSecret"], old.as_str());
    assert_eq!(run(&server, &[&secret[..], &["nobody"]].concat()).0, 4);
    assert_eq!(run(&server, &[&secret[..], &["demo"]].concat()).0, 3, "it has none");
}
