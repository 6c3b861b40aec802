//! Clients that are silent, drip, or do not read: ended in time, and nobody else notices.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_nothing_is_closed_after_the_header_time() {
    let server = Server::start(limits()).await;
    let took = stopwatch();
    let mut silent = server.connect().await;
    server.serves_others().await;
    silent.closed().await;
    assert_at_limit(took(), LIMIT);
}

/// The control: saying it late is not saying nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_begins_late_but_in_time_is_answered() {
    let server = Server::start(limits_of(LENIENT)).await;
    let mut late = server.connect().await;
    pause(LENIENT / 3).await;
    late.send(ROOT).await;
    assert_eq!(late.answer().await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dripped_head_is_cut_however_steadily_it_drips() {
    let server = Server::start(limits()).await;
    let took = stopwatch();
    let mut dripping = server.connect().await;
    let endless = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 1_000]].concat();
    dripping.drip(&endless, 1, SHORT).await;
    assert_at_limit(took(), LIMIT);
    assert_eq!(dripping.text(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_in_pieces_within_the_time_is_answered() {
    let server = Server::start(limits_of(LENIENT)).await;
    let mut slow = server.connect().await;
    slow.drip(ROOT, 4, SHORT).await;
    assert_eq!(slow.answer().await.0, 200);
}

/// The second head of a connection has its time from its own first byte on.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_head_is_cut_by_the_header_time_not_by_the_idle_time() {
    let server = Server::start(ListenLimits { idle: 30 * LIMIT, ..limits() }).await;
    let mut client = server.connect().await;
    client.send(ROOT).await;
    client.answer().await;
    pause(LIMIT / 2).await;
    let took = stopwatch();
    client.drip(&[b'G'; 1_000], 1, SHORT).await;
    assert_at_limit(took(), LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn between_requests_a_connection_closes_after_the_idle_time() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    let took = stopwatch();
    client.send(ROOT).await;
    client.answer().await;
    client.closed().await;
    assert_at_limit(took(), LIMIT);
}

/// The control, and what hyper's own header limit would break.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_between_requests_may_be_longer_than_the_header_time() {
    let server = Server::start(ListenLimits { idle: SOON, ..limits() }).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(ROOT).await;
        assert_eq!(client.answer().await.0, 200);
        pause(LIMIT * 3 / 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_is_given_up() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    let took = stopwatch();
    client.send(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc").await;
    assert_eq!(client.answer().await.0, 408);
    assert_at_limit(took(), LIMIT);
    client.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dripped_body_is_given_up_however_steadily_it_drips() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    let took = stopwatch();
    client.send(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n").await;
    let (mut reading, mut writing) = client.stream.split();
    let mut answer = [0; 12];
    let drip = async {
        loop {
            use tokio::io::AsyncWriteExt;
            if writing.write_all(b"x").await.is_err() {
                return;
            }
            pause(SHORT).await;
        }
    };
    tokio::select! {
        () = drip => panic!("closed without an answer"),
        read = timeout(SOON, reading.read_exact(&mut answer)) => { read.unwrap().unwrap(); }
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert_at_limit(took(), LIMIT);
}

/// The control: twice the least rate, for longer than the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_above_the_least_rate_is_read_to_its_end() {
    let server = Server::start(limits_of(LENIENT)).await;
    let mut client = server.connect().await;
    client.send(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n").await;
    let took = stopwatch();
    client.drip(&[b'x'; 3_000], 50, 2 * SHORT).await;
    assert!(took() > LENIENT);
    assert_eq!(client.answer().await, (200, "3000".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_its_answer_is_cut() {
    for path in ["/big", "/whole"] {
        let server = Server::start(ListenLimits { idle: 60 * LIMIT, ..limits() }).await;
        let mut client = server.connect().await;
        let took = stopwatch();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
        server.until_open(1).await;
        server.serves_others().await;
        server.until_open(0).await;
        assert_at_limit(took(), LIMIT);
        client.closed().await;
        assert!(client.received.len() < BIG, "{path}: nothing was held back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_gets_its_whole_answer() {
    let server = Server::start(limits_of(LENIENT)).await;
    let mut client = server.connect().await;
    client.send(b"GET /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let (took, mut total) = (stopwatch(), 0);
    let mut megabyte = vec![0; 1024 * 1024];
    loop {
        let read = timeout(SOON, client.stream.read(&mut megabyte)).await.unwrap().unwrap();
        if read == 0 {
            break;
        }
        total += read;
        // As slow as to need more than the limit for the whole.
        pause((LENIENT * 3 / 2).mul_f64(read as f64 / BIG as f64)).await;
    }
    assert!(total > BIG, "{total} bytes");
    assert!(took() > LENIENT, "{:?}", took());
}

/// Time that our own side takes is nobody's fault.
#[tokio::test(flavor = "multi_thread")]
async fn our_own_slowness_ends_no_connection() {
    let server = Server::start(limits()).await;
    let (mut slow, mut ticks) = (server.connect().await, server.connect().await);
    slow.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    ticks.send(b"GET /ticks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert_eq!(slow.answer().await, (200, "slow".into()));
    ticks.closed().await;
    assert_eq!(ticks.text().matches("tick ").count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_of_every_kind_delay_nobody() {
    let server = Server::start(ListenLimits { header: 60 * LIMIT, ..limits() }).await;
    let mut slow = Vec::new();
    for request in ["", "GET / HT", "GET /big HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n"].repeat(50) {
        let mut client = server.connect().await;
        client.send(request.as_bytes()).await;
        slow.push(client);
    }
    for _ in 0..20 {
        server.serves_others().await;
        pause(Duration::from_millis(5)).await;
    }
}
