//! Replays over HTTP: ordered by an operator, read by the institution like its stream, and nothing of
//! the stream moved by it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use super::wire::{Call, Pulled, Reply};
use super::{ISPB, MANY, OTHER, Streams, credential, reader_of, start};
use crate::server::{Answer, Server};
use crate::wait;

const ROUTE: &str = "/api/v1/admin/replays";

/// The year 2100.
const LATER: u64 = 4_102_444_800_000;

fn order(streams: &Streams, body: &Json) -> Answer {
    streams.server.administer("POST", ROUTE, &body.to_string())
}

fn times(from: u64, to: u64) -> Json {
    json!({ "ispb": ISPB, "from": from, "to": to, "reason": "court order 17" })
}

/// The path of a replay of a time.
#[track_caller]
fn replay(streams: &Streams, from: u64, to: u64) -> String {
    let answer = order(streams, &times(from, to));
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["start"].as_str().unwrap().to_owned()
}

#[track_caller]
fn replay_all(streams: &Streams) -> String {
    replay(streams, 0, LATER)
}

/// Reads a path to its end: all ids.
#[track_caller]
fn read(streams: &Streams, path: &str, headers: &[&str]) -> Vec<String> {
    let (mut ids, mut path) = (Vec::new(), path.to_owned());
    loop {
        let pulled = streams.pull(&path, headers);
        if pulled.reply.status == 204 {
            assert_eq!(pulled.next, path, "the end is the same path again");
            return ids;
        }
        ids.extend(pulled.ids().into_iter().map(str::to_owned));
        path = pulled.next;
    }
}

/// When a message was taken in, as its id says.
fn came_at(id: &str) -> u64 {
    let bytes = STANDARD.decode(id).unwrap();
    bytes[2..8].iter().fold(0, |millis, byte| millis << 8 | u64::from(*byte))
}

#[test]
fn a_replay_is_read_like_a_stream_and_ends_with_204() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..25);
    let answer = order(&streams, &times(0, LATER)).json();
    let path = answer["start"].as_str().unwrap();
    let prefix = format!("/api/v1/out/{ISPB}/replay/");
    assert!(path.starts_with(&prefix), "{path}");
    let expires_at = answer["expiresAt"].as_u64().unwrap();
    let day = expires_at - came_at(&known[0]);
    assert!((86_400_000..86_500_000).contains(&day), "{day} ms");

    let mut of_stream = streams.start();
    let mut of_replay = streams.pull(path, &[MANY]);
    for _ in 0..3 {
        assert!(of_replay.next.starts_with(&prefix), "{}", of_replay.next);
        assert_eq!(of_replay.messages, of_stream.messages);
        assert_eq!(of_replay.reply.body, of_stream.reply.body, "byte by byte");
        let kind = |pulled: &Pulled| pulled.reply.header("content-type").map(str::to_owned);
        assert_eq!(kind(&of_replay), kind(&of_stream));
        of_stream = streams.after(&of_stream);
        of_replay = streams.after(&of_replay);
    }
    assert_eq!((of_stream.reply.status, of_replay.reply.status), (204, 204));
    let gzip = "accept-encoding: gzip";
    for headers in [&[][..], &[MANY], &[gzip], &[MANY, gzip], &["accept: application/xml"]] {
        assert_eq!(read(&streams, &replay_all(&streams), headers), known, "{headers:?}");
    }
}

#[test]
fn a_replay_is_of_its_time_alone() {
    let streams = Streams::new();
    let pushes = [0..7, 7..20, 20..21].map(|numbers| {
        wait(Duration::from_millis(20));
        streams.push_numbers(numbers)
    });
    let at = |push: usize| came_at(&pushes[push][0]);
    let of = |from, to| read(&streams, &replay(&streams, from, to), &[MANY]);
    assert_eq!(of(at(1), at(2)), pushes[1]);
    assert_eq!(of(0, at(1)), pushes[0]);
    assert_eq!(of(at(2), LATER), pushes[2]);
}

#[test]
fn a_replay_moves_nothing_of_the_stream() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..30);
    let first = streams.start();
    let before = streams.standing();
    assert_eq!(read(&streams, &replay_all(&streams), &[MANY]), known);
    assert_eq!(read(&streams, &replay_all(&streams), &[]), known);
    assert_eq!(streams.standing(), before);
    assert_eq!(streams.after(&first).ids(), known[10..20]);
    assert_ne!(streams.standing(), before, "the control: a pull does");
}

#[test]
fn a_retry_gets_the_same_bytes_until_the_next_token_is_used() {
    let streams = Streams::new();
    streams.push_numbers(0..30);
    let path = replay_all(&streams);
    let first = streams.pull(&path, &[MANY]);
    for headers in [&[MANY][..], &[], &[MANY, "accept-encoding: gzip"]] {
        let again = streams.pull(&path, headers);
        assert_eq!(again.reply.body, first.reply.body);
        assert_eq!(again.reply.lasting_head(), first.reply.lasting_head());
    }
    let second = streams.after(&first);
    assert_eq!(streams.pull(&first.next, &[]).reply.body, second.reply.body);
    let late = streams.ask("GET", &path, &[MANY]);
    assert_eq!(late.problem(), (400, "token_out_of_order".into()));
}

#[test]
fn a_replay_goes_on_after_the_server_was_killed() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--storage=file", "--stream-hold-ms=300"];
    let streams = Streams::of(Server::start(data.path(), &flags));
    let known = streams.push_numbers(0..30);
    let path = replay_all(&streams);
    let first = streams.pull(&path, &[MANY]);
    let streams = streams.restarted(data.path(), &flags);
    assert_eq!(streams.pull(&path, &[]).reply.body, first.reply.body);
    assert_eq!(read(&streams, &first.next, &[MANY]), known[10..]);
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let streams = Streams::new();
    let nothing = order(&streams, &times(0, LATER));
    assert_eq!((nothing.status, &*nothing.code()), (404, "absent"), "{}", nothing.body);
    let known = streams.push_numbers(0..3);
    let now = came_at(&known[0]);
    let long = "why ".repeat(129);
    let with = |name: &str, value: Json| {
        let mut body = times(0, LATER);
        body[name] = value;
        body
    };
    for (body, status) in [
        (times(now - 5_000, now - 1_000), 404),
        (times(LATER, LATER + 1), 404),
        (with("ispb", json!(OTHER)), 404),
        (times(now, now), 400),
        (times(now + 1, now), 400),
        (with("from", json!(-1)), 400),
        (with("from", json!(1.5)), 400),
        (with("from", json!("2026-11-16")), 400),
        (with("to", json!(null)), 400),
        (with("ispb", json!("1234567")), 400),
        (with("ispb", json!(12_345_678)), 400),
        (with("reason", json!("")), 400),
        (with("reason", json!("  ")), 400),
        (with("reason", json!("two\nlines")), 400),
        (with("reason", json!(long)), 400),
        (with("more", json!(1)), 400),
        (json!({ "ispb": ISPB, "from": 0, "to": 1 }), 400),
        (json!([]), 400),
    ] {
        let answer = order(&streams, &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let code = answer.code();
        assert!(code == "absent" || code == "invalid_request", "{body}: {}", answer.body);
    }
    assert_eq!(order(&streams, &times(now, now + 60_000)).status, 201, "the control");
    for body in ["", "nonsense", "{"] {
        assert_eq!(streams.server.administer("POST", ROUTE, body).status, 400, "{body}");
    }
}

/// Each kind of token on the path of the other: not valid, and nothing moves.
#[test]
fn no_token_is_good_on_the_path_of_the_other_kind() {
    let streams = Streams::new();
    streams.push_numbers(0..30);
    let pulled = streams.start();
    let path = replay_all(&streams);
    let before = streams.standing();
    let to_stream = path.replace("/replay/", "/stream/");
    let to_replay = pulled.next.replace("/stream/", "/replay/");
    for (method, path) in [("GET", &to_stream), ("DELETE", &to_stream), ("GET", &to_replay)] {
        let refused = streams.ask(method, path, &[MANY]);
        assert_eq!(refused.problem(), (401, "invalid_token".into()), "{method} {path}");
        assert_eq!(refused.header("pi-pull-next"), None);
    }
    assert_eq!(streams.standing(), before);
    assert_eq!(streams.pull(&path, &[MANY]).messages.len(), 10, "both are as they were");
    assert_eq!(streams.after(&pulled).messages.len(), 10, "both are as they were");
}

#[test]
fn tokens_that_are_none_and_readers_that_may_not_are_refused() {
    let streams = Streams::new();
    streams.push_numbers(0..30);
    let path = replay_all(&streams);
    let (rest, last) = path.split_at(path.len() - 1);
    let forged = format!("{rest}{}", if last == "A" { "Q" } else { "A" });
    let bare = format!("/api/v1/out/{ISPB}/replay/");
    for wrong in [forged, path[..path.len() - 10].to_owned(), format!("{bare}start")] {
        let refused = streams.ask("GET", &wrong, &[MANY]);
        assert_eq!(refused.problem(), (401, "invalid_token".into()), "{wrong}");
    }
    assert_eq!(streams.ask("GET", &bare, &[]).problem(), (404, "absent".into()));
    let by = |key: &str, path: &str| Call::new("GET", path).key(key).send(streams.server.http);
    let other = reader_of(&streams.server, OTHER);
    assert_eq!(by(&other, &path).problem(), (403, "forbidden".into()));
    let elsewhere = path.replace(ISPB, OTHER);
    assert_eq!(by(&other, &elsewhere).problem(), (403, "forbidden".into()));
    assert_eq!(by(&streams.producer, &path).problem(), (403, "forbidden".into()));
    let nobody = Call::new("GET", &path).send(streams.server.http);
    assert_eq!(nobody.problem(), (401, "unauthorized".into()));
    let not_xml = streams.ask("GET", &path, &["accept: text/html"]);
    assert_eq!(not_xml.problem(), (406, "not_acceptable".into()));
    let admin = credential(&streams.server, r#"{"scopes":["admin"]}"#);
    let order = Call::new("POST", ROUTE).key(&admin).body(times(0, LATER).to_string().as_bytes());
    assert_eq!(order.send(streams.server.http).problem(), (404, "absent".into()), "no operator");
    assert_eq!(streams.pull(&path, &[MANY]).messages.len(), 10, "nothing was used up");
}

#[test]
fn a_replay_has_no_other_methods() {
    let streams = Streams::new();
    streams.push_numbers(0..3);
    let path = replay_all(&streams);
    let allow = |reply: &Reply| reply.header("allow").map(str::to_owned);
    let head = streams.ask("HEAD", &path, &[]);
    assert_eq!((head.status, allow(&head)), (405, Some("GET".into())));
    for method in ["DELETE", "POST", "PUT", "PATCH"] {
        let refused = streams.ask(method, &path, &[]);
        assert_eq!(refused.problem(), (405, "method_not_allowed".into()), "{method}");
        assert!(allow(&refused).is_some_and(|methods| methods.contains("GET")), "{method}");
    }
    assert_eq!(streams.pull(&path, &[MANY]).messages.len(), 3, "a HEAD used nothing up");
}

#[test]
fn a_replay_is_over_after_its_time() {
    let streams = Streams::with(&["--stream-replay-ms=1500"]);
    streams.push_numbers(0..30);
    let first = streams.pull(&replay_all(&streams), &[MANY]);
    assert_eq!(first.messages.len(), 10);
    wait(Duration::from_millis(2_600));
    let over = streams.ask("GET", &first.next, &[MANY]);
    assert_eq!(over.problem(), (401, "token_expired".into()));
    assert!(over.text().contains("ask the operator for another one"), "{}", over.text());
    assert_eq!(streams.pull(&start(ISPB), &[MANY]).messages.len(), 10, "the stream goes on");
}

#[test]
fn replays_are_counted() {
    let streams = Streams::new();
    let value = |name: &str, label: &str| streams.metric(name, label).unwrap_or(0.0);
    order(&streams, &times(0, 1));
    streams.push_numbers(0..25);
    let before = value("wane_stream_delivery_seconds_count", "");
    assert_eq!(read(&streams, &replay_all(&streams), &[MANY]).len(), 25);
    let requests = |labels: &str| value("wane_stream_requests_total", labels);
    assert_eq!(requests("call=\"replay\",outcome=\"done\""), 1.0);
    assert_eq!(requests("call=\"replay\",outcome=\"absent\""), 1.0);
    assert_eq!(requests("call=\"replay_next\",outcome=\"delivered\""), 3.0);
    assert_eq!(requests("call=\"replay_next\",outcome=\"empty\""), 1.0);
    assert_eq!(value("wane_stream_messages_total", "direction=\"replayed\""), 25.0);
    assert_eq!(value("wane_stream_delivery_seconds_count", ""), before, "they are no deliveries");
}
