//! Many of everything: watches, apps, paths, methods and ids do not add up without bound.

use std::collections::BTreeSet;

use super::{TTL, assert_unharmed, peak_memory};
use crate::http::conversation::{Conversation, Request};
use crate::server::{Server, eventually};

/// Watches that an app may have.
const WATCHES: usize = 256;

fn open(server: &Server, path: &str, key: &str) -> (u16, Conversation) {
    let mut connection = Conversation::with(server.http);
    let answer = connection.ask(&Request::new("GET", path).key(key));
    if answer.status == 429 {
        assert_eq!(answer.code(), "limited");
        assert!(answer.header("retry-after").is_some());
        assert!(answer.body.contains("256 watches"), "{}", answer.body);
    }
    (answer.status, connection)
}

#[test]
fn an_app_has_a_bounded_number_of_watches() {
    let server = Server::in_memory();
    let watch = || open(&server, &format!("{TTL}:watch"), &server.key);
    let mut watches = Vec::new();
    for number in 0..WATCHES {
        let (status, connection) = watch();
        assert_eq!(status, 200, "{number}");
        watches.push(connection);
    }
    assert_eq!(watch().0, 429);
    assert_eq!(server.ask("GET", &format!("{TTL}/k"), "").status, 404, "requests are not watches");
    let key = server.make_app("another", "app");
    assert_eq!(open(&server, "/api/v2/apps/another/app/ttl:watch", &key).0, 200);

    let limits = "/api/v1/admin/apps/demo/app/limits";
    assert_eq!(server.administer("PUT", limits, r#"{"inFlight":100}"#).status, 200);
    // What was read of the app before is at most half a second old.
    std::thread::park_timeout(std::time::Duration::from_millis(600));
    assert_eq!(watch().0, 429, "other limits do not make room");

    watches.truncate(WATCHES - 10);
    assert!(eventually(|| watch().0 == 200), "a watch that ended makes room");
    let body = r#"{"value":"v","ttlSeconds":60}"#;
    assert_eq!(server.ask("PUT", &format!("{TTL}/k"), body).status, 200);
    let mut told = watches
        .iter_mut()
        .map(|watch| std::iter::from_fn(|| watch.line()).any(|line| line == "event: inserted"));
    assert!(told.all(|told| told), "all are told");
    assert_unharmed(&server);
}

/// A watch that is refused for another reason, or only looked at, leaves its place.
#[test]
fn a_watch_that_does_not_begin_takes_no_place() {
    let server = Server::in_memory();
    let path = format!("{TTL}:watch");
    for _ in 0..WATCHES + 10 {
        assert_eq!(open(&server, &format!("{path}?prefix=%FF"), &server.key).0, 400);
        let head = Request::new("HEAD", &path).key(&server.key);
        assert_eq!(Conversation::with(server.http).ask(&head).status, 200);
    }
    assert_eq!(open(&server, &path, &server.key).0, 200);
    assert_unharmed(&server);
}

/// The names and labels of all counters, without their values.
fn labels(server: &Server) -> BTreeSet<String> {
    let text = server.administer("GET", "/metrics", "").body;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[test]
fn what_strangers_make_up_does_not_grow_the_counters() {
    let server = Server::in_memory();
    let ask = |connection: &mut Conversation, number: usize| {
        let key = &server.key;
        for request in [
            Request::new("GET", &format!("/{number}")),
            Request::new(&format!("M{number}"), &format!("{TTL}/{number}")).key(key),
            Request::new("GET", &format!("/api/v2/apps/o{number}/a{number}/ttl/{number}")).key(key),
            Request::new("GET", &format!("{TTL}/{number}?q{number}=1")).key(key),
            Request::new("GET", TTL).key(&format!("{number:x}-0.0")),
            Request::new("GET", TTL).header(&format!("x-request-id: r{number}")),
            Request::new("GET", &format!("http://host{number}.example/{number}")),
        ] {
            let status = connection.ask(&request).status;
            assert!([401, 404, 405].contains(&status), "{request:?}: {status}");
        }
    };
    let mut connection = Conversation::with(server.http);
    ask(&mut connection, 0);
    // The question about metrics is counted too.
    labels(&server);
    let before = labels(&server);
    peak_memory(&server);
    let held = peak_memory(&server);
    for number in 1..3_000 {
        ask(&mut connection, number);
    }
    assert_eq!(labels(&server), before);
    let grown = peak_memory(&server).saturating_sub(held);
    assert!(grown < 32 << 20, "21,000 made-up requests cost {grown} bytes");
    assert_unharmed(&server);
}

/// Whoever has a key is counted wherever it knocks, and the app it knocks at is not.
#[test]
fn knocking_at_anothers_app_counts_against_ones_own() {
    let server = Server::in_memory();
    let key = server.make_app("knocks", "app");
    let limits = "/api/v1/admin/apps/knocks/app/limits";
    assert_eq!(server.administer("PUT", limits, r#"{"requestsPerSecond":5}"#).status, 200);
    std::thread::park_timeout(std::time::Duration::from_millis(600));
    let mut connection = Conversation::with(server.http);
    let knock = Request::new("GET", &format!("{TTL}/k")).key(&key);
    let statuses: Vec<_> = (0..50).map(|_| connection.ask(&knock).status).collect();
    assert!(statuses.starts_with(&[404]) && statuses.contains(&429), "{statuses:?}");
    let own = Request::new("GET", &format!("{TTL}/k")).key(&server.key);
    assert!((0..50).all(|_| connection.ask(&own).status == 404), "the other app has its own rate");
    assert_unharmed(&server);
}
