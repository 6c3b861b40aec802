//! A connection over which one request follows another, and each answer is read to its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::server::{Answer, PATIENCE};

/// A request, written by hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Whole lines, without their ends.
    pub(crate) headers: Vec<Vec<u8>>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), ..Self::default() }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header(&format!("authorization: Bearer {key}"))
    }

    pub(crate) fn header(mut self, line: &str) -> Self {
        self.headers.push(line.as_bytes().to_vec());
        self
    }

    /// The same as a form.
    pub(crate) fn form(self, form: &str) -> Self {
        self.header("content-type: application/x-www-form-urlencoded").body(form)
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.to_owned();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let is_host = |line: &Vec<u8>| line.starts_with(b"host:");
        let host = if self.headers.iter().any(is_host) { "" } else { "host: test\r\n" };
        let mut bytes = format!("{} {} HTTP/1.1\r\n{host}", self.method, self.target).into_bytes();
        for line in &self.headers {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        if !self.body.is_empty() {
            let is_type = |line: &Vec<u8>| line.starts_with(b"content-type:");
            if !self.headers.iter().any(is_type) {
                bytes.extend_from_slice(b"content-type: application/json\r\n");
            }
            let length = format!("content-length: {}\r\n", self.body.len());
            bytes.extend_from_slice(length.as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(self.body.as_bytes());
        bytes
    }
}

/// A connection that is kept.
#[derive(Debug)]
pub(crate) struct Conversation {
    reader: BufReader<TcpStream>,
}

impl Conversation {
    pub(crate) fn with(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    /// The connection itself, for what is not a request.
    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends bytes as they are; says whether the server took them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream().write_all(bytes).is_ok()
    }

    /// Asks, and returns the answer. The events of a watch are left to be read.
    pub(crate) fn ask(&mut self, request: &Request) -> Answer {
        assert!(self.send(&request.bytes()), "the server does not take the request");
        let answer = if request.method == "HEAD" { self.head() } else { self.answer() };
        answer.unwrap_or_else(|| panic!("closed instead of an answer to {request:?}"))
    }

    /// The next answer; none once the server has closed.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let mut answer = self.head()?;
        let is_stream = answer.header("content-type") == Some("text/event-stream");
        let mut body = Vec::new();
        if answer.header("transfer-encoding").is_some() && !is_stream {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else if let Some(length) = answer.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.reader.read_exact(&mut body).ok()?;
        }
        // A backup is bytes; whatever else is text, and tests see where it is not.
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Some(answer)
    }

    /// A line of what comes in; none at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).ok().filter(|read| *read > 0)?;
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Whether the server closes, and sends nothing more before.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            // A reset closes too; running out of patience does not.
            Err(error) => rest.is_empty() && error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    fn head(&mut self) -> Option<Answer> {
        let mut head = self.line()?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok())?;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(Answer { status, head, body: String::new() });
            }
            head.push_str("\r\n");
            head.push_str(&line);
        }
    }

    /// The next chunk; none at the last one.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }
}
