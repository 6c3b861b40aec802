//! The same limits over HTTP/2.

use axum::http::Request;
use http_body_util::Full;

use super::{TTL, assert_unharmed, peak_memory};
use crate::http::http2::{Http2, request};
use crate::server::Server;

#[test]
fn what_is_too_large_is_refused_over_http2() {
    let server = Server::in_memory();
    let key = &server.key;
    let mut connection = Http2::with(server.http);
    let mut status = |method: &str, path: &str, body: &str| {
        connection.ask(request(method, path, key, body)).map(|(status, _)| status)
    };
    assert_eq!(status("GET", TTL, ""), Some(200));
    assert_eq!(status("PUT", &format!("{TTL}/k"), &" ".repeat((1 << 20) + 1)), Some(413));
    assert_eq!(status("GET", &format!("{TTL}/{}", "k".repeat(8 << 10)), ""), Some(414));
    assert_eq!(status("OPTIONS", TTL, ""), Some(405));
    assert_eq!(status("PUT", &format!("{TTL}/%c0%af"), "{}"), Some(400));
    let mut connection = Http2::with(server.http);
    let mut many = request("GET", TTL, key, "");
    for number in 0..2_000 {
        let name = axum::http::HeaderName::try_from(format!("x-{number}")).unwrap();
        many.headers_mut().insert(name, "some value".parse().unwrap());
    }
    // Refused by an answer, or by a reset of its stream.
    assert!([Some(431), None].contains(&connection.ask(many).map(|(status, _)| status)));
    assert_unharmed(&server);
}

#[test]
fn a_tunnel_is_not_opened_over_http2() {
    let server = Server::in_memory();
    let mut connection = Http2::with(server.http);
    let tunnel = Request::builder().method("CONNECT").uri("elsewhere.example:443");
    let answer = connection.ask(tunnel.body(Full::default()).unwrap());
    assert!(answer.is_none_or(|(status, _)| status >= 400));
    assert_unharmed(&server);
}

/// Whoever takes requests back as fast as it makes them is sent away, or costs nothing.
#[test]
fn requests_taken_back_at_once_cost_nothing() {
    let server = Server::in_memory();
    peak_memory(&server);
    let before = peak_memory(&server);
    for _ in 0..10 {
        let mut connection = Http2::with(server.http);
        for _ in 0..1_000 {
            let one = request("GET", &format!("{TTL}:watch"), &server.key, "");
            if !connection.ask_and_leave(one) {
                break;
            }
        }
    }
    let grown = peak_memory(&server).saturating_sub(before);
    assert!(grown < 64 << 20, "10,000 requests taken back cost {grown} bytes");
    let mut connection = Http2::with(server.http);
    let watch = || request("GET", &format!("{TTL}/k"), &server.key, "");
    assert_eq!(connection.ask(watch()).map(|(status, _)| status), Some(404));
    assert_unharmed(&server);
}
