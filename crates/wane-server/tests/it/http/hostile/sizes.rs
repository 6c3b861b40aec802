//! What is too large is refused at its limit, and does not cost memory.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{TTL, assert_unharmed, keys, peak_memory};
use crate::http::conversation::{Conversation, Request};
use crate::server::{PATIENCE, Server, raw};

const ONE_OPERATION: usize = 1 << 20;
const BATCH: usize = 8 << 20;

/// Bodies sent, and bytes in each.
const BODIES: usize = 50;
const BODY: usize = 100 << 20;

/// What the process may hold beyond what it held before.
const FLAT: u64 = 64 << 20;

/// A body of this length, the air in it being spaces.
fn padded(body: &str, length: usize) -> String {
    format!("{}{}}}", body.trim_end_matches('}'), " ".repeat(length - body.len()))
}

fn chunked(body: &str) -> String {
    let chunks: String = body
        .as_bytes()
        .chunks(50_000)
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap()))
        .collect();
    chunks + "0\r\n\r\n"
}

#[test]
fn a_body_may_have_its_limit_and_not_a_byte_more() {
    let server = Server::in_memory();
    let insert = r#"{"value":"v","ttlSeconds":60}"#;
    let batch = r#"{"operations":[{"op":"insert","key":"b","value":"v","ttlSeconds":60}]}"#;
    // A batch ends with a list, so that the air goes before its last brace all the same.
    for (path, body, limit, status) in
        [("/k", insert, ONE_OPERATION, 201), (":batch", batch, BATCH, 200)]
    {
        let path = format!("{TTL}{path}");
        let whole = padded(body, limit);
        assert_eq!(whole.len(), limit);
        let over = server.ask("POST", &path, &padded(body, limit + 1));
        assert_eq!((over.status, &*over.code()), (413, "too_large"));
        assert!(over.body.contains(&limit.to_string()), "it says the limit: {}", over.body);
        let key = &server.key;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {key}\r\n\
             connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let dripped = head.clone() + &chunked(&padded(body, limit + 1));
        assert_eq!(raw(server.http, dripped.as_bytes()).status, 413);
        assert_eq!(keys(&server).len(), usize::from(limit == BATCH), "nothing was touched");
        assert_eq!(server.ask("POST", &path, &whole).status, status);
        let answer = raw(server.http, (head + &chunked(&whole)).as_bytes());
        assert!([200, 409].contains(&answer.status), "{}", answer.body);
    }
    assert_unharmed(&server);
}

/// Sends a body until the server closes, and returns the status that came meanwhile.
fn pour(server: &Server, framing: &str) -> u16 {
    let mut stream = TcpStream::connect(server.http).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let key = &server.key;
    let head = format!("PUT {TTL}/k HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {key}\r\n");
    stream.write_all(format!("{head}{framing}\r\n\r\n").as_bytes()).unwrap();
    let piece = if framing.contains("chunked") {
        format!("10000\r\n{}\r\n", " ".repeat(65_536))
    } else {
        " ".repeat(65_536)
    };
    let mut answer = Vec::new();
    let mut buffer = [0; 4_096];
    for _ in 0..BODY / 65_536 {
        stream.set_nonblocking(true).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        stream.set_nonblocking(false).unwrap();
        if stream.write_all(piece.as_bytes()).is_err() {
            break;
        }
    }
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(stream.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn bodies_without_end_do_not_cost_memory() {
    let server = Server::in_memory();
    assert_eq!(pour(&server, "transfer-encoding: chunked"), 413);
    peak_memory(&server);
    let before = peak_memory(&server);
    let left = AtomicUsize::new(BODIES);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(number) =
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                {
                    let length = format!("content-length: {BODY}");
                    let framing =
                        if number % 2 == 0 { &*length } else { "transfer-encoding: chunked" };
                    assert_eq!(pour(&server, framing), 413);
                }
            });
        }
    });
    let grown = peak_memory(&server).saturating_sub(before);
    assert!(grown < FLAT, "the process grew by {grown} bytes");
    assert_unharmed(&server);
}

#[test]
fn a_head_too_large_is_refused() {
    let server = Server::in_memory();
    let key = &server.key;
    let get = |target: &str, headers: &str| {
        let head = format!("GET {target} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {key}\r\n");
        raw(server.http, format!("{head}connection: close\r\n{headers}\r\n").as_bytes())
    };
    let key_of = |length: usize| format!("{TTL}/{}", "k".repeat(length));
    let longest = format!("{TTL}?prefix={0}&after={0}&limit=1000", "%6B".repeat(1_024));
    assert_eq!(get(&longest, "").status, 200, "everything legal fits");
    for length in [8 << 10, 24 << 10] {
        let answer = get(&key_of(length), "");
        assert_eq!((answer.status, &*answer.code()), (414, "too_large"), "{length}");
        assert_eq!(answer.json()["status"], 414);
        assert_eq!(get(&format!("{TTL}?prefix={}", "k".repeat(length)), "").status, 414);
    }
    // Beyond what a head may have in all, nobody looks which part of it is too long.
    for length in [33 << 10, 70 << 10, 1 << 20] {
        assert_eq!(get(&key_of(length), "").status, 431, "{length}");
    }
    assert_eq!(get(&key_of(1), &format!("x: {}\r\n", "v".repeat(33 << 10))).status, 431);
    assert_eq!(get(&key_of(1), &format!("{}: v\r\n", "x".repeat(66 << 10))).status, 431);
    assert_eq!(get(&key_of(1), &"x: v\r\n".repeat(101)).status, 431);
    assert_eq!(get(&key_of(1), &"x: v\r\n".repeat(90)).status, 404);
    assert_unharmed(&server);
}

/// A request for more than there can be is answered from what there is.
#[test]
fn a_batch_of_the_largest_values_is_carried_out() {
    let server = Server::in_memory();
    let value = "v".repeat(65_536);
    let operations = |op: &str| {
        let all: Vec<_> = (0..100)
            .map(|number| match op {
                "get" => format!(r#"{{"op":"get","key":"{number}"}}"#),
                _ => format!(
                    r#"{{"op":"insert","key":"{number}","value":"{value}","ttlSeconds":60}}"#
                ),
            })
            .collect();
        format!(r#"{{"operations":[{}]}}"#, all.join(","))
    };
    peak_memory(&server);
    let before = peak_memory(&server);
    for (op, status) in [("insert", 201), ("insert", 409), ("get", 200)] {
        let request = Request::new("POST", &format!("{TTL}:batch")).key(&server.key);
        let answer = Conversation::with(server.http).ask(&request.body(&operations(op)));
        assert_eq!(answer.status, 200, "{:.200}", answer.body);
        let results = answer.json()["results"].as_array().unwrap().clone();
        assert_eq!(results.len(), 100);
        assert!(results.iter().all(|result| result["status"] == status), "{op}");
    }
    let grown = peak_memory(&server).saturating_sub(before);
    assert!(grown < 4 * FLAT, "6.5 MB of values cost {grown} bytes");
    let page = server.ask("GET", &format!("{TTL}?limit=1000"), "");
    assert!(page.body.len() < 2 << 20, "a page has its own limit: {}", page.body.len());
    assert!(page.json()["next"].is_string());
    assert_unharmed(&server);
}
