//! HTTP/2: served, limited, and ended with a farewell.

use axum::http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::raw_frames::*;
use super::*;

const NO_ERROR: u8 = 0;
const REFUSED_STREAM: &[u8] = &[0, 0, 0, 7];
const ENHANCE_YOUR_CALM: u8 = 11;

/// A client that keeps the protocol.
pub(super) async fn polite(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> SendRequest<Empty<Bytes>> {
    let (requests, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    requests
}

pub(super) fn to(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://x{path}")).body(Empty::new()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn is_spoken_without_tls_to_who_begins_with_it() {
    let server = Server::start(limits()).await;
    let mut client = polite(server.connect().await.stream).await;
    let answer = client.send_request(to("/")).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "root");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_resets_is_bounded_and_delays_nobody() {
    let server = Server::start(ListenLimits { http2_streams: 16, ..limits() }).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    let (mut reading, mut writing) = client.stream.into_split();
    let flood = tokio::spawn(async move {
        for stream in (1..100_000).step_by(2) {
            let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
            let pair = [asking(stream, "/for-ever"), reset].concat();
            if writing.write_all(&pair).await.is_err() {
                break;
            }
        }
    });
    server.serves_others().await;
    let mut said = Vec::new();
    let ended = timeout(SOON, reading.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "the flood goes on");
    // How much could be sent says nothing: a connection that has ended reads on and forgets.
    flood.await.unwrap();
    let most = server.seen.most_waiting.load(Ordering::SeqCst);
    assert!(most <= 16, "{most} requests at once");
    server.until_open(0).await;
    server.until_waiting(0).await;
}

/// The control: as many requests as may be at once, none reset.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_requests_as_allowed_are_answered_at_once() {
    let server = Server::start(ListenLimits { http2_streams: 16, ..limits() }).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    let requests: Vec<u8> = (1..32).step_by(2).flat_map(|stream| asking(stream, "/")).collect();
    client.send(&requests).await;
    let mut answered = 0;
    while answered < 16 {
        let frame = client.frame().await.expect("still open");
        answered += usize::from(frame.kind == HEADERS && frame.payload[0] == 0x88);
        assert!([HEADERS, DATA].contains(&frame.kind), "{frame:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_more_than_allowed_at_once_is_refused() {
    let server = Server::start(ListenLimits { http2_streams: 4, ..limits() }).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    let requests: Vec<u8> =
        (1..10).step_by(2).flat_map(|stream| asking(stream, "/for-ever")).collect();
    client.send(&requests).await;
    let refused = client.frame().await.expect("still open");
    assert_eq!((refused.kind, refused.stream), (RST_STREAM, 9));
    assert_eq!(refused.payload, REFUSED_STREAM);
    server.until_waiting(4).await;
    assert_eq!(server.seen.most_waiting.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_over_the_limit_is_answered_431() {
    let server = Server::start(limits()).await;
    let mut client = polite(server.connect().await.stream).await;
    for (size, status) in [(30_000, 200), (40_000, 431)] {
        let mut request = to("/");
        request.headers_mut().insert("x", "x".repeat(size).parse().unwrap());
        assert_eq!(client.send_request(request).await.unwrap().status(), status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_is_ended_by_its_size() {
    let server = Server::start(ListenLimits { header: 60 * LIMIT, ..limits() }).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    client.send(&frame(HEADERS, 0, 1, &head(0x82, "/"))).await;
    // A literal header that is never put in the table, again and again.
    let more = frame(CONTINUATION, 0, 1, &[[0x00, 1, b'a', 1, b'b']; 1_000].concat());
    let (mut reading, mut writing) = client.stream.into_split();
    let flood = async {
        while writing.write_all(&more).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let mut said = Vec::new();
    tokio::select! {
        () = flood => {}
        ended = timeout(SOON, reading.read_to_end(&mut said)) => assert!(ended.is_ok(), "goes on"),
    }
    server.until_open(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_nothing_is_closed_after_the_header_time() {
    let server = Server::start(limits()).await;
    let took = stopwatch();
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    client.frames().await;
    assert_at_limit(took(), LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_no_window_for_its_answer_is_cut_whatever_it_pings() {
    let server = Server::start(ListenLimits { idle: 60 * LIMIT, ..limits() }).await;
    let mut client = server.connect().await;
    client.open_http2(NO_WINDOW).await;
    let took = stopwatch();
    client.send(&asking(1, "/big")).await;
    server.until_open(1).await;
    // Our PINGs are answered as well: this is no client that is gone.
    while server.connections.open() == 1 {
        let _ = client.stream.write_all(&frame(PING, 0, 0, &[0; 8])).await;
        let _ = timeout(SHORT, client.frame()).await;
        assert!(took() < SOON, "never cut");
    }
    server.until_open(0).await;
    assert_at_limit(took(), LIMIT);
}

/// The whole answer is in hyper's hands long before the client has taken it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_gets_its_whole_answer() {
    let server = Server::start(limits_of(LENIENT)).await;
    for path in ["/whole", "/big"] {
        let mut client = polite(server.connect().await.stream).await;
        let mut body = client.send_request(to(path)).await.unwrap().into_body();
        let (took, mut total) = (stopwatch(), 0);
        while let Some(frame) = timeout(SOON, body.frame()).await.unwrap() {
            let bytes = frame.expect("not cut").into_data().map_or(0, |data| data.len());
            total += bytes;
            pause((LENIENT * 3 / 2).mul_f64(bytes as f64 / BIG as f64)).await;
        }
        assert_eq!(total, BIG, "{path}");
        assert!(took() > LENIENT, "{path}: {:?}", took());
    }
}

/// Bytes between requests are not the head of one: only the idle time counts.
#[tokio::test(flavor = "multi_thread")]
async fn between_requests_a_client_is_sent_away_after_the_idle_time_whatever_it_pings() {
    let server = Server::start(ListenLimits { idle: 2 * LIMIT, ..limits() }).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    let took = stopwatch();
    client.send(&asking(1, "/")).await;
    let mut frames = Vec::new();
    while farewells(&frames).is_empty() {
        client.send(&frame(PING, 0, 0, &[0; 8])).await;
        frames.extend(timeout(SHORT, client.frame()).await.ok().map(|frame| frame.expect("open")));
        assert!(took() < SOON, "never sent away");
    }
    assert_at_limit(took(), 2 * LIMIT);
    frames.extend(client.frames().await);
    assert!(farewells(&frames).iter().all(|code| *code == NO_ERROR), "{frames:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dripped_body_ends_its_request_and_no_other() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    let took = stopwatch();
    client.send(&[asking(1, "/slow"), sending(3, "/length")].concat()).await;
    let given_up = loop {
        client.send(&frame(DATA, 0, 3, b"x")).await;
        let frame = timeout(SHORT, client.frame()).await.ok().map(|frame| frame.expect("open"));
        if let Some(frame) = frame.filter(|frame| frame.kind == HEADERS) {
            break frame;
        }
    };
    assert_eq!(given_up.stream, 3);
    assert_ne!(given_up.payload[0], 0x88, "not 200");
    assert_at_limit(took(), LIMIT);
    loop {
        let frame = client.frame().await.expect("still open");
        if frame.kind == HEADERS {
            assert_eq!((frame.stream, frame.payload[0]), (1, 0x88));
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_a_request_under_way_is_answered_and_the_client_sent_away() {
    let server = Server::start(limits_of(SOON)).await;
    let (mut working, mut idle) = (server.connect().await, server.connect().await);
    working.open_http2(&[]).await;
    working.send(&asking(1, "/slow")).await;
    idle.open_http2(&[]).await;
    idle.send(&asking(1, "/")).await;
    while idle.frame().await.expect("open").kind != DATA {}

    let stopping = tokio::spawn(server.stop());
    assert_eq!(farewells(&idle.frames().await).last(), Some(&NO_ERROR));
    let frames = working.frames().await;
    assert_eq!(farewells(&frames).last(), Some(&NO_ERROR));
    let answer = frames.iter().find(|frame| frame.kind == DATA).expect("an answer");
    assert_eq!(answer.payload, b"slow");
    assert_eq!(stopping.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_a_request_without_end_is_cut() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    client.open_http2(&[]).await;
    client.send(&[asking(1, "/for-ever"), asking(3, "/for-ever")].concat()).await;
    server.until_waiting(2).await;
    let seen = Arc::clone(&server.seen);
    let reading = tokio::spawn(async move { client.frames().await });
    assert_eq!(server.stop().await, Drained { cut: 1 });
    assert_eq!(seen.waiting.load(Ordering::SeqCst), 0, "requests outlived the server");
    reading.await.unwrap();
}

/// Resets that overtake our reading of the requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_requests_reset_at_once_is_sent_away() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    let burst: Vec<u8> = (1..2_000)
        .step_by(2)
        .flat_map(|stream| {
            [asking(stream, "/for-ever"), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        })
        .collect();
    client.open_http2(&[]).await;
    client.send(&burst).await;
    assert_eq!(farewells(&client.frames().await), [ENHANCE_YOUR_CALM]);
}
