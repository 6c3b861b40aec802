//! Clients: registered by the operator, and how they prove who they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const CLIENTS: &str = "/api/v1/admin/oauth-clients";

fn basic(id: &str, secret: &str) -> String {
    format!("authorization: Basic {}", STANDARD.encode(format!("{id}:{secret}")))
}

#[test]
fn a_confidential_client_proves_who_it_is_in_one_of_two_ways() {
    let server = Server::in_memory();
    let made = register(&server, r#""name":"Kiosk","clientId":"kiosk","confidential":true"#);
    let secret = made["clientSecret"].as_str().unwrap();
    let path = "/oauth/demo/app/device_authorization";
    let start = |form: &str, headers: &[&str]| send_with(&server, path, form, headers);
    assert_eq!(start("", &[&basic("kiosk", secret)]).status, 200);
    assert_eq!(start("client_id=kiosk", &[&basic("kiosk", secret)]).status, 200);
    assert_eq!(start(&format!("client_id=kiosk&client_secret={secret}"), &[]).status, 200);
    for (form, headers) in [
        ("client_id=kiosk", vec![]),
        ("client_id=kiosk&client_secret=wrong", vec![]),
        ("", vec![basic("kiosk", "wrong")]),
        ("", vec![basic("demo", secret)]),
        ("", vec!["authorization: Basic %%%".into()]),
        ("client_id=kiosk", vec!["authorization: Bearer x.y".into()]),
    ] {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let answer = start(form, &headers);
        assert_refused(&answer, 401, "invalid_client");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Basic "));
    }
    for (form, header) in [
        (format!("client_secret={secret}"), basic("kiosk", secret)),
        ("client_id=demo".to_owned(), basic("kiosk", secret)),
    ] {
        assert_refused(&start(&form, &[&header]), 400, "invalid_request");
    }
    let both = [basic("kiosk", secret), basic("kiosk", secret)];
    assert_refused(&start("", &[&both[0], &both[1]]), 400, "invalid_request");
}

#[test]
fn clients_have_ids_of_their_own_across_applications() {
    let server = Server::in_memory();
    let public = register(&server, r#""name":"TV","scopes":["read"]"#);
    assert!(public["clientSecret"].is_null() && public["clientId"].is_string(), "{public}");
    server.make_app("acme", "two");
    let body = r#"{"owner":"acme","app":"two","name":"TV","clientId":"demo"}"#;
    assert_eq!(server.administer("POST", CLIENTS, body).code(), "refused");
    let body = r#"{"owner":"no","app":"body","name":"TV"}"#;
    assert_eq!(server.administer("POST", CLIENTS, body).code(), "absent");
}

#[test]
fn what_is_registered_wrongly_says_what_to_do() {
    let server = Server::in_memory();
    let long = "n".repeat(129);
    for fields in [
        r#""name":"""#,
        r#""name":"a\u0000b""#,
        &format!(r#""name":"{long}""#),
        r#""name":"TV","scopes":["two words"]"#,
        r#""name":"TV","scopes":[""]"#,
        r#""name":"TV","clientId":"no blanks""#,
        r#""name":"TV","codeLifeSeconds":59"#,
        r#""name":"TV","codeLifeSeconds":1801"#,
        r#""name":"TV","tokenLifeSeconds":31104001"#,
        r#""name":"TV","secret":"mine""#,
    ] {
        let body = format!(r#"{{"owner":"demo","app":"app",{fields}}}"#);
        let answer = server.administer("POST", CLIENTS, &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{fields}");
    }
}

#[test]
fn lives_are_those_of_the_client() {
    let server = Server::in_memory();
    let lives = r#""name":"TV","clientId":"tv","codeLifeSeconds":60,"tokenLifeSeconds":120"#;
    register(&server, lives);
    let answer = send(&server, "device_authorization", "client_id=tv").json();
    assert!((59..=60).contains(&answer["expires_in"].as_u64().unwrap()), "{answer}");
    let codes = start_as(&server, "client_id=tv");
    approve(&server, &codes, "alice");
    let linked = poll_as(&server, "client_id=tv", &codes).json();
    assert!((119..=120).contains(&linked["expires_in"].as_u64().unwrap()), "{linked}");
    assert!(linked.get("scope").is_none(), "nothing was asked for: {linked}");
}

#[test]
fn a_client_that_was_removed_starts_and_redeems_nothing() {
    let server = Server::in_memory();
    register(&server, r#""name":"TV","clientId":"tv""#);
    let codes = start_as(&server, "client_id=tv");
    approve(&server, &codes, "alice");
    let path = "/api/v1/admin/apps/demo/app/oauth-clients/tv";
    assert_eq!(server.administer("DELETE", path, "").status, 204);
    assert_eq!(server.administer("DELETE", path, "").code(), "absent");
    assert_refused(&poll_as(&server, "client_id=tv", &codes), 401, "invalid_client");
    assert_refused(&send(&server, "device_authorization", "client_id=tv"), 401, "invalid_client");
}

/// An operator who removed the client `demo` does not find it again after a restart.
#[test]
fn the_demo_client_is_registered_at_the_first_start_only() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    start(&server);
    let path = "/api/v1/admin/apps/demo/app/oauth-clients/demo";
    assert_eq!(server.administer("DELETE", path, "").status, 204);
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(directory.path(), &[]);
    assert_refused(&send(&server, "device_authorization", "client_id=demo"), 401, "invalid_client");
}

#[test]
fn clients_are_listed_without_secrets_and_get_new_ones() {
    let server = Server::in_memory();
    let old = register(&server, r#""name":"Kiosk","clientId":"kiosk","confidential":true"#);
    let old = old["clientSecret"].as_str().unwrap();
    let all = "/api/v1/admin/apps/demo/app/oauth-clients";
    let listed = server.administer("GET", all, "");
    assert!(listed.status == 200 && !listed.body.contains(old), "{}", listed.body);
    let ids = |answer: &Answer| -> Vec<String> {
        let items = answer.json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["clientId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&listed), ["demo", "kiosk"]);
    let first = server.administer("GET", &format!("{all}?limit=1"), "");
    assert_eq!((ids(&first), &first.json()["next"]), (vec!["demo".to_owned()], &"demo".into()));
    assert_eq!(ids(&server.administer("GET", &format!("{all}?after=demo"), "")), ["kiosk"]);

    let rotated = server.administer("POST", &format!("{all}/kiosk/secret"), "");
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let new = rotated.json()["clientSecret"].as_str().unwrap().to_owned();
    let start = |secret: &str| {
        let form = format!("client_id=kiosk&client_secret={secret}");
        send(&server, "device_authorization", &form).status
    };
    assert_eq!((start(old), start(&new)), (401, 200));
    assert_eq!(server.administer("POST", &format!("{all}/nobody/secret"), "").code(), "absent");
    assert_eq!(server.administer("POST", &format!("{all}/demo/secret"), "").code(), "refused");
}
