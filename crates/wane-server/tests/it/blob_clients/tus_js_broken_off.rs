//! Uploads by tus-js-client that do not come through at once: left and taken up again, given up, and
//! a server that is killed under them.

use serde_json::json;

use super::tus_js::{TusClient, id_of};
use super::*;
use crate::server::eventually;

/// Starts an upload, and leaves it in the middle of a request.
fn left_halfway(site: &Site, bytes: &[u8], terminate: bool) -> (String, PathBuf) {
    let urls = site.folder.path().join("urls.json");
    let at = bytes.len() / 2;
    let asked = json!({ "abortAt": at, "terminate": terminate, "urls": urls, "slowMillis": 1 });
    let told = site.tus(bytes, asked);
    assert_eq!(told.outcome()["outcome"], "aborted", "{told:?}");
    assert_eq!(told.statuses("PATCH"), [] as [u64; 0], "the request was cut");
    (id_of(told.outcome()), urls)
}

/// How far an upload has come.
fn offset(site: &Site, id: &str) -> u64 {
    site.tus_head(id).header("upload-offset").map_or(0, |offset| offset.parse().unwrap())
}

/// As a browser that was closed and finds in its storage where it was.
#[test]
fn an_upload_that_was_left_goes_on_in_another_process() {
    let site = Site::on_file();
    let bytes = sample(16 * MIB);
    let (id, urls) = left_halfway(&site, &bytes, false);
    assert!(eventually(|| offset(&site, &id) > 0), "nothing of it was kept");
    assert_eq!(site.downloaded(&id).status, 404, "a part is no BLOB");

    let retries = json!({ "retryDelays": [100, 100, 100] });
    let told = site.tus(&bytes, json!({ "urls": urls, "options": retries }));
    assert_eq!(told.uploaded(), id, "it is the same upload");
    assert_eq!((told.all("previous"), told.statuses("POST")), (vec![&json!(1)], vec![]));
    let resumed_at = told.resumed_at();
    assert!(resumed_at > 0 && resumed_at < bytes.len() as u64, "at {resumed_at}");
    assert_same(&site.downloaded(&id).body, &bytes);
}

#[test]
fn an_upload_goes_on_at_the_address_that_the_client_kept() {
    let site = Site::on_file();
    let bytes = sample(16 * MIB);
    let (id, _) = left_halfway(&site, &bytes, false);
    assert!(eventually(|| offset(&site, &id) > 0), "nothing of it was kept");
    let address = site.url(&format!("tblobs-tus/{id}"));
    let options = json!({ "uploadUrl": address, "retryDelays": [100, 100, 100] });
    let told = site.tus(&bytes, json!({ "chunkSize": 3 * MIB, "options": options }));
    assert_eq!(told.uploaded(), id);
    assert!(told.resumed_at() > 0 && told.statuses("PATCH").len() > 1, "{told:?}");
    assert_same(&site.downloaded(&id).body, &bytes);
}

#[test]
fn an_upload_that_is_given_up_is_gone() {
    let site = Site::on_file();
    let (id, _) = left_halfway(&site, &sample(16 * MIB), true);
    assert_eq!(site.tus_head(&id).status, 404);
    assert_eq!(site.downloaded(&id).status, 404);
}

#[test]
fn a_complete_upload_is_removed_by_its_address() {
    let site = Site::in_memory();
    let id = site.tus(b"text", json!({})).uploaded();
    assert_eq!(site.downloaded(&id).status, 200);
    let address = site.url(&format!("tblobs-tus/{id}"));
    let told = TusClient::start(&site, &json!({ "terminateUrl": address })).end();
    assert_eq!(told.outcome()["outcome"], "success", "{told:?}");
    assert_eq!(told.statuses("DELETE"), [204]);
    assert_eq!(site.downloaded(&id).status, 404);
    let again = TusClient::start(&site, &json!({ "terminateUrl": address })).end();
    assert_eq!(again.outcome()["status"], 404, "{again:?}");
}

/// Uploads while the server is killed once `sent` bytes are on their way, and comes back.
fn survives_a_kill(mut asked: Json, sent: u64) {
    let home = tempfile::tempdir().unwrap();
    let mut site = Site::of(Server::start(home.path(), &[]));
    let bytes = sample(24 * MIB);
    asked["file"] = json!(site.file("tus", &bytes));
    asked["options"] = json!({ "retryDelays": vec![100; 100] });
    let mut client = TusClient::start(&site, &asked);
    loop {
        let line = client.next().expect("the client goes on");
        assert!(line["outcome"].is_null(), "it ended before the server did: {line}");
        if line["sent"].as_u64().is_some_and(|found| found >= sent) {
            break;
        }
    }
    let listen = site.server.http;
    site.server.kill();
    // Longer than the client pauses between two requests.
    crate::wait(std::time::Duration::from_millis(300));
    site.server = Server::start_at(listen, home.path(), &[]);
    let told = client.end();
    let id = told.uploaded();
    assert!(!told.all("failed").is_empty(), "the kill was noticed");
    assert_eq!(told.statuses("POST"), [201], "it is one upload");
    assert!(!told.statuses("HEAD").is_empty(), "it asked where it was");
    assert_same(&site.downloaded(&id).body, &bytes);
    println!("killed after {sent} bytes, resumed at {}", told.resumed_at());
}

#[test]
fn a_server_killed_between_chunks_is_survived() {
    let asked = json!({ "chunkSize": MIB, "pauseMillis": 80 });
    survives_a_kill(asked, 9 * MIB as u64);
}

#[test]
fn a_server_killed_within_a_request_is_survived() {
    survives_a_kill(json!({ "slowMillis": 1 }), 4 * MIB as u64);
}

/// What was acknowledged before the kill is not sent again.
#[test]
fn what_a_killed_server_had_acknowledged_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let mut site = Site::of(Server::start(home.path(), &[]));
    let bytes = sample(8 * MIB);
    let urls = site.folder.path().join("urls.json");
    let told = site.tus(
        &bytes,
        json!({ "chunkSize": MIB, "abortAt": 5 * MIB, "urls": urls, "slowMillis": 1 }),
    );
    let acknowledged = told.all("offset").last().unwrap().as_str().unwrap().parse::<u64>().unwrap();
    assert!(acknowledged >= 4 * MIB as u64, "{told:?}");
    site.server.kill();
    site.server = Server::start(home.path(), &[]);
    let id = id_of(told.outcome());
    assert!(offset(&site, &id) >= acknowledged, "{} of {acknowledged}", offset(&site, &id));
    // At another address now: the client is told.
    let options = json!({ "uploadUrl": site.url(&format!("tblobs-tus/{id}")) });
    assert_eq!(site.tus(&bytes, json!({ "options": options })).uploaded(), id);
    assert_same(&site.downloaded(&id).body, &bytes);
}
