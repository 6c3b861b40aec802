//! Octokit, which polls at once and sends JSON to where GitHub has these endpoints.

use super::*;

const PROGRAM: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/device_clients/octokit_client.js");

/// A device that runs Octokit; none where it is not installed.
fn device(told: &Json) -> Option<Program> {
    let modules = Path::new(INSTALLED).join("node_modules");
    if !is_installed(&modules.join("@octokit/auth-oauth-device"), "scripts/oauth-clients") {
        return None;
    }
    let mut command = Command::new("node");
    command.arg(PROGRAM).arg(told.to_string()).env("NODE_PATH", modules);
    Some(Program::start(&mut command))
}

/// Trap: Octokit posts JSON to `/login/device/code` and `/login/oauth/access_token`, and polls at
/// t = 0: the first poll is never throttled.
#[test]
fn octokit_links_a_device_by_the_aliases_in_json() {
    let login = Login::with(&["--github-aliases"]);
    let client = login.register(json!({ "scopes": ["read", "write"] }));
    let told = login.told_to(&client, json!({ "scopes": ["write", "read"] }));
    let Some(mut device) = device(&told) else { return };

    let asked = device.next().unwrap();
    assert_eq!(asked["path"], "/login/device/code", "{asked}");
    assert!(asked["type"].as_str().unwrap().starts_with("application/json"), "{asked}");
    let codes = device.next().unwrap()["codes"].clone();
    assert_eq!(codes["interval"], 5, "{codes}");
    let first = device.next().unwrap();
    assert_eq!(first["path"], "/login/oauth/access_token", "{first}");
    let at_once = first["at"].as_u64().unwrap() - asked["at"].as_u64().unwrap();
    assert!(at_once < 4_000, "it polls at once: {first}");

    login.approve(codes["user_code"].as_str().unwrap());
    let second = device.next().unwrap();
    assert_eq!(second["status"], 200, "{second}");
    let between = second["at"].as_u64().unwrap() - first["at"].as_u64().unwrap();
    assert!((4_900..9_000).contains(&between), "pending, and not told to slow down: {between} ms");
    let linked = device.next().unwrap();
    assert_eq!(linked["scopes"], json!(["write", "read"]), "{linked}");
    let active = login.introspect(linked["token"].as_str().unwrap());
    assert_eq!((&active["active"], &active["scope"]), (&json!(true), &json!("write read")));
}

/// It splits the scope that it is given: there has to be one.
#[test]
fn octokit_links_a_device_that_asks_for_no_scope() {
    let login = Login::with(&["--github-aliases"]);
    let client = login.register(json!({ "scopes": [] }));
    let Some(mut device) = device(&login.told_to(&client, json!({ "scopes": [] }))) else { return };
    device.next().unwrap();
    let codes = device.next().unwrap()["codes"].clone();
    device.next().unwrap();
    login.approve(codes["user_code"].as_str().unwrap());
    device.next().unwrap();
    let linked = device.next().unwrap();
    assert_eq!((&linked["scopes"], &linked["raised"]), (&json!([]), &Json::Null), "{linked}");
}

#[test]
fn octokit_is_told_that_it_was_denied() {
    let login = Login::with(&["--github-aliases"]);
    let client = login.register(json!({ "scopes": ["read"] }));
    let Some(mut device) = device(&login.told_to(&client, json!({}))) else { return };
    device.next().unwrap();
    let codes = device.next().unwrap()["codes"].clone();
    device.next().unwrap();
    login.deny(codes["user_code"].as_str().unwrap());
    device.next().unwrap();
    let ended = device.next().unwrap();
    assert_eq!(ended["error"], "access_denied", "{ended}");
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
const ASKS_FOR_JSON: (&str, &str) = ("accept", "application/json");

/// Without an application in the path, and as GitHub answers: with 200, whatever a device is told.
#[test]
fn the_aliases_answer_as_github_does_and_are_off_unless_they_are_asked_for() {
    let login = Login::with(&["--github-aliases"]);
    let started = login.post_with(
        "/login/device/code",
        &[("content-type", "application/x-www-form-urlencoded"), ASKS_FOR_JSON],
        "client_id=demo&scope=read",
    );
    assert_eq!(started.status, 200, "{}", started.body);
    let code = started.json()["device_code"].as_str().unwrap().to_owned();
    let pairs = [("client_id", "demo"), ("device_code", &*code), ("grant_type", GRANT)];
    let json: Json = pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    for (headers, body) in [
        ([("content-type", "application/x-www-form-urlencoded"), ASKS_FOR_JSON], encoded(&pairs)),
        ([JSON, ASKS_FOR_JSON], json.to_string()),
    ] {
        let polled = login.post_with("/login/oauth/access_token", &headers, &body);
        assert_eq!((polled.status, &*error_of(&polled)), (200, "authorization_pending"));
        assert_eq!(polled.header("cache-control"), Some("no-store"));
    }
    let polled = login.post("/login/oauth/access_token", &encoded(&pairs));
    assert!(polled.body.starts_with("error=authorization%5Fpending&"), "{}", polled.body);

    let without = Login::new();
    for path in ["/login/device/code", "/login/oauth/access_token"] {
        let answer = without.post(path, "client_id=demo");
        assert_eq!((answer.status, &*answer.code()), (404, "absent"), "{path}");
    }
}

#[test]
fn json_that_is_no_object_of_texts_is_refused_by_the_name_of_the_rfc() {
    let login = Login::with(&["--github-aliases"]);
    for body in [
        "",
        "[]",
        "null",
        "\"demo\"",
        "{",
        "{\"client_id\":",
        "{}",
        "{\"client_id\":1}",
        "{\"client_id\":\"\"}",
        "{\"client_id\":null}",
        "{\"client_id\":[\"demo\"]}",
        "\u{0}",
    ] {
        for path in ["/login/device/code", "/login/oauth/access_token"] {
            let answer = login.post_with(path, &[JSON, ASKS_FOR_JSON], body);
            assert_eq!((answer.status, &*error_of(&answer)), (200, "invalid_request"), "{body}");
        }
    }
}
