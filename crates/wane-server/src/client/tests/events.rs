//! Watches and backups: streams that are cut, resumed and given up.

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use wane::clock::ManualClock;
use wane::store::Timestamp;

use super::stage::{Play, Player, Raw, case, client, client_at, demo};
use crate::client::server_sent::{EventStream, ServerSent, StreamError};
use crate::client::{ChangeKind, Event, Notice};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn said(events: &str) -> Play {
    Play::Say(format!("{HEAD}{events}"))
}

fn heard(id: &str, kind: ChangeKind, key: &str) -> Notice {
    let (id, key) = (Some(id.to_owned()), key.to_owned());
    let expires_at = Some(Timestamp::from_unix_millis(5));
    Notice::Event(Event { id, kind, key, value: "v".into(), expires_at })
}

fn event(id: &str, kind: &str, key: &str) -> String {
    format!(
        "id: {id}\nevent: {kind}\ndata: {{\"key\":\"{key}\",\"value\":\"v\",\"expiresAt\":5}}\n\n"
    )
}

#[tokio::test]
async fn a_watch_goes_on_where_the_connection_was_lost() {
    let first = format!("retry: 0\n{}id: 8\nevent: exp", event("7", "inserted", "a"));
    let second = format!("retry: 0\n: still here\n\n{}", event("8", "expired", "a"));
    let third = "retry: 0\nid: 20\nevent: gap\ndata: {}\n\n";
    let fourth = event("21", "deleted", "b");
    let (raw, url) =
        Raw::start(vec![said(&first), said(&second), said(third), said(&fourth)]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("a b", None).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), heard("7", ChangeKind::Inserted, "a"));
    assert_eq!(watch.next().await.unwrap(), heard("8", ChangeKind::Expired, "a"));
    assert_eq!(watch.next().await.unwrap(), Notice::Gap);
    assert_eq!(watch.next().await.unwrap(), heard("21", ChangeKind::Deleted, "b"));

    let heard = raw.heard.lock().clone();
    assert!(heard[0].starts_with("get /api/v2/apps/demo/app/ttl:watch?prefix=a%20b http/1.1\r\n"));
    assert!(!heard[0].contains("last-event-id"), "{}", heard[0]);
    for (request, id) in heard[1..].iter().zip(["7", "8", "20"]) {
        assert!(request.contains(&format!("\r\nlast-event-id: {id}\r\n")), "{request}");
    }
}

/// A connection that brought nothing changes nothing about where the watch stands.
#[tokio::test]
async fn a_watch_keeps_its_place_over_a_connection_without_events() {
    let first = format!("retry: 0\n{}", event("7", "inserted", "a"));
    let last = event("8", "deleted", "a");
    let (raw, url) = Raw::start(vec![said(&first), said("retry: 0\n"), said(&last)]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("", None).await.unwrap();
    watch.next().await.unwrap();
    assert_eq!(watch.next().await.unwrap(), heard("8", ChangeKind::Deleted, "a"));
    assert!(raw.heard.lock()[2].contains("\r\nlast-event-id: 7\r\n"));
}

#[tokio::test]
async fn a_watch_begins_after_an_event_of_another() {
    let (raw, url) = Raw::start(vec![said(&event("6", "swapped", "a"))]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("", Some("5".into())).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), heard("6", ChangeKind::Swapped, "a"));
    assert!(raw.heard.lock()[0].contains("\r\nlast-event-id: 5\r\n"));
}

/// Without an id the server cannot say that something was missed, so the client does.
#[tokio::test]
async fn a_connection_lost_before_the_first_event_is_a_gap() {
    let (_, url) = Raw::start(vec![said("retry: 0\n\n"), said(&event("1", "inserted", "a"))]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("", None).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), Notice::Gap);
    assert_eq!(watch.next().await.unwrap(), heard("1", ChangeKind::Inserted, "a"));
}

#[tokio::test]
async fn a_watch_ends_where_the_server_does_not_come_back() {
    let (_, url) = Raw::start(vec![said("retry: 0\n\n")]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("", None).await.unwrap();
    assert_eq!(case(&watch.next().await.unwrap_err()), "unreachable");
}

#[tokio::test]
async fn a_watch_ends_where_the_key_no_longer_opens() {
    let body = r#"{"code":"unauthorized","detail":"revoked"}"#;
    let length = body.len();
    let revoked = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {length}\r\n\r\n{body}");
    let (raw, url) =
        Raw::start(vec![said("retry: 0\n\n"), Play::Say(revoked), Play::Stay(String::new())]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("", None).await.unwrap();
    assert_eq!(case(&watch.next().await.unwrap_err()), "problem");
    assert_eq!(raw.heard.lock().len(), 2);
}

#[tokio::test]
async fn a_watch_waits_for_a_server_that_is_busy() {
    let body = r#"{"code":"unavailable","detail":"starting"}"#;
    let length = body.len();
    let busy =
        format!("HTTP/1.1 503 Service Unavailable\r\ncontent-length: {length}\r\n\r\n{body}");
    let (_, url) = Raw::start(vec![said("retry: 0\n\n"), Play::Say(busy), said("")]).await;
    let mut watch = client(&url).app_ttl(&demo()).watch("", None).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), Notice::Gap);
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// A server that vanished without a word is noticed.
#[tokio::test]
async fn a_watch_does_not_trust_silence() {
    let clock = ManualClock::seeded(1);
    let first = format!("{HEAD}{}", event("7", "inserted", "a"));
    let (_, url) = Raw::start(vec![Play::Stay(first), said(&event("8", "deleted", "a"))]).await;
    let mut watch = client_at(&url, clock.clone()).app_ttl(&demo()).watch("", None).await.unwrap();
    watch.next().await.unwrap();
    let next = tokio::spawn(async move { watch.next().await.unwrap() });
    settle().await;
    clock.advance(Duration::from_secs(60));
    settle().await;
    clock.advance(Duration::from_millis(100));
    let next = tokio::time::timeout(Duration::from_secs(10), next).await.unwrap();
    assert_eq!(next.unwrap(), heard("8", ChangeKind::Deleted, "a"));
}

#[tokio::test]
async fn a_backup_does_not_trust_silence() {
    let clock = ManualClock::seeded(1);
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let (_, url) = Raw::start(vec![Play::Stay(head.into())]).await;
    let mut backup = client_at(&url, clock.clone()).admin().backup().await.unwrap();
    let chunk = tokio::spawn(async move { backup.chunk().await.unwrap_err() });
    settle().await;
    clock.advance(Duration::from_secs(60));
    let chunk = tokio::time::timeout(Duration::from_secs(10), chunk).await.unwrap();
    assert_eq!(case(&chunk.unwrap()), "unreachable");
}

#[tokio::test]
async fn a_watch_pauses_before_it_connects_again() {
    let clock = ManualClock::seeded(1);
    let first = event("7", "inserted", "a");
    let (raw, url) = Raw::start(vec![said(&first), said(&event("8", "deleted", "a"))]).await;
    let mut watch = client_at(&url, clock.clone()).app_ttl(&demo()).watch("", None).await.unwrap();
    raw.arrived.notified().await;
    watch.next().await.unwrap();
    let next = tokio::spawn(async move { watch.next().await.unwrap() });
    let pause = tokio::time::timeout(Duration::from_millis(50), raw.arrived.notified());
    assert!(pause.await.is_err(), "it did not wait");
    clock.advance(Duration::from_millis(100));
    assert_eq!(next.await.unwrap(), heard("8", ChangeKind::Deleted, "a"));
}

#[tokio::test]
async fn a_page_is_no_stream_of_events() {
    let (player, url) = Player::start().await;
    player.answers(200, "text/html", "<h1>welcome</h1>");
    let watch = client(&url).app_ttl(&demo()).watch("", None).await;
    assert_eq!(case(&watch.unwrap_err()), "protocol");
}

#[tokio::test]
async fn a_backup_is_whole_or_an_error() {
    let (player, url) = Player::start().await;
    let chunks = [Ok::<_, std::io::Error>("one "), Ok("two")];
    let stream = futures_util::stream::iter(chunks);
    player.answers_with(Response::new(Body::from_stream(stream)));
    let mut backup = client(&url).admin().backup().await.unwrap();
    let mut whole = Vec::new();
    while let Some(chunk) = backup.chunk().await.unwrap() {
        whole.extend_from_slice(&chunk);
    }
    assert_eq!(whole, b"one two");
    assert_eq!(player.heard().line, "GET /api/v1/admin/backup");

    let cut = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none \r\n";
    let (_, url) = Raw::start(vec![Play::Say(cut.into())]).await;
    let mut backup = client(&url).admin().backup().await.unwrap();
    assert_eq!(backup.chunk().await.unwrap().unwrap(), "one ");
    assert_eq!(case(&backup.chunk().await.unwrap_err()), "unreachable");
}

const EVENTS: &str = "\u{feff}: a comment\r\nretry: 250\n\nevent: one\r\ndata: a\rdata:b\r\rid: 5\n\
                      data:  \u{e9}\nunknown: x\ndata\n\nid: 6\n\nevent: no data\n\ndata: c\n\nid\ndata: d\n\n";

fn expected() -> Vec<ServerSent> {
    let event = |kind: &str, data: &str, id: Option<&str>| ServerSent {
        kind: kind.into(),
        data: data.into(),
        id: id.map(Into::into),
    };
    vec![
        event("one", "a\nb", None),
        event("message", " \u{e9}\n", Some("5")),
        event("message", "c", Some("6")),
        event("message", "d", None),
    ]
}

fn all(stream: &mut EventStream) -> Vec<ServerSent> {
    std::iter::from_fn(|| stream.pop()).collect()
}

#[test]
fn events_are_the_same_wherever_they_are_split() {
    let bytes = EVENTS.as_bytes();
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let mut stream = EventStream::default();
            for part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                stream.feed(part).unwrap();
            }
            assert_eq!(all(&mut stream), expected(), "split at {first} and {second}");
            assert_eq!(stream.retry(), Some(Duration::from_millis(250)));
            assert_eq!(stream.last_id(), None);
        }
    }
}

/// An event that was not ended did not happen: it comes again after its predecessor's id.
#[test]
fn half_an_event_is_none() {
    let mut stream = EventStream::default();
    stream.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n").unwrap();
    assert_eq!(all(&mut stream).len(), 1);
    assert_eq!(stream.last_id(), Some("1"));
}

#[test]
fn an_event_without_end_is_given_up() {
    let long = vec![b'x'; 1 << 20];
    let mut stream = EventStream::default();
    assert_eq!(stream.feed(&long), Ok(()));
    assert_eq!(stream.feed(b"x"), Err(StreamError::TooLong));

    let mut stream = EventStream::default();
    let lines = b"data: 0123456789\n".repeat(1 << 17);
    assert_eq!(stream.feed(&lines), Err(StreamError::TooLong));

    let mut stream = EventStream::default();
    assert_eq!(stream.feed(b"data: \xff\n"), Err(StreamError::NotUtf8));
}
