//! Temporary BLOBs over HTTP: each call of the interface, and each way to ask wrongly.
//!
//! Requests are written by hand, bytes and all. Real clients have a module of their own.

mod cut_off;
mod downloads;
mod refusals;
mod removal;
mod shared;
mod tus;
mod uploads;

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::server::{Answer, PATIENCE, Server};

const BLOBS: &str = "/api/v2/apps/demo/app/workspaces/7/tblobs";
const TUS: &str = "/api/v2/apps/demo/app/workspaces/7/tblobs-tus";

/// An answer, and the bytes of its body.
#[derive(Debug)]
struct Reply {
    answer: Answer,
    bytes: Vec<u8>,
}

impl Reply {
    fn status(&self) -> u16 {
        self.answer.status
    }

    #[track_caller]
    fn header(&self, name: &str) -> &str {
        let found = self.answer.header(name);
        found.unwrap_or_else(|| panic!("no {name} in\n{}", self.answer.head))
    }

    fn problem(&self) -> (u16, String) {
        (self.status(), self.answer.code())
    }

    /// Whether all bytes came that the head announces.
    fn is_whole(&self) -> bool {
        self.answer.header("content-length").and_then(|length| length.parse().ok())
            == Some(self.bytes.len())
    }
}

/// A request on its way: the head is sent, the body follows.
struct Sending {
    stream: TcpStream,
}

impl Sending {
    fn begin(server: SocketAddr, method: &str, path: &str, headers: &[&str]) -> Self {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        let mut sending = Self { stream };
        sending.bytes(head.as_bytes());
        sending
    }

    /// Sends more of the body. A server that refuses early may have closed already.
    fn bytes(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes));
    }

    /// Says that nothing more comes.
    fn end(&mut self) {
        drop(self.stream.shutdown(Shutdown::Write));
    }

    /// Everything that comes back until the server closes.
    fn reply(mut self) -> Reply {
        let mut all = Vec::new();
        drop(self.stream.read_to_end(&mut all));
        reply(&all)
    }
}

fn reply(all: &[u8]) -> Reply {
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(all.len());
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let bytes = all.get(end + 4..).unwrap_or_default().to_vec();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Reply { answer: Answer { status, head, body }, bytes }
}

/// One request as `demo/app`.
fn ask(server: &Server, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
    let key = format!("authorization: Bearer {}", server.key);
    ask_anyhow(server, method, path, &[&[&*key], headers].concat(), body)
}

/// One request with these headers and no others.
fn ask_anyhow(server: &Server, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
    let length = format!("content-length: {}", body.len());
    let mut sending = Sending::begin(server.http, method, path, &[headers, &[&*length]].concat());
    sending.bytes(body);
    sending.reply()
}

/// The begin of an upload as `demo/app`, whose body is still to come.
fn begin(server: &Server, method: &str, path: &str, headers: &[&str]) -> Sending {
    let key = format!("authorization: Bearer {}", server.key);
    Sending::begin(server.http, method, path, &[&[&*key], headers].concat())
}

/// An uploaded BLOB.
#[derive(Debug)]
struct Uploaded {
    path: String,
    secret: String,
    expires_at: u64,
}

#[track_caller]
fn upload(server: &Server, headers: &[&str], body: &[u8]) -> Uploaded {
    let reply = ask(server, "POST", BLOBS, headers, body);
    assert_eq!(reply.status(), 201, "{}", reply.answer.body);
    let json = reply.answer.json();
    let path = format!("{BLOBS}/{}", json["blobSUUID"].as_str().unwrap());
    assert_eq!(reply.header("location"), path);
    Uploaded {
        path,
        secret: json["deleteSecret"].as_str().unwrap().to_owned(),
        expires_at: json["expiresAt"].as_u64().unwrap(),
    }
}

/// The limits of `demo/app` for what is uploaded from now on.
fn limit(server: &Server, limits: &str) {
    let answer = server.administer("PUT", "/api/v1/admin/apps/demo/app/limits", limits);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Bytes that look like no others.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(length)
    .collect()
}

/// Whether some of these bytes are anywhere in the store: a backup holds all that lives.
fn holds(server: &Server, bytes: &[u8]) -> bool {
    let request = format!(
        "GET /api/v1/admin/backup HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         authorization: Bearer {}\r\n\r\n",
        server.admin_key
    );
    let mut stream = TcpStream::connect(server.admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut backup = Vec::new();
    stream.read_to_end(&mut backup).unwrap();
    assert!(backup.starts_with(b"HTTP/1.1 200"), "no backup");
    // Of each chunk the first bytes: enough that no other bytes have them.
    let markers: HashSet<&[u8]> =
        bytes.chunks(102_400).filter_map(|chunk| chunk.get(..12)).collect();
    assert!(!markers.is_empty(), "too few bytes to be found");
    backup.windows(12).any(|window| markers.contains(window))
}

/// Waits until nothing of these bytes is left.
#[track_caller]
fn assert_gone(server: &Server, bytes: &[u8]) {
    let gone = crate::server::eventually(|| !holds(server, bytes));
    assert!(gone, "some of the bytes are left");
}

fn pause(millis: u64) {
    crate::wait(Duration::from_millis(millis));
}
