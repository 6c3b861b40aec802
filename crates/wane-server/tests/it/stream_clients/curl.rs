//! The reader that the manual shows: curl, in ten lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{ISPB, url};
use crate::http::pull_stream::{Streams, message, reader_of};
use crate::server::{Server, eventually};

/// The lines as they are in the manual.
const READER: &str = include_str!("reader.sh");

struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn reader(url: &str, key: &str, folder: &Path) -> Shell {
    let mut command = Command::new("sh");
    command.args(["-c", READER]).current_dir(folder);
    command.envs([("URL", url), ("ISPB", ISPB), ("KEY", key), ("no_proxy", "*")]);
    // No settings of a person.
    command.env("CURL_HOME", folder).env("HOME", folder);
    let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    Shell(process.unwrap_or_else(|error| panic!("sh: {error}")))
}

/// Files by the ids that they are named after.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let messages = entries.filter(|path| path.extension().is_some_and(|kind| kind == "xml"));
    let file = |path: std::path::PathBuf| {
        let id = path.file_stem().unwrap().to_str().unwrap().replace('_', "/");
        (id, std::fs::read(&path).unwrap())
    };
    messages.map(file).collect()
}

/// Messages by their ids, with bytes that shells and terminals would like to change among them.
fn push(streams: &Streams, numbers: std::ops::Range<usize>) -> BTreeMap<String, Vec<u8>> {
    let bytes = |number: usize| match number % 5 {
        0 => [&message(number)[..], b"\r\n\0\xFF\xFE\r"].concat(),
        _ => message(number),
    };
    numbers.map(|number| (streams.push(&[&bytes(number)]).remove(0), bytes(number))).collect()
}

#[test]
fn ten_lines_of_curl_read_a_stream() {
    let streams = Streams::of(Server::with(&["--storage=mem", "--stream-hold-ms=1000"]));
    let folder = tempfile::tempdir().unwrap();
    let mut sent = push(&streams, 0..20);
    let _reader = reader(&url(&streams), &streams.reader, folder.path());
    assert!(eventually(|| files(folder.path()).len() == 20), "{}", files(folder.path()).len());
    sent.extend(push(&streams, 20..30));
    assert!(eventually(|| files(folder.path()).len() == 30), "{}", files(folder.path()).len());
    assert!(files(folder.path()) == sent, "other ids or other bytes");
    let is_done = || {
        let status = streams.status();
        (&status["inFlight"], &status["requeued"]) == (&0.into(), &0.into())
    };
    assert!(eventually(is_done), "{}", streams.status());
    let delivered = streams.metric("wane_stream_batch_messages_sum", "");
    assert_eq!(delivered, Some(30.0), "each once");
}

/// It starts again when its token is too old, and asks again where nobody answers.
#[test]
fn ten_lines_of_curl_outlive_the_server_and_their_token() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--stream-hold-ms=300", "--stream-lease-ms=1000", "--stream-token-ms=2000"];
    let streams = Streams::of(Server::start(data.path(), &flags));
    let (address, folder) = (streams.server.http, tempfile::tempdir().unwrap());
    let mut sent = push(&streams, 0..5);
    let _reader = reader(&url(&streams), &streams.reader, folder.path());
    assert!(eventually(|| files(folder.path()).len() == 5));
    let Streams { server, producer, reader } = streams;
    server.kill();
    // Longer than a token is good.
    crate::wait(std::time::Duration::from_millis(3_500));
    let server = Server::start_at(address, data.path(), &flags);
    let streams = Streams { server, producer, reader };
    sent.extend(push(&streams, 5..10));
    assert!(eventually(|| files(folder.path()).len() == 10), "{}", files(folder.path()).len());
    assert!(files(folder.path()) == sent, "other ids or other bytes");
}

/// A reader of another institution gets nothing, and says nothing that could be taken for a message.
#[test]
fn ten_lines_of_curl_keep_no_refusal_for_a_message() {
    let streams = Streams::new();
    push(&streams, 0..3);
    let foreign = reader_of(&streams.server, "87654321");
    let folder = tempfile::tempdir().unwrap();
    let _reader = reader(&url(&streams), &foreign, folder.path());
    let refused = || std::fs::read_to_string(folder.path().join("message")).unwrap_or_default();
    assert!(eventually(|| refused().contains("forbidden")), "{}", refused());
    assert_eq!(files(folder.path()).len(), 0);
}

/// The manual shows the lines that were tried.
#[test]
fn the_manual_shows_the_same_lines() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pull-stream.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    assert!(manual.contains(&format!("```sh\n{READER}```\n")), "docs/pull-stream.md shows others");
    assert_eq!(READER.lines().count(), 10);
}
