//! tus 1.0, each request by hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::{Reply, Sending, TUS, ask, ask_anyhow, begin, bytes};
use crate::server::{Server, eventually};

const VERSION: &str = "tus-resumable: 1.0.0";
const BYTES: &str = "content-type: application/offset+octet-stream";

fn create(server: &Server, headers: &[&str], body: &[u8]) -> Reply {
    ask(server, "POST", TUS, &[&[VERSION], headers].concat(), body)
}

/// The path of a new upload of this length.
#[track_caller]
pub(super) fn created(server: &Server, length: usize) -> String {
    let reply = create(server, &[&format!("upload-length: {length}")], b"");
    assert_eq!(reply.status(), 201, "{}", reply.answer.body);
    reply.header("location").to_owned()
}

fn patch(server: &Server, path: &str, offset: usize, headers: &[&str], body: &[u8]) -> Reply {
    let offset = format!("upload-offset: {offset}");
    ask(server, "PATCH", path, &[&[VERSION, BYTES, &*offset], headers].concat(), body)
}

fn head(server: &Server, path: &str) -> Reply {
    ask(server, "HEAD", path, &[VERSION], b"")
}

#[track_caller]
pub(super) fn offset(server: &Server, path: &str) -> usize {
    head(server, path).header("upload-offset").parse().unwrap()
}

/// Sends bytes that must be taken.
#[track_caller]
pub(super) fn patched(server: &Server, path: &str, at: usize, body: &[u8]) {
    let reply = patch(server, path, at, &[], body);
    assert_eq!(reply.status(), 204, "{}", reply.answer.body);
}

/// Where the BLOB is that the upload becomes.
fn blob(upload: &str) -> String {
    upload.replace("/tblobs-tus/", "/tblobs/")
}

#[test]
fn an_upload_in_parts_becomes_a_blob_with_its_last_byte() {
    for server in [Server::in_memory(), Server::on_file()] {
        let body = bytes(250_000, 1);
        let upload = created(&server, body.len());
        let mut sent = 0;
        for piece in [0, 1, 99_999, 100_000, 50_000] {
            assert_eq!(ask(&server, "GET", &blob(&upload), &[], b"").status(), 404, "not yet");
            let reply = patch(&server, &upload, sent, &[], &body[sent..sent + piece]);
            sent += piece;
            assert_eq!(reply.status(), 204, "{}", reply.answer.body);
            assert_eq!(reply.header("upload-offset"), sent.to_string());
            assert!(reply.header("upload-expires").ends_with(" GMT"));
            assert_eq!(offset(&server, &upload), sent);
        }
        assert!(ask(&server, "GET", &blob(&upload), &[], b"").bytes == body, "other bytes");
        assert_eq!(patch(&server, &upload, sent, &[], b"").status(), 204, "nothing is fine");
        assert_eq!(patch(&server, &upload, sent, &[], b"x").problem(), (409, "refused".into()));
    }
}

#[test]
fn what_the_client_says_of_it_is_used_and_given_back() {
    let server = Server::in_memory();
    let metadata = "filename w6kudHh0,filetype dGV4dC9wbGFpbg==,colour cmVk,flag";
    let headers = ["upload-length: 0", &*format!("upload-metadata: {metadata}"), "ttl: 90s"];
    let made = create(&server, &headers, b"");
    assert_eq!(made.status(), 201);
    let upload = made.header("location").to_owned();
    let found = head(&server, &upload);
    assert_eq!(found.status(), 200);
    for (name, value) in [
        ("upload-metadata", metadata),
        ("upload-offset", "0"),
        ("upload-length", "0"),
        ("cache-control", "no-store"),
        ("tus-resumable", "1.0.0"),
    ] {
        assert_eq!(found.header(name), value);
    }
    assert_eq!(found.header("upload-expires"), made.header("upload-expires"));
    let empty = ask(&server, "GET", &blob(&upload), &[], b"");
    assert_eq!((empty.status(), empty.bytes.len()), (200, 0), "nothing was all of it");
    assert_eq!(empty.header("content-type"), "text/plain");
    assert_eq!(empty.header("blob-name"), "%C3%A9.txt");
}

#[test]
fn the_first_bytes_may_come_with_the_creation() {
    let server = Server::in_memory();
    let made = create(&server, &["upload-length: 10", BYTES], b"01234");
    assert_eq!((made.status(), made.header("upload-offset")), (201, "5"));
    let upload = made.header("location").to_owned();
    assert_eq!(patch(&server, &upload, 5, &[], b"56789").status(), 204);
    assert_eq!(ask(&server, "GET", &blob(&upload), &[], b"").bytes, b"0123456789");
    let secret = format!("blob-delete-secret: {}", made.header("blob-delete-secret"));
    let removed = ask_anyhow(&server, "DELETE", &blob(&upload), &[&secret], b"");
    assert_eq!(removed.status(), 204);
    let wrong = ["upload-length: 5", BYTES, "upload-checksum: sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0="];
    assert_eq!(create(&server, &wrong, b"01234").status(), 460);
    assert_eq!(create(&server, &["upload-length: 3", BYTES], b"01234").status(), 400);
}

#[test]
fn a_wrong_offset_is_answered_with_the_right_one() {
    let server = Server::in_memory();
    let upload = created(&server, 10);
    patch(&server, &upload, 0, &[], b"0123");
    for wrong in [0, 3, 5, 10, 11] {
        let reply = patch(&server, &upload, wrong, &[], b"xxx");
        assert_eq!(reply.problem(), (409, "refused".into()), "{wrong}");
        assert_eq!(reply.header("upload-offset"), "4");
    }
    assert_eq!(patch(&server, &upload, 4, &[], b"4567890").problem().0, 400, "one too many");
    assert_eq!(offset(&server, &upload), 4);
    assert_eq!(patch(&server, &upload, 4, &[], b"456789").status(), 204);
    assert_eq!(ask(&server, "GET", &blob(&upload), &[], b"").bytes, b"0123456789");
}

#[test]
fn bytes_with_a_checksum_are_kept_whole_or_not_at_all() {
    let server = Server::on_file();
    let body = bytes(6_000_000, 2);
    let upload = created(&server, body.len());
    let right = format!("upload-checksum: sha256 {}", STANDARD.encode(Sha256::digest(&body)));
    let mut other = body.clone();
    other[5_999_999] ^= 1;
    assert_eq!(patch(&server, &upload, 0, &[&right], &other).status(), 460);
    assert_eq!(offset(&server, &upload), 0);
    let length = format!("content-length: {}", body.len());
    let headers = [VERSION, BYTES, "upload-offset: 0", &right, &length];
    let mut sending = begin(&server, "PATCH", &upload, &headers);
    sending.bytes(&body[..5_500_000]);
    drop(sending);
    super::pause(300);
    assert_eq!(offset(&server, &upload), 0, "half of them are none");
    assert_eq!(patch(&server, &upload, 0, &[&right], &body).status(), 204);
    assert!(ask(&server, "GET", &blob(&upload), &[], b"").bytes == body);
    let unknown = patch(&server, &created(&server, 1), 0, &["upload-checksum: md5 AAAA"], b"x");
    assert_eq!(unknown.problem(), (400, "invalid_request".into()));
}

#[test]
fn what_came_before_the_connection_broke_is_kept() {
    for server in [Server::in_memory(), Server::on_file()] {
        let body = bytes(1_000_000, 3);
        let upload = created(&server, body.len());
        let headers = [VERSION, BYTES, "upload-offset: 0", "content-length: 1000000"];
        let mut sending = begin(&server, "PATCH", &upload, &headers);
        sending.bytes(&body[..345_678]);
        drop(sending);
        assert!(eventually(|| offset(&server, &upload) == 345_678), "{}", offset(&server, &upload));
        assert_eq!(patch(&server, &upload, 345_678, &[], &body[345_678..]).status(), 204);
        assert!(ask(&server, "GET", &blob(&upload), &[], b"").bytes == body, "other bytes");
    }
}

#[test]
fn a_later_patch_takes_the_upload_from_an_earlier_one() {
    let server = Server::in_memory();
    let upload = created(&server, 200_000);
    let headers = [VERSION, BYTES, "upload-offset: 0", "content-length: 200000"];
    let mut earlier: Sending = begin(&server, "PATCH", &upload, &headers);
    earlier.bytes(&[1; 150_000]);
    super::pause(300);
    assert_eq!(patch(&server, &upload, 0, &[], &[2; 200_000]).status(), 204);
    earlier.bytes(&[1; 50_000]);
    assert_eq!(earlier.reply().problem(), (409, "refused".into()));
    assert!(ask(&server, "GET", &blob(&upload), &[], b"").bytes == [2; 200_000]);
}

#[test]
fn an_upload_survives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let body = bytes(300_000, 4);
    let upload = created(&server, body.len());
    patch(&server, &upload, 0, &[], &body[..150_001]);
    server.kill();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(offset(&server, &upload), 150_001);
    patch(&server, &upload, 150_001, &[], &body[150_001..]);
    assert!(ask(&server, "GET", &blob(&upload), &[], b"").bytes == body, "other bytes");
}

#[test]
fn an_upload_can_be_removed_and_expires() {
    let server = Server::on_file();
    let body = bytes(150_000, 5);
    let upload = created(&server, 200_000);
    patch(&server, &upload, 0, &[], &body);
    assert!(super::holds(&server, &body));
    let delete = |path: &str| ask(&server, "DELETE", path, &[VERSION], b"");
    assert_eq!(delete(&upload).status(), 204);
    assert_eq!(delete(&upload).problem(), (404, "absent".into()));
    assert_eq!(patch(&server, &upload, 150_000, &[], b"x").problem(), (404, "absent".into()));
    super::assert_gone(&server, &body);
    let made = create(&server, &["upload-length: 200000", "ttl: 1s"], b"");
    let upload = made.header("location").to_owned();
    patch(&server, &upload, 0, &[], &body);
    super::pause(1_100);
    assert_eq!(head(&server, &upload).status(), 404);
    assert!(!super::holds(&server, &body), "nothing of it lives");
}

#[test]
fn another_method_can_stand_behind_post() {
    let server = Server::in_memory();
    let upload = created(&server, 4);
    let post = |method: &str, headers: &[&str], body: &[u8]| {
        let method = format!("x-http-method-override: {method}");
        ask(&server, "POST", &upload, &[&[VERSION, &*method], headers].concat(), body)
    };
    assert_eq!(post("PATCH", &[BYTES, "upload-offset: 0"], b"01").status(), 204);
    assert_eq!(post("HEAD", &[], b"").header("upload-offset"), "2");
    assert_eq!(post("GET", &[], b"").problem(), (400, "invalid_request".into()));
    assert_eq!(post("DELETE", &[], b"").status(), 204);
    assert_eq!(head(&server, &upload).status(), 404);
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let server = Server::in_memory();
    let upload = created(&server, 10);
    let (plain, at) = ("content-type: text/plain", "upload-offset: 0");
    let large = "upload-length: 67108865";
    let cases: [(&str, &str, &[&str], u16); 13] = [
        ("POST", TUS, &["upload-length: 1"], 412),
        ("POST", TUS, &["tus-resumable: 0.2.2", "upload-length: 1"], 412),
        ("HEAD", &upload, &[], 412),
        ("POST", TUS, &[VERSION], 400),
        ("POST", TUS, &[VERSION, "upload-length: x"], 400),
        ("POST", TUS, &[VERSION, "upload-length: -1"], 400),
        ("POST", TUS, &[VERSION, "upload-defer-length: 1"], 400),
        ("POST", TUS, &[VERSION, large], 413),
        ("POST", TUS, &[VERSION, "upload-length: 1", "ttl: 2d"], 400),
        ("POST", TUS, &[VERSION, "upload-length: 1", "upload-metadata: a ?"], 400),
        ("PATCH", &upload, &[VERSION, at, plain], 415),
        ("PATCH", &upload, &[VERSION, BYTES], 400),
        ("PATCH", &upload, &[VERSION, BYTES, "upload-offset: -1"], 400),
    ];
    for (method, path, headers, status) in cases {
        let reply = ask(&server, method, path, headers, b"");
        assert_eq!(reply.status(), status, "{method} {headers:?}: {}", reply.answer.body);
        assert_eq!(reply.header("tus-resumable"), "1.0.0");
        if status == 412 {
            assert_eq!(reply.header("tus-version"), "1.0.0");
        }
    }
    let absent = patch(&server, &format!("{TUS}/{}", "A".repeat(43)), 0, &[], b"x");
    assert_eq!(absent.problem(), (404, "absent".into()));
    let spoken = ask(&server, "OPTIONS", TUS, &[], b"");
    let expected = "creation,creation-with-upload,checksum,expiration,termination";
    assert_eq!((spoken.status(), spoken.header("tus-extension")), (204, expected));
    assert_eq!(spoken.header("tus-max-size"), "67108864");
}

/// A creation whose client goes: nobody knows its address, so it holds no place.
#[test]
fn a_creation_that_breaks_off_with_its_first_bytes_leaves_nothing() {
    for server in [Server::in_memory(), Server::on_file()] {
        super::limit(&server, r#"{"maxBlobs":1}"#);
        let body = bytes(300_000, 6);
        let headers = [VERSION, BYTES, "upload-length: 400000", "content-length: 400000"];
        let mut sending = begin(&server, "POST", TUS, &headers);
        sending.bytes(&body);
        assert!(eventually(|| super::holds(&server, &body)), "chunks are written");
        drop(sending);
        super::assert_gone(&server, &body);
        let again = || create(&server, &["upload-length: 1", BYTES], b"x");
        assert!(eventually(|| again().status() == 201), "its place is free again");
    }
}

#[test]
fn nothing_in_chunks_is_nothing() {
    let server = Server::in_memory();
    let nothing = |method: &str, path: &str, headers: &[&str]| {
        let headers = [&[VERSION, "transfer-encoding: chunked"], headers].concat();
        let mut sending = begin(&server, method, path, &headers);
        sending.bytes(b"0\r\n\r\n");
        sending.reply()
    };
    assert_eq!(nothing("POST", TUS, &["upload-length: 0"]).status(), 201);
    let made = nothing("POST", TUS, &["upload-length: 0", BYTES]);
    assert_eq!(made.status(), 201, "{}", made.answer.body);
    let upload = made.header("location").to_owned();
    let more = nothing("PATCH", &upload, &[BYTES, "upload-offset: 0"]);
    assert_eq!(more.status(), 204, "{}", more.answer.body);
}

#[test]
fn every_answer_names_the_version() {
    let server = Server::in_memory();
    let upload = created(&server, 1);
    for reply in [
        ask_anyhow(&server, "PATCH", &upload, &[VERSION], b""),
        ask(&server, "PATCH", &format!("{TUS}/x"), &[VERSION], b""),
        ask(&server, "PUT", &upload, &[VERSION], b""),
        ask(&server, "POST", &TUS.replace("/7/", "/x/"), &[VERSION], b""),
    ] {
        assert!((400..=405).contains(&reply.status()), "{}", reply.answer.head);
        assert_eq!(reply.header("tus-resumable"), "1.0.0", "{}", reply.answer.head);
    }
}
