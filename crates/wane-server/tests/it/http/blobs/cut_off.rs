//! Transfers that end in the middle: nothing readable, nothing left, and no part taken for the whole.

use std::io::Read as _;

use super::{BLOBS, ask, begin, bytes, pause, upload};
use crate::server::Server;

#[test]
fn an_upload_whose_client_goes_leaves_nothing() {
    for server in [Server::in_memory(), Server::on_file()] {
        super::limit(&server, r#"{"maxBlobs":1}"#);
        let body = bytes(1_000_000, 1);
        let mut sending = begin(&server, "POST", BLOBS, &["content-length: 2000000"]);
        sending.bytes(&body);
        assert!(crate::server::eventually(|| super::holds(&server, &body)), "chunks are written");
        drop(sending);
        super::assert_gone(&server, &body);
        upload(&server, &[], b"its place is free again");
    }
}

#[test]
fn an_upload_whose_server_is_killed_is_gone_by_its_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let body = bytes(1_000_000, 2);
    let mut sending = begin(&server, "POST", BLOBS, &["content-length: 2000000", "ttl: 3s"]);
    sending.bytes(&body);
    assert!(crate::server::eventually(|| super::holds(&server, &body)), "chunks are written");
    server.kill();
    let server = Server::start(directory.path(), &[]);
    pause(3_000);
    assert!(!super::holds(&server, &body));
}

#[test]
fn an_upload_that_outlives_its_blob_is_refused() {
    let server = Server::on_file();
    let body = bytes(300_000, 3);
    let length = format!("content-length: {}", body.len());
    let mut sending = begin(&server, "POST", BLOBS, &[&length, "ttl: 1s"]);
    sending.bytes(&body[..200_000]);
    pause(1_200);
    sending.bytes(&body[200_000..]);
    assert_eq!(sending.reply().problem(), (410, "gone".into()));
    assert!(!super::holds(&server, &body));
}

/// The rest of an answer whose first bytes were taken; the server has closed.
fn slow_download(server: &Server, path: &str, between: impl FnOnce()) -> super::Reply {
    let mut receiving = begin(server, "GET", path, &[]);
    let mut first = vec![0; 1_000];
    receiving.stream.read_exact(&mut first).unwrap();
    between();
    let mut rest = Vec::new();
    drop(receiving.stream.read_to_end(&mut rest));
    super::reply(&[first, rest].concat())
}

/// More than the buffers of both ends hold.
const MUCH: usize = 30_000_000;

#[test]
fn a_download_that_outlives_its_blob_breaks() {
    let server = Server::in_memory();
    let body = bytes(MUCH, 4);
    let blob = upload(&server, &["ttl: 3s"], &body);
    let got = slow_download(&server, &blob.path, || pause(3_200));
    assert_eq!(got.status(), 200);
    assert!(!got.is_whole(), "it cannot have been there");
    assert!(body.starts_with(&got.bytes), "what came is the begin of it");
}

#[test]
fn a_download_of_what_is_removed_meanwhile_is_whole_or_breaks() {
    for server in [Server::in_memory(), Server::on_file()] {
        let body = bytes(MUCH, 5);
        let blob = upload(&server, &[], &body);
        let got = slow_download(&server, &blob.path, || {
            assert_eq!(ask(&server, "DELETE", &blob.path, &[], b"").status(), 204);
        });
        assert!(!got.is_whole(), "most of it was gone");
        assert!(body.starts_with(&got.bytes), "what came is the begin of it");
    }
}

#[test]
fn a_download_without_trouble_is_whole() {
    let server = Server::in_memory();
    let body = bytes(MUCH, 6);
    let blob = upload(&server, &[], &body);
    let got = slow_download(&server, &blob.path, || pause(100));
    assert!(got.is_whole() && got.bytes == body, "the control of those that break");
}

#[test]
fn a_one_time_download_that_breaks_is_spent_and_removed() {
    let server = Server::in_memory();
    let body = bytes(MUCH, 7);
    let blob = upload(&server, &["blob-downloads: 1"], &body);
    let mut receiving = begin(&server, "GET", &blob.path, &[]);
    receiving.stream.read_exact(&mut [0; 1_000]).unwrap();
    drop(receiving);
    assert_eq!(ask(&server, "GET", &blob.path, &[], b"").problem(), (404, "absent".into()));
    super::assert_gone(&server, &body);
}
