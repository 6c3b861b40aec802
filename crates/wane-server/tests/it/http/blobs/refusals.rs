//! Bad input: a clear answer, and nothing left behind.

use super::{BLOBS, ask, begin, bytes, upload};
use crate::server::Server;

#[test]
fn a_head_that_is_wrong_is_refused_and_nothing_is_kept() {
    let server = Server::in_memory();
    let body = bytes(150_000, 1);
    let long_name = format!("blob-name: {}", "n".repeat(256));
    let long_type = format!("content-type: a/{}", "b".repeat(254));
    for (headers, status, code) in [
        (&["ttl: 1w"][..], 400, "invalid_ttl"),
        (&["ttl: 0s"], 400, "invalid_ttl"),
        (&["ttl: "], 400, "invalid_ttl"),
        (&["ttl: 25h"], 400, "invalid_ttl"),
        (&["ttl: 1d", "ttl: 1d"], 400, "invalid_request"),
        (&["blob-downloads: 0"], 400, "invalid_request"),
        (&["blob-downloads: +1"], 400, "invalid_request"),
        (&["blob-downloads: 4294967296"], 400, "invalid_request"),
        (&["blob-name: a%0Ab"], 400, "invalid_request"),
        (&["blob-name: a%7Fb"], 400, "invalid_request"),
        (&["blob-name: 100%"], 400, "invalid_request"),
        (&["blob-name: %FF"], 400, "invalid_request"),
        (&[&*long_name], 400, "invalid_request"),
        (&["blob-name: a", "blob-name: b"], 400, "invalid_request"),
        (&["content-type: nonsense"], 415, "unsupported_media_type"),
        (&["content-type: "], 415, "unsupported_media_type"),
        (&["content-type: a/b\u{e9}"], 415, "unsupported_media_type"),
        (&[&*long_type], 415, "unsupported_media_type"),
        (&["content-encoding: gzip"], 415, "unsupported_media_type"),
        (&["repr-digest: nonsense"], 400, "invalid_request"),
        (&["repr-digest: md5=:AAAA:"], 400, "invalid_request"),
        (&["content-digest: sha-256=:AAAA:"], 400, "invalid_request"),
    ] {
        let reply = ask(&server, "POST", BLOBS, headers, &body);
        assert_eq!(reply.problem(), (status, code.into()), "{headers:?}");
        assert!(reply.answer.json()["detail"].as_str().unwrap().len() > 10, "says what to do");
    }
    assert!(!super::holds(&server, &body));
}

#[test]
fn a_workspace_has_one_spelling() {
    let server = Server::in_memory();
    for wsid in ["x", "-1", "+7", "07", "7.0", "18446744073709551616", "%37", " "] {
        let path = BLOBS.replace("/7/", &format!("/{}/", wsid.replace(' ', "%20")));
        let reply = ask(&server, "POST", &path, &[], b"x");
        assert_eq!(reply.problem(), (400, "invalid_request".into()), "{wsid}");
    }
    let path = BLOBS.replace("/7/", "/18446744073709551615/");
    assert_eq!(ask(&server, "POST", &path, &[], b"x").status(), 201);
}

#[test]
fn a_body_that_is_not_well_formed_leaves_nothing() {
    let server = Server::in_memory();
    let body = bytes(150_000, 2);
    let chunk = |size: &str| [size.as_bytes(), b"\r\n", &body, b"\r\n"].concat();
    for garbage in ["zz\r\n", "-1\r\n", "fffffffffffffffff\r\n", "5\r\nabcdefgh\r\n", "\0"] {
        let mut sending = begin(&server, "POST", BLOBS, &["transfer-encoding: chunked"]);
        sending.bytes(&chunk(&format!("{:x}", body.len())));
        sending.bytes(garbage.as_bytes());
        let reply = sending.reply();
        assert_eq!(reply.status(), 400, "{garbage}: {}", reply.answer.head);
        super::assert_gone(&server, &body);
    }
}

#[test]
fn a_body_shorter_than_announced_leaves_nothing() {
    for server in [Server::in_memory(), Server::on_file()] {
        let body = bytes(250_000, 3);
        let mut sending = begin(&server, "POST", BLOBS, &["content-length: 250001"]);
        sending.bytes(&body);
        sending.end();
        let reply = sending.reply();
        assert_eq!(reply.status(), 400, "{}", reply.answer.head);
        super::assert_gone(&server, &body);
    }
}

#[test]
fn bytes_beyond_the_announced_length_are_no_part_of_the_blob() {
    let server = Server::in_memory();
    let mut sending = begin(&server, "POST", BLOBS, &["content-length: 5"]);
    sending.bytes(b"helloGARBAGE / HTTP/1.1\r\n\r\n");
    let reply = sending.reply();
    assert_eq!(reply.status(), 201);
    let body = reply.answer.body.lines().next().unwrap().to_owned();
    let json: serde_json::Value =
        serde_json::Deserializer::from_str(&body).into_iter().next().unwrap().unwrap();
    let path = format!("{BLOBS}/{}", json["blobSUUID"].as_str().unwrap());
    assert_eq!(ask(&server, "GET", &path, &[], b"").bytes, b"hello");
}

#[test]
fn a_method_that_is_not_there_is_told_those_that_are() {
    let server = Server::in_memory();
    let blob = upload(&server, &[], b"x");
    let put = ask(&server, "PUT", &blob.path, &[], b"y");
    assert_eq!(put.problem(), (405, "method_not_allowed".into()));
    assert_eq!(put.header("allow"), "GET, HEAD, DELETE");
}
