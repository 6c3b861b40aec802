//! HTTP as clients meet it: each call of the interface, each problem, each credential.

mod access;
mod app_ttl;
mod blobs;
pub(crate) mod conversation;
pub(crate) mod device_auth;
mod device_page;
mod elections;
mod hostile;
mod http2;
mod problems;
pub(crate) mod pull_stream;
mod secrets;
mod sequences;
pub(crate) mod watch;

use crate::server::Server;

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// Writes an entry that must not be there yet.
fn insert(server: &Server, key: &str, value: &str) {
    let body = format!(r#"{{"value":"{value}","ttlSeconds":900}}"#);
    let answer = server.ask("POST", &format!("{TTL}/{key}"), &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
}
