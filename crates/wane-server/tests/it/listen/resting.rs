//! Connections that wait without a protocol: clients notice nothing of it.
//!
//! The slow request takes twice a limit, and pauses between requests are half a limit: both are many
//! times what a connection waits before it rests.

use super::*;

const SLOW: &[u8] = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
const FOR_EVER: &[u8] = b"GET /for-ever HTTP/1.1\r\nHost: x\r\n\r\n";

/// So long that a connection rests, and short of every limit.
const REST: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread")]
async fn requests_after_pauses_are_answered_each_in_its_turn() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    for _ in 0..4 {
        client.send(ROOT).await;
        assert_eq!(client.answer().await, (200, "root".into()));
        pause(REST).await;
    }
    assert_eq!(server.connections.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_long_arrives_and_the_connection_goes_on() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.send(SLOW).await;
        assert_eq!(client.answer().await, (200, "slow".into()));
        client.send(ROOT).await;
        assert_eq!(client.answer().await, (200, "root".into()));
    }
    assert_eq!(server.connections.accepted(), 1);
}

/// Those that come before the answer and those that come together with the request.
#[tokio::test(flavor = "multi_thread")]
async fn requests_behind_one_that_takes_long_are_answered_after_it() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.send(&[SLOW, ROOT, &ROOT[..9]].concat()).await;
    pause(REST).await;
    client.send(&[&ROOT[9..], SLOW].concat()).await;
    for body in ["slow", "root", "root", "slow"] {
        assert_eq!(client.answer().await, (200, body.into()));
    }
}

/// More than is kept while an answer is waited for stays in the socket.
#[tokio::test(flavor = "multi_thread")]
async fn many_requests_behind_one_that_takes_long_are_answered_after_it() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.send(SLOW).await;
    pause(REST).await;
    for _ in 0..1_000 {
        client.send(ROOT).await;
    }
    assert_eq!(client.answer().await, (200, "slow".into()));
    for _ in 0..1_000 {
        assert_eq!(client.answer().await, (200, "root".into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_after_a_late_answer_as_its_client_wants() {
    let server = Server::start(limits()).await;
    for (request, closes) in [
        ("GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true),
        ("GET /slow HTTP/1.0\r\n\r\n", true),
        ("GET /slow HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
        ("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", false),
    ] {
        let mut client = server.connect().await;
        client.send(request.as_bytes()).await;
        assert_eq!(client.answer().await, (200, "slow".into()), "{request}");
        if closes {
            assert!(client.closed().await < LIMIT, "{request}");
        } else {
            client.send(ROOT).await;
            assert_eq!(client.answer().await, (200, "root".into()), "{request}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_dropped() {
    let server = Server::start(limits()).await;
    let mut clients = [server.connect().await, server.connect().await];
    for client in &mut clients {
        client.send(FOR_EVER).await;
    }
    server.until_waiting(2).await;
    pause(REST).await;
    let [gone, stays] = clients;
    drop(gone);
    server.until_waiting(1).await;
    server.until_open(1).await;
    drop(stays);
    server.until_waiting(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_rests_has_its_time_like_any_other() {
    let server = Server::start(limits()).await;
    let took = stopwatch();
    let mut idle = server.connect().await;
    idle.send(ROOT).await;
    idle.answer().await;
    idle.closed().await;
    assert_at_limit(took(), LIMIT);

    let mut drips = server.connect().await;
    drips.send(ROOT).await;
    drips.answer().await;
    pause(REST).await;
    let took = stopwatch();
    drips.send(&ROOT[..5]).await;
    drips.closed().await;
    assert_at_limit(took(), LIMIT);
}

/// What has begun a head is given its time, whether it came with the request before, with one that
/// took long, or later.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_begins_together_with_the_request_before_has_its_time() {
    for request in [ROOT, SLOW] {
        let server = Server::start(ListenLimits { idle: SOON, stalled: SOON, ..limits() }).await;
        let mut client = server.connect().await;
        client.send(&[request, &ROOT[..5]].concat()).await;
        client.answer().await;
        let took = stopwatch();
        client.closed().await;
        assert_at_limit(took(), LIMIT);
    }
}

/// The control: an empty line, as some clients send it after a body, begins nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_line_after_a_request_begins_no_head() {
    let server = Server::start(ListenLimits { idle: SOON, stalled: SOON, ..limits() }).await;
    let mut client = server.connect().await;
    client.send(&[ROOT, b"\r\n"].concat()).await;
    assert_eq!(client.answer().await, (200, "root".into()));
    pause(2 * LIMIT).await;
    client.send(ROOT).await;
    assert_eq!(client.answer().await, (200, "root".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_rests_is_told_to_finish_like_any_other() {
    let server = Server::start(limits_of(SOON)).await;
    let (mut held, mut idle) = (server.connect().await, server.connect().await);
    idle.send(ROOT).await;
    idle.answer().await;
    held.send(SLOW).await;
    pause(REST).await;
    let stopping = tokio::spawn(server.stop());
    assert!(idle.closed().await < LIMIT, "an idle connection closes at once");
    held.closed().await;
    let text = held.text().to_lowercase();
    assert!(text.starts_with("http/1.1 200") && text.ends_with("slow"), "{text}");
    assert!(text.contains("connection: close"), "{text}");
    assert_eq!(stopping.await.unwrap(), Drained { cut: 0 });
}
