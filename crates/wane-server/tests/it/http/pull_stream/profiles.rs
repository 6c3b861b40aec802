//! The two profiles side by side: the same bad input, and what each of them answers.

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use super::wire::{Call, Pulled, Reply};
use super::{ISPB, MANY, OTHER, Streams, credential, inbox, message, reader_of, start};
use crate::server::eventually;
use crate::wait;

/// What may leave a server with the profile `icom`.
const LEAVE: [&str; 11] = [
    "pi-resourceid",
    "pi-pull-next",
    "content-type",
    "content-encoding",
    "content-length",
    "transfer-encoding",
    "connection",
    "date",
    "cache-control",
    "retry-after",
    "allow",
];

/// Names of headers, in small letters.
fn names(reply: &Reply) -> Vec<String> {
    let lines = reply.head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.map(|(name, _)| name.to_ascii_lowercase()).collect()
}

/// The headers that should not have left.
fn surplus(reply: &Reply) -> Vec<String> {
    let mut names = names(reply);
    names.retain(|name| !LEAVE.contains(&&**name));
    names
}

/// The elements of a problem as the XML reader of Python sees them, with their namespace.
fn read_by_python(xml: &[u8]) -> BTreeMap<String, String> {
    const READ: &str = "import json, sys, xml.etree.ElementTree as tree\n\
        root = tree.fromstring(sys.stdin.buffer.read())\n\
        told = {element.tag: element.text or '' for element in root}\n\
        told['root'] = root.tag\n\
        print(json.dumps(told))";
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(xml).unwrap();
    file.rewind().unwrap();
    let read = Command::new("python3").args(["-c", READ]).stdin(Stdio::from(file)).output();
    let read = read.unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

/// A member of a problem in XML.
fn member(told: &BTreeMap<String, String>, name: &str) -> String {
    told.get(&format!("{{urn:ietf:rfc:7807}}{name}")).cloned().unwrap_or_default()
}

/// A server, and readers at each place of its stream.
struct Stage {
    streams: Streams,
    foreign: String,
    other_scope: String,
    /// With a batch in its hands.
    live: Pulled,
    /// A token of the live reader that was used long ago.
    early: String,
    /// The path of a reader that has ended.
    ended: String,
    /// A path with another institution's token.
    crossed: String,
}

impl Stage {
    fn with(flags: &[&str]) -> Self {
        let streams = Streams::with(&[&["--stream-lease-ms=120000"], flags].concat());
        let foreign = reader_of(&streams.server, OTHER);
        let other_scope = credential(&streams.server, r#"{"scopes":["read"]}"#);
        streams.push_numbers(0..60);
        // It is noted a while later, and nothing else is to change.
        let tail = || streams.status()["tailRow"].as_u64();
        assert!(eventually(|| tail() >= Some(6)), "{:?}", tail());
        let first = streams.start();
        let second = streams.after(&first);
        let live = streams.after(&second);
        let last = streams.start();
        streams.end(&last);
        let call = Call::new("GET", &start(OTHER)).key(&foreign);
        let theirs = Pulled::of(call.send(streams.server.http));
        let policy = format!("/api/v1/admin/policies/{ISPB}");
        let capped = streams.server.administer("PUT", &policy, r#"{"maxReaders":1}"#);
        assert_eq!(capped.status, 200, "{}", capped.body);
        Self {
            foreign,
            other_scope,
            early: first.next,
            ended: last.next,
            crossed: theirs.next.replace(OTHER, ISPB),
            live,
            streams,
        }
    }

    fn reader(&self, method: &str, path: &str) -> Call {
        Call::new(method, path).key(&self.streams.reader)
    }

    fn producer(&self, media_type: &str, body: &[u8]) -> Call {
        let call = Call::new("POST", &inbox(ISPB)).key(&self.streams.producer);
        call.header(&format!("content-type: {media_type}")).body(body)
    }
}

/// A bad input, and status and code in each profile.
type Case = (&'static str, fn(&Stage) -> Call, (u16, &'static str), (u16, &'static str));

const UNKNOWN: (u16, &str) = (401, "unauthorized");
const FORBIDDEN: (u16, &str) = (403, "forbidden");
const INVALID: (u16, &str) = (400, "invalid_request");
const TAMPERED: (u16, &str) = (401, "invalid_token");
const EXPIRED: (u16, &str) = (401, "token_expired");
const GONE: (u16, &str) = (410, "gone");
const LATE: (u16, &str) = (400, "token_out_of_order");
const ABSENT: (u16, &str) = (404, "absent");
const METHOD: (u16, &str) = (405, "method_not_allowed");
const FORM: (u16, &str) = (406, "not_acceptable");
const LARGE: (u16, &str) = (413, "too_large");
const LONG: (u16, &str) = (414, "too_large");
const MEDIA: (u16, &str) = (415, "unsupported_media_type");
const LIMITED: (u16, &str) = (429, "limited");

fn token(token: &str) -> String {
    format!("/api/v1/out/{ISPB}/stream/{token}")
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("no credential, start", |_| Call::new("GET", &start(ISPB)), UNKNOWN, FORBIDDEN),
    ("no credential, next", |at| Call::new("GET", &at.live.next), UNKNOWN, FORBIDDEN),
    ("no credential, end", |at| Call::new("DELETE", &at.live.next), UNKNOWN, FORBIDDEN),
    ("no credential, ingest", |_| Call::new("POST", &inbox(ISPB)), UNKNOWN, FORBIDDEN),
    ("an unknown credential", |_| Call::new("GET", &start(ISPB)).key("nobody.0"), UNKNOWN, FORBIDDEN),
    ("another scheme", |_| Call::new("GET", &start(ISPB)).header("authorization: Basic x"), UNKNOWN, FORBIDDEN),
    ("a foreign reader", |at| Call::new("GET", &start(ISPB)).key(&at.foreign), FORBIDDEN, FORBIDDEN),
    ("another scope", |at| Call::new("GET", &start(ISPB)).key(&at.other_scope), FORBIDDEN, FORBIDDEN),
    ("a reader that pushes", |at| at.reader("POST", &inbox(ISPB)), FORBIDDEN, FORBIDDEN),
    ("a token that is none", |at| at.reader("GET", &token("a.b.c")), TAMPERED, GONE),
    ("a token that is none, end", |at| at.reader("DELETE", &token("nonsense")), TAMPERED, GONE),
    ("a tampered token", |at| at.reader("GET", &format!("{}x", at.live.next)), TAMPERED, GONE),
    ("a token of an ended slot", |at| at.reader("GET", &at.ended), EXPIRED, GONE),
    ("a slot ended twice", |at| at.reader("DELETE", &at.ended), GONE, GONE),
    ("a token that is out of order", |at| at.reader("GET", &at.early), LATE, LATE),
    ("a foreign token", |at| at.reader("GET", &at.crossed), FORBIDDEN, FORBIDDEN),
    ("a reader too many", |at| at.reader("GET", &start(ISPB)), LIMITED, LIMITED),
    ("an institution that is none", |at| at.reader("GET", &start("1234567")), INVALID, INVALID),
    ("a name that is too long", |at| at.reader("GET", &start(ISPB)).header(&format!("pi-client-id: {}", "x".repeat(65))), INVALID, INVALID),
    ("two hosts", |at| at.reader("GET", &start(ISPB)).header("host: other"), INVALID, INVALID),
    ("no such route", |at| at.reader("GET", &format!("/api/v1/out/{ISPB}/nothing")), ABSENT, ABSENT),
    ("no token", |at| at.reader("GET", &token("")), ABSENT, ABSENT),
    ("no such inbox", |at| at.reader("POST", &format!("/api/v1/in/{ISPB}/nothing")), ABSENT, ABSENT),
    ("another method", |at| at.reader("PUT", &start(ISPB)), METHOD, METHOD),
    ("another method, ingest", |at| at.reader("GET", &inbox(ISPB)), METHOD, METHOD),
    ("a form that is not to be had", |at| at.reader("GET", &start(ISPB)).header("accept: application/json"), FORM, FORM),
    ("another type", |at| at.producer("application/json", b"{}"), MEDIA, MEDIA),
    ("another coding", |at| at.producer("application/xml", b"x").header("content-encoding: br"), MEDIA, MEDIA),
    ("a message that is too large", |at| at.producer("application/xml", &[b'x'; 200 * 1024 + 1]), LARGE, LARGE),
    ("a message that is empty", |at| at.producer("application/xml", b""), INVALID, INVALID),
    ("a boundary that is none", |at| at.producer("multipart/mixed; boundary=\"<&>", b"x"), INVALID, INVALID),
    ("a body that is no gzip", |at| at.producer("application/xml", b"x").header("content-encoding: gzip"), INVALID, INVALID),
    ("a target that is too long", |at| at.reader("GET", &token(&"x".repeat(9_000))), LONG, LONG),
];

#[test]
fn the_same_bad_input_is_answered_in_each_profile_by_its_own_rules() {
    let (seed, icom) = (Stage::with(&[]), Stage::with(&["--stream-profile", "icom"]));
    let before = [seed.streams.standing(), icom.streams.standing()];
    for (name, call, by_seed, by_icom) in CASES {
        let plain = call(&seed).send(seed.streams.server.http);
        assert_eq!(plain.problem(), (by_seed.0, by_seed.1.to_owned()), "{name}");
        assert!(plain.header("x-request-id").is_some(), "{name}: {}", plain.head);
        assert_eq!(plain.header("www-authenticate").is_some(), *by_seed == UNKNOWN, "{name}");

        let closed = call(&icom).send(icom.streams.server.http);
        assert_eq!(closed.status, by_icom.0, "{name}: {}", closed.text());
        let media_type = closed.header("content-type");
        assert_eq!(media_type, Some("application/problem+xml"), "{name}: {}", closed.head);
        assert_eq!(surplus(&closed), [""; 0], "{name}");
        for kept in ["retry-after", "allow"] {
            assert_eq!(closed.header(kept).is_some(), plain.header(kept).is_some(), "{name}");
        }
        let told = read_by_python(&closed.body);
        assert_eq!(told["root"], "{urn:ietf:rfc:7807}problem", "{name}");
        assert_eq!(member(&told, "status"), by_icom.0.to_string(), "{name}");
        assert_eq!(member(&told, "code"), by_icom.1, "{name}");
        assert_eq!(member(&told, "type"), format!("urn:wane:{}", by_icom.1), "{name}");
        // But for seconds, of which some have passed.
        let worded = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        let detail = plain.json()["detail"].as_str().map(worded);
        assert_eq!(Some(worded(&member(&told, "detail"))), detail, "{name}");
        assert!(!member(&told, "title").is_empty(), "{name}");
    }
    assert_eq!([seed.streams.standing(), icom.streams.standing()], before);
    let refused = icom.streams.metric("wane_http_request_duration_seconds_count", "status=\"401\"");
    assert_eq!(refused, None, "what is counted is what was answered");
}

/// The controls of the test above: what it looks for is there to be found.
#[test]
fn the_checks_of_the_profiles_find_what_they_look_for() {
    let reply = |head: &str| Reply { status: 200, head: head.into(), body: Vec::new() };
    assert_eq!(surplus(&reply("HTTP/1.1 200 OK\r\nX-Request-Id: 1\r\nDate: x")), ["x-request-id"]);
    let told = read_by_python(b"<problem><code>a</code></problem>");
    assert_eq!((told["root"].as_str(), member(&told, "code").as_str()), ("problem", ""));
    let codes = |status| CASES.iter().any(|(_, _, _, by_icom)| by_icom.0 == status);
    for status in [400, 403, 404, 405, 406, 410, 413, 414, 415, 429] {
        assert!(codes(status), "no case of {status}");
    }
    assert!(!codes(401));
}

/// Messages come and go the same, with fewer words around them.
#[test]
fn what_goes_well_is_the_same_but_for_the_headers_that_leave() {
    let (seed, icom) = (Streams::new(), Streams::with(&["--stream-profile=icom"]));
    let bodies: [[Vec<Vec<u8>>; 2]; 2] = [&seed, &icom].map(|streams| {
        let pushed = streams.produce(&[&message(1), &message(2)], &[]);
        assert_eq!(pushed.status, 201, "{}", pushed.text());
        let first = streams.pull(&start(ISPB), &["accept: application/xml"]);
        let second = streams.pull(&first.next, &[MANY, "accept-encoding: gzip"]);
        let third = streams.after(&second);
        let ended = streams.ask("DELETE", &third.next, &[]);
        assert_eq!([first.reply.status, second.reply.status], [200, 200]);
        assert_eq!([third.reply.status, ended.status], [204, 200]);
        let replies = [pushed, first.reply.clone(), second.reply.clone(), third.reply, ended];
        let is_icom = std::ptr::eq(streams, &icom);
        for reply in &replies {
            assert_eq!(surplus(reply).is_empty(), is_icom, "{}", reply.head);
        }
        [first, second].map(|pulled| pulled.messages.into_iter().map(|it| it.bytes).collect())
    });
    let expected: [Vec<Vec<u8>>; 2] = [vec![message(1)], vec![message(2)]];
    assert_eq!(bodies, [expected.clone(), expected]);
}

/// A stream that was left alone is gone, and its reader starts again.
#[test]
fn a_stream_whose_token_has_run_out_is_gone() {
    let brief = ["--stream-hold-ms", "100", "--stream-lease-ms=500", "--stream-token-ms=1000"];
    for (profile, expected) in [("seed", 401), ("icom", 410)] {
        let flags = [&brief[..], &["--stream-profile", profile]].concat();
        let streams = Streams::with(&flags);
        streams.push_numbers(0..1);
        let pulled = streams.start();
        wait(Duration::from_millis(2_100));
        for method in ["GET", "DELETE"] {
            let over = streams.ask(method, &pulled.next, &[]);
            assert_eq!(over.status, expected, "{profile}, {method}: {}", over.text());
            assert!(over.text().contains("stream/start"), "{}", over.text());
        }
        assert_eq!(streams.start().messages.len(), 1, "{profile}: it comes again");
    }
}

/// Everything that is no stream is answered as ever.
#[test]
fn other_paths_know_nothing_of_the_profile() {
    let streams = Streams::with(&["--stream-profile=icom"]);
    let server = &streams.server;
    for (address, path, status) in [
        (server.http, "/api/v1/nothing", 404),
        (server.http, "/api/v2/apps/demo/app/ttl/k", 401),
        (server.admin, "/api/v1/admin/streams/12345678", 401),
        (server.admin, "/api/v1/admin/audit", 401),
    ] {
        let reply = Call::new("GET", path).send(address);
        assert_eq!(reply.problem().0, status, "{path}");
        assert!(reply.header("x-request-id").is_some(), "{path}");
    }
    let told: Json = streams.status();
    assert_eq!(told["ispb"], ISPB);
}

/// Heads are told without words.
#[test]
fn a_head_is_refused_by_the_rules_of_the_profile() {
    let streams = Streams::with(&["--stream-profile=icom"]);
    let reply = streams.ask("HEAD", &start(ISPB), &[]);
    assert_eq!((reply.status, reply.body.len()), (405, 0));
    assert_eq!(reply.header("content-type"), Some("application/problem+xml"));
    assert_eq!(reply.header("allow"), Some("GET, DELETE"));
    assert_eq!(surplus(&reply), [""; 0]);
}
