//! Temporary BLOBs through the clients that people have: curl, wget and tus-js-client, each a process
//! of its own, and bodies that arrive in pieces of every size, against the real server.
//!
//! A client that is not there is a failure that names the script that installs it.

mod curl;
mod curl_download;
mod curl_upload;
mod pieces;
mod tus_js;
mod tus_js_broken_off;
mod wget;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::server::Server;

const WORKSPACE: &str = "/api/v2/apps/demo/app/workspaces/7";

/// Bytes in one chunk of a stored BLOB.
const CHUNK: usize = 102_400;

const MIB: usize = 1024 * 1024;

/// A server, how it is reached, and a folder for the files of its clients.
struct Site {
    server: Server,
    /// The certificate of a server that speaks TLS, which signs itself.
    certificate: Option<PathBuf>,
    folder: TempDir,
}

impl Site {
    fn in_memory() -> Self {
        Self::of(Server::in_memory())
    }

    fn on_file() -> Self {
        Self::of(Server::on_file())
    }

    fn of(server: Server) -> Self {
        Self { server, certificate: None, folder: tempfile::tempdir().unwrap() }
    }

    /// Over TLS, for the name `127.0.0.1`.
    fn with_tls() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let flags = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
        Self { server: Server::with(&flags), certificate: Some(cert.clone()), folder }
    }

    /// The URL of something in the workspace.
    fn url(&self, what: &str) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{WORKSPACE}/{what}", self.server.http)
    }

    fn credential(&self) -> String {
        format!("Authorization: Bearer {}", self.server.key)
    }

    /// A file in the folder, with these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A folder in the folder, with nothing in it.
    fn empty_folder(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Lets a BLOB of the app have so many bytes at most.
    fn limit_blobs_to(&self, bytes: usize) {
        let limits = "/api/v1/admin/apps/demo/app/limits";
        let answer =
            self.server.administer("PUT", limits, &format!(r#"{{"maxBlobBytes":{bytes}}}"#));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// Runs a client to its end.
fn run(command: &mut Command) -> Output {
    started(command.stdin(Stdio::null()).output(), command)
}

/// What came of starting a client; one that is not there is named with what to do.
fn started<T>(result: io::Result<T>, command: &Command) -> T {
    result.unwrap_or_else(|error| {
        let program = command.get_program().to_string_lossy();
        panic!("{program} cannot be run: {error}; scripts/tools installs it")
    })
}

/// Bytes of which no two places look alike: shuffled, cut or repeated ones are others.
fn sample(size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8);
    let mut place = 0_u64;
    while bytes.len() < size {
        let mixed = (place ^ (place >> 31) ^ 0x9E37_79B9).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 32)).to_le_bytes());
        place += 1;
    }
    bytes.truncate(size);
    bytes
}

/// Says where bytes differ, and not which megabytes they are.
#[track_caller]
fn assert_same(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(one, other)| one != other);
    let lengths = (found.len(), expected.len());
    assert!(found == expected, "other bytes: {lengths:?} of them, differing first at {differs:?}");
}

/// The header of a head, whatever its case.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Names of what is in a folder.
fn listed(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The id in the answer to an upload.
fn id_in(body: &[u8]) -> String {
    let body: Json = serde_json::from_slice(body).unwrap();
    body["blobSUUID"].as_str().unwrap_or_else(|| panic!("no id in {body}")).to_owned()
}

/// Control: bytes that are cut, shuffled or repeated are noticed.
#[test]
fn bytes_that_differ_anywhere_are_noticed() {
    let whole = sample(3 * CHUNK);
    let shuffled = [&whole[CHUNK..2 * CHUNK], &whole[..CHUNK], &whole[2 * CHUNK..]].concat();
    let repeated = [&whole[..CHUNK], &whole[..2 * CHUNK]].concat();
    let longer = [&whole[..], &[0]].concat();
    for wrong in [&whole[..whole.len() - 1], &shuffled, &repeated, &longer, &[]] {
        let noticed = std::panic::catch_unwind(|| assert_same(wrong, &whole));
        assert!(noticed.is_err());
    }
    assert_same(&whole.clone(), &whole);
}

/// Control: a client that is not installed fails, with what to do.
#[test]
#[should_panic(expected = "no-such-client cannot be run: No such file or directory (os error 2); \
                           scripts/tools installs it")]
fn a_client_that_is_missing_is_named_with_what_to_do() {
    run(&mut Command::new("no-such-client"));
}
