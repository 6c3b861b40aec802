//! Secrets stay where they belong: values, keys and credentials are in no log, no error and no
//! counter, however they were sent and whatever is logged.

use serde_json::Value as Json;

use super::TTL;
use super::conversation::{Conversation, Request};
use super::http2::{Http2, request};
use crate::server::{Answer, PATIENCE, Server, eventually};

/// Everything that holds something private begins like this.
const CANARY: &str = "canary";

/// The id of the last request, which is not private.
const LAST: &str = "the-last-request";

/// Sends canaries and collects what is said of them.
struct Aviary<'a> {
    server: &'a Server,
    /// Texts that must be nowhere.
    secrets: Vec<String>,
    /// Bodies of refusals.
    said: Vec<String>,
}

impl Aviary<'_> {
    fn heard(&mut self, call: &str, answer: &Answer) {
        let body: Json = serde_json::from_str(&answer.body).unwrap_or_default();
        for result in body["results"].as_array().unwrap_or(&vec![]) {
            self.heard_one(call, result["status"].as_u64().unwrap() as u16, &result["body"]);
        }
        let said = if body.is_null() { answer.body.clone().into() } else { body };
        self.heard_one(call, answer.status, &said);
    }

    fn heard_one(&mut self, call: &str, status: u16, said: &Json) {
        if status < 400 {
            return;
        }
        let mut said = said.clone();
        if let Some(problem) = said.as_object_mut() {
            // Those who may read see what is there.
            problem.remove("current");
        }
        self.said.push(format!("{call:.60} -> {status} {said}"));
    }

    fn ask(&mut self, request: &Request) -> Answer {
        let answer = Conversation::with(self.server.http).ask(request);
        let call = format!("{} {:.40} {:.80}", request.method, request.target, request.body);
        self.heard(&call.replace(CANARY, "X"), &answer);
        answer
    }

    fn app(&mut self, method: &str, rest: &str, body: &str) -> Answer {
        let request = Request::new(method, &format!("{TTL}{rest}")).key(&self.server.key);
        self.ask(&request.body(body))
    }

    fn admin(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let answer = self.server.administer(method, &format!("/api/v1/admin{path}"), body);
        self.heard(&format!("{method} admin {body:.40}").replace(CANARY, "X"), &answer);
        if let Some(key) = answer.json_or_null()["key"].as_str() {
            self.secrets.push(key.split_once('.').unwrap().1.to_owned());
        }
        answer
    }

    /// The calls of storage, and everything that can be wrong with them.
    fn use_storage(&mut self) {
        let key = "/canary-key";
        for (method, rest, body) in [
            ("POST", key, r#"{"value":"canary-1","ttlSeconds":900}"#),
            ("POST", key, r#"{"value":"canary-2","ttlSeconds":900}"#),
            ("GET", key, ""),
            ("PUT", key, r#"{"expectedValue":"canary-3","newValue":"canary-4","ttlSeconds":9}"#),
            ("PUT", key, r#"{"expectedValue":"canary-1","newValue":"canary-4","ttlSeconds":9}"#),
            ("PATCH", key, r#"{"ttlMillis":9}"#),
            ("PATCH", "/canary-none", r#"{"ttlMillis":9}"#),
            ("DELETE", key, r#"{"expectedValue":"canary-5"}"#),
            ("DELETE", key, ""),
            ("GET", "?prefix=canary-prefix&after=canary-after", ""),
            ("GET", "?prefix=canary%FF", ""),
            ("GET", "?limit=canary", ""),
            ("GET", "?after=canary%2", ""),
            ("GET", "/canary%FF", ""),
            ("GET", "/canary%zz", ""),
            ("GET", "/canary/canary", ""),
            (
                "POST",
                ":batch",
                r#"{"operations":[{"op":"get","key":"canary"},
                {"op":"insert","key":"canary","value":"canary-6","ttlSeconds":9},
                {"op":"insert","key":"canary","value":["canary-7"],"ttlSeconds":9},
                {"op":"swap","key":"canary","expectedValue":"canary-8","newValue":"canary-9","ttlSeconds":9},
                {"op":"insert","key":"canary","value":"canary-10","ttlSeconds":"canary-11"}]}"#,
            ),
            ("POST", ":batch", r#"{"operations":[{"op":"canary","key":"canary"}]}"#),
            ("POST", ":batch", r#"{"operations":"canary"}"#),
            ("POST", ":batch", r#"{"operations":[{"op":"get","key":{"x":"canary"}}]}"#),
            ("POST", key, r#"{"value":"canary","ttlSeconds":"canary"}"#),
            ("POST", key, r#"{"value":"canary","value":"canary","ttlSeconds":9}"#),
            ("POST", key, r#"{"value":["canary"],"ttlSeconds":9}"#),
            ("POST", key, r#"{"value":"canary","ttlSeconds":{"canary":1}}"#),
            (
                "POST",
                key,
                r#"{"value":"canary, expected nothing","ttlSeconds":"canary, expected x"}"#,
            ),
            ("POST", key, r#"{"valueBase64":"canary","ttlSeconds":9}"#),
            ("POST", key, r#"{"value":"canary"#),
            ("POST", key, r#"{"value":"canary","ttlSeconds":0}"#),
            ("PUT", key, r#"{"value":"canary","keepExpiry":"canary"}"#),
            ("POST", key, r#""canary""#),
            ("POST", key, "canary"),
        ] {
            self.app(method, rest, body);
        }
        self.app("GET", &format!("/{}", "canary".repeat(300)), "");
        self.app("GET", &format!("/{}", "canary".repeat(3_000)), "");
        let long = "canary".repeat(12_000);
        self.app("POST", key, &format!(r#"{{"value":"{long}","ttlSeconds":9}}"#));
        self.app("POST", key, &format!(r#"{{"value":"{}","ttlSeconds":9}}"#, long.repeat(20)));
    }

    /// Credentials in every shape, good and bad.
    fn present_credentials(&mut self) {
        let key = self.server.key.clone();
        let (id, secret) = key.split_once('.').unwrap();
        self.secrets.push(secret.to_owned());
        self.secrets.push(self.server.admin_key.split_once('.').unwrap().1.to_owned());
        for line in [
            "authorization: Bearer canary.canary".to_owned(),
            format!("authorization: Bearer {id}.canary"),
            format!("authorization: Basic {key}"),
            format!("authorization: {key}"),
            format!("authorization: Bearer {key}canary"),
            "authorization: canary".to_owned(),
            "cookie: canary".to_owned(),
            format!("x-request-id: {secret}{secret}"),
            "last-event-id: canary".to_owned(),
            "accept: canary/canary".to_owned(),
            "content-type: canary".to_owned(),
        ] {
            self.ask(&Request::new("GET", &format!("{TTL}/canary")).header(&line));
        }
        for line in ["last-event-id: canary", "accept: canary/x"] {
            for rest in [":watch", "/canary"] {
                let request = Request::new("GET", &format!("{TTL}{rest}")).key(&key);
                self.ask(&request.header(line));
            }
        }
        for path in ["/canary", "/api/v2/apps/canary/canary/ttl/canary", "/device?code=canary"] {
            self.ask(&Request::new("GET", path).key(&key));
        }
    }

    fn administer(&mut self) {
        self.admin("POST", "/apps", r#"{"owner":"made","app":"app"}"#);
        let key = self.admin("POST", "/apps/made/app/keys", "").json_or_null();
        self.admin("POST", "/apps/made/app/keys", "");
        self.admin("POST", "/credentials", r#"{"scopes":["produce"]}"#);
        self.admin("POST", "/credentials", r#"{"scopes":["pull"],"ispb":"canary"}"#);
        self.admin("POST", "/credentials", r#"{"scopes":{"canary":"canary"}}"#);
        self.admin("GET", "/apps?after=canary", "");
        self.admin("POST", "/apps", r#"{"owner":["canary"],"app":"canary"}"#);
        // A whole credential where its id belongs.
        let key = key["key"].as_str().unwrap().to_owned();
        self.admin("DELETE", &format!("/apps/made/app/keys/{key}"), "");
        self.admin("DELETE", &format!("/apps/none/app/keys/{key}"), "");
    }

    /// What is no request, and what comes over HTTP/2.
    fn use_other_protocols(&mut self) {
        for bytes in [
            "GET /canary canary HTTP/1.1\r\n\r\n",
            "GET /canary HTTP/1.1\r\ncanary\r\n\r\n",
            "GET /canary HTTP/1.1\r\nauthorization: canary\0\r\n\r\n",
            "POST /canary HTTP/1.1\r\nhost: canary\r\ntransfer-encoding: canary\r\n\r\ncanary",
            "canary",
        ] {
            let mut connection = Conversation::with(self.server.http);
            connection.send(bytes.as_bytes());
            connection.stream().shutdown(std::net::Shutdown::Write).unwrap();
            if let Some(answer) = connection.answer() {
                self.heard("no request", &answer);
            }
        }
        let mut http2 = Http2::with(self.server.http);
        let body = r#"{"value":"canary","ttlSeconds":9}"#;
        for (method, path, key, body) in [
            ("PUT", format!("{TTL}/canary"), &*self.server.key, body),
            ("GET", format!("{TTL}/canary"), &*self.server.key, ""),
            ("GET", format!("{TTL}/canary"), "canary.canary", ""),
            ("PUT", format!("{TTL}/canary%FF?canary"), &*self.server.key, "canary"),
            ("GET", format!("{TTL}/{}", "canary".repeat(2_000)), &*self.server.key, ""),
        ] {
            let (status, body) = http2.ask(request(method, &path, key, body)).unwrap();
            let answer = Answer { status, head: String::new(), body };
            self.heard("over HTTP/2", &answer);
        }
        let mut large = request("GET", TTL, &self.server.key, "");
        large.headers_mut().insert("x-large", "canary".repeat(10_000).parse().unwrap());
        http2.ask(large);
    }
}

impl Answer {
    fn json_or_null(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Where one of the secrets is, with what stands around it.
fn found(text: &str, secrets: &[String]) -> Option<String> {
    let at = secrets.iter().filter_map(|secret| text.find(&**secret)).min()?;
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    Some(text[line..].chars().take(400).collect())
}

#[test]
fn what_is_private_is_in_no_log_no_error_and_no_counter() {
    for format in ["text", "json"] {
        let flags = ["--storage", "mem", "--log-format", format, "--log-filter", "trace"];
        let server = Server::with(&flags);
        let secrets = vec![CANARY.to_owned()];
        let mut aviary = Aviary { server: &server, secrets, said: vec![] };
        let mut watch = Conversation::with(server.http);
        let path = format!("{TTL}:watch?prefix=canary");
        assert_eq!(watch.ask(&Request::new("GET", &path).key(&server.key)).status, 200);
        aviary.use_storage();
        aviary.present_credentials();
        aviary.administer();
        aviary.use_other_protocols();
        let last = Request::new("GET", "/livez").header(&format!("x-request-id: {LAST}"));
        assert_eq!(aviary.ask(&last).status, 200);

        assert!(aviary.said.len() > 50, "refusals were heard");
        let leaks: Vec<_> =
            aviary.said.iter().filter(|said| found(said, &aviary.secrets).is_some()).collect();
        assert!(leaks.is_empty(), "{leaks:#?}");
        let metrics = server.administer("GET", "/metrics", "").body;
        assert!(metrics.contains("/ttl/{key}"), "requests were counted");
        assert_eq!(found(&metrics, &aviary.secrets), None);
        assert!(eventually(|| server.log().contains(LAST)), "the log has everything, {PATIENCE:?}");
        let log = server.log();
        assert!(log.contains("TRACE"), "everything is logged");
        assert_eq!(found(&log, &aviary.secrets), None, "in the {format} log");
        assert!(!log.contains("panicked"));
    }
}

/// The control: what is in a text is found.
#[test]
fn a_secret_in_a_text_is_found() {
    let secrets = ["canary".to_owned(), "s3cret".to_owned()];
    assert_eq!(found("a line\nkey s3cret here", &secrets).as_deref(), Some("key s3cret here"));
    assert_eq!(found("nothing", &secrets), None);
}
