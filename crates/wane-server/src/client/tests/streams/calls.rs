//! What calls send, and what they make of answers.

use std::io::{Read, Write};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use wane::services::pull_stream::{Client as Named, Delivered, Form, Reader};

use super::{
    ISPB, OUT, batch, delivers, delivers_nothing, ends, id, messages, multipart, stage, takes,
};
use crate::client::ClientError;
use crate::client::tests::stage::{KEY, Play, Player, Raw, case, client};

#[tokio::test]
async fn one_message_is_sent_as_it_is() {
    let (player, stream) = stage().await;
    takes(&player, &[7]);
    let sent = stream.push(&messages(&["<a>\r\n</a>\n"]), false).await.unwrap();
    assert_eq!(sent, [id(7)]);
    let heard = player.heard();
    assert_eq!(heard.line, "POST /api/v1/in/00000208/msgs");
    assert_eq!(heard.body, "<a>\r\n</a>\n");
    assert_eq!(heard.headers["content-type"], "application/xml;charset=utf-8");
    assert_eq!(heard.headers["content-length"], "10");
    assert_eq!(heard.headers["authorization"], format!("Bearer {KEY}"));
    assert!(!heard.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn several_messages_are_parts_of_one_body() {
    let (player, stream) = stage().await;
    takes(&player, &[1, 2, 3]);
    let sent = stream.push(&messages(&["<a/>", "<b>\n</b>\r\n", "c"]), false).await.unwrap();
    assert_eq!(sent, [id(1), id(2), id(3)]);
    let heard = player.heard();
    let media_type = heard.headers["content-type"].to_str().unwrap();
    let boundary = media_type.strip_prefix("multipart/mixed; boundary=").unwrap();
    let head = format!("--{boundary}\r\nContent-Type: application/xml;charset=utf-8\r\n\r\n");
    let body = format!("{head}<a/>\r\n{head}<b>\n</b>\r\n\r\n{head}c\r\n--{boundary}--\r\n");
    assert_eq!(heard.body, body);
}

#[tokio::test]
async fn compressed_messages_are_the_same_bytes() {
    let (player, stream) = stage().await;
    takes(&player, &[7]);
    stream.push(&messages(&["<a>\r\n</a>\n"]), true).await.unwrap();
    let heard = player.heard();
    assert_eq!(heard.headers["content-encoding"], "gzip");
    let mut plain = String::new();
    GzDecoder::new(&heard.body[..]).read_to_string(&mut plain).unwrap();
    assert_eq!(plain, "<a>\r\n</a>\n");
}

/// What a producer does next depends on it.
#[tokio::test]
async fn refused_and_unknown_are_told_apart() {
    let two = messages(&["<a/>", "<b/>"]);
    for (status, code, name) in [
        (400, "invalid_request", "problem"),
        (401, "unauthorized", "problem"),
        (413, "too_large", "problem"),
        (415, "unsupported_media_type", "problem"),
        (429, "limited", "problem"),
        (503, "unavailable", "problem"),
        (504, "unknown_outcome", "unknown"),
    ] {
        let (player, stream) = stage().await;
        player.problem(status, code);
        assert_eq!(case(&stream.push(&two, false).await.unwrap_err()), name, "{status}");
    }
    // Some ids and not all: nobody knows what became of the rest.
    let (player, stream) = stage().await;
    takes(&player, &[1]);
    assert_eq!(case(&stream.push(&two, false).await.unwrap_err()), "unknown");
    player.answers(201, "", "");
    assert_eq!(case(&stream.push(&two, false).await.unwrap_err()), "unknown");
    let (_, url) = Raw::start(vec![Play::Say(String::new())]).await;
    let stream = client(&url).pull_stream(ISPB.parse().unwrap());
    assert_eq!(case(&stream.push(&two, false).await.unwrap_err()), "unknown");
    assert_eq!(case(&stream.push(&two, false).await.unwrap_err()), "unreachable");
}

#[tokio::test]
async fn a_reader_says_what_it_takes_and_who_it_is() {
    let (player, stream) = stage().await;
    let single = Reader { client: Named::new("reader 1").unwrap(), form: Form::SINGLE };
    let gzip = Reader { form: Form { multipart: true, gzip: true }, ..Reader::default() };
    delivers_nothing(&player, "t1");
    let started = stream.start(&single).await.unwrap();
    let heard = player.heard();
    assert_eq!(heard.line, format!("GET {OUT}start"));
    assert_eq!(heard.headers["accept"], "application/xml");
    assert_eq!(heard.headers["pi-client-id"], "reader 1");
    assert!(!heard.headers.contains_key("accept-encoding"));

    delivers_nothing(&player, "t2");
    let next = stream.next(&started.next, &gzip).await.unwrap();
    let heard = player.heard();
    assert_eq!(heard.line, format!("GET {OUT}t1"));
    assert_eq!(heard.headers["accept"], "multipart/mixed");
    assert_eq!(heard.headers["accept-encoding"], "gzip");
    assert!(!heard.headers.contains_key("pi-client-id"));
    assert_eq!(heard.headers["authorization"], format!("Bearer {KEY}"));

    ends(&player);
    stream.end(&next.next, &single.client).await.unwrap();
    let heard = player.heard();
    assert_eq!(heard.line, format!("DELETE {OUT}t2"));
    assert_eq!(heard.headers["pi-client-id"], "reader 1");
}

fn delivered(messages: &[(u8, &'static str)]) -> Vec<Delivered> {
    let one =
        |(number, text): &(u8, &'static str)| Delivered { id: id(*number), bytes: (*text).into() };
    messages.iter().map(one).collect()
}

#[tokio::test]
async fn batches_come_in_every_form() {
    const MESSAGES: [(u8, &str); 2] = [(1, "<a>\r\n</a>\n"), (2, "<b/>")];
    let (player, stream) = stage().await;
    delivers(&player, "t1", &MESSAGES);
    let pulled = stream.start(&multipart()).await.unwrap();
    assert_eq!(pulled.messages, delivered(&MESSAGES));

    let answer = || Response::builder().header("pi-pull-next", format!("{OUT}t2"));
    let single = answer()
        .header("content-type", "application/xml;charset=utf-8")
        .header("pi-resourceid", id(3).to_string());
    player.answers_with(single.body(Body::from("<c/>\r\n")).unwrap());
    let pulled = stream.next(&pulled.next, &Reader::default()).await.unwrap();
    assert_eq!(pulled.messages, delivered(&[(3, "<c/>\r\n")]));

    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(batch(&MESSAGES).as_bytes()).unwrap();
    let gzip = answer()
        .header("content-type", "multipart/mixed; boundary=\"pi-b\"")
        .header("content-encoding", "gzip");
    player.answers_with(gzip.body(Body::from(packed.finish().unwrap())).unwrap());
    let pulled = stream.next(&pulled.next, &multipart()).await.unwrap();
    assert_eq!(pulled.messages, delivered(&MESSAGES));

    delivers_nothing(&player, "t3");
    assert_eq!(stream.next(&pulled.next, &multipart()).await.unwrap().messages, []);
}

/// Servers hold a call for as long as they are told to, which is more than other calls may take.
#[tokio::test]
async fn a_call_for_messages_has_the_time_that_servers_hold_it() {
    let clock = wane::clock::ManualClock::seeded(1);
    let (raw, url) = Raw::start(vec![Play::Stay(String::new())]).await;
    let client = crate::client::tests::stage::client_at(&url, clock.clone());
    let stream = client.pull_stream(ISPB.parse().unwrap());
    let call = tokio::spawn(async move { stream.start(&multipart()).await.unwrap_err() });
    raw.arrived.notified().await;
    clock.advance(Duration::from_secs(74));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!call.is_finished());
    clock.advance(Duration::from_secs(1));
    assert_eq!(case(&call.await.unwrap()), "unknown");
}

#[tokio::test]
async fn operators_are_told_how_far_a_stream_is() {
    let (player, url) = Player::start().await;
    player.json(
        200,
        r#"{"ispb":"00000208","liveReaders":2,"inFlight":15,"requeued":3,"headRow":7,"tailRow":9,
        "lagMillis":1500}"#,
    );
    let admin = client(&url).admin();
    let status = admin.stream_status(ISPB.parse().unwrap()).await.unwrap();
    assert_eq!(player.heard().line, "GET /api/v1/admin/streams/00000208");
    assert_eq!((status.live_readers, status.in_flight, status.requeued), (2, 15, 3));
    assert_eq!((status.head_row, status.tail_row), (7, 9));
    assert_eq!(status.lag, Duration::from_millis(1_500));
    player.problem(403, "forbidden");
    let error = admin.stream_status(ISPB.parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, ClientError::Problem { status: 403, .. }), "{error}");
}
