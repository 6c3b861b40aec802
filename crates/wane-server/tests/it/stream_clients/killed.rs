//! Kills under load: readers and servers end between any two instructions, again and again, while
//! producers push; and in the end every message is accounted for.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::ledger::{Line, Sent};
use super::load::Load;
use super::{Habits, MANY, Reader, lines, python};
use crate::http::pull_stream::{ISPB, Streams, credential, reader_of};
use crate::server::{Server, eventually};
use crate::{count, loading, shared, stopwatch, wait};

/// How long everything may take to be delivered once nothing is killed any more.
const DRAINED: Duration = Duration::from_secs(120);

const PRODUCERS: usize = 2;

/// Readers that stand beside each other: one message at a time, several, and several compressed.
const READERS: [Habits; 3] =
    [BUSY, Habits { encoding: "gzip", ..BUSY }, Habits { accept: "application/xml", ..BUSY }];

/// Mostly at work on what it got, so that a kill finds it with messages in its hands.
const BUSY: Habits = Habits { work: 40, ..MANY };

/// A server that is killed and comes back at its address.
struct Node {
    server: Option<Server>,
    address: SocketAddr,
    data: PathBuf,
}

impl Node {
    fn start(data: &Path, flags: &[&str]) -> Self {
        let server = Server::start(data, flags);
        Self { address: server.http, server: Some(server), data: data.to_path_buf() }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it is up")
    }

    fn kill(&mut self) {
        self.server.take().expect("it is up").kill();
    }

    fn start_again(&mut self, flags: &[&str]) {
        self.server = Some(Server::start_at(self.address, &self.data, flags));
    }
}

/// Servers on one store, and readers of it.
struct Stage {
    nodes: Vec<Node>,
    flags: Vec<String>,
    lease: u64,
    python: PathBuf,
    reader_key: String,
    readers: Vec<Reader>,
    /// Of all readers that ever were.
    logs: Vec<PathBuf>,
    folder: TempDir,
}

impl Stage {
    fn new(python: PathBuf, nodes: usize, flags: &[String], lease: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lease_flag = format!("--stream-lease-ms={lease}");
        let times = [lease_flag, "--stream-hold-ms=500".into(), "--stream-token-ms=120000".into()];
        let flags = [flags, &times].concat();
        let text: Vec<&str> = flags.iter().map(String::as_str).collect();
        let node =
            |number: usize| Node::start(&folder.path().join(format!("node-{number}")), &text);
        let nodes: Vec<_> = (0..nodes).map(node).collect();
        let reader_key = reader_of(nodes[0].server(), ISPB);
        let mut stage = Self {
            nodes,
            lease,
            python,
            reader_key,
            readers: Vec::new(),
            logs: Vec::new(),
            folder,
            flags,
        };
        for place in 0..READERS.len() {
            let reader = stage.reader(place);
            stage.readers.push(reader);
        }
        stage
    }

    fn load(&self) -> Load {
        let key = credential(self.nodes[0].server(), r#"{"scopes":["produce"]}"#);
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.address).collect();
        Load::start(&addresses, &key, PRODUCERS)
    }

    /// A reader in this place, with a log of its own.
    fn reader(&mut self, place: usize) -> Reader {
        let log = self.folder.path().join(format!("reader-{place}-{}.log", self.logs.len()));
        let mut urls: Vec<_> =
            self.nodes.iter().map(|node| format!("http://{}", node.address)).collect();
        let nodes = urls.len();
        urls.rotate_left(place % nodes);
        self.logs.push(log.clone());
        Reader::start(&self.python, &urls, &self.reader_key, &log, READERS[place])
    }

    fn kill_reader(&mut self, place: usize) {
        self.readers[place].assert_at_work();
        self.readers[place].kill();
        self.readers[place] = self.reader(place);
    }

    fn kill_server(&mut self, place: usize) {
        self.nodes[place].kill();
        wait(Duration::from_millis(100));
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.nodes[place].start_again(&flags);
    }

    fn lines(&self) -> Vec<Line> {
        self.logs.iter().flat_map(|log| lines(log)).collect()
    }

    /// How much readers have written down.
    fn written(&self) -> u64 {
        let size = |log: &PathBuf| std::fs::metadata(log).map_or(0, |log| log.len());
        self.logs.iter().map(size).sum()
    }

    fn status(&self) -> Json {
        let path = format!("/api/v1/admin/streams/{ISPB}");
        self.nodes[0].server().administer("GET", &path, "").json()
    }

    /// Waits until nothing is left in the stream.
    fn drain(&mut self, sent: &Sent) {
        let took = stopwatch();
        loop {
            let status = self.status();
            let left = ["inFlight", "requeued", "lagMillis"].map(|name| status[name].as_u64());
            let lines = self.lines();
            let missing = sent.missing(&lines).len();
            if left == [Some(0); 3] && missing == 0 {
                return;
            }
            self.readers.iter_mut().for_each(Reader::assert_at_work);
            assert!(took() < DRAINED, "{missing} of {} are missing: {status}", sent.told.len());
            wait(Duration::from_millis(300));
        }
    }

    /// Fails unless everything is accounted for, and says what there was.
    fn account(&self, sent: &Sent) {
        let lines = self.lines();
        let faults = sent.faults(&lines, self.lease);
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
        let readers = self.logs.len();
        let (told, untold) = (sent.told.len(), sent.untold.len());
        let (retried, again) = (retries(&lines), deliveries(&lines) - received(&lines));
        println!(
            "{told} messages acknowledged and all delivered, {untold} without an answer; \
             {readers} readers, {retried} answers given again, {again} messages to another reader"
        );
        assert!(retried > 0 && again > 0, "no kill hit anything");
        let longer = sent.faults(&lines, 100 * self.lease);
        assert!(!longer.is_empty(), "the control: leases that were longer would have been broken");
        for node in &self.nodes {
            assert!(!node.server().log().contains("panicked"), "{}", node.server().log());
        }
    }
}

/// Messages that came at all.
fn received(lines: &[Line]) -> usize {
    let ids = lines.iter().flat_map(|line| line.messages.iter().map(|(id, _)| id));
    ids.collect::<BTreeSet<_>>().len()
}

/// Messages as often as they came to another reader.
fn deliveries(lines: &[Line]) -> usize {
    let held =
        lines.iter().flat_map(|line| line.messages.iter().map(|(id, _)| (&line.session, id)));
    held.collect::<BTreeSet<_>>().len()
}

/// Answers with messages that came more than once.
fn retries(lines: &[Line]) -> usize {
    let full = || lines.iter().filter(|line| !line.messages.is_empty());
    let tokens: BTreeSet<_> = full().map(|line| (&line.session, &line.token)).collect();
    full().count() - tokens.len()
}

/// Goes on once some messages more have come through.
fn until_some_came(stage: &Stage) {
    let (before, took) = (stage.written(), stopwatch());
    while stage.written() < before + 10_000 {
        assert!(took() < DRAINED, "nothing comes through: {}", stage.status());
        wait(Duration::from_millis(20));
    }
}

fn kills(stage: &mut Stage, kills: u64) {
    let load = stage.load();
    for round in 0..kills {
        until_some_came(stage);
        wait(Duration::from_millis(round * 211 % 400));
        let nodes = stage.nodes.len() as u64;
        stage.kill_reader((round % READERS.len() as u64) as usize);
        stage.kill_server((round % nodes) as usize);
    }
    until_some_came(stage);
    let sent = load.end();
    assert!(sent.told.len() as u64 > kills * 10, "hardly anything was sent: {}", sent.told.len());
    stage.drain(&sent);
    stage.account(&sent);
}

#[test]
fn kills_of_readers_and_the_server_lose_nothing_on_file() {
    let Some(python) = python() else { return };
    let _machine = loading();
    let mut stage = Stage::new(python, 1, &[], 2_500);
    kills(&mut stage, count("WANE_TEST_STREAM_KILLS", 10));
}

#[test]
fn kills_of_readers_and_servers_lose_nothing_on_cas3() {
    let Some(flags) = shared::flags("cas3") else { return };
    let Some(python) = python() else { return };
    let _machine = loading();
    let mut stage = Stage::new(python, 2, &flags, 6_000);
    kills(&mut stage, count("WANE_TEST_CAS3_STREAM_KILLS", 5));
}

/// The control: a reader that acknowledges before it keeps loses what it had when it is killed, and
/// the same ledger says so.
#[test]
fn a_reader_that_acknowledges_before_it_keeps_is_caught() {
    let Some(python) = python() else { return };
    let streams = Streams::new();
    let messages: Vec<Vec<u8>> = (0..10).map(crate::http::pull_stream::message).collect();
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let sums = messages.iter().map(|message| super::ledger::digest(message));
    let told = streams.push(&messages).into_iter().zip(sums).collect();
    let sent = Sent { told, ..Sent::default() };
    let folder = tempfile::tempdir().unwrap();
    let log = |name: &str| folder.path().join(name);
    let start = |name: &str, habits| {
        Reader::start(&python, &[super::url(&streams)], &streams.reader, &log(name), habits)
    };
    let mut careless = start("careless.log", Habits { careless: true, ..MANY });
    let mut said = [0; 12];
    let output = careless.process.stdout.as_mut().unwrap();
    std::io::Read::read_exact(output, &mut said).unwrap();
    assert_eq!(&said, b"acknowledged");
    careless.kill();
    let _careful = start("careful.log", MANY);
    assert!(eventually(|| !lines(&log("careful.log")).is_empty()), "it reads");
    let read = [lines(&log("careless.log")), lines(&log("careful.log"))].concat();
    let faults = sent.faults(&read, 30_000);
    assert_eq!(faults.len(), 10, "{faults:?}");
    assert!(faults.iter().all(|fault| fault.starts_with("lost: ")), "{faults:?}");
}
