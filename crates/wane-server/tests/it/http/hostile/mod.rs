//! Hostile input: whatever a client sends, it is data or it is refused, and nobody else notices.
//!
//! Each test ends by looking whether the server is unharmed: it answers, and nothing in its log
//! speaks of a panic.

mod floods;
mod framing;
mod http2;
mod json;
mod sizes;
mod slow;
mod targets;

use super::TTL;
use super::conversation::{Conversation, Request};
use crate::server::Server;

/// The server still answers, and nothing in it panicked.
#[track_caller]
fn assert_unharmed(server: &Server) {
    let mut connection = Conversation::with(server.http);
    assert_eq!(connection.ask(&Request::new("GET", "/readyz")).status, 200);
    let read = Request::new("GET", &format!("{TTL}/unharmed")).key(&server.key);
    assert_eq!(connection.ask(&read).status, 404);
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// The keys of `demo/app`.
fn keys(server: &Server) -> Vec<String> {
    let answer = server.ask("GET", &format!("{TTL}?limit=1000"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let items = answer.json()["items"].as_array().unwrap().clone();
    items.iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect()
}

/// The most memory that the process has held since it was last asked, in bytes.
fn peak_memory(server: &Server) -> u64 {
    let process = format!("/proc/{}", server.pid());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    // Begins the next peak at what is held now.
    std::fs::write(format!("{process}/clear_refs"), "5").unwrap();
    kilobytes * 1024
}
