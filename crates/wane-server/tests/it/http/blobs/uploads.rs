//! Uploads: what is said of a BLOB comes back with it, and what is announced is held to.

use sha2::{Digest as _, Sha256, Sha512};
use wane::clock::SystemClock;

use super::{BLOBS, ask, begin, bytes, limit, upload};
use crate::server::Server;

fn digest(algorithm: &str, sum: &[u8]) -> String {
    use base64::Engine as _;
    format!("{algorithm}=:{}:", base64::engine::general_purpose::STANDARD.encode(sum))
}

#[test]
fn a_blob_comes_back_with_what_was_said_of_it() {
    for server in [Server::in_memory(), Server::on_file()] {
        for length in [0, 1, 102_399, 102_400, 102_401, 1_000_000] {
            let body = bytes(length, 1);
            let headers = ["content-type: image/png", "blob-name: a%20b.png", "ttl: 6h"];
            let blob = upload(&server, &headers, &body);
            let got = ask(&server, "GET", &blob.path, &[], b"");
            assert_eq!((got.status(), got.is_whole()), (200, true), "{length}");
            assert!(got.bytes == body, "{length}: other bytes came back");
            let sum = digest("sha-256", &Sha256::digest(&body));
            for (name, value) in [
                ("content-type", "image/png"),
                ("blob-name", "a%20b.png"),
                ("content-disposition", "attachment; filename=\"a b.png\""),
                ("x-content-type-options", "nosniff"),
                ("accept-ranges", "bytes"),
                ("repr-digest", &*sum),
                ("content-digest", &*sum),
            ] {
                assert_eq!(got.header(name), value, "{length}");
            }
            let head = ask(&server, "HEAD", &blob.path, &[], b"");
            assert_eq!(head.header("repr-digest"), sum);
            assert_eq!(head.answer.header("content-digest"), None, "it has no content");
            let seconds = std::time::Duration::from_secs(blob.expires_at / 1_000);
            let expires = httpdate::fmt_http_date(std::time::UNIX_EPOCH + seconds);
            assert_eq!(got.header("expires"), expires);
            assert!(got.header("etag").starts_with('"'), "a strong one");
        }
    }
}

#[test]
fn what_is_not_said_has_its_default() {
    let server = Server::in_memory();
    let before = SystemClock::shared().now().as_unix_millis();
    let blob = upload(&server, &[], b"x");
    let got = ask(&server, "GET", &blob.path, &[], b"");
    assert_eq!(got.header("content-type"), "application/octet-stream");
    assert_eq!(got.header("content-disposition"), "attachment");
    assert_eq!(got.answer.header("blob-name"), None);
    let life = blob.expires_at - before;
    assert!((86_400_000..86_500_000).contains(&life), "a day: {life}");
}

#[test]
fn names_come_back_as_they_were() {
    let server = Server::in_memory();
    for (sent, back, disposition) in [
        (
            "%22quoted%22.txt",
            "%22quoted%22.txt",
            "attachment; filename=\"_quoted_.txt\"; filename*=UTF-8''%22quoted%22.txt",
        ),
        (
            "%E2%82%AC%20rates.csv",
            "%E2%82%AC%20rates.csv",
            "attachment; filename=\"_ rates.csv\"; filename*=UTF-8''%E2%82%AC%20rates.csv",
        ),
        (
            "../../etc/passwd",
            "..%2F..%2Fetc%2Fpasswd",
            "attachment; filename=\".._.._etc_passwd\"; \
             filename*=UTF-8''..%2F..%2Fetc%2Fpasswd",
        ),
        ("50%25", "50%25", "attachment; filename=\"50_\"; filename*=UTF-8''50%25"),
    ] {
        let blob = upload(&server, &[&format!("blob-name: {sent}")], b"x");
        let got = ask(&server, "HEAD", &blob.path, &[], b"");
        assert_eq!(got.header("blob-name"), back);
        assert_eq!(got.header("content-disposition"), disposition);
    }
}

#[test]
fn a_sum_that_is_announced_is_checked() {
    let server = Server::in_memory();
    let body = bytes(150_000, 2);
    let (right, long) = (Sha256::digest(&body), Sha512::digest(&body));
    let (right, long) = (digest("sha-256", &right), digest("sha-512", &long));
    for header in ["repr-digest", "content-digest"] {
        for sum in [&right, &long, &format!("{right}, {long}"), &format!("md5=:AAAA:, {right}")] {
            upload(&server, &[&format!("{header}: {sum}")], &body);
        }
    }
    let server = Server::in_memory();
    let wrong = [digest("sha-256", &[7; 32]), digest("sha-512", &[7; 64])];
    let mixed = format!("{right}, {}", wrong[1]);
    for sum in wrong.iter().chain([&mixed]) {
        let reply = ask(&server, "POST", BLOBS, &[&format!("repr-digest: {sum}")], &body);
        assert_eq!(reply.problem(), (400, "invalid_request".into()), "{sum}");
        super::assert_gone(&server, &body);
    }
    upload(&server, &[], &body);
    assert!(super::holds(&server, &body), "the control: what is kept is found");
}

#[test]
fn a_length_that_is_too_large_is_refused_before_the_body_is_sent() {
    let server = Server::in_memory();
    limit(&server, r#"{"maxBlobBytes":1000}"#);
    for (length, status) in [(1_001, "413"), (1_000, "100")] {
        let length = format!("content-length: {length}");
        let mut sending = begin(&server, "POST", BLOBS, &[&length, "expect: 100-continue"]);
        let mut first = [0; 12];
        std::io::Read::read_exact(&mut sending.stream, &mut first).unwrap();
        assert_eq!(String::from_utf8_lossy(&first), format!("HTTP/1.1 {status}"));
    }
}

#[test]
fn bytes_beyond_the_limit_are_refused_while_they_stream() {
    let server = Server::in_memory();
    limit(&server, r#"{"maxBlobBytes":300000}"#);
    let body = bytes(400_000, 3);
    let mut sending = begin(&server, "POST", BLOBS, &["transfer-encoding: chunked"]);
    for piece in body.chunks(50_000) {
        sending.bytes(format!("{:x}\r\n", piece.len()).as_bytes());
        sending.bytes(piece);
        sending.bytes(b"\r\n");
    }
    sending.bytes(b"0\r\n\r\n");
    assert_eq!(sending.reply().problem(), (413, "too_large".into()));
    super::assert_gone(&server, &body);
}

#[test]
fn an_application_holds_as_much_as_it_may() {
    let server = Server::in_memory();
    limit(&server, r#"{"maxBlobs":2,"maxBlobTotalBytes":1000}"#);
    let one = upload(&server, &[], &[1; 400]);
    upload(&server, &[], &[2; 400]);
    let third = ask(&server, "POST", BLOBS, &[], b"x");
    assert_eq!(third.problem(), (429, "limited".into()));
    assert!(third.answer.header("retry-after").is_some());
    ask(&server, "DELETE", &one.path, &[], b"");
    let large = ask(&server, "POST", BLOBS, &[], &[3; 601]);
    assert_eq!(large.problem(), (429, "limited".into()));
    upload(&server, &[], &[4; 600]);
}

/// Whoever sends slowly holds places of transfers, and nobody's requests up.
#[test]
fn slow_transfers_leave_requests_alone() {
    let server = Server::in_memory();
    let blob = upload(&server, &[], b"x");
    limit(&server, r#"{"inFlight":2}"#);
    let mut slow: Vec<_> =
        (0..2).map(|_| begin(&server, "POST", BLOBS, &["content-length: 10"])).collect();
    slow.iter_mut().for_each(|sending| sending.bytes(b"12345"));
    super::pause(300);
    let third = ask(&server, "POST", BLOBS, &[], b"x");
    assert_eq!(third.problem(), (429, "limited".into()), "{}", third.answer.body);
    assert_eq!(ask(&server, "GET", &blob.path, &[], b"").problem(), (429, "limited".into()));
    let entries = "/api/v2/apps/demo/app/ttl";
    for _ in 0..3 {
        assert_eq!(ask(&server, "GET", entries, &[], b"").status(), 200);
    }
    slow.iter_mut().for_each(|sending| sending.bytes(b"67890"));
    for sending in slow {
        assert_eq!(sending.reply().status(), 201);
    }
    assert_eq!(ask(&server, "GET", &blob.path, &[], b"").status(), 200);
}
