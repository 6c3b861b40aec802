//! Answers that no server of ours gives: none of them is taken for messages, and no token is sent
//! elsewhere than to its stream.

use std::io::Write;

use axum::body::Body;
use axum::http::Response;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{OUT, batch, id, multipart, stage};
use crate::client::tests::stage::case;

const MIXED: &str = "multipart/mixed; boundary=pi-b";

/// An answer with these headers.
fn answer(headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let answer = Response::builder();
    let answer = headers.iter().fold(answer, |answer, (name, value)| answer.header(*name, *value));
    answer.body(body.into()).unwrap()
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(plain).unwrap();
    packed.finish().unwrap()
}

#[tokio::test]
async fn what_is_no_batch_is_a_fault_of_the_server() {
    let good = batch(&[(1, "<a/>")]);
    let next = format!("{OUT}t1");
    let next = &*next;
    let nameless = good.replace("PI-ResourceId", "X");
    let misnamed = good.replace(&id(1).to_string(), "UEk=");
    let gzip = packed(good.as_bytes());
    let half = gzip[..gzip.len() - 9].to_vec();
    let one = id(1).to_string();
    for (name, wrong) in [
        ("no token", answer(&[("content-type", MIXED)], good.clone())),
        ("no type", answer(&[("pi-pull-next", next)], good.clone())),
        ("html", answer(&[("pi-pull-next", next), ("content-type", "text/html")], "<p>")),
        (
            "no boundary",
            answer(&[("pi-pull-next", next), ("content-type", "multipart/mixed")], good.clone()),
        ),
        ("cut", answer(&[("pi-pull-next", next), ("content-type", MIXED)], good[..60].to_owned())),
        ("no id", answer(&[("pi-pull-next", next), ("content-type", MIXED)], nameless)),
        ("wrong id", answer(&[("pi-pull-next", next), ("content-type", MIXED)], misnamed)),
        (
            "one without id",
            answer(&[("pi-pull-next", next), ("content-type", "application/xml")], "<a/>"),
        ),
        (
            "two ids of one",
            answer(
                &[
                    ("pi-pull-next", next),
                    ("content-type", "application/xml"),
                    ("pi-resourceid", &format!("{one},{one}")),
                ],
                "<a/>",
            ),
        ),
        (
            "no gzip",
            answer(
                &[("pi-pull-next", next), ("content-type", MIXED), ("content-encoding", "gzip")],
                good.clone(),
            ),
        ),
        (
            "half a gzip",
            answer(
                &[("pi-pull-next", next), ("content-type", MIXED), ("content-encoding", "gzip")],
                half,
            ),
        ),
        (
            "brotli",
            answer(
                &[("pi-pull-next", next), ("content-type", MIXED), ("content-encoding", "br")],
                good.clone(),
            ),
        ),
    ] {
        let (player, stream) = stage().await;
        player.answers_with(wrong);
        let error = stream.start(&multipart()).await.unwrap_err();
        assert_eq!(case(&error), "protocol", "{name}: {error}");
    }
    // The control: nothing else is wrong with them.
    let (player, stream) = stage().await;
    player.answers_with(answer(&[("pi-pull-next", next), ("content-type", MIXED)], good));
    stream.start(&multipart()).await.unwrap();
}

/// A credential goes to the stream that it is for, whatever the server says.
#[tokio::test]
async fn tokens_lead_to_the_same_stream_alone() {
    for path in [
        "",
        "t1",
        "/t1",
        "//elsewhere/t1",
        "http://elsewhere/api/v1/out/00000208/stream/t1",
        "/api/v1/out/00000209/stream/t1",
        "/api/v1/out/00000208/stream/",
        "/api/v1/out/00000208/stream/../../../admin/apps",
        "/api/v1/out/00000208/stream/t1?x",
        "/api/v1/out/00000208/stream/t1#x",
        "/api/v1/out/00000208/stream/t 1",
        "/api/v1/out/00000208/stream/%74",
    ] {
        let (player, stream) = stage().await;
        player.answers_with(answer(&[("pi-pull-next", path)], ""));
        let error = stream.start(&multipart()).await.unwrap_err();
        assert_eq!(case(&error), "protocol", "{path}: {error}");
    }
}

#[tokio::test]
async fn a_bomb_is_not_unpacked() {
    let (player, stream) = stage().await;
    let (next, one) = (format!("{OUT}t1"), id(1).to_string());
    let headers = [
        ("pi-pull-next", &*next),
        ("content-type", "application/xml"),
        ("content-encoding", "gzip"),
        ("pi-resourceid", &*one),
    ];
    player.answers_with(answer(&headers, packed(&vec![b' '; 8 << 20])));
    let error = stream.start(&multipart()).await.unwrap_err();
    assert!(error.to_string().contains("once it is decompressed"), "{error}");
    player.answers_with(answer(&headers, packed(&vec![b' '; 200 << 10])));
    assert_eq!(stream.start(&multipart()).await.unwrap().messages[0].bytes.len(), 200 << 10);
    let long = [headers[0], headers[1], headers[3]];
    player.answers_with(answer(&long, vec![b' '; 8 << 20]));
    assert!(stream.start(&multipart()).await.is_err(), "nor is a long one read");
}
