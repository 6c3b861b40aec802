//! Clients that are slow, or that do not read: ended in time, at the cost of nobody else.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{TTL, assert_unharmed, keys, peak_memory};
use crate::http::conversation::{Conversation, Request};
use crate::server::{Server, eventually};

/// Slow clients at once.
const CLIENTS: usize = 100;

/// A body arrives within 20 s, an answer is taken within 30 s; and some air on a busy machine.
const IN_TIME: Duration = Duration::from_secs(45);

/// What a request of somebody else may take, also on a busy machine.
const BEARABLE: Duration = Duration::from_millis(500);

#[expect(clippy::disallowed_methods, reason = "slowness is a matter of real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "slowness is a matter of real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Set when dropped, also by a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The time that 99 of 100 requests of another client stay within while something is done.
fn p99_of_another(server: &Server, done: impl FnOnce()) -> Duration {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let another = scope.spawn(|| times_of_another(server, &ended));
        let ending = Ending(&ended);
        done();
        drop(ending);
        let mut times = another.join().unwrap();
        times.sort_unstable();
        assert!(times.len() > 100, "too few to tell");
        times[times.len() * 99 / 100]
    })
}

fn times_of_another(server: &Server, ended: &AtomicBool) -> Vec<Duration> {
    let key = server.make_app("another", "app");
    let mut connection = Conversation::with(server.http);
    let mut times = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let set = Request::new("PUT", "/api/v2/apps/another/app/ttl/k").key(&key);
        let began = now();
        let answer = connection.ask(&set.body(r#"{"value":"v","ttlSeconds":60}"#));
        times.push(began.elapsed());
        assert_eq!(answer.status, 200, "{}", answer.body);
        pause(Duration::from_millis(5));
    }
    times
}

/// A body that comes a byte at a time; each client ends when the server ends it.
#[test]
fn a_dripped_body_is_ended_in_time_and_nobody_else_waits() {
    let server = Server::in_memory();
    let head = format!(
        "PUT {TTL}/dripped HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {}\r\n\
         content-length: 100000\r\n\r\n{{",
        server.key
    );
    let drip = |stream: &mut TcpStream| stream.write_all(b" ").is_ok();
    let p99 = p99_of_another(&server, || {
        let began = now();
        let mut open: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut stream = TcpStream::connect(server.http).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                stream
            })
            .collect();
        while !open.is_empty() && began.elapsed() < IN_TIME {
            open.retain_mut(drip);
            pause(Duration::from_millis(500));
        }
        assert!(open.is_empty(), "{} drip on after {:?}", open.len(), began.elapsed());
    });
    assert!(p99 < BEARABLE, "others waited {p99:?}");
    assert!(keys(&server).is_empty(), "half a body wrote nothing");
    assert_unharmed(&server);
}

/// An entry whose answer is six times its size, and a request for many of them.
fn large_answer(server: &Server) -> String {
    let value = r"\u0001".repeat(65_536);
    let body = format!(r#"{{"value":"{value}","ttlSeconds":600}}"#);
    assert_eq!(server.ask("PUT", &format!("{TTL}/large"), &body).status, 200);
    let operations = vec![r#"{"op":"get","key":"large"}"#; 40].join(",");
    let body = format!(r#"{{"operations":[{operations}]}}"#);
    format!(
        "POST {TTL}:batch HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n{body}",
        server.key,
        body.len()
    )
}

fn limit_in_flight(server: &Server, limit: u32) {
    let body = format!(r#"{{"inFlight":{limit}}}"#);
    let answer = server.administer("PUT", "/api/v1/admin/apps/demo/app/limits", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// What is asked for and not read is under way, and counts as such until it is given up.
#[test]
fn answers_that_nobody_reads_are_bounded_and_ended_in_time() {
    let server = Server::in_memory();
    let request = large_answer(&server);
    limit_in_flight(&server, 4);
    let ask = || server.ask("GET", &format!("{TTL}/none"), "").status;
    assert!(eventually(|| ask() == 404));
    peak_memory(&server);
    let before = peak_memory(&server);
    let p99 = p99_of_another(&server, || {
        let mut unread: Vec<_> = (0..50)
            .map(|_| {
                let mut stream = TcpStream::connect(server.http).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                stream
            })
            .collect();
        assert!(eventually(|| ask() == 429), "four answers wait and a fifth request is let in");
        unread.retain(|stream| begins_with(stream, b"HTTP/1.1 200"));
        assert_eq!(unread.len(), 4);
        let began = now();
        while !unread.is_empty() && began.elapsed() < IN_TIME {
            unread.retain(|stream| !is_cut(stream));
            pause(Duration::from_millis(200));
        }
        assert!(unread.is_empty(), "{} wait after {:?}", unread.len(), began.elapsed());
        assert_eq!(ask(), 404, "what was given up is not under way");
    });
    assert!(p99 < BEARABLE, "others waited {p99:?}");
    let grown = peak_memory(&server).saturating_sub(before);
    assert!(grown < 400 << 20, "50 answers of 16 MB that nobody reads cost {grown} bytes");
    assert_unharmed(&server);
}

/// Looks at the beginning of an answer without taking it.
fn begins_with(stream: &TcpStream, beginning: &[u8]) -> bool {
    let mut seen = vec![0; beginning.len()];
    eventually(|| stream.peek(&mut seen).is_ok_and(|length| length == beginning.len()))
        && seen == beginning
}

/// Whether the server has reset the connection. The system tells that once.
fn is_cut(stream: &TcpStream) -> bool {
    stream.take_error().unwrap().is_some() || stream.peek(&mut [0]).is_err()
}

/// Requests without end on one connection, none of whose answers is read.
#[test]
fn a_client_that_only_asks_is_stopped_by_its_own_answers() {
    let server = Server::in_memory();
    let request = large_answer(&server);
    peak_memory(&server);
    let before = peak_memory(&server);
    let mut stream = TcpStream::connect(server.http).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let sent = (0..100_000).take_while(|_| stream.write_all(request.as_bytes()).is_ok()).count();
    assert!(sent < 100_000, "all of it was taken");
    let grown = peak_memory(&server).saturating_sub(before);
    assert!(grown < 150 << 20, "{sent} requests cost {grown} bytes");
    assert_unharmed(&server);
}
