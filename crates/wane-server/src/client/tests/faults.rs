//! Lost connections: what was sent decides between "unknown outcome" and "cannot be reached".

use std::time::Duration;

use tokio::net::TcpListener;
use wane::clock::ManualClock;

use super::stage::{Play, Player, Raw, case, client, client_at, demo, url_of};
use crate::client::{AppTtl, ClientError, Endpoint, Trust};

const LIFE: Duration = Duration::from_secs(1);

const CREATED: &str = "HTTP/1.1 201 Created\r\ncontent-length: 15\r\n\r\n{\"expiresAt\":5}";

async fn insert_and_get(entries: &AppTtl) -> (ClientError, ClientError) {
    let insert = entries.insert("k", "v", LIFE).await.unwrap_err();
    (insert, entries.get("k").await.unwrap_err())
}

/// Wherever the answer is cut, a write may have been applied and a read may be asked again.
#[tokio::test]
async fn an_answer_cut_at_any_byte_leaves_a_write_unknown() {
    for length in 0..CREATED.len() {
        let cut = Play::Say(CREATED[..length].into());
        let (_, url) = Raw::start(vec![cut.clone(), cut]).await;
        let (insert, get) = insert_and_get(&client(&url).app_ttl(&demo())).await;
        assert_eq!((case(&insert), case(&get)), ("unknown", "unreachable"), "cut at {length}");
    }
    let (_, url) = Raw::start(vec![Play::Say(CREATED.into())]).await;
    client(&url).app_ttl(&demo()).insert("k", "v", LIFE).await.unwrap();
}

#[tokio::test]
async fn a_server_that_speaks_no_http_leaves_a_write_unknown() {
    let words = Play::Say("-ERR wrong protocol\r\n\r\n".into());
    let (_, url) = Raw::start(vec![words.clone(), words]).await;
    let (insert, get) = insert_and_get(&client(&url).app_ttl(&demo())).await;
    assert_eq!((case(&insert), case(&get)), ("unknown", "unreachable"));
}

/// A status of 4xx says that nothing was done, also where the reason is lost.
#[tokio::test]
async fn a_refusal_without_its_reason_is_still_one() {
    let cut = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 99\r\n\r\n{";
    let (_, url) = Raw::start(vec![Play::Say(cut.into())]).await;
    let insert = client(&url).app_ttl(&demo()).insert("k", "v", LIFE).await.unwrap_err();
    assert_eq!(case(&insert), "unreachable");
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url_of(listener.local_addr().unwrap());
    drop(listener);
    let (insert, get) = insert_and_get(&client(&url).app_ttl(&demo())).await;
    assert_eq!((case(&insert), case(&get)), ("unreachable", "unreachable"));
    assert!(insert.to_string().contains(&url), "{insert}");
}

#[tokio::test]
async fn a_deadline_after_sending_leaves_a_write_unknown() {
    let clock = ManualClock::seeded(1);
    let (raw, url) = Raw::start(vec![Play::Stay(String::new()), Play::Stay(String::new())]).await;
    let client = client_at(&url, clock.clone()).with_deadline(Duration::from_millis(700));
    let entries = client.app_ttl(&demo());
    let insert = tokio::spawn({
        let entries = entries.clone();
        async move { entries.insert("k", "v", LIFE).await.unwrap_err() }
    });
    raw.arrived.notified().await;
    clock.advance(Duration::from_millis(699));
    tokio::task::yield_now().await;
    assert!(!insert.is_finished());
    clock.advance(Duration::from_millis(1));
    assert_eq!(case(&insert.await.unwrap()), "unknown");

    let get = tokio::spawn(async move { entries.get("k").await.unwrap_err() });
    raw.arrived.notified().await;
    clock.advance(Duration::from_millis(700));
    assert_eq!(case(&get.await.unwrap()), "unreachable");
}

/// A server that accepts and never finishes the handshake was sent nothing that it could apply.
#[tokio::test]
async fn a_deadline_before_sending_leaves_nothing_unknown() {
    let clock = ManualClock::seeded(1);
    let (_raw, url) = Raw::start(vec![Play::Stay(String::new())]).await;
    let url = url.replace("http:", "https:");
    let endpoint = Endpoint { url, key: None, trust: Trust::PublicRoots };
    let client = crate::client::Client::new(&endpoint, clock.clone()).unwrap();
    let entries = client.with_deadline(LIFE).app_ttl(&demo());
    let insert = tokio::spawn(async move { entries.insert("k", "v", LIFE).await.unwrap_err() });
    while !insert.is_finished() {
        clock.advance(LIFE);
        tokio::task::yield_now().await;
    }
    assert_eq!(case(&insert.await.unwrap()), "unreachable");
}

/// One connection serves call after call.
#[tokio::test]
async fn connections_are_kept() {
    let (player, url) = Player::start().await;
    let client = client(&url);
    for _ in 0..3 {
        player.answers(200, "text/plain", "ok");
        client.livez().await.unwrap();
    }
    assert_eq!((player.requests(), player.connections()), (3, 1));
}

/// A connection that the server has closed is not written to: what follows is sent on another.
#[tokio::test]
async fn a_connection_that_was_closed_leaves_nothing_unknown() {
    let (raw, url) = Raw::start(vec![Play::Say(CREATED.into()), Play::Say(CREATED.into())]).await;
    let entries = client(&url).app_ttl(&demo());
    entries.insert("k", "v", LIFE).await.unwrap();
    raw.closed.notified().await;
    entries.insert("k", "v", LIFE).await.unwrap();
    assert_eq!(raw.heard.lock().len(), 2);
}
