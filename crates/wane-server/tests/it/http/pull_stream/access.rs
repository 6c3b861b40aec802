//! Who may push and pull: by bearer credentials, for the institution that they name.

use super::wire::{Call, Reply};
use super::{ISPB, MANY, OTHER, Streams, credential, inbox, reader_of, start};

/// What a credential is answered at each call of streams: push, start, go on, end.
fn answers(streams: &Streams, authorization: Option<&str>, token_path: &str) -> [Reply; 4] {
    let call = |method: &str, path: &str| {
        let call = Call::new(method, path);
        match authorization {
            Some(line) => call.header(&format!("authorization: {line}")),
            None => call,
        }
    };
    let push = call("POST", &inbox(ISPB)).header("content-type: application/xml").body(b"<a/>");
    let begin = call("GET", &start(ISPB));
    [push, begin, call("GET", token_path), call("DELETE", token_path)]
        .map(|call| call.send(streams.server.http))
}

#[test]
fn credentials_open_what_they_are_for_and_nothing_else() {
    let streams = Streams::new();
    let server = &streams.server;
    streams.push_numbers(0..20);
    let pulled = streams.start();
    let before = streams.standing();
    let bearer = |key: &str| Some(format!("Bearer {key}"));
    let foreign = reader_of(server, OTHER);
    let reads = credential(server, r#"{"scopes":["read"]}"#);
    let (id, _) = streams.reader.split_once('.').unwrap();
    let unknown = (401, "unauthorized");
    let forbidden = (403, "forbidden");
    #[rustfmt::skip]
    let cases: [(&str, Option<String>, (u16, &str)); 10] = [
        ("none", None, unknown),
        ("an empty one", bearer(""), unknown),
        ("a wrong secret", bearer(&format!("{id}.{}", "0".repeat(64))), unknown),
        ("another scheme", Some(format!("Basic {}", streams.reader)), unknown),
        ("an unknown id", bearer(&format!("nobody.{}", "0".repeat(64))), unknown),
        ("the reader's token", bearer(pulled.token()), unknown),
        ("an institution's number", bearer(ISPB), unknown),
        ("another scope", bearer(&reads), forbidden),
        ("another institution", bearer(&foreign), forbidden),
        ("the operator", bearer(&server.admin_key), forbidden),
    ];
    for (name, authorization, (status, code)) in cases {
        for reply in answers(&streams, authorization.as_deref(), &pulled.next) {
            assert_eq!(reply.problem(), (status, code.into()), "{name}");
            assert_eq!(reply.header("pi-pull-next"), None, "{name}");
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{name}");
        }
    }
    let push = super::pushing(&streams.reader, &[b"<a/>"]).send(server.http);
    assert_eq!(push.problem(), (403, "forbidden".into()), "a reader does not push");
    let [_, begin, next, end] =
        answers(&streams, bearer(&streams.producer).as_deref(), &pulled.next);
    for reply in [begin, next, end] {
        assert_eq!(reply.problem(), (403, "forbidden".into()), "a producer does not pull");
    }
    assert_eq!(streams.standing(), before);
    assert_eq!(streams.after(&pulled).messages.len(), 10, "its own reader goes on");
}

/// An institution is public, so that foreign is told apart from absent.
#[test]
fn a_foreign_reader_is_told_the_same_whether_there_is_a_stream_or_not() {
    let streams = Streams::new();
    let foreign = reader_of(&streams.server, OTHER);
    let ask = || Call::new("GET", &start(ISPB)).key(&foreign).send(streams.server.http);
    let without = ask();
    streams.push_numbers(0..1);
    let with = ask();
    assert_eq!(with.problem(), (403, "forbidden".into()));
    assert_eq!((with.status, with.body), (without.status, without.body));
}

#[test]
fn a_credential_that_was_revoked_opens_nothing_more() {
    let streams = Streams::new();
    streams.push_numbers(0..20);
    let pulled = streams.start();
    let (id, _) = streams.reader.split_once('.').unwrap();
    let path = format!("/api/v1/admin/credentials/{id}");
    assert_eq!(streams.server.administer("DELETE", &path, "").status, 204);
    let refused = || streams.ask("GET", &pulled.next, &[MANY]).status == 401;
    assert!(crate::server::eventually(refused), "it still opens the stream");
    let other = reader_of(&streams.server, ISPB);
    let call = Call::new("GET", &pulled.next).key(&other).header(MANY);
    assert_eq!(call.send(streams.server.http).status, 200, "another of the institution goes on");
}

#[test]
fn a_credential_to_pull_names_an_institution() {
    let streams = Streams::new();
    for body in [
        r#"{"scopes":["pull"]}"#,
        r#"{"scopes":["pull"],"ispb":"1234567"}"#,
        r#"{"scopes":["pull"],"ispb":"1234567x"}"#,
        r#"{"scopes":["pull"],"ispb":12345678}"#,
    ] {
        let answer = streams.server.administer("POST", "/api/v1/admin/credentials", body);
        assert_eq!((answer.status, answer.code()), (400, "invalid_request".into()), "{body}");
    }
}

#[test]
fn who_reads_may_say_so_in_visible_letters() {
    let streams = Streams::new();
    let before = streams.standing();
    let long = format!("pi-client-id: {}", "x".repeat(65));
    for wrong in [&*long, "pi-client-id: S\u{e3}o Paulo", "pi-client-id: a\tb"] {
        let refused = streams.ask("GET", &start(ISPB), &[wrong]);
        assert_eq!(refused.problem(), (400, "invalid_request".into()), "{wrong:?}");
    }
    assert_eq!(streams.standing(), before);
    let longest = format!("pi-client-id: {}", "~".repeat(64));
    for right in [&*longest, "PI-Client-Id: core-banking/1.2 (node 3)"] {
        let pulled = streams.pull(&start(ISPB), &[right]);
        streams.end(&pulled);
    }
}

/// The operator's calls are the operator's.
#[test]
fn policies_and_the_state_of_streams_are_for_operators() {
    let streams = Streams::new();
    let (policy, stream) =
        (format!("/api/v1/admin/policies/{ISPB}"), format!("/api/v1/admin/streams/{ISPB}"));
    for (method, path, body) in
        [("GET", &policy, ""), ("PUT", &policy, r#"{"maxReaders":1}"#), ("GET", &stream, "")]
    {
        let ask = |key| crate::server::request(streams.server.admin, key, method, path, body);
        assert_eq!(ask(None).status, 401, "{method} {path}");
        for key in [&streams.reader, &streams.producer] {
            assert_eq!(ask(Some(key)).status, 403, "{method} {path}");
        }
        let elsewhere = streams.server.ask_as(Some(&streams.server.admin_key), method, path, body);
        assert_eq!(elsewhere.status, 404, "{method} {path} is not for the open port");
    }
    let policy = streams.server.administer("GET", &policy, "").json();
    assert_eq!(policy["maxReaders"], 6);
}
