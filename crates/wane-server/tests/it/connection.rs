//! A connection that is kept, and that tells how it ended: whole answers, or what came instead.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::server::{Answer, PATIENCE, Server};

/// Why a request got no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The server closed before any byte of an answer.
    Closed,
    /// The connection was reset, or refused, before any byte of an answer.
    Reset,
    /// An answer had begun and did not end.
    Truncated,
}

/// A connection to a server, for one request after another.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    key: String,
    /// The server has said that it closes.
    over: bool,
}

impl Connection {
    /// A connection with the key of `demo/app`.
    pub(crate) fn open(server: &Server) -> Self {
        Self::to(server.http, &server.key).unwrap()
    }

    pub(crate) fn to(server: SocketAddr, key: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), key: key.to_owned(), over: false })
    }

    /// One request, and its answer to the last byte.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Answer, Ended> {
        if self.over {
            return Err(Ended::Closed);
        }
        self.send(method, path, body)?;
        self.answer()
    }

    /// The head of a request and, as far as it is given, its body.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(), Ended> {
        let (key, length) = (&self.key, body.len());
        let content = match length {
            0 => String::new(),
            _ => format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n{content}\r\n"
        );
        self.send_raw(format!("{head}{body}").as_bytes())
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        // A server that has closed is heard when its answer is read.
        match self.stream.get_mut().write_all(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if is_reset(&error) => Err(Ended::Reset),
            written => {
                written.unwrap();
                Ok(())
            }
        }
    }

    /// The answer to what was sent.
    pub(crate) fn answer(&mut self) -> Result<Answer, Ended> {
        let answer = self.head()?;
        self.rest_of(answer)
    }

    /// The head of the answer; its body is still to come.
    pub(crate) fn head(&mut self) -> Result<Answer, Ended> {
        let mut head = String::new();
        loop {
            match self.stream.read_line(&mut head) {
                Ok(0) if head.is_empty() => return Err(Ended::Closed),
                Ok(0) => return Err(Ended::Truncated),
                Ok(2) if head.ends_with("\r\n\r\n") => break,
                Ok(_) => {}
                Err(error) if is_reset(&error) && head.is_empty() => return Err(Ended::Reset),
                Err(error) if is_reset(&error) => return Err(Ended::Truncated),
                Err(error) => panic!("no answer: {error}"),
            }
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let answer = Answer { status, head, body: String::new() };
        self.over = answer.header("connection") == Some("close");
        Ok(answer)
    }

    /// The answer with its body.
    pub(crate) fn rest_of(&mut self, answer: Answer) -> Result<Answer, Ended> {
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let is_chunked = answer.header("transfer-encoding").is_some();
        let body = if is_chunked { self.chunks()? } else { self.exactly(length)? };
        Ok(Answer { body, ..answer })
    }

    fn chunks(&mut self) -> Result<String, Ended> {
        let mut body = String::new();
        loop {
            let mut size = String::new();
            match self.stream.read_line(&mut size) {
                Ok(0) | Err(_) => return Err(Ended::Truncated),
                Ok(_) => {}
            }
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| Ended::Truncated)?;
            let chunk = self.exactly(size + 2)?;
            if size == 0 {
                return Ok(body);
            }
            body.push_str(&chunk[..size]);
        }
    }

    fn exactly(&mut self, length: usize) -> Result<String, Ended> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).map_err(|_| Ended::Truncated)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    /// Whether the server closes without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }
}

fn is_reset(error: &io::Error) -> bool {
    [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe].contains(&error.kind())
}

/// Control: each kind of end is told from the others.
#[test]
fn every_end_of_a_connection_is_told_apart() {
    let answered = |bytes: &'static str| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The request is short: one read takes all of it.
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(bytes.as_bytes()).unwrap();
        });
        let answer = Connection::to(address, "key").unwrap().ask("GET", "/", "");
        server.join().unwrap();
        answer.map(|answer| answer.body)
    };
    assert_eq!(answered(""), Err(Ended::Closed));
    assert_eq!(answered("HTTP/1.1 200 OK\r\n"), Err(Ended::Truncated));
    assert_eq!(answered("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nh"), Err(Ended::Truncated));
    assert_eq!(answered("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap(), "hi");
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";
    assert_eq!(answered(chunked), Err(Ended::Truncated));
}
