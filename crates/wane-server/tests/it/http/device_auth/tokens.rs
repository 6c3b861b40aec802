//! Tokens after they were issued: introspection (RFC 7662) and revocation (RFC 7009).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

#[test]
fn the_application_learns_whom_a_token_stands_for() {
    let server = Server::in_memory();
    let linked = link(&server, "alice");
    let said = introspect(&server, linked["access_token"].as_str().unwrap());
    assert_eq!((&said["active"], &said["sub"]), (&json!(true), &json!("alice")));
    assert_eq!((&said["client_id"], &said["scope"]), (&json!("demo"), &json!("read write")));
    assert_eq!((&said["token_type"], &said["device_id"]), (&json!("Bearer"), &linked["device_id"]));
    let (iat, exp) = (said["iat"].as_u64().unwrap(), said["exp"].as_u64().unwrap());
    assert_eq!(exp - iat, 15_552_000);
    for unknown in ["x", &"A".repeat(43), &server.key, &"x".repeat(9_000)] {
        assert_eq!(introspect(&server, unknown), json!({"active": false}));
    }
}

#[test]
fn only_those_who_prove_who_they_are_may_introspect() {
    let server = Server::in_memory();
    let token = link(&server, "alice")["access_token"].as_str().unwrap().to_owned();
    let secret = register(&server, r#""name":"API","clientId":"api","confidential":true"#);
    let secret = secret["clientSecret"].as_str().unwrap();
    let (form, path) = (format!("token={token}"), "/oauth/demo/app/introspect");
    let ask = |form: &str, header: &str| send_with(&server, path, form, &[header]);
    let basic =
        |secret: &str| format!("authorization: Basic {}", STANDARD.encode(format!("api:{secret}")));
    assert_eq!(ask(&form, &basic(secret)).json()["active"], true);
    let in_form = format!("{form}&client_id=api&client_secret={secret}");
    assert_eq!(ask(&in_form, "x: y").json()["active"], true);
    assert_refused(&ask(&form, &basic("wrong")), 401, "invalid_client");
    assert_refused(&ask(&in_form, &basic(secret)), 400, "invalid_request");
    let public = ask(&format!("{form}&client_id=demo"), "x: y");
    assert_refused(&public, 401, "invalid_client");
    assert!(public.header("www-authenticate").unwrap().starts_with("Basic"));
    assert_refused(&ask(&form, "x: y"), 400, "invalid_request");
    assert_refused(&ask("token=", &basic(secret)), 400, "invalid_request");
    let other = server.make_app("acme", "two");
    for key in [&*other, "x.y"] {
        let stranger = ask(&form, &format!("authorization: Bearer {key}"));
        assert_refused(&stranger, 401, "invalid_client");
        assert_eq!(stranger.header("www-authenticate"), Some("Bearer"));
    }
    let reader =
        server.administer("POST", "/api/v1/admin/apps/demo/app/keys", r#"{"scopes":["read"]}"#);
    let reader = format!("authorization: Bearer {}", reader.json()["key"].as_str().unwrap());
    assert_refused(&ask(&form, &reader), 403, "insufficient_scope");
    let own = format!("authorization: Bearer {}", server.key);
    assert_refused(&ask(&in_form, &own), 400, "invalid_request");
}

#[test]
fn a_client_gives_its_token_back_and_only_its_own() {
    let server = Server::in_memory();
    register(&server, r#""name":"Other","clientId":"other""#);
    let token = link(&server, "alice")["access_token"].as_str().unwrap().to_owned();
    let revoke = |form: &str| send(&server, "revoke", form);
    let another = revoke(&format!("token={token}&client_id=other"));
    assert_eq!((another.status, another.body.as_str()), (200, ""), "it learns nothing");
    assert_eq!(introspect(&server, &token)["active"], true, "and does nothing");
    let own = revoke(&format!("token={token}&client_id=demo&token_type_hint=access_token"));
    assert_eq!((own.status, own.body.as_str()), (200, ""));
    assert_unkept(&own);
    assert_eq!(introspect(&server, &token), json!({"active": false}));
    assert_eq!(revoke(&format!("token={token}&client_id=demo")).status, 200, "again");
    assert_eq!(revoke("token=junk&client_id=demo").status, 200);
    assert_refused(&revoke("client_id=demo"), 400, "invalid_request");
    assert_refused(&revoke(&format!("token={token}&client_id=nobody")), 401, "invalid_client");
}

#[test]
fn tokens_outlive_a_kill_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let token = link(&server, "alice")["access_token"].as_str().unwrap().to_owned();
    let waiting = start(&server);
    server.kill();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(introspect(&server, &token)["sub"], "alice");
    assert_eq!(approve(&server, &waiting, "bob").status, 200);
    assert_eq!(poll(&server, &waiting).status, 200);
}
