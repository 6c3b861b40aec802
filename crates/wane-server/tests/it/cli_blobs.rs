//! `wane blob` as people type it: the real binary against a real server, cut off and taken up again.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::server::{Server, eventually, wane};

/// A place to work in: files, and what `put` remembers.
struct Desk {
    place: TempDir,
    url: String,
    key: String,
}

impl Desk {
    fn at(server: &Server) -> Self {
        Self::over(server, server.http)
    }

    /// A desk that reaches the server by another address.
    fn over(server: &Server, address: SocketAddr) -> Self {
        let (place, key) = (tempfile::tempdir().unwrap(), server.key.clone());
        Self { place, url: format!("http://{address}"), key }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(name)).ok()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = wane();
        command.arg("blob").args(words).current_dir(self.place.path());
        command.env("WANE_URL", &self.url).env("WANE_KEY", &self.key);
        command.env("XDG_STATE_HOME", self.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The exit code, and everything that was said.
    fn tells(&self, words: &[&str]) -> (i32, String) {
        told(&self.run(words))
    }

    fn put(&self, words: &[&str]) -> Json {
        let output = self.run(&[&["put", "--json"], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", told(&output).1);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn pipes(&self, words: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        // A command that refuses early does not read to the end.
        drop(child.stdin.take().unwrap().write_all(input));
        child.wait_with_output().unwrap()
    }

    fn remembered(&self) -> Vec<Json> {
        let files = std::fs::read_dir(self.path("state/wane/uploads"));
        let files = files.into_iter().flatten().map(|file| std::fs::read(file.unwrap().path()));
        files.filter_map(|bytes| serde_json::from_slice(&bytes.ok()?).ok()).collect()
    }
}

fn told(output: &Output) -> (i32, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    (output.status.code().unwrap_or(-1), said)
}

fn id(uploaded: &Json) -> String {
    uploaded["blobSUUID"].as_str().unwrap().to_owned()
}

/// Bytes in which every part is another.
fn bytes(length: usize) -> Vec<u8> {
    let words = (0_u64..).flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    words.take(length).collect()
}

/// Passes bytes on to a server that may move, as many in either direction as it is told.
struct Relay {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let all = || Arc::new(AtomicU64::new(u64::MAX));
        let relay = Self {
            address: listener.local_addr().unwrap(),
            server: Arc::new(Mutex::new(server)),
            up: all(),
            down: all(),
            is_over: Arc::default(),
        };
        let (server, is_over) = (Arc::clone(&relay.server), Arc::clone(&relay.is_over));
        let (up, down) = (Arc::clone(&relay.up), Arc::clone(&relay.down));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(*server.lock()) else { continue };
                for (from, to, allowed) in [(&client, &server, &up), (&server, &client, &down)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let allowed = Arc::clone(allowed);
                    std::thread::spawn(move || pass_on(from, to, &allowed));
                }
            }
        });
        relay
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for allowed in [&self.up, &self.down] {
            allowed.store(u64::MAX, Ordering::SeqCst);
        }
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes whoever waits for connections; where nobody does, that is what is wanted.
        drop(TcpStream::connect(self.address));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, allowed: &AtomicU64) {
    let mut piece = [0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        while allowed.load(Ordering::SeqCst) < length as u64 {
            crate::wait(Duration::from_millis(5));
        }
        allowed.fetch_sub(length as u64, Ordering::SeqCst);
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    // Both ends learn that the other one has gone.
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}

/// Bytes of an upload that a server has, by what is remembered of it.
fn kept(server: &Server, desk: &Desk) -> Option<u64> {
    let upload = desk.remembered().pop()?;
    let path = format!("/api/v2/apps/demo/app/workspaces/1/tblobs-tus/{}", id(&upload));
    let head = format!(
        "HEAD {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ntus-resumable: 1.0.0\r\n\
         authorization: Bearer {}\r\n\r\n",
        server.key
    );
    crate::server::raw(server.http, head.as_bytes()).header("upload-offset")?.parse().ok()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn files_of_every_size_come_back_byte_for_byte() {
    let _machine = crate::loading();
    let server = Server::on_file();
    let desk = Desk::at(&server);
    for size in [0, 1, 102_399, 102_400, 102_401, 4_096_001, 5 << 20] {
        desk.file("in", &bytes(size));
        let uploaded = desk.put(&["in", "--ttl", "6h"]);
        let (code, said) = desk.tells(&["get", "-o", "out", "--force", "--", &id(&uploaded)]);
        assert_eq!(code, 0, "{said}");
        assert!(desk.read("out").unwrap() == bytes(size), "{size}");
        assert_eq!(desk.read("out.part"), None);
        let life = uploaded["expiresAt"].as_u64().unwrap() - crate::wall_clock();
        assert!((21_000_000..=21_600_000).contains(&life), "{life}");
    }
    assert_eq!(desk.remembered(), Vec::<Json>::new());
}

#[test]
fn pipes_are_put_and_got() {
    let _machine = crate::loading();
    let server = Server::in_memory();
    let desk = Desk::at(&server);
    for size in [0, 1, 102_401, 5 << 20] {
        let output = desk.pipes(&["put", "-", "--json", "--workspace", "7"], &bytes(size));
        assert_eq!(output.status.code(), Some(0), "{}", told(&output).1);
        let uploaded: Json = serde_json::from_slice(&output.stdout).unwrap();
        let got = desk.run(&["get", "-o", "-", "--workspace", "7", "--", &id(&uploaded)]);
        assert!(got.stdout == bytes(size), "{size}: {}", String::from_utf8_lossy(&got.stderr));
        assert_eq!(desk.tells(&["info", "--", &id(&uploaded)]).0, 4, "in another workspace");
    }
}

#[test]
fn files_go_over_tls_too() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::with(&["--tls-cert", cert, "--tls-key", key, "--storage", "mem"]);
    let mut desk = Desk::at(&server);
    desk.url = format!("https://{}", server.http);
    desk.file("in", &bytes(5 << 20));
    let id = id(&desk.put(&["in", "--ca", cert]));
    let (code, said) = desk.tells(&["get", "--ca", cert, "-o", "out", "--", &id]);
    assert_eq!(code, 0, "{said}");
    assert!(desk.read("out").unwrap() == bytes(5 << 20));
    assert_eq!(desk.tells(&["info", "--", &id]).0, 1, "an authority that is not trusted");
}

/// The same command after the client was killed: what is there is not sent again.
#[test]
fn put_goes_on_after_the_client_was_killed() {
    let _machine = crate::loading();
    let server = Server::on_file();
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    let whole = bytes(20_000_000);
    desk.file("in", &whole);
    relay.up.store(9_000_000, Ordering::SeqCst);
    let put = desk.command(&["put", "in"]).spawn().unwrap();
    assert!(eventually(|| kept(&server, &desk) == Some(8_192_000)), "{:?}", kept(&server, &desk));
    let second = desk.tells(&["put", "in"]);
    assert_eq!(second.0, 3, "one at a time: {}", second.1);
    kill(put);

    // Fewer than all; what the first one had sent and nobody took is among them.
    relay.up.store(18_000_000, Ordering::SeqCst);
    let output = desk.run(&["put", "in", "--json"]);
    let (code, said) = told(&output);
    assert_eq!(code, 0, "{said}");
    // What was still on its way when the client was killed may have arrived.
    let going_on = said.lines().find_map(|line| line.strip_prefix("going on at byte "));
    assert!(going_on.is_some_and(|at| at.parse::<u64>().unwrap() >= 8_192_000), "{said}");
    assert_eq!(desk.remembered(), Vec::<Json>::new());
    let uploaded: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(desk.tells(&["get", "-o", "out", "--", &id(&uploaded)]).0, 0);
    assert!(desk.read("out").unwrap() == whole);
    let secret = uploaded["deleteSecret"].as_str().unwrap();
    assert_eq!(desk.tells(&["delete", "--secret", secret, "--", &id(&uploaded)]).0, 0);
}

/// A run that is under way waits for the server, and goes on with what that has kept.
#[test]
fn put_goes_on_after_the_server_was_killed() {
    let _machine = crate::loading();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    let whole = bytes(20_000_000);
    desk.file("in", &whole);
    relay.up.store(9_000_000, Ordering::SeqCst);
    let put = desk.command(&["put", "in", "--json"]).spawn().unwrap();
    assert!(eventually(|| kept(&server, &desk) == Some(8_192_000)), "{:?}", kept(&server, &desk));
    server.kill();
    relay.up.store(u64::MAX, Ordering::SeqCst);
    let server = Server::start(directory.path(), &[]);
    *relay.server.lock() = server.http;
    let output = put.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output).1);
    let uploaded: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(desk.tells(&["get", "-o", "out", "--", &id(&uploaded)]).0, 0);
    assert!(desk.read("out").unwrap() == whole);
}

/// Nothing of two states of a file is put together.
#[test]
fn a_file_that_changed_is_put_anew() {
    let _machine = crate::loading();
    let server = Server::on_file();
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    desk.file("in", &bytes(10_000_000));
    relay.up.store(5_000_000, Ordering::SeqCst);
    let put = desk.command(&["put", "in"]).spawn().unwrap();
    assert!(eventually(|| kept(&server, &desk) == Some(4_096_000)), "{:?}", kept(&server, &desk));
    kill(put);
    let first = desk.remembered().pop().unwrap();
    let other: Vec<u8> = bytes(10_000_000).iter().map(|byte| !byte).collect();
    desk.file("in", &other);
    relay.up.store(u64::MAX, Ordering::SeqCst);
    let uploaded = desk.put(&["in"]);
    assert_ne!(id(&uploaded), id(&first));
    assert_eq!(desk.tells(&["get", "-o", "out", "--", &id(&uploaded)]).0, 0);
    assert!(desk.read("out").unwrap() == other);
    let path = format!("/api/v2/apps/demo/app/workspaces/1/tblobs/{}", id(&first));
    assert_eq!(server.ask("GET", &path, "").status, 404);
}

/// And one that changes while it is read is not kept at all.
#[test]
fn a_file_that_changes_meanwhile_is_not_kept() {
    let _machine = crate::loading();
    let server = Server::on_file();
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    desk.file("in", &bytes(10_000_000));
    relay.up.store(5_000_000, Ordering::SeqCst);
    let put = desk.command(&["put", "in"]).spawn().unwrap();
    assert!(eventually(|| kept(&server, &desk) == Some(4_096_000)), "{:?}", kept(&server, &desk));
    let first = desk.remembered().pop().unwrap();
    desk.file("in", &bytes(10_000_001)[1..]);
    relay.up.store(u64::MAX, Ordering::SeqCst);
    let output = put.wait_with_output().unwrap();
    let (code, said) = told(&output);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("in changed while it was put"), "{said}");
    assert_eq!(desk.tells(&["info", "--", &id(&first)]).0, 4);
    assert_eq!(desk.remembered(), Vec::<Json>::new());
}

#[test]
fn get_goes_on_with_what_came_before() {
    let _machine = crate::loading();
    let server = Server::on_file();
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    let whole = bytes(20_000_000);
    desk.file("in", &whole);
    let id = id(&desk.put(&["in"]));
    relay.down.store(6_000_000, Ordering::SeqCst);
    let get = desk.command(&["get", "-o", "out", "--", &id]).spawn().unwrap();
    let there = || std::fs::metadata(desk.path("out.part")).map_or(0, |part| part.len());
    assert!(eventually(|| there() > 5_000_000), "{} bytes came", there());
    assert_eq!(desk.tells(&["get", "-o", "out", "--", &id]).0, 3, "one at a time");
    kill(get);
    assert_eq!(desk.read("out"), None, "half a file has no name");

    let before = there();
    // Fewer than all; what the first one had asked for and nobody took is among them.
    relay.down.store(19_000_000, Ordering::SeqCst);
    let (code, said) = desk.tells(&["get", "-o", "out", "--", &id]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("going on at byte {before}")), "{said}");
    assert!(desk.read("out").unwrap() == whole);
    assert_eq!(desk.read("out.part"), None);
}

/// Within one run too: the connection goes, the download does not.
#[test]
fn get_goes_on_after_the_server_was_killed() {
    let _machine = crate::loading();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    let whole = bytes(20_000_000);
    desk.file("in", &whole);
    let id = id(&desk.put(&["in"]));
    relay.down.store(6_000_000, Ordering::SeqCst);
    let get = desk.command(&["get", "-o", "out", "--", &id]).spawn().unwrap();
    let there = || std::fs::metadata(desk.path("out.part")).map_or(0, |part| part.len());
    assert!(eventually(|| there() > 5_000_000), "{} bytes came", there());
    server.kill();
    let server = Server::start(directory.path(), &[]);
    *relay.server.lock() = server.http;
    relay.down.store(u64::MAX, Ordering::SeqCst);
    let output = get.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output).1);
    assert!(desk.read("out").unwrap() == whole);
}

#[test]
fn a_part_of_something_else_is_not_continued() {
    let server = Server::in_memory();
    let desk = Desk::at(&server);
    desk.file("in", &bytes(300_000));
    let id = id(&desk.put(&["in"]));
    let other: Vec<u8> = bytes(200_000).iter().map(|byte| !byte).collect();
    desk.file("out.part", &other);
    let (code, said) = desk.tells(&["get", "-o", "out", "--", &id]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("out.part holds something else"), "{said}");
    assert!(desk.read("out.part").unwrap() == other && desk.read("out").is_none());
    assert_eq!(desk.tells(&["get", "-o", "out", "--force", "--", &id]).0, 0);
    assert!(desk.read("out").unwrap() == bytes(300_000));

    let mut damaged = bytes(200_000);
    damaged[7] ^= 1;
    desk.file("again.part", &damaged);
    let (code, said) = desk.tells(&["get", "-o", "again", "--", &id]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("it is not what was uploaded"), "{said}");
    assert_eq!((desk.read("again"), desk.read("again.part")), (None, None));
}

#[test]
fn a_one_time_blob_is_got_once_and_never_continued() {
    let _machine = crate::loading();
    let server = Server::on_file();
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    desk.file("in", &bytes(10_000_000));
    let one = id(&desk.put(&["in", "--downloads", "1"]));
    let (code, said) = desk.tells(&["info", "--", &one]);
    assert!(code == 0 && said.contains("downloads left  1"), "{said}");
    desk.file("out.part", b"x");
    let (code, said) = desk.tells(&["get", "-o", "out", "--", &one]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("the downloads of this BLOB are numbered"), "{said}");
    assert_eq!(desk.tells(&["get", "-o", "out", "--force", "--", &one]).0, 0);
    assert!(desk.read("out").unwrap() == bytes(10_000_000));
    assert_eq!(desk.tells(&["get", "-o", "more", "--", &one]).0, 4);

    let other = id(&desk.put(&["in", "--downloads", "1"]));
    relay.down.store(2_000_000, Ordering::SeqCst);
    let get = desk.command(&["get", "-o", "cut", "--", &other]).spawn().unwrap();
    assert!(eventually(|| desk.read("cut.part").is_some_and(|part| part.len() > 1_000_000)));
    server.kill();
    relay.down.store(u64::MAX, Ordering::SeqCst);
    let output = get.wait_with_output().unwrap();
    let (code, said) = told(&output);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("it is gone"), "{said}");
    assert_eq!((desk.read("cut"), desk.read("cut.part")), (None, None));
}

/// Names are whatever people call their files; what becomes of them here stays in this directory.
#[test]
fn names_come_back_and_stay_in_the_directory() {
    let server = Server::in_memory();
    let desk = Desk::at(&server);
    desk.file("in", b"milk");
    for (name, file) in [
        ("plain.txt", "plain.txt"),
        ("a \"quoted\" name;%.txt", "a \"quoted\" name;%.txt"),
        ("../../up/and/away", "___.._up_and_away"),
        ("\u{fc}n\u{ef}c\u{f6}de \u{1f95b}", "\u{fc}n\u{ef}c\u{f6}de \u{1f95b}"),
        (".profile", "_profile"),
        ("..", "__"),
    ] {
        for piped in [true, false] {
            let uploaded = if piped {
                let output = desk.pipes(&["put", "-", "--json", "--name", name], b"milk");
                serde_json::from_slice(&output.stdout).unwrap()
            } else {
                desk.put(&["in", "--name", name])
            };
            let info = desk.run(&["info", "--json", "--", &id(&uploaded)]);
            let info: Json = serde_json::from_slice(&info.stdout).unwrap();
            assert_eq!(info["name"], name);
            let (code, said) = desk.tells(&["get", "--force", "--", &id(&uploaded)]);
            assert_eq!(code, 0, "{name}: {said}");
            assert_eq!(desk.read(file).as_deref(), Some(&b"milk"[..]), "{name}");
            assert_eq!(desk.tells(&["get", "--", &id(&uploaded)]).0, 3, "{name}");
        }
    }
    let nameless: Json =
        serde_json::from_slice(&desk.pipes(&["put", "-", "--json"], b"x").stdout).unwrap();
    assert_eq!(desk.tells(&["get", "--", &id(&nameless)]).0, 0);
    assert_eq!(desk.read(&id(&nameless)).as_deref(), Some(&b"x"[..]));
    let kept = desk.put(&["in"]);
    assert!(desk.tells(&["info", "--", &id(&kept)]).1.contains("name            in\n"));
}

#[test]
fn exit_codes_tell_what_happened() {
    let server = Server::in_memory();
    let desk = Desk::at(&server);
    desk.file("in", b"milk");
    let uploaded = desk.put(&["in", "--content-type", "text/plain"]);
    let id = id(&uploaded);
    let secret = uploaded["deleteSecret"].as_str().unwrap();
    assert_eq!(desk.tells(&["put", "nothing"]).0, 4);
    assert_eq!(desk.tells(&["put", "."]).0, 1);
    assert_eq!(desk.tells(&["put", "in", "--ttl", "soon"]).0, 2);
    assert_eq!(desk.tells(&["put", "in", "--ttl", "2d"]).0, 2, "more than the app may");
    assert_eq!(desk.tells(&["put", "in", "--name", "a\nb"]).0, 2);
    assert_eq!(desk.tells(&["put", "in", "--content-type", "milk"]).0, 2);
    assert_eq!(desk.tells(&["get", "short"]).0, 2);
    assert_eq!(desk.tells(&["get", "-o", "in", "--", &id]).0, 3);
    assert_eq!(desk.tells(&["get", "-o", "no/such/directory", "--", &id]).0, 4);
    assert_eq!(desk.tells(&["info", "--workspace", "2", "--", &id]).0, 4);
    assert_eq!(desk.tells(&["delete", "--secret", &id, "--", &id]).0, 4, "another secret");
    let keyless = desk
        .command(&["delete", "--secret", secret, "--", &id])
        .env_remove("WANE_KEY")
        .output()
        .unwrap();
    assert_eq!(told(&keyless), (0, "deleted\n".into()));
    assert_eq!(desk.tells(&["delete", "--", &id]).0, 4);
    let away = desk.command(&["info", "--", &id]).env("WANE_URL", "http://127.0.0.1:1").output();
    assert_eq!(told(&away.unwrap()).0, 1);
    let left: Vec<_> = files(desk.place.path());
    assert_eq!(left, ["in", "state"], "nothing that failed leaves a file");
}

/// The most memory that a process has had, in bytes.
fn most_memory(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// A process takes 25 to 40 MB, most of it the program itself, and a file in its memory would take 60
/// more.
#[test]
fn memory_does_not_grow_with_the_file() {
    const MOST: u64 = 60_000_000;
    let _machine = crate::loading();
    let server = Server::on_file();
    let relay = Relay::to(server.http);
    let desk = Desk::over(&server, relay.address);
    let whole = bytes(60_000_000);
    desk.file("in", &whole);
    relay.up.store(50_000_000, Ordering::SeqCst);
    let put = desk.command(&["put", "in", "--json"]).spawn().unwrap();
    assert!(eventually(|| kept(&server, &desk) >= Some(40_000_000)));
    assert!(most_memory(&put) < MOST, "{}", most_memory(&put));
    relay.up.store(u64::MAX, Ordering::SeqCst);
    let output = put.wait_with_output().unwrap();
    let uploaded: Json = serde_json::from_slice(&output.stdout).unwrap();

    let mut pipe = desk.command(&["put", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = pipe.stdin.take().unwrap();
    input.write_all(&whole[..50_000_000]).unwrap();
    assert!(most_memory(&pipe) < MOST, "{}", most_memory(&pipe));
    drop(input);
    assert!(pipe.wait().unwrap().success());

    relay.down.store(50_000_000, Ordering::SeqCst);
    let get = desk.command(&["get", "-o", "out", "--", &id(&uploaded)]).spawn().unwrap();
    let there = || std::fs::metadata(desk.path("out.part")).map_or(0, |part| part.len());
    assert!(eventually(|| there() > 40_000_000), "{} bytes came", there());
    assert!(most_memory(&get) < MOST, "{}", most_memory(&get));
    relay.down.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(get.wait_with_output().unwrap().status.code(), Some(0));
    assert!(desk.read("out").unwrap() == whole);
}

fn files(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn limits_are_said_before_the_bytes_are_sent_and_while_they_come() {
    let server = Server::in_memory();
    let limits = r#"{"maxBlobBytes":1000000}"#;
    let set = server.administer("PUT", "/api/v1/admin/apps/demo/app/limits", limits);
    assert_eq!(set.status, 200, "{}", set.body);
    let desk = Desk::at(&server);
    desk.file("in", &bytes(1_000_001));
    let (code, said) = desk.tells(&["put", "in"]);
    assert!(code == 1 && said.contains("too_large"), "{code} {said}");
    assert_eq!(desk.remembered(), Vec::<Json>::new());
    let (code, said) = told(&desk.pipes(&["put", "-"], &bytes(5 << 20)));
    assert!(code == 1 && said.contains("too_large"), "{code} {said}");
    desk.file("in", &bytes(1_000_000));
    desk.put(&["in"]);
}
