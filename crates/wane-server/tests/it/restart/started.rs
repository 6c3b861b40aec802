//! Starts: one process at a time on a store, keys that stay, and what the server says when ready.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use crate::server::{Server, eventually, request, wane};
use crate::{stopwatch, wait};

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// `wane serve` on any ports, not started yet.
fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = wane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command.arg("--data").arg(data).args(flags).stdout(Stdio::null());
    command
}

/// A process that ends with its test, however that ends.
struct Process(Child);

impl Process {
    fn spawn(command: &mut Command) -> Self {
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_second_process_on_the_same_data_ends_at_once_and_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let first = Server::start(home.path(), &[]);
    let took = stopwatch();
    let second = serve(home.path(), &[]).output().unwrap();
    let took = took();
    assert_eq!(second.status.code(), Some(1));
    let said = said(&second);
    for words in ["open in another process", "stop that one first", "--wait", "--data"] {
        assert!(said.contains(words), "{words:?} is not in {said:?}");
    }
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    assert_eq!(first.ask("GET", "/readyz", "").status, 200, "the first goes on");
}

#[test]
fn a_process_that_waits_takes_over_when_the_first_ends() {
    let home = tempfile::tempdir().unwrap();
    for ends in [Server::kill, |server: Server| assert_eq!(server.stop(), Some(0))] {
        let first = Server::start(home.path(), &[]);
        let body = r#"{"value":"kept","ttlSeconds":60}"#;
        assert!(first.ask("PUT", &format!("{TTL}/k"), body).status == 200);
        let ready = home.path().join("second.json");
        drop(fs::remove_file(&ready));
        let mut second =
            Process::spawn(serve(home.path(), &["--wait", "--ready-file"]).arg(&ready));
        wait(Duration::from_millis(700));
        assert!(!ready.exists() && second.0.try_wait().unwrap().is_none(), "it waits");
        let key = first.key.clone();
        ends(first);
        assert!(eventually(|| ready.exists()), "it takes over");
        let ready: Json = serde_json::from_slice(&fs::read(&ready).unwrap()).unwrap();
        let address = ready["http"].as_str().unwrap().parse().unwrap();
        let answer = request(address, Some(&key), "GET", &format!("{TTL}/k"), "");
        assert_eq!(answer.json()["value"], "kept", "{}", answer.body);
    }
}

fn key_files(data: &Path) -> [(PathBuf, String); 2] {
    ["admin.key", "demo.key"].map(|name| {
        let path = data.join(name);
        let key = fs::read_to_string(&path).unwrap();
        (path, key)
    })
}

#[test]
fn key_files_are_their_owners_alone_and_stay_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    Server::start(home.path(), &[]).kill();
    let first = key_files(home.path());
    for (path, _) in &first {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    assert_eq!(Server::start(home.path(), &[]).stop(), Some(0));
    assert_eq!(key_files(home.path()), first, "kept on the second start");
    Server::start(home.path(), &["--storage", "mem"]).kill();
    let other = key_files(home.path());
    assert!(first.iter().zip(&other).all(|(old, new)| old.1 != new.1), "memory forgets keys");
    for (path, _) in &other {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}

/// A start without key files on a store that is there already, as a second node makes it.
#[test]
fn keys_of_a_second_node_work_beside_the_first_and_do_not_count() {
    let home = tempfile::tempdir().unwrap();
    let first = Server::start(home.path(), &[]);
    let (key, admin_key) = (first.key.clone(), first.admin_key.clone());
    first.kill();
    for (path, _) in key_files(home.path()) {
        fs::remove_file(path).unwrap();
    }
    let second = Server::start(home.path(), &[]);
    assert!(second.key != key && second.admin_key != admin_key);
    let files = key_files(second.data());
    assert_eq!(files.map(|(_, key)| key.trim().to_owned()), [&*second.admin_key, &*second.key]);
    for key in [&key, &second.key] {
        assert_eq!(second.ask_as(Some(key), "GET", TTL, "").status, 200);
    }
    for key in [&admin_key, &second.admin_key] {
        let listed = request(second.admin, Some(key), "GET", "/api/v1/admin/apps", "");
        assert_eq!(listed.status, 200);
    }
    let keys = "/api/v1/admin/apps/demo/app/keys";
    let more: Vec<_> = (0..2).map(|_| second.administer("POST", keys, "").status).collect();
    assert_eq!(more, [201, 409], "the first node's key and one more are the two of the app");
}

/// What stands between "Try it:" and the next empty line but one.
fn lines_to_paste(log: &str) -> Vec<String> {
    let lines = log.split("Try it:\n\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let whole = lines.replace("\\\n", " ");
    whole.lines().filter(|line| line.starts_with("curl")).map(str::to_owned).collect()
}

/// In directories whose names a shell would take apart, too, and from wherever one pastes.
#[test]
fn the_lines_that_the_server_prints_work_as_they_are() {
    for name in ["data", "two words", "it's $HOME \"quoted\" `x`"] {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join(name);
        let server = Server::start(&data, &["--storage", "mem"]);
        let lines = lines_to_paste(&server.log());
        assert_eq!(lines.len(), 2, "{}", server.log());
        let run = |line: &str| {
            let output = Command::new("sh").args(["-c", line]).current_dir("/").output().unwrap();
            assert!(output.status.success(), "{line}: {}", said(&output));
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(run(&lines[0]).contains("\"expiresAt\""), "{}", lines[0]);
        assert!(run(&lines[1]).contains("\"value\":\"world\""), "{}", lines[1]);
    }
}

/// In a relative directory as well, which is the default.
#[test]
fn the_lines_work_from_another_directory_than_the_servers() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let mut server = serve(Path::new("wane-data"), &["--storage", "mem"]);
    server.current_dir(home.path()).stdout(fs::File::create(&log).unwrap());
    let _server = Process::spawn(&mut server);
    let printed = || fs::read_to_string(&log).unwrap();
    let is_printed = eventually(|| printed().contains("Try it:") && printed().ends_with("\n\n"));
    let lines = if is_printed { lines_to_paste(&printed()) } else { Vec::new() };
    let outputs = lines.iter().map(|line| {
        Command::new("sh").args(["-c", line]).current_dir("/").output().unwrap().stdout
    });
    let answers: Vec<_> = outputs.map(|bytes| String::from_utf8(bytes).unwrap()).collect();
    assert!(answers.concat().contains("\"value\":\"world\""), "{answers:?} to {lines:?}");
}

/// A file of an earlier process says nothing of this one.
#[test]
fn the_ready_file_appears_when_both_ports_answer_and_not_before() {
    let home = tempfile::tempdir().unwrap();
    let ready = home.path().join("ready.json");
    let first = Server::start(home.path(), &[]);
    let stale = r#"{"http":"127.0.0.1:1","admin":"127.0.0.1:1","pid":1}"#;
    fs::write(&ready, stale).unwrap();
    let waiting = Process::spawn(serve(home.path(), &["--wait", "--ready-file"]).arg(&ready));
    assert!(eventually(|| !ready.exists()), "the file of an earlier process stays");
    first.kill();
    assert!(eventually(|| ready.exists()));
    // No second try: whoever sees the file may connect at once.
    let told: Json = serde_json::from_slice(&fs::read(&ready).unwrap()).unwrap();
    let statuses = ["http", "admin"].map(|port| {
        let address = told[port].as_str().unwrap().parse().unwrap();
        drop(TcpStream::connect(address).unwrap());
        request(address, None, "GET", "/readyz", "").status
    });
    assert_eq!(statuses, [200, 200]);
    assert_eq!(told["pid"], waiting.0.id());
}
