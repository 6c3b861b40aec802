//! Removal: by the owner, by whoever has the secret, and by time.

use super::{BLOBS, ask, ask_anyhow, bytes, pause, upload};
use crate::server::Server;

#[test]
fn the_owner_removes_a_blob_once() {
    let server = Server::on_file();
    let body = bytes(250_000, 1);
    let blob = upload(&server, &[], &body);
    assert_eq!(ask(&server, "DELETE", &blob.path, &[], b"").status(), 204);
    for method in ["DELETE", "GET"] {
        assert_eq!(ask(&server, method, &blob.path, &[], b"").problem(), (404, "absent".into()));
    }
    super::assert_gone(&server, &body);
}

#[test]
fn whoever_has_the_secret_removes_the_blob_and_nothing_else() {
    let server = Server::in_memory();
    let (blob, other) = (upload(&server, &[], b"one"), upload(&server, &[], b"two"));
    let delete = |path: &str, headers: &[&str]| ask_anyhow(&server, "DELETE", path, headers, b"");
    let secret = format!("blob-delete-secret: {}", blob.secret);
    assert_eq!(delete(&blob.path, &[]).problem(), (401, "unauthorized".into()));
    assert_eq!(delete(&other.path, &[&secret]).problem(), (404, "absent".into()));
    let elsewhere = blob.path.replace("/demo/app/", "/no/app/");
    assert_eq!(delete(&elsewhere, &[&secret]).problem(), (404, "absent".into()));
    // Whatever is wrong is answered alike where there is no such application.
    let there = delete(&blob.path, &["blob-delete-secret: x"]);
    assert_eq!(there.problem().0, 400);
    assert_eq!(delete(&elsewhere, &["blob-delete-secret: x"]).answer.body, there.answer.body);
    let [there, nowhere] = [&blob.path, &elsewhere].map(|path| path.replace("/7/", "/x/"));
    let (there, nowhere) = (delete(&there, &[&secret]), delete(&nowhere, &[&secret]));
    assert_eq!((there.problem().0, there.answer.body), (400, nowhere.answer.body));
    let revoked = "authorization: Bearer 1-0000000000000000.00";
    assert_eq!(delete(&blob.path, &[&secret, revoked]).problem().0, 401, "not even with one");
    let get = ask_anyhow(&server, "GET", &blob.path, &[&secret], b"");
    assert_eq!(get.problem().0, 401, "it opens nothing");
    assert_eq!(delete(&blob.path, &[&secret]).status(), 204);
    assert_eq!(delete(&blob.path, &[&secret]).problem(), (404, "absent".into()));
    assert_eq!(ask(&server, "GET", &other.path, &[], b"").bytes, b"two");
}

#[test]
fn a_blob_disappears_on_time() {
    for server in [Server::in_memory(), Server::on_file()] {
        let body = bytes(250_000, 2);
        let blob = upload(&server, &["ttl: 2s"], &body);
        assert_eq!(ask(&server, "GET", &blob.path, &[], b"").status(), 200);
        pause(2_100);
        for method in ["GET", "DELETE"] {
            let gone = ask(&server, method, &blob.path, &[], b"");
            assert_eq!(gone.problem(), (404, "absent".into()));
        }
        assert!(!super::holds(&server, &body), "nothing of it lives");
    }
}

#[test]
fn blobs_of_another_workspace_and_another_app_look_absent() {
    let server = Server::in_memory();
    let blob = upload(&server, &[], b"x");
    let other_key = server.make_app("other", "app");
    let suuid = blob.path.rsplit('/').next().unwrap();
    let absent = ask(&server, "GET", &format!("{BLOBS}/{}", "A".repeat(43)), &[], b"");
    let malformed = ask(&server, "GET", &format!("{BLOBS}/x"), &[], b"");
    let elsewhere = ask(&server, "GET", &blob.path.replace("/7/", "/8/"), &[], b"");
    let key = format!("authorization: Bearer {other_key}");
    let theirs = format!("/api/v2/apps/other/app/workspaces/7/tblobs/{suuid}");
    let theirs = ask_anyhow(&server, "GET", &theirs, &[&key], b"");
    let ours = ask_anyhow(&server, "GET", &blob.path, &[&key], b"");
    for reply in [&malformed, &elsewhere, &theirs, &ours] {
        assert_eq!(reply.answer.body, absent.answer.body);
        assert_eq!(reply.problem(), (404, "absent".into()));
    }
}
