//! The libraries of Python: requests-oauth2client, authlib and oauthlib.

use super::*;

const PROGRAM: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/device_clients/python_client.py");

/// A device that runs a library; none where it is not installed.
fn device(library: &str, told: &Json) -> Option<Program> {
    let python = Path::new(INSTALLED).join("venv/bin/python");
    if !is_installed(&python, "scripts/oauth-clients") {
        return None;
    }
    let mut program =
        Program::start(Command::new(python).args(["-B", PROGRAM, library, &told.to_string()]));
    assert_eq!(program.next().expect("it starts"), json!({ "ready": true }));
    Some(program)
}

#[track_caller]
fn user_code(started: &Json) -> String {
    started["user_code"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned()
}

/// From the codes to a token that is good, and then is not.
fn links_and_unlinks(login: &Login, library: &str, client: &Client, method: &str) {
    let told = login.told_to(client, json!({ "scope": "read", "method": method }));
    let Some(mut device) = device(library, &told) else { return };
    let started = device.tell("start");
    assert!(started["raised"].is_null(), "{library}: {started}");
    let pending = device.tell("poll");
    assert_eq!(pending["error"], "authorization_pending", "{library}: {pending}");
    login.approve(&user_code(&started));
    let told = device.tell("poll");
    assert_eq!((&told["scope"], &told["type"]), (&json!("read"), &json!("Bearer")), "{told}");
    let token = told["token"].as_str().unwrap();
    let active = login.introspect(token);
    assert_eq!((&active["active"], &active["sub"]), (&json!(true), &json!("alice")), "{active}");
    if client.secret.is_some() {
        let seen = device.tell("introspect");
        assert_eq!((&seen["active"], &seen["scope"]), (&json!(true), &json!("read")), "{seen}");
    }
    assert_eq!(device.tell("revoke"), json!({ "revoked": true }));
    assert_eq!(login.introspect(token), json!({ "active": false }));
}

#[test]
fn requests_oauth2client_links_a_device_with_every_way_to_authenticate() {
    let login = Login::new();
    let public = login.register(json!({ "scopes": ["read"] }));
    links_and_unlinks(&login, "requests-oauth2client", &public, "none");
    let confidential = login.confidential();
    for method in ["basic", "post"] {
        links_and_unlinks(&login, "requests-oauth2client", &confidential, method);
    }
}

#[test]
fn authlib_links_a_device_with_every_way_to_authenticate() {
    let login = Login::new();
    let public = login.register(json!({ "scopes": ["read"] }));
    links_and_unlinks(&login, "authlib", &public, "none");
    let confidential = login.confidential();
    for method in ["basic", "post"] {
        links_and_unlinks(&login, "authlib", &confidential, method);
    }
}

/// Its own loop: it waits before it polls, and takes what the server says for an answer.
#[test]
fn requests_oauth2client_polls_until_the_device_is_linked() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read"] }));
    let told = login.told_to(&client, json!({}));
    let Some(mut device) = device("requests-oauth2client", &told) else { return };
    let started = device.tell("start");
    assert_eq!((&started["interval"], &started["is_expired"]), (&json!(5), &json!(false)));
    writeln!(device.input, "wait").unwrap();
    // After its first poll, before its second.
    crate::wait(std::time::Duration::from_secs(7));
    login.approve(&user_code(&started));
    let told = device.next().unwrap();
    assert_eq!((&told["scope"], &told["intervals"]), (&json!("read"), &json!([5, 5])), "{told}");
}

#[test]
fn what_a_device_is_refused_with_is_what_the_library_raises() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read"] }));
    let told = login.told_to(&client, json!({ "scope": "read" }));
    for (library, names) in [
        ("requests-oauth2client", ["AuthorizationPending", "AccessDenied", "InvalidGrant"]),
        ("authlib", ["OAuthError"; 3]),
        ("requests-oauthlib", ["CustomOAuth2Error", "AccessDeniedError", "InvalidGrantError"]),
    ] {
        let Some(mut device) = device(library, &told) else { return };
        let mut told = Vec::new();
        let denied = device.tell("start");
        told.push(device.tell("poll"));
        login.deny(&user_code(&denied));
        told.push(device.tell("poll"));
        let unlinked = device.tell("start");
        let unlinked = login.approve(&user_code(&unlinked));
        let path = format!("/api/v2/apps/demo/app/devices/{unlinked}");
        assert_eq!(login.server.ask("DELETE", &path, "").status, 204);
        told.push(device.tell("poll"));
        let errors = ["authorization_pending", "access_denied", "invalid_grant"];
        for ((told, name), error) in told.iter().zip(names).zip(errors) {
            assert_eq!((&told["raised"], &told["error"]), (&json!(name), &json!(error)), "{told}");
        }
    }
}

#[test]
fn a_client_that_may_not_is_told_so_by_the_library() {
    let login = Login::new();
    let mut client = login.confidential();
    client.secret = Some("wrong".into());
    for method in ["basic", "post"] {
        let told = login.told_to(&client, json!({ "method": method }));
        let Some(mut device) = device("requests-oauth2client", &told) else { return };
        let told = device.tell("start");
        assert_eq!(told["raised"], "InvalidClient", "{told}");
    }
    let client = login.register(json!({ "scopes": ["read"] }));
    let told = login.told_to(&client, json!({ "scope": "admin" }));
    let mut device = device("requests-oauth2client", &told).expect("it was there");
    assert_eq!(device.tell("start")["raised"], "InvalidScope");
}

/// With nothing to say but who it is, `requests` sends no form at all, and no type of one.
#[test]
fn requests_oauth2client_asks_for_all_scopes_by_an_empty_body() {
    let login = Login::new();
    let told = login.told_to(&login.confidential(), json!({ "method": "basic" }));
    let Some(mut device) = device("requests-oauth2client", &told) else { return };
    let started = device.tell("start");
    login.approve(&user_code(&started));
    assert_eq!(device.tell("poll")["scope"], "read write");
}

/// Trap: oauthlib raises if the scope differs from the one asked.
#[test]
fn oauthlib_takes_the_scope_for_exactly_the_one_it_asked_for() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read", "write", "admin"] }));
    for scope in ["read", "write read", "admin write read", "read admin"] {
        let told = login.told_to(&client, json!({ "scope": scope }));
        let Some(mut device) = device("requests-oauthlib", &told) else { return };
        let started = device.tell("start");
        login.approve(&user_code(&started));
        let told = device.tell("poll");
        assert_eq!((&told["scope"], &told["type"]), (&json!(scope), &json!("Bearer")), "{told}");
    }
}

/// The control of the above: the library does compare.
#[test]
fn oauthlib_raises_where_the_scope_is_another_one() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read", "write"] }));
    // It asks for both in its poll and was given one: another request for codes than its own.
    let told = login.told_to(&client, json!({ "scope": "read write", "startScope": "read" }));
    let Some(mut device) = device("requests-oauthlib", &told) else { return };
    let started = device.tell("start");
    login.approve(&user_code(&started));
    let told = device.tell("poll");
    assert_eq!(told["raised"], "Warning", "{told}");
    assert!(told["said"].as_str().unwrap().contains("Scope has changed"), "{told}");
}

/// OpenID clients look for the metadata below the issuer, others before its path.
#[test]
fn both_places_of_the_metadata_lead_to_the_same_endpoints() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read"] }));
    let below = login.url(&format!("{APP}/.well-known/oauth-authorization-server"));
    let told = login.told_to(&client, json!({ "discovery": below }));
    let Some(mut device) = device("requests-oauth2client", &told) else { return };
    let started = device.tell("start");
    login.approve(&user_code(&started));
    assert_eq!(device.tell("poll")["scope"], "read");
}
