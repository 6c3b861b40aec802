//! Uploads in one go, and what else is one request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use wane::clock::ManualClock;
use wane::services::blobs::{NewBlob, Sha256Sum};

use super::{EXPIRES, EXPIRES_AT, ID, PATH, SECRET, blobs, blobs_at, id};
use crate::client::tests::stage::{KEY, Play, Player, Raw, case, url_of};
use crate::client::{ClientError, Source, UploadedBlob};

fn uploaded() -> String {
    format!(r#"{{"blobSUUID":"{ID}","deleteSecret":"{SECRET}","expiresAt":5}}"#)
}

fn piece(length: usize) -> io::Result<Bytes> {
    Ok(vec![b'x'; length].into())
}

fn pieces(pieces: Vec<io::Result<Bytes>>) -> BoxStream<'static, io::Result<Bytes>> {
    stream::iter(pieces).boxed()
}

#[tokio::test]
async fn an_upload_says_what_it_is() {
    let (player, url) = Player::start().await;
    player.json(201, &uploaded());
    let blob = NewBlob {
        name: "caf\u{e9} \"x\"/y.txt".into(),
        content_type: "text/plain".into(),
        ttl: "6h".parse().unwrap(),
        downloads: Some(3),
        length: Some(4),
        sha256: Some(Sha256Sum::of(b"milk")),
        ..NewBlob::default()
    };
    let source = Source::reading(&b"milk"[..]);
    let UploadedBlob { id, delete_secret, expires_at } =
        blobs(&url).upload(&blob, source).await.unwrap();
    assert_eq!((id.to_string(), delete_secret.reveal()), (ID.into(), SECRET.into()));
    assert_eq!(expires_at.as_unix_millis(), 5);
    let heard = player.heard();
    assert_eq!((&*heard.line, &*heard.body), (&*format!("POST {PATH}"), &b"milk"[..]));
    let sum = STANDARD.encode(Sha256Sum::of(b"milk").0);
    for (name, value) in [
        ("authorization", format!("Bearer {KEY}")),
        ("content-type", "text/plain".into()),
        ("content-length", "4".into()),
        ("blob-name", "caf%C3%A9%20%22x%22%2Fy%2Etxt".into()),
        ("ttl", "6h".into()),
        ("blob-downloads", "3".into()),
        ("repr-digest", format!("sha-256=:{sum}:")),
    ] {
        assert_eq!(heard.headers[name], value, "{name}");
    }
}

#[tokio::test]
async fn a_source_of_unknown_length_is_sent_to_its_end() {
    let (player, url) = Player::start().await;
    player.json(201, &uploaded());
    let bytes: Vec<u8> = (0..=250).cycle().take(1_000_003).collect();
    let source = Source::reading(io::Cursor::new(bytes.clone()));
    blobs(&url).upload(&NewBlob::default(), source).await.unwrap();
    let heard = player.heard();
    assert!(heard.body == bytes);
    assert!(!heard.headers.contains_key("content-length"));
    assert!(!heard.headers.contains_key("blob-name"));
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_leaves_an_upload_open() {
    let (player, url) = Player::start().await;
    for body in ["", "{}", r#"{"blobSUUID":"x","deleteSecret":"y","expiresAt":1}"#] {
        player.json(201, body);
        let source = Source::bytes(Bytes::new());
        let error = blobs(&url).upload(&NewBlob::default(), source).await.unwrap_err();
        assert_eq!(case(&error), "unknown", "{body}");
    }
}

/// What cannot be read to its announced end is never taken for the whole.
#[tokio::test]
async fn a_source_that_fails_is_named() {
    for (source, said) in [
        (pieces(vec![piece(5), Err(io::Error::other("gone"))]), "gone"),
        (pieces(vec![piece(5)]), "fewer bytes"),
        (pieces(vec![piece(5), piece(6)]), "more bytes"),
    ] {
        let (_raw, url) = Raw::start(vec![Play::Stay(String::new())]).await;
        let blob = NewBlob { length: Some(10), ..NewBlob::default() };
        let error = blobs(&url).upload(&blob, Source::of(source)).await.unwrap_err();
        assert_eq!(case(&error), "source", "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// A BLOB is there once its last byte was stored: what broke before that left nothing.
#[tokio::test]
async fn a_connection_lost_before_the_last_byte_leaves_nothing_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url_of(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 64]).await.unwrap();
    });
    let endless = stream::iter([piece(5)]).chain(stream::pending());
    let error = blobs(&url).upload(&NewBlob::default(), Source::of(endless)).await.unwrap_err();
    assert_eq!(case(&error), "unreachable", "{error}");

    let (_, url) = Raw::start(vec![Play::Say(String::new())]).await;
    let blob = NewBlob { length: Some(5), ..NewBlob::default() };
    let source = Source::of(pieces(vec![piece(5)]));
    let error = blobs(&url).upload(&blob, source).await.unwrap_err();
    assert_eq!(case(&error), "unknown", "{error}");
}

/// And what it does not take is not read either: memory is bounded by the connection.
#[tokio::test]
async fn a_server_that_takes_nothing_is_given_up() {
    let clock = ManualClock::seeded(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url_of(listener.local_addr().unwrap());
    let held = tokio::spawn(async move { listener.accept().await.unwrap() });
    let blobs = blobs_at(&url, clock.clone());
    let endless = stream::repeat_with(|| piece(65_536));
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    let source = Source::of(endless).heard_by(move |bytes| {
        counted.fetch_add(bytes, Ordering::SeqCst);
    });
    let upload =
        tokio::spawn(async move { blobs.upload(&NewBlob::default(), source).await.unwrap_err() });
    let _held = held.await.unwrap();
    while !upload.is_finished() {
        clock.advance(Duration::from_secs(60));
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    }
    let error = upload.await.unwrap();
    assert_eq!(case(&error), "unreachable", "{error}");
    assert!(error.to_string().contains("60 s"), "{error}");
    let taken = taken.load(Ordering::SeqCst);
    assert!((65_536..32 << 20).contains(&taken), "{taken} bytes were read");
}

/// Neither a deadline nor the patience with a server ends what waits for its source.
#[tokio::test]
async fn a_long_upload_is_not_cut() {
    let clock = ManualClock::seeded(1);
    let (player, url) = Player::start().await;
    player.json(201, &uploaded());
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(1);
    let source = stream::unfold(receiver, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let blobs = blobs_at(&url, clock.clone());
    let upload =
        tokio::spawn(async move { blobs.upload(&NewBlob::default(), Source::of(source)).await });
    for _ in 0..20 {
        sender.send(piece(1)).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            clock.advance(Duration::from_secs(59));
            tokio::task::yield_now().await;
        }
    }
    drop(sender);
    upload.await.unwrap().unwrap();
    assert_eq!(player.heard().body, [b'x'; 20][..]);
}

#[tokio::test]
async fn info_is_read_from_the_head() {
    let (player, url) = Player::start().await;
    let sum = Sha256Sum::of(b"milk");
    let answer = || {
        axum::http::Response::builder()
            .header("content-type", "text/plain")
            .header("content-length", "4")
            .header("blob-name", "caf%C3%A9")
            .header("expires", EXPIRES)
            .header("repr-digest", format!("sha-256=:{}:", STANDARD.encode(sum.0)))
    };
    player.answers_with(answer().header("blob-downloads-left", "2").body("".into()).unwrap());
    let details = blobs(&url).info(id()).await.unwrap();
    assert_eq!(player.heard().line, format!("HEAD {PATH}/{ID}"));
    assert_eq!((details.id, &*details.name, details.size), (id(), "caf\u{e9}", 4));
    assert_eq!((&*details.content_type, details.sha256), ("text/plain", sum));
    assert_eq!(details.expires_at.as_unix_millis(), EXPIRES_AT);
    assert_eq!(details.downloads_left, Some(2));

    for (name, value) in [("expires", "soon"), ("repr-digest", "md5=:AA:"), ("blob-name", "%FF")] {
        let mut wrong = answer().body("".into()).unwrap();
        wrong.headers_mut().insert(name, value.parse().unwrap());
        player.answers_with(wrong);
        assert_eq!(case(&blobs(&url).info(id()).await.unwrap_err()), "protocol", "{name}");
    }
}

/// An answer to HEAD has no words, but it has a status and says that it is a problem.
#[tokio::test]
async fn a_head_that_fails_says_why_by_its_status() {
    let (player, url) = Player::start().await;
    for (status, expected) in
        [(404, "absent"), (401, "problem"), (403, "problem"), (410, "problem"), (429, "problem")]
    {
        player.answers(status, "application/problem+json", "");
        assert_eq!(case(&blobs(&url).info(id()).await.unwrap_err()), expected, "{status}");
        player.answers(status, "text/html", "");
        assert_eq!(case(&blobs(&url).info(id()).await.unwrap_err()), "protocol", "{status}");
    }
}

#[tokio::test]
async fn a_delete_secret_goes_without_the_key() {
    let (player, url) = Player::start().await;
    player.answers(204, "", "");
    blobs(&url).delete(id()).await.unwrap();
    assert_eq!(player.heard().line, format!("DELETE {PATH}/{ID}"));
    assert!(player.heard().headers.contains_key("authorization"));
    player.answers(204, "", "");
    blobs(&url).delete_with(id(), &SECRET.parse().unwrap()).await.unwrap();
    assert!(!player.heard().headers.contains_key("authorization"));
    assert_eq!(player.heard().headers["blob-delete-secret"], SECRET);
    player.problem(404, "absent");
    let absent = blobs(&url).delete(id()).await;
    assert!(matches!(absent, Err(ClientError::Absent)), "{absent:?}");
}
