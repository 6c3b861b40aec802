//! Pull streams over HTTP, against real servers: what producers, readers and operators are answered,
//! whatever they ask.
//!
//! Requests are written by hand, bytes and all, from the description of the interface. Real clients
//! and kills have a module of their own.

mod accepting;
mod access;
mod archives;
pub(crate) mod audited;
mod bad_bodies;
mod bad_tokens;
mod certificates;
mod forms;
mod holding;
mod holds;
mod invariants;
#[cfg(feature = "aws")]
mod kms;
mod operating;
mod profiles;
mod regions;
mod replaying;
mod shared;
mod tier;
mod tokens;
pub(crate) mod wire;

use std::path::Path;

use serde_json::Value as Json;

use self::wire::{Call, Pulled, Reply, mixed};
use crate::server::Server;

/// The institution of the tests.
pub(crate) const ISPB: &str = "12345678";

/// Another one.
const OTHER: &str = "87654321";

/// Calls that find nothing come back soon.
const SHORT_HOLD: [&str; 2] = ["--stream-hold-ms", "300"];

/// Ten messages at a time.
const MANY: &str = "accept: multipart/mixed";

/// A server, a producer and a reader.
pub(crate) struct Streams {
    pub(crate) server: Server,
    pub(crate) producer: String,
    pub(crate) reader: String,
}

impl Streams {
    /// In memory, with a short hold.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// The same with more flags.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let has_hold = flags.contains(&SHORT_HOLD[0]);
        let hold = if has_hold { &[][..] } else { &SHORT_HOLD };
        Self::of(Server::with(&[&["--storage", "mem"], hold, flags].concat()))
    }

    pub(crate) fn of(server: Server) -> Self {
        let producer = credential(&server, r#"{"scopes":["produce"]}"#);
        let reader = reader_of(&server, ISPB);
        Self { server, producer, reader }
    }

    /// Kills the server, and starts one in its place.
    fn restarted(self, data: &Path, flags: &[&str]) -> Self {
        let Self { server, producer, reader } = self;
        server.kill();
        Self { server: Server::start(data, flags), producer, reader }
    }

    /// Sends messages, and returns their ids.
    #[track_caller]
    pub(crate) fn push(&self, messages: &[&[u8]]) -> Vec<String> {
        let reply = self.produce(messages, &[]);
        assert_eq!(reply.status, 201, "{}", reply.text());
        assert!(reply.body.is_empty());
        ids_in(&reply)
    }

    /// Sends the messages of these numbers.
    #[track_caller]
    pub(crate) fn push_numbers(&self, numbers: std::ops::Range<usize>) -> Vec<String> {
        let messages: Vec<_> = numbers.map(message).collect();
        let batches = messages.chunks(10).map(|batch| {
            let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            self.push(&batch)
        });
        batches.flatten().collect()
    }

    fn produce(&self, messages: &[&[u8]], headers: &[&str]) -> Reply {
        pushing(&self.producer, messages).headers(headers).send(self.server.http)
    }

    /// A call of the producer with a body of its own making.
    fn send(&self, headers: &[&str], body: &[u8]) -> Reply {
        let call = Call::new("POST", &inbox(ISPB)).key(&self.producer).headers(headers);
        call.body(body).send(self.server.http)
    }

    /// A call of the reader.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Reply {
        Call::new(method, path).key(&self.reader).headers(headers).send(self.server.http)
    }

    #[track_caller]
    fn pull(&self, path: &str, headers: &[&str]) -> Pulled {
        Pulled::of(self.ask("GET", path, headers))
    }

    /// Takes a slot, and up to ten messages.
    #[track_caller]
    fn start(&self) -> Pulled {
        self.pull(&start(ISPB), &[MANY])
    }

    /// Acknowledges what came with it, and takes up to ten messages.
    #[track_caller]
    fn after(&self, pulled: &Pulled) -> Pulled {
        self.pull(&pulled.next, &[MANY])
    }

    #[track_caller]
    fn end(&self, pulled: &Pulled) {
        let ended = self.ask("DELETE", &pulled.next, &[]);
        assert_eq!((ended.status, ended.body.len()), (200, 0), "{}", ended.text());
    }

    /// How far the stream is, as operators are told.
    #[track_caller]
    pub(crate) fn status(&self) -> Json {
        let path = format!("/api/v1/admin/streams/{ISPB}");
        let answer = self.server.administer("GET", &path, "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// The same without what time changes.
    pub(crate) fn standing(&self) -> Json {
        let mut status = self.status();
        status.as_object_mut().unwrap().remove("lagMillis").expect("how long messages wait");
        status
    }

    /// The sum of a metric over all labels that have this in them.
    pub(crate) fn metric(&self, name: &str, label: &str) -> Option<f64> {
        let metrics = self.server.administer("GET", "/metrics", "").body;
        let values = metrics.lines().filter_map(|line| {
            let (named, value) = line.rsplit_once(' ')?;
            let (found, labels) = named.split_once('{').unwrap_or((named, ""));
            (found == name && labels.contains(label)).then(|| value.parse::<f64>().unwrap())
        });
        let values: Vec<_> = values.collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

/// A credential of the system.
#[track_caller]
pub(crate) fn credential(server: &Server, body: &str) -> String {
    let made = server.administer("POST", "/api/v1/admin/credentials", body);
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["key"].as_str().unwrap().to_owned()
}

pub(crate) fn reader_of(server: &Server, ispb: &str) -> String {
    credential(server, &format!(r#"{{"scopes":["pull"],"ispb":"{ispb}"}}"#))
}

pub(crate) fn start(ispb: &str) -> String {
    format!("/api/v1/out/{ispb}/stream/start")
}

fn inbox(ispb: &str) -> String {
    format!("/api/v1/in/{ispb}/msgs")
}

/// A producer's call: one message as it is, several as parts.
pub(crate) fn pushing(producer: &str, messages: &[&[u8]]) -> Call {
    let call = Call::new("POST", &inbox(ISPB)).key(producer);
    match messages {
        [message] => call.header("content-type: application/xml").body(message),
        _ => {
            let kind = "content-type: multipart/mixed; boundary=of-the-test";
            call.header(kind).body(&mixed("of-the-test", messages))
        }
    }
}

/// The ids that a producer is told.
pub(crate) fn ids_in(reply: &Reply) -> Vec<String> {
    let ids = reply.header("pi-resourceid").expect("the ids of the messages");
    ids.split(',').map(|id| id.trim().to_owned()).collect()
}

/// Message number so and so: an envelope as long as those of real payments, with the line breaks
/// that signatures have.
pub(crate) fn message(number: usize) -> Vec<u8> {
    let line = "MIIGkzCCBHugAwIBAgIUWVl5q0pWm2x3T1d0b3NlIGxpbmVzIGFyZSBwYXJ0IG9m\r\n";
    let signature = line.repeat(10 + number % 40);
    format!(
        "<?xml version=\"1.0\"?>\n<Envelope><AppHdr><Sgntr>{signature}</Sgntr></AppHdr>\
         <Document>{number}</Document></Envelope>"
    )
    .into_bytes()
}
