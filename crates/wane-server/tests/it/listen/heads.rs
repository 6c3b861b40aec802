//! Heads that are too large, and answers to requests that are not read to their end: the client
//! sees the answer, then the end, and never a reset in between.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_head_over_the_limit_is_answered_431_and_closed() {
    let server = Server::start(ListenLimits { header_bytes: 8_192, ..limits() }).await;
    // Far more than is read, so that a close without lingering would be a reset.
    for size in [9_000, 1_000_000] {
        let mut client = server.connect().await;
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(size));
        client.send(head.as_bytes()).await;
        assert_eq!(client.statuses().await, [431], "{size}");
    }
    server.serves_others().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_hundred_headers_are_answered_431_and_closed() {
    let server = Server::start(limits()).await;
    for (count, status) in [(99, 200), (100, 431)] {
        let mut client = server.connect().await;
        let head =
            format!("GET / HTTP/1.1\r\nConnection: close\r\n{}\r\n", "A: b\r\n".repeat(count));
        client.send(head.as_bytes()).await;
        assert_eq!(client.statuses().await, [status], "{count}");
    }
}

/// The line counts as part of the head; only a line that no URI can hold is a 414.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_is_answered_431_or_414_and_closed() {
    for (header_bytes, status) in [(32 * 1024, 431), (256 * 1024, 414)] {
        let server = Server::start(ListenLimits { header_bytes, ..limits() }).await;
        let mut client = server.connect().await;
        let line = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(70_000));
        client.send(line.as_bytes()).await;
        assert_eq!(client.statuses().await, [status]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_just_within_the_limit_is_answered() {
    let server = Server::start(ListenLimits { header_bytes: 8_192, ..limits() }).await;
    let mut client = server.connect().await;
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(8_000));
    client.send(head.as_bytes()).await;
    assert_eq!(client.answer().await.0, 200);
}

/// A 413 is of no use to a client whose connection is reset while it still sends.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_an_unread_body_reaches_a_client_that_still_sends() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n").await;
    for _ in 0..20 {
        client.send(&[b'x'; 1_000_000]).await;
    }
    assert_eq!(client.statuses().await, [413]);
}
