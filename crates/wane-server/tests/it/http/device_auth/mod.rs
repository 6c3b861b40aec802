//! Device login over HTTP: the endpoints of devices in their exact form, the application's side, and
//! the operator's.

mod clients;
mod decisions;
mod discovery;
mod endpoints;
mod github;
mod tokens;

use serde_json::Value as Json;

use super::conversation::{Conversation, Request};
use crate::server::{Answer, Server};

pub(crate) const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const DEVICES: &str = "/api/v2/apps/demo/app/devices";

/// The codes that a device was given.
#[derive(Debug, Clone)]
pub(crate) struct Codes {
    pub(crate) user_code: String,
    pub(crate) device_code: String,
}

/// Sends a form to an endpoint of `demo/app`.
pub(crate) fn send(server: &Server, endpoint: &str, form: &str) -> Answer {
    send_with(server, &format!("/oauth/demo/app/{endpoint}"), form, &[])
}

/// Sends a form to a path, with these headers.
pub(crate) fn send_with(server: &Server, path: &str, form: &str, headers: &[&str]) -> Answer {
    let request = Request::new("POST", path).form(form);
    let request = headers.iter().fold(request, |request, line| request.header(line));
    Conversation::with(server.http).ask(&request)
}

/// Codes for the client `demo`.
pub(crate) fn start(server: &Server) -> Codes {
    start_as(server, "client_id=demo")
}

/// Codes for whoever sends this form.
pub(crate) fn start_as(server: &Server, form: &str) -> Codes {
    let answer = send(server, "device_authorization", form);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let code = |name: &str| answer.json()[name].as_str().unwrap().to_owned();
    Codes { user_code: code("user_code"), device_code: code("device_code") }
}

/// A poll of the client `demo`.
pub(crate) fn poll(server: &Server, codes: &Codes) -> Answer {
    poll_as(server, "client_id=demo", codes)
}

/// A poll of whoever says this of itself.
pub(crate) fn poll_as(server: &Server, client: &str, codes: &Codes) -> Answer {
    let form = format!("grant_type={DEVICE_GRANT}&device_code={}&{client}", codes.device_code);
    send(server, "token", &form)
}

/// Approves as the application `demo/app`.
pub(crate) fn approve(server: &Server, codes: &Codes, subject: &str) -> Answer {
    let body = format!(r#"{{"userCode":"{}","subject":"{subject}"}}"#, codes.user_code);
    server.ask("POST", &format!("{DEVICES}/approve"), &body)
}

/// Denies as the application `demo/app`.
pub(crate) fn deny(server: &Server, codes: &Codes) -> Answer {
    let body = format!(r#"{{"userCode":"{}"}}"#, codes.user_code);
    server.ask("POST", &format!("{DEVICES}/deny"), &body)
}

/// A linked device: what its client was answered.
pub(crate) fn link(server: &Server, subject: &str) -> Json {
    let codes = start(server);
    let approved = approve(server, &codes, subject);
    assert_eq!(approved.status, 200, "{}", approved.body);
    let linked = poll(server, &codes);
    assert_eq!(linked.status, 200, "{}", linked.body);
    linked.json()
}

/// What the application hears of a token.
pub(crate) fn introspect(server: &Server, token: &str) -> Json {
    let bearer = format!("authorization: Bearer {}", server.key);
    let form = format!("token={token}");
    let answer = send_with(server, "/oauth/demo/app/introspect", &form, &[&bearer]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Registers a client of `demo/app` by this body, without owner and app.
pub(crate) fn register(server: &Server, fields: &str) -> Json {
    let body = format!(r#"{{"owner":"demo","app":"app",{fields}}}"#);
    let answer = server.administer("POST", "/api/v1/admin/oauth-clients", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

/// Says that an answer is this refusal, in the exact form of RFC 6749.
#[track_caller]
pub(crate) fn assert_refused(answer: &Answer, status: u16, error: &str) {
    assert_eq!(
        (answer.status, answer.json()["error"].as_str()),
        (status, Some(error)),
        "{}",
        answer.body
    );
    let json = answer.json();
    let fields: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["error", "error_description"], "{}", answer.body);
    let description = json["error_description"].as_str().unwrap();
    let is_legal = |c: char| matches!(c, ' '..='!' | '#'..='[' | ']'..='~');
    assert!(!description.is_empty() && description.chars().all(is_legal), "{description}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_unkept(answer);
}

/// Says that no cache keeps an answer.
#[track_caller]
pub(crate) fn assert_unkept(answer: &Answer) {
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("pragma"), Some("no-cache"));
}
