//! Devices that are logged in by the clients that people have, against the real server: the `oauth2`
//! crate, requests-oauth2client, authlib, oauthlib, Octokit and curl; every trap that real clients and
//! servers fell into, by its name; and whatever else may be sent.
//!
//! A client that is not installed is skipped and said so; where CI is set that is a failure.

mod bad_input;
mod canary;
mod curl;
mod guesses;
mod oauth2_crate;
mod octokit;
mod over_time;
mod python;
mod traps;
mod visitor;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value as Json, json};

use crate::server::{Answer, Server, raw};

/// The grant of RFC 8628.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The application of the tests.
const APP: &str = "/oauth/demo/app";

/// A server with device login, and what tests do with it.
struct Login {
    server: Server,
}

/// What a device was given.
#[derive(Debug, Clone)]
struct Codes {
    client: String,
    secret: Option<String>,
    device_code: String,
    user_code: String,
}

/// A client that was registered.
#[derive(Debug, Clone)]
struct Client {
    id: String,
    secret: Option<String>,
}

impl Login {
    /// It believes this machine where that says for whom it asks: how often one address may start is
    /// limited.
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(flags: &[&str]) -> Self {
        Self::alone(&[&["--trusted-proxies", "127.0.0.1"], flags].concat())
    }

    /// It believes nobody: everything comes from one address.
    fn alone(flags: &[&str]) -> Self {
        Self { server: Server::with(&[&["--storage", "mem"], flags].concat()) }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.http)
    }

    /// A form, from an address that nobody else has.
    fn post(&self, path: &str, body: &str) -> Answer {
        self.post_with(path, &[("content-type", "application/x-www-form-urlencoded")], body)
    }

    fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut bytes = format!("POST {path} HTTP/1.1\r\nhost: {}\r\n", self.server.http);
        bytes.push_str(&format!("x-forwarded-for: {}\r\nconnection: close\r\n", own_address()));
        for (name, value) in headers {
            bytes.push_str(&format!("{name}: {value}\r\n"));
        }
        bytes.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        raw(self.server.http, bytes.as_bytes())
    }

    /// The answer to a client that asks for codes.
    fn ask_for_codes(&self, client: &Client, scope: Option<&str>) -> Answer {
        let mut form = vec![("client_id", &*client.id)];
        form.extend(client.secret.as_deref().map(|secret| ("client_secret", secret)));
        form.extend(scope.map(|scope| ("scope", scope)));
        self.post(&format!("{APP}/device_authorization"), &encoded(&form))
    }

    #[track_caller]
    fn start(&self, client: &Client, scope: Option<&str>) -> Codes {
        let answer = self.ask_for_codes(client, scope);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let text = |name: &str| answer.json()[name].as_str().unwrap().to_owned();
        Codes {
            client: client.id.clone(),
            secret: client.secret.clone(),
            device_code: text("device_code"),
            user_code: text("user_code"),
        }
    }

    /// Codes of the client that every server has.
    fn demo(&self) -> Codes {
        self.start(&Client { id: "demo".into(), secret: None }, None)
    }

    fn poll(&self, codes: &Codes) -> Answer {
        let mut form = vec![
            ("grant_type", GRANT),
            ("device_code", &*codes.device_code),
            ("client_id", &*codes.client),
        ];
        form.extend(codes.secret.as_deref().map(|secret| ("client_secret", secret)));
        self.post(&format!("{APP}/token"), &encoded(&form))
    }

    /// What a poll is refused with.
    #[track_caller]
    fn refused(&self, codes: &Codes) -> String {
        let answer = self.poll(codes);
        assert_eq!(answer.status, 400, "{}", answer.body);
        error_of(&answer)
    }

    /// The token of a code that was approved.
    #[track_caller]
    fn redeemed(&self, codes: &Codes) -> Json {
        let answer = self.poll(codes);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn decide(&self, what: &str, body: &Json) -> Answer {
        let path = format!("/api/v2/apps/demo/app/devices/{what}");
        self.server.ask("POST", &path, &body.to_string())
    }

    fn approval(&self, user_code: &str) -> Answer {
        self.decide("approve", &json!({ "userCode": user_code, "subject": "alice" }))
    }

    #[track_caller]
    fn approve(&self, user_code: &str) -> String {
        let answer = self.approval(user_code);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["deviceId"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn deny(&self, user_code: &str) {
        let answer = self.decide("deny", &json!({ "userCode": user_code }));
        assert_eq!(answer.status, 204, "{}", answer.body);
    }

    /// What the application is told of a token.
    #[track_caller]
    fn introspect(&self, token: &str) -> Json {
        let authorization = format!("Bearer {}", self.server.key);
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("authorization", &*authorization),
        ];
        let path = format!("{APP}/introspect");
        let answer = self.post_with(&path, &headers, &encoded(&[("token", token)]));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Registers a client of `demo/app`, with whatever else is asked for.
    #[track_caller]
    fn register(&self, more: Json) -> Client {
        let body = json!({ "owner": "demo", "app": "app", "name": "Television" });
        let body = joined(body, more);
        let answer =
            self.server.administer("POST", "/api/v1/admin/oauth-clients", &body.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
        let told = answer.json();
        Client {
            id: told["clientId"].as_str().unwrap().to_owned(),
            secret: told["clientSecret"].as_str().map(str::to_owned),
        }
    }

    fn confidential(&self) -> Client {
        self.register(json!({ "confidential": true, "scopes": ["read", "write"] }))
    }

    /// What a program of a library is told about this server and a client.
    fn told_to(&self, client: &Client, more: Json) -> Json {
        let told = json!({
            "url": self.url(""),
            "issuer": self.url(APP),
            "discovery": self.url(&format!("/.well-known/oauth-authorization-server{APP}")),
            "clientId": client.id,
            "secret": client.secret,
            "method": if client.secret.is_some() { "post" } else { "none" },
        });
        joined(told, more)
    }
}

/// Two objects as one; what the second says counts.
fn joined(mut one: Json, more: Json) -> Json {
    let Json::Object(more) = more else { panic!("an object is wanted: {more}") };
    one.as_object_mut().unwrap().extend(more);
    one
}

/// An address of the net 10 that no other request of this run comes from.
fn own_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, b, c, d] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    format!("10.{b}.{c}.{d}")
}

/// A form, with everything escaped that could be.
fn encoded(pairs: &[(&str, &str)]) -> String {
    let escaped = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[track_caller]
fn error_of(answer: &Answer) -> String {
    let body = answer.json();
    body["error"].as_str().unwrap_or_else(|| panic!("no error in {body}")).to_owned()
}

/// A code of the right shape that nobody was given; a run makes fewer than twenty to the fifth.
fn wrong_code(number: usize) -> String {
    let letters = wane::services::device_auth::ALPHABET;
    let letter = |place: u32| char::from(letters[number / 20_usize.pow(place) % 20]);
    format!("ZZZZZ-{}", (0..5).rev().map(letter).collect::<String>())
}

/// Where scripts/oauth-clients installs libraries.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/oauth-clients");

/// Whether something is there; if not it is said what installs it, and in CI that is a failure.
fn is_installed(path: &Path, script: &str) -> bool {
    let in_ci = std::env::var("CI").is_ok_and(|ci| !["", "false", "0"].contains(&&*ci));
    is_there(path, script, in_ci)
}

fn is_there(path: &Path, script: &str, in_ci: bool) -> bool {
    let missing = format!("{} is missing: {script} installs it", path.display());
    assert!(path.exists() || !in_ci, "{missing}");
    if !path.exists() {
        println!("skipped: {missing}");
    }
    path.exists()
}

/// A program of ours over a library, which answers in lines of JSON.
struct Program {
    process: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Program {
    fn start(command: &mut Command) -> Self {
        // No proxy, no settings of a person.
        command.env("NO_PROXY", "*").env_remove("HTTP_PROXY").env_remove("http_proxy");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { input: process.stdin.take().unwrap(), lines, process }
    }

    /// Its next line; none once it has ended.
    fn next(&mut self) -> Option<Json> {
        let line = self.lines.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Tells it to do something, and returns what came of it.
    #[track_caller]
    fn tell(&mut self, what: &str) -> Json {
        writeln!(self.input, "{what}").unwrap();
        self.next().unwrap_or_else(|| panic!("it ended instead of: {what}"))
    }
}

/// Control: where CI is set a missing client is a failure, as nobody reads what was skipped.
#[test]
fn a_client_that_is_missing_is_named_with_what_to_do() {
    let (none, some) = (Path::new("no-such-client"), Path::new(env!("CARGO_BIN_EXE_wane")));
    assert!(!is_there(none, "scripts/none", false));
    assert!(std::panic::catch_unwind(|| is_there(none, "scripts/none", true)).is_err());
    assert!(is_there(some, "cargo", true) && is_there(some, "cargo", false));
}
