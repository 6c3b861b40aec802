//! tus-js-client, the client that browsers use: whole uploads, in one request and in many.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

use serde_json::json;

use super::*;

/// Where scripts/tus-client installs it.
const INSTALLED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tus-client/node_modules");

/// The program that drives it.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/blob_clients/tus_client.js");

/// A client at work.
pub(super) struct TusClient {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    told: Vec<Json>,
}

impl Drop for TusClient {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl TusClient {
    /// Starts an upload to the site, with whatever else is asked for.
    pub(super) fn start(site: &Site, asked: &Json) -> Self {
        assert!(
            Path::new(INSTALLED).join("tus-js-client").exists(),
            "tus-js-client is not installed: scripts/tus-client does that"
        );
        let mut asked = asked.clone();
        asked["key"] = json!(site.server.key);
        if asked["options"]["uploadUrl"].is_null() {
            asked["options"]["endpoint"] = json!(site.url("tblobs-tus"));
        }
        let mut command = Command::new("node");
        command.arg(PROGRAM).arg(asked.to_string());
        command.env("NODE_PATH", INSTALLED).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(certificate) = &site.certificate {
            command.env("NODE_EXTRA_CA_CERTS", certificate);
        }
        let mut process = started(command.spawn(), &command);
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, told: Vec::new() }
    }

    /// The next thing that it tells; none once it has ended.
    pub(super) fn next(&mut self) -> Option<&Json> {
        let line = self.lines.next()?.unwrap();
        self.told.push(serde_json::from_str(&line).unwrap());
        self.told.last()
    }

    /// Waits for its end.
    pub(super) fn end(mut self) -> Told {
        while self.next().is_some() {}
        Told(std::mem::take(&mut self.told))
    }
}

/// All that a client told.
#[derive(Debug)]
pub(super) struct Told(Vec<Json>);

impl Told {
    /// How it ended, and with what.
    pub(super) fn outcome(&self) -> &Json {
        let last = self.0.last().filter(|last| !last["outcome"].is_null());
        last.unwrap_or_else(|| panic!("it ended without an outcome: {self:?}"))
    }

    /// The id of the upload that came to its end.
    #[track_caller]
    pub(super) fn uploaded(&self) -> String {
        assert_eq!(self.outcome()["outcome"], "success", "{self:?}");
        id_of(self.outcome())
    }

    /// The statuses of the answers to one kind of request.
    pub(super) fn statuses(&self, method: &str) -> Vec<u64> {
        let of_method = self.0.iter().filter(|line| line["method"] == method);
        of_method.map(|line| line["status"].as_u64().unwrap()).collect()
    }

    /// What it told under a name.
    pub(super) fn all(&self, name: &str) -> Vec<&Json> {
        self.0.iter().map(|line| &line[name]).filter(|value| !value.is_null()).collect()
    }

    /// How far the server said at first that the upload had come.
    pub(super) fn resumed_at(&self) -> u64 {
        let head = self.0.iter().find(|line| line["method"] == "HEAD").unwrap();
        head["offset"].as_str().unwrap().parse().unwrap()
    }
}

/// The id at the end of the address in a line.
pub(super) fn id_of(line: &Json) -> String {
    line["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

impl Site {
    /// Uploads bytes as asked.
    pub(super) fn tus(&self, bytes: &[u8], mut asked: Json) -> Told {
        asked["file"] = json!(self.file("tus", bytes));
        TusClient::start(self, &asked).end()
    }

    /// What an upload or the BLOB that it became is, as tus says.
    pub(super) fn tus_head(&self, id: &str) -> super::curl::Ran {
        let url = self.url(&format!("tblobs-tus/{id}"));
        self.curl(&["-I", "-H", "Tus-Resumable: 1.0.0", &url])
    }
}

#[test]
fn every_size_comes_back_in_chunks_of_every_size() {
    let site = Site::on_file();
    let cases = [
        (0, None, 0),
        (1, None, 1),
        (1, Some(1), 1),
        (CHUNK, None, 1),
        (CHUNK, Some(33_333), 4),
        (5 * MIB, None, 1),
        (5 * MIB, Some(CHUNK), 52),
        (5 * MIB, Some(MIB), 5),
        (5 * MIB, Some(5 * MIB + 1), 1),
    ];
    for (size, chunk, requests) in cases {
        let bytes = sample(size);
        let told = site.tus(&bytes, json!({ "chunkSize": chunk }));
        let back = site.downloaded(&told.uploaded());
        assert_eq!(back.status, 200);
        assert_same(&back.body, &bytes);
        assert_eq!(told.statuses("POST"), [201]);
        assert_eq!(told.statuses("PATCH"), vec![204; requests], "{size} in {chunk:?}");
        assert_eq!(told.statuses("HEAD"), [] as [u64; 0]);
    }
}

#[test]
fn the_first_bytes_may_come_with_the_creation() {
    let site = Site::on_file();
    for (size, chunk, requests) in [(1, None, 0), (5 * MIB, None, 0), (CHUNK, Some(50_000), 2)] {
        let bytes = sample(size);
        let options = json!({ "uploadDataDuringCreation": true });
        let told = site.tus(&bytes, json!({ "chunkSize": chunk, "options": options }));
        assert_same(&site.downloaded(&told.uploaded()).body, &bytes);
        assert_eq!(told.statuses("POST"), [201]);
        assert_eq!(told.statuses("PATCH"), vec![204; requests], "{size} in {chunk:?}");
    }
}

#[test]
fn a_way_without_patch_is_taken_by_post() {
    let site = Site::in_memory();
    let bytes = sample(CHUNK);
    let options = json!({ "overridePatchMethod": true });
    let told = site.tus(&bytes, json!({ "chunkSize": 60_000, "options": options }));
    assert_same(&site.downloaded(&told.uploaded()).body, &bytes);
    assert_eq!((told.statuses("POST"), told.statuses("PATCH")), (vec![201, 204, 204], vec![]));
}

#[test]
fn uploads_go_over_tls() {
    let site = Site::with_tls();
    let bytes = sample(2 * MIB);
    let told = site.tus(&bytes, json!({ "chunkSize": 700_000 }));
    assert_same(&site.downloaded(&told.uploaded()).body, &bytes);
}

#[test]
fn a_name_that_is_not_ascii_becomes_that_of_the_blob() {
    let site = Site::in_memory();
    let name = "\u{20ac} \u{e9}t\u{e9} \"x\".txt";
    let metadata = json!({ "filename": name, "filetype": "text/plain", "other": "kept" });
    let told = site.tus(b"text", json!({ "options": { "metadata": metadata } }));
    let id = told.uploaded();
    let back = site.downloaded(&id);
    assert_same(&back.body, b"text");
    let encoded = "%E2%82%AC%20%C3%A9t%C3%A9%20%22x%22.txt";
    let saved = format!("attachment; filename=\"_ _t_ _x_.txt\"; filename*=UTF-8''{encoded}");
    assert_eq!(back.header("blob-name"), Some(encoded));
    assert_eq!(back.header("content-disposition"), Some(&*saved));
    assert_eq!(back.header("content-type"), Some("text/plain"));
    let head = site.tus_head(&id);
    let kept = head.header("upload-metadata").unwrap();
    assert!(kept.ends_with(",filetype dGV4dC9wbGFpbg==,other a2VwdA=="), "{kept}");
}

#[test]
fn headers_of_ours_go_along_with_the_creation() {
    let site = Site::on_file();
    let bytes = sample(CHUNK);
    let headers = json!({ "Blob-Downloads": "1", "TTL": "90s" });
    let id = site.tus(&bytes, json!({ "headers": headers })).uploaded();
    assert_same(&site.downloaded(&id).body, &bytes);
    assert_eq!(site.downloaded(&id).status, 404);
}

#[test]
fn bytes_are_held_to_the_sum_that_comes_with_them() {
    let site = Site::on_file();
    let bytes = sample(3 * CHUNK);
    let told = site.tus(&bytes, json!({ "chunkSize": CHUNK, "checksum": "right" }));
    assert_same(&site.downloaded(&told.uploaded()).body, &bytes);
    assert_eq!(told.statuses("PATCH"), [204; 3]);

    let told = site.tus(&bytes, json!({ "chunkSize": CHUNK, "checksum": "wrong" }));
    assert_eq!(told.statuses("PATCH"), [460]);
    assert_eq!(told.outcome()["outcome"], "error", "{told:?}");
    let id = id_of(&json!({ "url": told.all("url")[0] }));
    assert_eq!(site.tus_head(&id).header("upload-offset"), Some("0"), "nothing is kept");
    assert_eq!(site.downloaded(&id).status, 404);
}

/// Each names the header that is not taken, and leaves nothing behind.
#[test]
fn extensions_that_are_not_offered_fail_with_the_reason() {
    let site = Site::in_memory();
    let bytes = sample(CHUNK);
    let cases = [
        (json!({ "parallelUploads": 2 }), "Upload-Concat"),
        (json!({ "uploadLengthDeferred": true }), "Upload-Defer-Length"),
    ];
    for (options, header) in cases {
        let told = site.tus(&bytes, json!({ "options": options }));
        let outcome = told.outcome();
        assert_eq!((&outcome["outcome"], &outcome["status"]), (&json!("error"), &json!(400)));
        assert!(outcome["detail"].as_str().unwrap().contains(header), "{outcome}");
        assert!(told.all("url").is_empty(), "an upload was made: {told:?}");
    }
}

#[test]
fn what_is_too_large_is_refused_at_its_creation() {
    let site = Site::in_memory();
    site.limit_blobs_to(CHUNK);
    let told = site.tus(&sample(CHUNK + 1), json!({}));
    let outcome = told.outcome();
    assert_eq!(outcome["status"], 413, "{outcome}");
    assert!(outcome["detail"].as_str().unwrap().contains("too_large"), "{outcome}");
    assert_eq!(told.statuses("PATCH"), [] as [u64; 0]);
    site.tus(&sample(CHUNK), json!({})).uploaded();
}
