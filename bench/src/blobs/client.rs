//! The client of the transfers: one connection, HTTP/1.1, requests one after the other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{BoxError, timing};

/// What is read at once.
const PIECE: usize = 256 << 10;

/// A kept connection.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// How long a download took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// From the request to the first byte of the body.
    pub(super) first_byte: Duration,
    /// From the request to the last.
    pub(super) whole: Duration,
}

impl Client {
    pub(super) fn connect(server: SocketAddr) -> Result<Self, BoxError> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; PIECE] })
    }

    /// Sends a body and returns the id of the BLOB that it became.
    pub(super) fn upload(&mut self, head: &str, body: &[u8]) -> Result<String, BoxError> {
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body)?;
        let (answer, mut filled) = self.answer(201)?;
        while filled < answer.body_at + answer.length {
            filled += self.read(filled)?;
        }
        let body = &self.buffer[answer.body_at..filled];
        let json: serde_json::Value = serde_json::from_slice(body)?;
        Ok(json["blobSUUID"].as_str().ok_or("the answer names no BLOB")?.to_owned())
    }

    /// Removes a BLOB.
    pub(super) fn delete(&mut self, head: &str) -> Result<(), BoxError> {
        self.stream.write_all(head.as_bytes())?;
        self.answer(204).map(drop)
    }

    /// Downloads a body, and compares it with `expected` where that is given.
    pub(super) fn download(
        &mut self,
        head: &str,
        expected: Option<&[u8]>,
    ) -> Result<Took, BoxError> {
        let begin = timing::now();
        self.stream.write_all(head.as_bytes())?;
        let (answer, filled) = self.answer(200)?;
        let mut got = filled - answer.body_at;
        check(expected, 0, &self.buffer[answer.body_at..filled])?;
        let mut first_byte = (got > 0).then(|| begin.elapsed());
        while got < answer.length {
            let read = self.read(0)?;
            first_byte.get_or_insert_with(|| begin.elapsed());
            check(expected, got, &self.buffer[..read])?;
            got += read;
        }
        if got != answer.length || expected.is_some_and(|expected| expected.len() != got) {
            return Err(format!("{got} bytes came").into());
        }
        let whole = begin.elapsed();
        Ok(Took { first_byte: first_byte.unwrap_or(whole), whole })
    }

    /// Reads until the head of an answer is there, which must have this status. Returns how much of
    /// the buffer is filled.
    fn answer(&mut self, status: u16) -> Result<(Answer, usize), BoxError> {
        let mut filled = 0;
        loop {
            filled += self.read(filled)?;
            let Some(answer) = Answer::of(&self.buffer[..filled]) else { continue };
            if answer.status == status {
                return Ok((answer, filled));
            }
            let text = String::from_utf8_lossy(&self.buffer[..filled.min(600)]).into_owned();
            return Err(format!("expected {status}: {text}").into());
        }
    }

    fn read(&mut self, from: usize) -> Result<usize, BoxError> {
        match self.stream.read(&mut self.buffer[from..])? {
            0 => Err("the server closed the connection".into()),
            read => Ok(read),
        }
    }
}

fn check(expected: Option<&[u8]>, at: usize, got: &[u8]) -> Result<(), BoxError> {
    let Some(expected) = expected else { return Ok(()) };
    if expected.get(at..at + got.len()) == Some(got) {
        return Ok(());
    }
    Err(format!("other bytes came than went in, from {at} on").into())
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Bytes of the body.
    pub(super) length: usize,
    /// Where the body begins.
    pub(super) body_at: usize,
}

impl Answer {
    /// The head that `seen` begins with, once all of it is there.
    pub(super) fn of(seen: &[u8]) -> Option<Self> {
        let end = seen.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
        let status = head.get(9..12)?.parse().ok()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        Some(Self { status, length, body_at: end + 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody";
        assert_eq!(Answer::of(&head[..30]), None);
        assert_eq!(Answer::of(head), Some(Answer { status: 200, length: 12, body_at: 39 }));
    }

    #[test]
    fn other_bytes_are_noticed() {
        assert!(check(Some(b"abc"), 1, b"bc").is_ok());
        assert!(check(Some(b"abc"), 1, b"bd").is_err());
        assert!(check(Some(b"abc"), 2, b"cd").is_err(), "more than there were");
    }
}
