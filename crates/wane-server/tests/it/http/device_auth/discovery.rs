//! Discovery (RFC 8414): both places, and what they say is where it is.

use serde_json::json;

use super::*;

#[test]
fn a_client_finds_everything_from_the_issuer_alone() {
    let server = Server::in_memory();
    let get = |path: &str| Conversation::with(server.http).ask(&Request::new("GET", path));
    let found = get("/.well-known/oauth-authorization-server/oauth/demo/app");
    let below = get("/oauth/demo/app/.well-known/oauth-authorization-server");
    assert_eq!((found.status, &found.body), (200, &below.body));
    let json = found.json();
    assert_eq!(json["issuer"], "http://test/oauth/demo/app");
    assert_eq!(json["grant_types_supported"], json!([DEVICE_GRANT]));
    assert_eq!(json["response_types_supported"], json!([]));
    for (name, status) in [
        ("device_authorization_endpoint", 200),
        ("token_endpoint", 400),
        ("introspection_endpoint", 401),
        ("revocation_endpoint", 400),
    ] {
        let path = json[name].as_str().unwrap().strip_prefix("http://test").unwrap();
        let answer = send_with(&server, path, "client_id=demo", &[]);
        assert_eq!(answer.status, status, "{name}: {}", answer.body);
    }
}

#[test]
fn names_that_nobody_has_are_answered_alike_and_impossible_ones_are_absent() {
    let server = Server::in_memory();
    let get = |name: &str| {
        let path = format!("/.well-known/oauth-authorization-server/oauth/{name}");
        Conversation::with(server.http).ask(&Request::new("GET", &path))
    };
    assert_eq!(get("no/body").body.replace("no/body", "demo/app"), get("demo/app").body);
    for name in ["a%20b/app", "../app", "demo/%22%3E%3Cscript%3E"] {
        assert_eq!(get(name).status, 404, "{name}");
    }
}
