//! One connection: a request written by hand, an answer read no further than its head says.
//!
//! The generator has one core for all producers and readers, so that nothing is parsed that is not
//! needed: a status, a length, and headers when they are asked for.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::BoxError;

/// What is read at once before the length of an answer is known.
const FIRST_READ: usize = 2 << 10;

/// A connection that is kept.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer in the buffer of its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    head: &'a str,
    pub(super) body: &'a [u8],
}

impl Answer<'_> {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        value_of(self.head, name)
    }

    /// The answer, if it has this status.
    pub(super) fn expect(self, status: u16) -> Result<Self, BoxError> {
        if self.status == status {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(400)]);
        Err(format!("expected {status}, got {}: {body}", self.status).into())
    }
}

impl Line {
    pub(super) async fn to(server: SocketAddr) -> Result<Self, BoxError> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; FIRST_READ] })
    }

    /// Sends a request, whose answer is read by [`answer`](Self::answer).
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<(), BoxError> {
        Ok(self.stream.write_all(request).await?)
    }

    /// Sends a request and reads its answer.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>, BoxError> {
        self.send(request).await?;
        self.answer().await
    }

    /// Reads one answer.
    pub(super) async fn answer(&mut self) -> Result<Answer<'_>, BoxError> {
        let (mut filled, mut extent) = (0, None);
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).await?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            filled += read;
            if extent.is_none() {
                extent = Extent::of(&self.buffer[..filled])?;
            }
            match extent {
                Some(Extent { head, end }) if filled >= end => return self.read_to(head, end),
                Some(Extent { end, .. }) => self.make_room(end),
                None => self.make_room(filled + FIRST_READ),
            }
        }
    }

    fn make_room(&mut self, end: usize) {
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
    }

    fn read_to(&self, head: usize, end: usize) -> Result<Answer<'_>, BoxError> {
        let (head, rest) = (std::str::from_utf8(&self.buffer[..head])?, &self.buffer[head..end]);
        let status = head.get(9..12).unwrap_or_default().parse()?;
        Ok(Answer { status, head, body: &rest[4..] })
    }
}

/// Where the head of an answer ends, and where the answer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    head: usize,
    end: usize,
}

impl Extent {
    /// `None` while the head is not whole.
    fn of(seen: &[u8]) -> Result<Option<Self>, BoxError> {
        let Some(head) = seen.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&seen[..head])?;
        if value_of(text, "transfer-encoding").is_some() {
            return Err("an answer without a length".into());
        }
        let length: usize = value_of(text, "content-length").unwrap_or("0").parse()?;
        Ok(Some(Self { head, end: head + 4 + length }))
    }
}

fn value_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_head_says() {
        let seen = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody";
        assert_eq!(Extent::of(&seen[..30]).unwrap(), None, "the head is not whole");
        assert_eq!(Extent::of(seen).unwrap(), Some(Extent { head: 35, end: 51 }));
        let empty = b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n";
        assert_eq!(Extent::of(empty).unwrap().unwrap().end, empty.len());
        assert!(Extent::of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn headers_are_found_in_any_case() {
        let head = "HTTP/1.1 200 OK\r\nPI-Pull-Next: /a/b:c\r\nx: y";
        assert_eq!(value_of(head, "pi-pull-next"), Some("/a/b:c"));
        assert_eq!(value_of(head, "pi-pull"), None);
    }
}
