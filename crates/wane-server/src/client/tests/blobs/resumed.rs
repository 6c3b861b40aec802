//! Uploads that are resumed: the server is believed about where it stands, and asked when unclear.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use wane::clock::ManualClock;
use wane::services::blobs::{CHUNK, NewBlob, Sha256Sum};

use super::{EXPIRES, EXPIRES_AT, ID, PATH, SECRET, blobs, blobs_at, id};
use crate::client::ResumableUpload;
use crate::client::tests::stage::{Play, Player, Raw, case};

const LENGTH: u64 = 10;

fn stands_at(player: &Player, offset: u64, length: u64) {
    let answer = Response::builder()
        .header("upload-offset", offset)
        .header("upload-length", length)
        .body(Body::empty());
    player.answers_with(answer.unwrap());
}

fn kept(player: &Player, offset: u64) {
    let answer = Response::builder().status(204).header("upload-offset", offset);
    player.answers_with(answer.body(Body::empty()).unwrap());
}

fn unheard() -> Arc<dyn Fn(u64) + Send + Sync> {
    Arc::new(|_| {})
}

async fn stage() -> (Player, ResumableUpload) {
    let (player, url) = Player::start().await;
    stands_at(&player, 0, LENGTH);
    let upload = blobs(&url).resume(id()).await.unwrap();
    (player, upload)
}

fn lines(player: &Player) -> Vec<String> {
    let heard = player.all_heard();
    let shown = |line: &str| line.replace(PATH, "..").replace(ID, "ID");
    heard.iter().map(|heard| shown(&heard.line)).collect()
}

#[tokio::test]
async fn an_upload_is_created_with_what_it_will_be() {
    let (player, url) = Player::start().await;
    // The address is somebody else's: only the id is taken from it.
    let answer = Response::builder()
        .status(201)
        .header("location", format!("http://elsewhere.example{PATH}-tus/{ID}"))
        .header("blob-delete-secret", SECRET)
        .header("upload-expires", EXPIRES);
    player.answers_with(answer.body(Body::empty()).unwrap());
    let blob = NewBlob {
        name: "caf\u{e9}".into(),
        length: Some(LENGTH),
        downloads: Some(1),
        ..NewBlob::default()
    };
    let (created, mut upload) = blobs(&url).create(&blob).await.unwrap();
    assert_eq!((created.id, upload.id()), (id(), id()));
    assert_eq!(created.delete_secret.reveal(), SECRET);
    assert_eq!(created.expires_at.as_unix_millis(), EXPIRES_AT);
    assert_eq!((upload.offset(), upload.length(), upload.stride()), (0, LENGTH, 10));
    let heard = player.heard();
    assert_eq!(heard.line, format!("POST {PATH}-tus"));
    let metadata = "filename Y2Fmw6k=,filetype YXBwbGljYXRpb24vb2N0ZXQtc3RyZWFt";
    for (name, value) in [
        ("tus-resumable", "1.0.0"),
        ("upload-length", "10"),
        ("upload-metadata", metadata),
        ("ttl", "1d"),
        ("blob-downloads", "1"),
    ] {
        assert_eq!(heard.headers[name], value, "{name}");
    }
    kept(&player, 10);
    upload.append(Bytes::from_static(b"0123456789"), unheard()).await.unwrap();
    assert_eq!(player.heard().line, format!("PATCH {PATH}-tus/{ID}"));
}

#[tokio::test]
async fn a_piece_has_its_place_and_its_sum() {
    let (player, mut upload) = stage().await;
    kept(&player, 4);
    let positions = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&positions);
    upload
        .append(Bytes::from_static(b"milk"), Arc::new(move |at| heard.lock().push(at)))
        .await
        .unwrap();
    assert_eq!((upload.offset(), upload.is_complete()), (4, false));
    assert_eq!(*positions.lock(), [4]);
    let heard = player.heard();
    let sum = STANDARD.encode(Sha256Sum::of(b"milk").0);
    for (name, value) in [
        ("tus-resumable", "1.0.0"),
        ("content-type", "application/offset+octet-stream"),
        ("upload-offset", "0"),
        ("content-length", "4"),
        ("upload-checksum", &*format!("sha256 {sum}")),
    ] {
        assert_eq!(heard.headers[name], value, "{name}");
    }
    kept(&player, 10);
    upload.append(Bytes::from_static(b"and so"), unheard()).await.unwrap();
    assert!(upload.is_complete());
    assert_eq!(player.heard().headers["upload-offset"], "4");
}

/// Whatever became of a piece, the server knows, and the upload goes on from there.
#[tokio::test]
async fn what_is_unclear_is_asked() {
    for (status, code) in [
        (409, "refused"),
        (460, "invalid_request"),
        (503, "unavailable"),
        (429, "limited"),
        (504, "unknown_outcome"),
    ] {
        for stands in [0, 4] {
            let (player, mut upload) = stage().await;
            player.problem(status, code);
            stands_at(&player, stands, LENGTH);
            upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap();
            assert_eq!(upload.offset(), stands, "{code}");
            let expected = ["HEAD ..-tus/ID", "PATCH ..-tus/ID", "HEAD ..-tus/ID"];
            assert_eq!(lines(&player), expected, "{code}");
        }
    }
}

#[tokio::test]
async fn a_piece_that_came_too_slowly_is_sent_again() {
    let (player, mut upload) = stage().await;
    let body = r#"{"code":"invalid_request","detail":"body: it came too slowly"}"#;
    player.answers(400, "application/problem+json", body);
    stands_at(&player, 0, LENGTH);
    upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap();
    assert_eq!(upload.offset(), 0);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for() {
    let head = "HTTP/1.1 200 OK\r\nupload-length: 10\r\nconnection: close\r\n";
    let stands = |offset: u64| Play::Say(format!("{head}upload-offset: {offset}\r\n\r\n"));
    let (raw, url) = Raw::start(vec![stands(0), Play::Say(String::new()), stands(4)]).await;
    let mut upload = blobs(&url).resume(id()).await.unwrap();
    upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap();
    assert_eq!(upload.offset(), 4);
    assert_eq!(raw.heard.lock().len(), 3);
}

#[tokio::test]
async fn what_is_clear_ends_the_upload() {
    for (status, code, expected) in [
        (404, "absent", "absent"),
        (410, "gone", "problem"),
        (413, "too_large", "problem"),
        (401, "unauthorized", "problem"),
        (400, "invalid_request", "problem"),
    ] {
        let (player, mut upload) = stage().await;
        player.problem(status, code);
        let error = upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap_err();
        assert_eq!(case(&error), expected, "{code}");
        assert_eq!(player.requests(), 2, "{code}");
    }
    let (player, mut upload) = stage().await;
    kept(&player, 3);
    let error = upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap_err();
    assert_eq!(case(&error), "protocol", "a piece gets in whole or not at all");
}

#[tokio::test]
async fn another_length_is_another_upload() {
    let (player, mut upload) = stage().await;
    player.problem(409, "refused");
    stands_at(&player, 0, LENGTH + 1);
    let error = upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap_err();
    assert_eq!(case(&error), "protocol");
}

#[tokio::test]
async fn an_upload_cannot_have_come_further_than_its_end() {
    let (player, url) = Player::start().await;
    stands_at(&player, LENGTH + 1, LENGTH);
    assert_eq!(case(&blobs(&url).resume(id()).await.unwrap_err()), "protocol");
}

/// Pieces get smaller while they do not get through, and larger again when they do.
#[tokio::test]
async fn pieces_follow_the_connection() {
    let (player, url) = Player::start().await;
    let length = 100 * CHUNK as u64;
    stands_at(&player, 0, length);
    let mut upload = blobs(&url).resume(id()).await.unwrap();
    assert_eq!(upload.stride(), 40 * CHUNK);
    for expected in [20, 10] {
        player.problem(503, "unavailable");
        stands_at(&player, 0, length);
        upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap();
        assert_eq!(upload.stride(), expected * CHUNK);
    }
    kept(&player, 4);
    upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap();
    assert_eq!(upload.stride(), 20 * CHUNK);
}

#[tokio::test]
async fn a_server_that_stays_away_is_given_up() {
    let clock = ManualClock::seeded(1);
    let (player, url) = Player::start().await;
    stands_at(&player, 0, LENGTH);
    let mut upload = blobs_at(&url, clock.clone()).resume(id()).await.unwrap();
    for _ in 0..40 {
        player.problem(503, "unavailable");
    }
    let error = tokio::spawn(async move {
        upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap_err()
    });
    while !error.is_finished() {
        clock.advance(Duration::from_secs(5));
        tokio::task::yield_now().await;
    }
    assert_eq!(case(&error.await.unwrap()), "problem");
    assert_eq!(player.requests(), 12, "one to begin, the piece, and ten to ask");
}

/// A limit that is far away is said at once, not waited for.
#[tokio::test]
async fn a_long_pause_is_left_to_the_caller() {
    let (player, mut upload) = stage().await;
    let body = r#"{"code":"limited","detail":"too much"}"#;
    let answer = Response::builder().status(429).header("retry-after", "3600");
    player.answers_with(answer.body(Body::from(body)).unwrap());
    let error = upload.append(Bytes::from_static(b"milk"), unheard()).await.unwrap_err();
    assert_eq!(case(&error), "problem");
    assert_eq!(player.requests(), 2);
}
