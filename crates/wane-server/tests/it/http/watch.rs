//! Watches as clients meet them: events as they happen, expiries on time, and a way to go on.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value as Json;

use super::{TTL, insert};
use crate::server::{PATIENCE, Server};

/// An event as it was received.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    id: String,
    pub(crate) data: Json,
}

/// A watch over a connection of its own.
pub(crate) struct Watch(BufReader<TcpStream>);

impl Watch {
    fn open(server: &Server, query: &str, last: Option<&str>) -> Self {
        Self::at(server, &format!("{TTL}:watch{query}"), last)
    }

    /// The watch at this path.
    pub(crate) fn at(server: &Server, path: &str, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(server.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let key = &server.key;
        let head = format!("GET {path} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {key}\r\n");
        stream.write_all(format!("{head}{last}\r\n").as_bytes()).unwrap();
        let mut watch = Self(BufReader::new(stream));
        assert!(watch.line().contains("200"), "a watch opens");
        while !watch.line().is_empty() {}
        watch
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next event; lines of the transfer encoding and comments are passed over.
    pub(crate) fn next(&mut self) -> Event {
        let mut event = Event { name: String::new(), id: String::new(), data: Json::Null };
        loop {
            let line = self.line();
            match line.split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                Some(_) | None if line.is_empty() && !event.name.is_empty() => return event,
                Some(_) | None => {}
            }
        }
    }
}

#[test]
fn a_watch_tells_changes_and_resumes_after_the_last_one() {
    for server in [Server::in_memory(), Server::on_file()] {
        let mut watch = Watch::open(&server, "?prefix=a:", None);
        insert(&server, "b:1", "unwatched");
        insert(&server, "a:1", "one");
        let path = format!("{TTL}/a:1");
        let swap = r#"{"expectedValue":"one","newValue":"two","ttlSeconds":60}"#;
        assert_eq!(server.ask("PUT", &path, swap).status, 200);
        assert_eq!(server.ask("DELETE", &path, "").status, 204);
        let mut ids = Vec::new();
        for (name, value) in [("inserted", "one"), ("swapped", "two"), ("deleted", "two")] {
            let event = watch.next();
            assert_eq!((&*event.name, &event.data["key"]), (name, &"a:1".into()));
            assert_eq!(event.data["value"], value);
            assert!(event.data["expiresAt"].is_u64());
            ids.push(event.id);
        }
        let mut resumed = Watch::open(&server, "?prefix=a:", Some(&ids[0]));
        assert_eq!(resumed.next().id, ids[1]);
        let mut lost = Watch::open(&server, "?prefix=a:", Some("1"));
        assert_eq!(lost.next().name, "gap");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "expiries happen in real time")]
fn an_expiry_is_told_within_a_tenth_of_a_second() {
    let _machine = crate::measuring();
    for server in [Server::in_memory(), Server::on_file()] {
        let mut watch = Watch::open(&server, "", None);
        for number in 0..5 {
            let body = r#"{"value":"brief","ttlMillis":300}"#;
            let answer = server.ask("POST", &format!("{TTL}/{number}"), body);
            let expires_at = answer.json()["expiresAt"].as_u64().unwrap();
            assert_eq!(watch.next().name, "inserted");
            let event = watch.next();
            let now = std::time::SystemTime::now();
            let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
            assert_eq!((&*event.name, &event.data["value"]), ("expired", &"brief".into()));
            let late = now.saturating_sub(expires_at);
            assert!(late <= 100, "{late} ms late");
        }
    }
}
