//! Problems: every one says what is wrong by a code, and in words that name the field.

use super::{TTL, insert};
use crate::server::{Server, raw};

#[test]
fn a_bad_request_is_told_by_code_and_field() {
    let server = Server::in_memory();
    let long_key = "k".repeat(1_025);
    let long_value = "v".repeat(65_537);
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let too_long = format!(r#"{{"value":"{long_value}","ttlSeconds":60}}"#);
    let expected_too_long =
        format!(r#"{{"expectedValue":"{long_value}","newValue":"v","ttlSeconds":60}}"#);
    #[rustfmt::skip]
    let cases: &[(&str, &str, &str, u16, &str, &str)] = &[
        ("GET", "/", "", 400, "key_empty", "1 to 1024"),
        ("POST", "/", r#"{"value":"v","ttlSeconds":60}"#, 400, "key_empty", "1 to 1024"),
        ("GET", &format!("/{long_key}"), "", 400, "key_too_long", "1025"),
        ("GET", "/%FF", "", 400, "key_not_utf8", "byte 0"),
        ("GET", "/ab%C0%AF", "", 400, "key_not_utf8", "byte 2"),
        ("GET", "/100%", "", 400, "invalid_request", "%25"),
        ("POST", "/k", &too_long, 400, "value_too_long", "65537"),
        ("PUT", "/k", &expected_too_long, 400, "value_too_long", "expectedValue"),
        ("POST", "/k", r#"{"value":"v"}"#, 400, "invalid_ttl", "ttlSeconds or ttlMillis"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":1,"ttlMillis":1}"#, 400, "invalid_ttl", "not both"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":0}"#, 400, "invalid_ttl", "1 to 31536000"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":-1}"#, 400, "invalid_ttl", "ttlSeconds is -1"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":1.5}"#, 400, "invalid_ttl", "whole number"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":31536001}"#, 400, "invalid_ttl", "31536001"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":1e300}"#, 400, "invalid_ttl", "whole number"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":99999999999999999999999}"#, 400, "invalid_ttl", "whole"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":1e400}"#, 400, "invalid_request", "ttlSeconds"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":"60"}"#, 400, "invalid_request", "ttlSeconds"),
        ("POST", "/k", r#"{"value":7,"ttlSeconds":60}"#, 400, "invalid_request", "value"),
        ("POST", "/k", r#"{"value":"v","value":"w","ttlSeconds":60}"#, 400, "invalid_request", "duplicate"),
        ("POST", "/k", r#"{"value":"v","ttl":60}"#, 400, "invalid_request", "unknown field `ttl`"),
        ("POST", "/k", r#"{"value":"v","valueBase64":"dg==","ttlSeconds":60}"#, 400, "invalid_request", "valueBase64"),
        ("POST", "/k", r#"{"valueBase64":"%%","ttlSeconds":60}"#, 400, "invalid_request", "valueBase64"),
        ("POST", "/k", r#"{"ttlSeconds":60}"#, 400, "invalid_request", "value: missing"),
        ("POST", "/k", "", 400, "invalid_request", "body"),
        ("POST", "/k", "{", 400, "invalid_request", "body"),
        ("POST", "/k", r#"{"value":"v","ttlSeconds":60} x"#, 400, "invalid_request", "trailing"),
        ("POST", "/k", &deep, 400, "invalid_request", "body"),
        ("POST", "/k", &format!(r#"{{"value":{deep}}}"#), 400, "invalid_request", "value"),
        ("POST", "/k", r#"["v",null,60,null]"#, 400, "invalid_request", "object"),
        ("POST", "/k", "\"\\ud800\"", 400, "invalid_request", "body"),
        ("PUT", "/k", r#"{"expectedValue":"a","ttlSeconds":60}"#, 400, "invalid_request", "newValue: missing"),
        ("PUT", "/k", r#"{"newValue":"a","ttlSeconds":60}"#, 400, "invalid_request", "expectedValue: missing"),
        ("PUT", "/k", r#"{"value":"a","newValue":"b","ttlSeconds":60}"#, 400, "invalid_request", "swap"),
        ("PUT", "/k", r#"{"value":"a","keepExpiry":true}"#, 400, "invalid_request", "keepExpiry"),
        ("PUT", "/k", r#"{"expectedValue":"a","newValue":"b","keepExpiry":true,"ttlSeconds":1}"#, 400, "invalid_ttl", "not both"),
        ("DELETE", "/k", "{}", 400, "invalid_request", "expectedValue: missing"),
        ("PATCH", "/k", "{}", 400, "invalid_ttl", "ttlSeconds"),
        ("GET", "?limit=0", "", 400, "invalid_request", "limit"),
        ("GET", "?limit=x", "", 400, "invalid_request", "1 to 1000"),
        ("GET", "?prefx=a", "", 400, "invalid_request", "prefx"),
        ("GET", "?prefix=%FF", "", 400, "invalid_request", "prefix"),
        ("GET", ":watch?from=1", "", 400, "invalid_request", "from"),
        ("POST", ":batch", r#"{"operations":[{"op":"drop","key":"k"}]}"#, 400, "invalid_request", "operations[0].op"),
    ];
    for (method, rest, body, status, code, says) in cases {
        let answer = server.ask(method, &format!("{TTL}{rest}"), body);
        let seen = (answer.status, &*answer.code());
        let short = &body[..body.len().min(80)];
        assert_eq!(seen, (*status, *code), "{method} {rest:.40} {short}: {}", answer.body);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(says), "{method} {rest:.40} {short}: {detail:?} lacks {says:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let problem = answer.json();
        assert_eq!(problem["type"], format!("urn:wane:{code}"));
        assert_eq!(problem["status"], *status);
    }
    assert_eq!(server.ask("GET", &format!("{TTL}/k"), "").status, 404, "nothing was touched");
    assert_eq!(server.ask("GET", TTL, "").json()["items"].as_array().unwrap().len(), 0);
}

#[test]
fn the_wrong_method_is_told_which_there_are() {
    let server = Server::in_memory();
    let answer = server.ask("POST", TTL, "{}");
    assert_eq!((answer.status, &*answer.code()), (405, "method_not_allowed"));
    assert!(answer.header("allow").unwrap().contains("GET"), "{}", answer.head);
    let answer = server.ask("TRACE", &format!("{TTL}/k"), "");
    assert_eq!(answer.status, 405);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(answer.header("allow").unwrap().contains(method), "{}", answer.head);
    }
}

#[test]
fn an_unknown_route_is_absent() {
    let server = Server::in_memory();
    for path in [
        "/",
        "/api",
        "/api/v2/apps/demo/app",
        &format!("{TTL}/a/b"),
        "/metrics",
        "//",
        "/api/v1/admin/apps",
    ] {
        let answer = server.ask("GET", path, "");
        assert_eq!((answer.status, &*answer.code()), (404, "absent"), "{path}");
    }
}

#[test]
fn types_and_encodings_that_are_not_spoken_are_refused() {
    let server = Server::in_memory();
    insert(&server, "k", "v");
    let key = &server.key;
    let ask = |method: &str, headers: &str, body: &str| {
        let head = format!(
            "{method} {TTL}/k HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: Bearer {key}\r\n"
        );
        let length = body.len();
        raw(
            server.http,
            format!("{head}{headers}content-length: {length}\r\n\r\n{body}").as_bytes(),
        )
    };
    let body = r#"{"value":"v","ttlSeconds":60}"#;
    let form = ask("POST", "content-type: application/x-www-form-urlencoded\r\n", body);
    assert_eq!((form.status, &*form.code()), (415, "unsupported_media_type"));
    assert!(form.body.contains("application/json"), "{}", form.body);
    let packed = ask("POST", "content-type: application/json\r\ncontent-encoding: gzip\r\n", body);
    assert_eq!((packed.status, &*packed.code()), (415, "unsupported_media_type"));
    let html = ask("GET", "accept: text/html\r\n", "");
    assert_eq!((html.status, &*html.code()), (406, "not_acceptable"));
    let browser = ask("GET", "accept: text/html, */*;q=0.8\r\n", "");
    assert_eq!(browser.status, 200);
    let charset = ask("PUT", "content-type: application/json; charset=utf-8\r\n", body);
    assert_eq!(charset.status, 200);
}
