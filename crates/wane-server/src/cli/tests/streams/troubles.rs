//! Connections that break, slots that are lost or full, and how a pull ends then.

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use serde_json::json;
use wane::clock::SystemClock;

use super::{objects, stage};
use crate::cli::Exit;
use crate::cli::tests::Desk;
use crate::client::tests::stage::{Play, Player, Raw};
use crate::client::tests::streams::{OUT, asked, batch, delivers, delivers_nothing, ends};

fn full(player: &Player, seconds: u64) {
    let answer = Response::builder()
        .status(429)
        .header("retry-after", seconds)
        .header("content-type", "application/problem+json");
    let body = r#"{"code":"limited","status":429,"detail":"all readers' slots are taken"}"#;
    player.answers_with(answer.body(Body::from(body)).unwrap());
}

#[tokio::test]
async fn trouble_that_may_pass_is_endured_with_the_same_token() {
    let (player, desk) = stage().await;
    delivers(&player, "t1", &[(1, "<a/>")]);
    player.problem(503, "unavailable");
    player.problem(504, "unknown_outcome");
    player.answers(502, "text/html", "<p>bad gateway");
    delivers(&player, "t2", &[(2, "<b/>")]);
    delivers_nothing(&player, "t3");
    ends(&player);
    assert_eq!(desk.asks("stream pull --ispb 00000208").await, Exit::Done);
    assert_eq!(desk.out.text(), "<a/>\n<b/>\n");
    let tokens = ["GET start", "GET t1", "GET t1", "GET t1", "GET t1", "GET t2", "DELETE t3"];
    assert_eq!(asked(&player), tokens);
    let said = desk.err.text();
    assert_eq!(
        said, "because (unavailable, HTTP 503); asking again\ngoing on\n",
        "once, not thrice"
    );
}

/// Also a connection that breaks after the server has delivered: it delivers the same again.
#[tokio::test]
async fn a_lost_answer_is_asked_for_again() {
    let head = |next: &str, length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\npi-pull-next: {OUT}{next}\r\ncontent-type: multipart/mixed; \
             boundary=pi-b\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        )
    };
    let (first, second) = (batch(&[(1, "<a/>")]), batch(&[(2, "<b/>")]));
    let whole = |next: &str, body: &str| Play::Say(format!("{}{body}", head(next, body.len())));
    let cut = Play::Say(format!("{}{}", head("t2", second.len()), &second[..50]));
    let ended = Play::Say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into());
    let scripts = vec![whole("t1", &first), cut, whole("t2", &second), ended];
    let (raw, url) = Raw::start(scripts).await;
    let desk = Desk { clock: Some(SystemClock::shared()), ..Desk::at(&url) };
    assert_eq!(desk.asks("stream pull --ispb 00000208 --max-batches 2").await, Exit::Done);
    assert_eq!(desk.out.text(), "<a/>\n<b/>\n");
    let lines: Vec<_> =
        raw.heard.lock().iter().map(|it| it.lines().next().unwrap().to_owned()).collect();
    let line = |method: &str, place: &str| format!("{method} {OUT}{place} http/1.1");
    let expected =
        [line("get", "start"), line("get", "t1"), line("get", "t1"), line("delete", "t2")];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_slot_that_is_lost_is_taken_anew() {
    for (status, code) in [(401, "token_expired"), (410, "gone")] {
        let (player, desk) = stage().await;
        delivers(&player, "t1", &[(1, "<a/>")]);
        player.problem(status, code);
        delivers(&player, "u1", &[(1, "<a/>"), (2, "<b/>")]);
        delivers_nothing(&player, "u2");
        ends(&player);
        assert_eq!(desk.asks("stream pull --ispb 00000208").await, Exit::Done);
        assert_eq!(desk.out.text(), "<a/>\n<b/>\n", "what was written is not written twice");
        let tokens = ["GET start", "GET t1", "GET start", "GET u1", "DELETE u2"];
        assert_eq!(asked(&player), tokens);
        assert!(desk.err.text().contains("starting again"), "{}", desk.err.text());
    }
}

#[tokio::test]
async fn a_full_stream_is_waited_for_by_those_that_follow() {
    let (player, desk) = stage().await;
    full(&player, 17);
    assert_eq!(desk.asks("stream pull --ispb 00000208 --json").await, Exit::Failed);
    let said = desk.err.text();
    assert!(said.contains("all readers' slots are taken"), "{said}");
    assert!(said.contains("try again in 17 s") && said.contains("--follow"), "{said}");
    let object = &objects(&desk)[0];
    assert_eq!((&object["code"], &object["status"]), (&json!("limited"), &json!(429)));

    let (player, desk) = stage().await;
    full(&player, 1);
    delivers(&player, "t1", &[(1, "<a/>")]);
    ends(&player);
    let clock = SystemClock::shared();
    let begin = clock.monotonic();
    let line = "stream pull --ispb 00000208 --follow --max-batches 1";
    assert_eq!(desk.asks(line).await, Exit::Done);
    assert!(clock.monotonic() - begin >= Duration::from_secs(1));
    assert_eq!(asked(&player), ["GET start", "GET start", "DELETE t1"]);
}

#[tokio::test]
async fn what_no_asking_mends_ends_it_and_frees_the_slot() {
    for (status, code, exit) in [
        (401, "invalid_token", Exit::Failed),
        (403, "forbidden", Exit::Failed),
        (400, "token_out_of_order", Exit::Refused),
        (406, "not_acceptable", Exit::Failed),
    ] {
        let (player, desk) = stage().await;
        delivers(&player, "t1", &[(1, "<a/>")]);
        player.problem(status, code);
        ends(&player);
        assert_eq!(desk.asks("stream pull --ispb 00000208 --follow").await, exit, "{code}");
        assert_eq!(asked(&player), ["GET start", "GET t1", "DELETE t1"], "{code}");
    }
}

/// A server that never answered is taken for a wrong address, by those that follow too.
#[tokio::test]
async fn a_first_call_that_fails_ends_it() {
    let (player, desk) = stage().await;
    player.problem(503, "unavailable");
    assert_eq!(desk.asks("stream pull --ispb 00000208 --follow").await, Exit::Failed);
    assert_eq!(player.requests(), 1);
    let desk = Desk { clock: Some(SystemClock::shared()), ..Desk::at("http://127.0.0.1:1") };
    assert_eq!(desk.asks("stream pull --ispb 00000208 --follow").await, Exit::Failed);
    assert!(desk.err.text().contains("is the server running?"), "{}", desk.err.text());
}

#[tokio::test]
async fn an_end_that_was_lost_is_made_again() {
    let (player, desk) = stage().await;
    delivers(&player, "t1", &[(1, "<a/>")]);
    player.problem(503, "unavailable");
    player.problem(410, "gone");
    assert_eq!(desk.asks("stream pull --ispb 00000208 --max-batches 1").await, Exit::Done);
    assert_eq!(asked(&player), ["GET start", "DELETE t1", "DELETE t1"]);
    assert!(!desk.err.text().contains("come again"), "it was gone by our own call");

    let (player, desk) = stage().await;
    delivers(&player, "t1", &[(1, "<a/>")]);
    player.problem(410, "gone");
    assert_eq!(desk.asks("stream pull --ispb 00000208 --max-batches 1").await, Exit::Done);
    assert!(desk.err.text().contains("what came last may come again"), "{}", desk.err.text());

    // Everything was acknowledged: the slot alone is left, and frees itself.
    let (player, desk) = stage().await;
    delivers_nothing(&player, "t1");
    player.problem(503, "unavailable");
    assert_eq!(desk.asks("stream pull --ispb 00000208").await, Exit::Done);
    assert!(desk.err.text().contains("once its lease has ended"), "{}", desk.err.text());
}
