//! Requests whose length two parties could read differently: refused, or read in the one way that
//! leaves no second request, and then closed.

use super::*;

const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends `request` with a hidden one behind it: what comes back until the server closes.
async fn answers(server: &Server, request: &str) -> Vec<u16> {
    let mut client = server.connect().await;
    client.send(request.as_bytes()).await;
    client.statuses().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_are_answered_400_and_closed() {
    let server = Server::start(limits()).await;
    let heads = [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 99999999999999999999",
        "Content-Length : 5",
        "Content-Length: 5\r\n Content-Length: 6",
        "X: a\r\n\tfolded: b",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: identity\r\nContent-Length: 5",
        "X\0: a",
        "X: a\0b",
        "X: a\rTransfer-Encoding: chunked",
        ": no name",
        "no colon",
    ];
    for head in heads {
        let request = format!("POST /length HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\nabcde{HIDDEN}");
        assert_eq!(answers(&server, &request).await, [400], "{head:?}");
    }
    let lines = [
        "POST  /length HTTP/1.1",
        "POST /length HTTP/1.1 HTTP/1.1",
        "POST /length HTTP/9.9",
        "POST /le ngth HTTP/1.1",
        " POST /length HTTP/1.1",
        "GET /length",
        "\x01\x02\x03\x04",
    ];
    for line in lines {
        let request = format!("{line}\r\nHost: x\r\nContent-Length: 0\r\n\r\n{HIDDEN}");
        assert_eq!(answers(&server, &request).await, [400], "{line:?}");
    }
    let old =
        format!("POST /length HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}");
    assert_eq!(answers(&server, &old).await, [400]);
    assert_eq!(server.seen.smuggled.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_chunks_fail_the_body_and_close() {
    let server = Server::start(limits()).await;
    let bodies = [
        "5\nabcde\r\n0\r\n\r\n",
        "5\r\nabcdeXX0\r\n\r\n",
        "-5\r\nabcde\r\n0\r\n\r\n",
        "0x5\r\nabcde\r\n0\r\n\r\n",
        "g\r\nabcde\r\n0\r\n\r\n",
        "\r\nabcde\r\n0\r\n\r\n",
        "10000000000000005\r\nabcde\r\n0\r\n\r\n",
        "5 5\r\nabcde\r\n0\r\n\r\n",
        "5;a\nb\r\nabcde\r\n0\r\n\r\n",
    ];
    for body in bodies {
        let head = "POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = format!("{head}{body}{HIDDEN}");
        assert_eq!(answers(&server, &request).await, [400], "{body:?}");
    }
    assert_eq!(server.seen.smuggled.load(Ordering::SeqCst), 0);
}

/// Read as chunked, as RFC 9112 wants it, and what follows is not read at all.
#[tokio::test(flavor = "multi_thread")]
async fn length_and_chunks_together_hide_nothing() {
    let server = Server::start(limits()).await;
    let (length, chunks) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    for head in [format!("{length}\r\n{chunks}"), format!("{chunks}\r\n{length}")] {
        let request =
            format!("POST /length HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n0\r\n\r\n{HIDDEN}");
        assert_eq!(answers(&server, &request).await, [200], "{head:?}");
    }
    assert_eq!(server.seen.smuggled.load(Ordering::SeqCst), 0);
}

/// Lines that end in a bare LF are ends of lines, for names and lengths alike.
#[tokio::test(flavor = "multi_thread")]
async fn bare_line_feeds_hide_nothing() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.send(b"POST /length HTTP/1.1\nHost: x\nContent-Length: 36\nConnection: close\n\n").await;
    client.send(HIDDEN.as_bytes()).await;
    client.send(b"abcd").await;
    client.closed().await;
    assert!(client.text().ends_with("\r\n\r\n36"), "{}", client.text());
    assert_eq!(server.seen.smuggled.load(Ordering::SeqCst), 0);
}

/// The control: the hidden request is one that would be served.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_behind_a_plain_one_is_served() {
    let server = Server::start(limits()).await;
    let first = "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde";
    assert_eq!(answers(&server, &format!("{first}{HIDDEN}")).await, [200, 200]);
    assert_eq!(server.seen.smuggled.load(Ordering::SeqCst), 1);
}
