//! Requests and answers of streams as bytes: written by hand, read to the last one, taken apart by
//! rules of their own.

use std::io::{Read, Seek as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::server::PATIENCE;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: String,
    path: String,
    /// Whole lines, without their ends.
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self { method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header(&format!("authorization: Bearer {key}"))
    }

    pub(crate) fn header(mut self, line: &str) -> Self {
        self.headers.push(line.to_owned());
        self
    }

    pub(crate) fn headers(self, lines: &[&str]) -> Self {
        lines.iter().fold(self, |call, line| call.header(line))
    }

    pub(crate) fn body(mut self, bytes: &[u8]) -> Self {
        self.body = bytes.to_vec();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: test\r\n", self.method, self.path);
        head.push_str("connection: close\r\n");
        for line in &self.headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        if self.method == "POST" || !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }

    /// The whole answer, on a connection of its own.
    #[track_caller]
    pub(crate) fn send(&self, server: SocketAddr) -> Reply {
        let answer = self.attempt(server);
        answer.unwrap_or_else(|| panic!("no whole answer to {} {}", self.method, self.path))
    }

    /// The whole answer; none where the server is not there or goes meanwhile.
    pub(crate) fn attempt(&self, server: SocketAddr) -> Option<Reply> {
        self.over(connected(server)?)
    }

    /// The whole answer over this connection; none where the server goes meanwhile.
    pub(crate) fn over(&self, mut stream: impl Read + Write) -> Option<Reply> {
        // A server that refuses early may close before everything was sent.
        drop(stream.write_all(&self.bytes()));
        drop(stream.flush());
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all));
        Reply::whole(&all, self.method == "HEAD")
    }

    /// Sends it, and leaves the answer to come.
    pub(crate) fn begin(&self, server: SocketAddr) -> TcpStream {
        let mut stream = connected(server).unwrap();
        stream.write_all(&self.bytes()).unwrap();
        stream
    }
}

/// A connection; none where nobody listens.
pub(crate) fn connected(server: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(server).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    Some(stream)
}

/// An answer to its last byte.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The answer that these bytes are; none where some are missing.
    fn whole(all: &[u8], is_head: bool) -> Option<Self> {
        let end = all.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&all[..end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut reply = Self { status, head, body: all[end + 4..].to_vec() };
        if is_head {
            return Some(reply);
        }
        if reply.header("transfer-encoding").is_some() {
            reply.body = unchunked(&reply.body)?;
            return Some(reply);
        }
        let announced = reply.header("content-length").map_or(0, |text| text.parse().unwrap());
        (reply.body.len() == announced).then_some(reply)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The head without what is of the moment.
    pub(crate) fn lasting_head(&self) -> String {
        let is_lasting = |line: &&str| {
            let line = line.to_ascii_lowercase();
            !line.starts_with("date:") && !line.starts_with("x-request-id:")
        };
        self.head.lines().filter(is_lasting).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        let told = serde_json::from_slice(&self.body);
        told.unwrap_or_else(|error| panic!("{error}: {}\n{}", self.head, self.text()))
    }

    /// Status and code of a problem, which says what to do.
    #[track_caller]
    pub(crate) fn problem(&self) -> (u16, String) {
        let told = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.head);
        assert!(told["detail"].as_str().is_some_and(|text| text.len() > 10), "{told}");
        assert_eq!(told["status"], self.status, "{told}");
        (self.status, told["code"].as_str().unwrap_or_default().to_owned())
    }
}

fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(body.get(end + 2..end + 2 + size)?);
        body = body.get(end + 4 + size..)?;
    }
}

/// A message as it was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) bytes: Vec<u8>,
}

/// What a reader was given.
#[derive(Debug, Clone)]
pub(crate) struct Pulled {
    pub(crate) messages: Vec<Message>,
    /// Where to go on: a path that ends in the token.
    pub(crate) next: String,
    pub(crate) reply: Reply,
}

impl Pulled {
    /// Takes an answer with messages, or one without, apart.
    #[track_caller]
    pub(crate) fn of(reply: Reply) -> Self {
        assert!(matches!(reply.status, 200 | 204), "{}\n{}", reply.head, reply.text());
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{}", reply.head);
        let next = reply.header("pi-pull-next").expect("where to go on").to_owned();
        let prefix = next.rsplit_once('/').unwrap().0;
        let is_kind = prefix.ends_with("/stream") || prefix.ends_with("/replay");
        assert!(prefix.starts_with("/api/v1/out/") && is_kind, "{next}");
        let messages = match reply.status {
            204 => {
                assert!(reply.body.is_empty());
                Vec::new()
            }
            _ => delivered(&reply),
        };
        Self { messages, next, reply }
    }

    pub(crate) fn ids(&self) -> Vec<&str> {
        self.messages.iter().map(|message| &*message.id).collect()
    }

    pub(crate) fn token(&self) -> &str {
        self.next.rsplit('/').next().unwrap()
    }

    /// Fails unless another answer is the same, byte by byte.
    #[track_caller]
    pub(crate) fn assert_same(&self, other: &Self) {
        assert_eq!(self.reply.lasting_head(), other.reply.lasting_head());
        assert!(self.reply.body == other.reply.body, "other bytes");
    }
}

const XML: &str = "application/xml;charset=utf-8";

#[track_caller]
fn delivered(reply: &Reply) -> Vec<Message> {
    let body = match reply.header("content-encoding") {
        None => reply.body.clone(),
        Some("gzip") => gunzip(&reply.body),
        Some(other) => panic!("encoded as {other}"),
    };
    let content_type = reply.header("content-type").expect("a type");
    if content_type == XML {
        let id = reply.header("pi-resourceid").expect("the id of the message").to_owned();
        return vec![Message { id, bytes: body }];
    }
    assert_eq!(reply.header("pi-resourceid"), None, "each part has its own");
    let boundary = content_type.strip_prefix("multipart/mixed; boundary=");
    let boundary = boundary.unwrap_or_else(|| panic!("{content_type}")).trim_matches('"');
    let parts = parts(&body, boundary).expect("a multipart body");
    assert!((1..=10).contains(&parts.len()), "{} parts", parts.len());
    parts
}

/// The parts of a multipart body by RFC 2046, without preamble and epilogue; none where it is none.
fn parts(body: &[u8], boundary: &str) -> Option<Vec<Message>> {
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    let mut parts = Vec::new();
    loop {
        if rest == b"--\r\n" || rest == b"--" {
            return Some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let end = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
        parts.push(part(&rest[..end])?);
        rest = &rest[end + delimiter.len()..];
    }
}

fn part(part: &[u8]) -> Option<Message> {
    let end = part.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&part[..end]).ok()?;
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    (header("content-type")? == XML).then_some(())?;
    Some(Message { id: header("pi-resourceid")?, bytes: part[end + 4..].to_vec() })
}

/// The messages as a producer sends several of them.
pub(crate) fn mixed(boundary: &str, messages: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for message in messages {
        let head = format!("--{boundary}\r\nContent-Type: application/xml\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(message);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

/// What the program of everyone makes of bytes.
fn piped(arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let made = Command::new("gzip").args(arguments).stdin(Stdio::from(file)).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    piped(&["-c"], bytes)
}

pub(crate) fn gunzip(bytes: &[u8]) -> Vec<u8> {
    piped(&["-dc"], bytes)
}

/// Controls: what is cut, or is of another boundary, is no multipart body; what is cut is no answer.
#[test]
fn answers_that_are_not_whole_are_not_taken_for_answers() {
    let body = b"--b\r\nContent-Type: application/xml;charset=utf-8\r\nPI-ResourceId: x\r\n\r\n\
                 <a>\r\n\xFF</a>\r\n--b--\r\n";
    let found = parts(body, "b").unwrap();
    assert_eq!(found, [Message { id: "x".into(), bytes: b"<a>\r\n\xFF</a>".to_vec() }]);
    assert_eq!(parts(body, "c"), None);
    for cut in 1..body.len() - 2 {
        assert_eq!(parts(&body[..cut], "b"), None, "cut at {cut}");
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(Reply::whole(answer, false).unwrap().body, b"hi");
    for cut in 0..answer.len() - 1 {
        assert!(Reply::whole(&answer[..cut], false).is_none(), "cut at {cut}");
    }
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    assert_eq!(Reply::whole(chunked, false).unwrap().body, b"hi");
    assert!(Reply::whole(&chunked[..chunked.len() - 5], false).is_none());
}
