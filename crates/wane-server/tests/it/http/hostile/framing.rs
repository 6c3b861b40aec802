//! Requests whose end can be read in two ways, and what is no request at all.
//!
//! Behind each stands a second request that would write. It must never be carried out: either the
//! first is refused, or it is read in the one way that the standard allows. Then the connection is
//! closed.

use super::{TTL, assert_unharmed, keys};
use crate::http::conversation::Conversation;
use crate::server::Server;

/// A head up to its framing, a body or what stands for it, and the status of the answer.
struct Shape {
    name: &'static str,
    line: &'static str,
    headers: &'static str,
    body: &'static str,
    status: u16,
}

const fn shape(name: &'static str, headers: &'static str, body: &'static str) -> Shape {
    Shape { name, line: "POST {TTL}/k HTTP/1.1", headers, body, status: 400 }
}

const fn request(name: &'static str, line: &'static str) -> Shape {
    Shape { name, line, headers: "", body: "", status: 400 }
}

const TRUE_BODY: &str = "1d\r\n{\"value\":\"v\",\"ttlSeconds\":60}\r\n0\r\n\r\n";

#[rustfmt::skip]
const SHAPES: &[Shape] = &[
    shape("a length and chunks", "content-length: 6\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
    shape("chunks and a length", "transfer-encoding: chunked\r\ncontent-length: 6\r\n", "0\r\n\r\n"),
    Shape { status: 201, ..shape("a length and a whole chunked body", "content-length: 3\r\ntransfer-encoding: chunked\r\n", TRUE_BODY) },
    Shape { status: 409, ..shape("a whole chunked body and a length", "transfer-encoding: chunked\r\ncontent-length: 3\r\n", TRUE_BODY) },
    shape("two lengths", "content-length: 5\r\ncontent-length: 6\r\n", "{    }"),
    shape("a list of lengths", "content-length: 5, 6\r\n", "{    }"),
    shape("a list of equal lengths", "content-length: 6, 6\r\n", "{    }"),
    shape("a length with a sign", "content-length: +6\r\n", "{    }"),
    shape("a length below zero", "content-length: -6\r\n", "{    }"),
    shape("a length in hex", "content-length: 0x6\r\n", "{    }"),
    shape("a length with a space", "content-length: 1 6\r\n", "{    }"),
    shape("a length beyond numbers", "content-length: 99999999999999999999\r\n", "{    }"),
    shape("an empty length", "content-length:\r\n", "{    }"),
    shape("an unknown coding", "transfer-encoding: xchunked\r\n", "0\r\n\r\n"),
    shape("a coding after chunks", "transfer-encoding: chunked, identity\r\n", "0\r\n\r\n"),
    shape("no coding", "transfer-encoding: identity\r\n", "0\r\n\r\n"),
    shape("a coding with a tab", "transfer-encoding: \x0bchunked\r\n", "0\r\n\r\n"),
    shape("two codings", "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", "0\r\n\r\n"),
    shape("a coding in quotes", "transfer-encoding: \"chunked\"\r\n", "0\r\n\r\n"),
    shape("a chunk of no size", "transfer-encoding: chunked\r\n", "\r\nx\r\n0\r\n\r\n"),
    shape("a chunk size that is none", "transfer-encoding: chunked\r\n", "zz\r\nx\r\n0\r\n\r\n"),
    shape("a chunk size below zero", "transfer-encoding: chunked\r\n", "-1\r\nx\r\n0\r\n\r\n"),
    shape("a chunk size in 0x", "transfer-encoding: chunked\r\n", "0x1\r\nx\r\n0\r\n\r\n"),
    shape("a chunk size beyond numbers", "transfer-encoding: chunked\r\n", "fffffffffffffffff\r\nx\r\n0\r\n\r\n"),
    shape("a chunk longer than said", "transfer-encoding: chunked\r\n", "1\r\nxyz\r\n0\r\n\r\n"),
    shape("a chunk that ends with LF", "transfer-encoding: chunked\r\n", "1\r\nx\n0\r\n\r\n"),
    shape("a chunk size that ends with CR", "transfer-encoding: chunked\r\n", "1\rx\r\n0\r\n\r\n"),
    shape("a space before the colon", "content-length : 0\r\n", ""),
    shape("a folded header", "x: a\r\n content-length: 6\r\n", ""),
    shape("a folded first header", " content-length: 6\r\n", ""),
    shape("a header without a colon", "content-length\r\n", ""),
    shape("a header without a name", ": 6\r\n", ""),
    shape("a CR in a header", "x: a\rcontent-length: 6\r\n", ""),
    shape("a NUL in a header", "x: a\0b\r\n", ""),
    shape("a NUL in a header's name", "x\0y: a\r\n", ""),
    shape("an LF that ends a header", "x: a\ntransfer-encoding: chunked\ncontent-length: 6\r\n", "0\r\n\r\n"),
    request("chunks in HTTP/1.0", "POST {TTL}/k HTTP/1.0\r\ntransfer-encoding: chunked"),
    request("no version", "GET {TTL}/k"),
    request("a version to come", "GET {TTL}/k HTTP/9.9"),
    request("HTTP/2 in words", "GET {TTL}/k HTTP/2.0"),
    request("a version in small letters", "GET {TTL}/k http/1.1"),
    request("two spaces", "GET  {TTL}/k HTTP/1.1"),
    request("a space in the target", "GET {TTL}/k k HTTP/1.1"),
    request("a tab in the target", "GET {TTL}/k\tk HTTP/1.1"),
    request("a NUL in the target", "GET {TTL}/k\0k HTTP/1.1"),
    request("a method that is none", "G@T {TTL}/k HTTP/1.1"),
    request("no method", " {TTL}/k HTTP/1.1"),
    request("a target that is no path", "GET api/v2 HTTP/1.1"),
    request("another protocol", "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03"),
];

#[test]
fn what_can_be_read_in_two_ways_hides_no_second_request() {
    let server = Server::in_memory();
    let key = &server.key;
    let body = r#"{"value":"smuggled","ttlSeconds":60}"#;
    let second = format!(
        "PUT {TTL}/smuggled HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {key}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    for Shape { name, line, headers, body, status } in SHAPES {
        let line = line.replace("{TTL}", TTL);
        let first =
            format!("{line}\r\nhost: t\r\nauthorization: Bearer {key}\r\n{headers}\r\n{body}");
        let mut connection = Conversation::with(server.http);
        connection.send(format!("{first}{second}").as_bytes());
        let answer = connection.answer();
        let seen = answer.as_ref().map(|answer| answer.status);
        assert_eq!(seen, Some(*status), "{name}: {answer:?}");
        assert!(connection.is_closed(), "{name}: the connection goes on");
        assert!(!keys(&server).contains(&"smuggled".to_owned()), "{name}");
    }
    assert_unharmed(&server);

    // The control: behind a request with one reading the second is carried out.
    let mut connection = Conversation::with(server.http);
    let first = format!("GET /livez HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n{second}");
    connection.send(first.as_bytes());
    let statuses = [connection.answer(), connection.answer()].map(|answer| answer.unwrap().status);
    assert_eq!(statuses, [200, 200]);
    assert!(keys(&server).contains(&"smuggled".to_owned()));
}

#[test]
fn a_host_is_named_once() {
    let server = Server::in_memory();
    let get = |version: &str, hosts: &str| {
        let mut connection = Conversation::with(server.http);
        connection.send(format!("GET /livez {version}\r\n{hosts}\r\n").as_bytes());
        connection.answer().map(|answer| answer.status)
    };
    assert_eq!(get("HTTP/1.1", "host: t\r\n"), Some(200));
    assert_eq!(get("HTTP/1.1", ""), Some(400));
    assert_eq!(get("HTTP/1.1", "host: t\r\nhost: t\r\n"), Some(400));
    assert_eq!(get("HTTP/1.1", "host: t\r\nhost: u\r\n"), Some(400));
    assert_eq!(get("HTTP/1.0", ""), Some(200));
    assert_unharmed(&server);
}
