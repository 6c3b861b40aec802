//! The aliases for clients made for GitHub: off unless switched on, forms and JSON alike.

use super::*;

fn json(server: &Server, path: &str, body: &str) -> Answer {
    let request = Request::new("POST", path).header("accept: application/json").body(body);
    Conversation::with(server.http).ask(&request)
}

#[test]
fn there_are_no_aliases_unless_the_operator_wants_them() {
    let server = Server::in_memory();
    for path in ["/login/device/code", "/login/oauth/access_token"] {
        let answer = send_with(&server, path, "client_id=demo", &[]);
        let nowhere = send_with(&server, "/login/nowhere", "client_id=demo", &[]);
        assert_eq!((answer.status, answer.body), (404, nowhere.body), "{path}");
    }
}

fn on() -> Server {
    Server::with(&["--storage", "mem", "--github-aliases"])
}

/// GitHub tells errors with status 200, and clients made for it look at nothing else.
#[track_caller]
fn assert_told(answer: &Answer, error: &str) {
    assert_eq!(
        (answer.status, answer.json()["error"].as_str()),
        (200, Some(error)),
        "{}",
        answer.body
    );
    assert_unkept(answer);
}

#[test]
fn a_client_made_for_github_is_linked() {
    let server = on();
    register(&server, r#""name":"No scopes","clientId":"plain""#);
    let started = json(&server, "/login/device/code", r#"{"client_id":"plain","n":1}"#);
    assert_eq!(started.status, 200, "{}", started.body);
    let code = |name: &str| started.json()[name].as_str().unwrap().to_owned();
    let codes = Codes { user_code: code("user_code"), device_code: code("device_code") };
    let poll = format!(
        r#"{{"client_id":"plain","device_code":"{}","grant_type":"{DEVICE_GRANT}"}}"#,
        codes.device_code
    );
    let token = "/login/oauth/access_token";
    assert_told(&json(&server, token, &poll), "authorization_pending");
    assert_eq!(approve(&server, &codes, "alice").status, 200);
    let linked = json(&server, token, &poll).json();
    assert_eq!(linked["scope"], "", "there, and empty: clients take it apart");
    let grant =
        format!("grant_type={DEVICE_GRANT}&client_id=plain&device_code={}", codes.device_code);
    let as_form = send_with(&server, token, &grant, &[]);
    assert!(
        as_form.header("content-type").unwrap().starts_with("application/x-www-form-urlencoded")
    );
    let access = format!("access_token={}", linked["access_token"].as_str().unwrap());
    assert!(
        as_form.body.replace("%2D", "-").replace("%5F", "_").contains(&access),
        "{}",
        as_form.body
    );
    let query =
        Request::new("POST", &format!("{token}?{grant}")).header("accept: application/json");
    let in_query = Conversation::with(server.http).ask(&query);
    assert_eq!(in_query.json()["access_token"], linked["access_token"], "{}", in_query.body);
}

#[test]
fn a_client_that_polls_too_often_is_told_the_interval() {
    let server = on();
    let codes = start(&server);
    let poll = format!(
        r#"{{"client_id":"demo","device_code":"{}","grant_type":"{DEVICE_GRANT}"}}"#,
        codes.device_code
    );
    let token = "/login/oauth/access_token";
    assert_told(&json(&server, token, &poll), "authorization_pending");
    crate::wait(std::time::Duration::from_millis(1_200));
    let hasty = json(&server, token, &poll);
    assert_told(&hasty, "slow_down");
    assert_eq!(hasty.json()["interval"], 10);
}

#[test]
fn what_is_asked_wrongly_is_told() {
    let server = on();
    for wrong in ["[]", "{", r#"{"client_id":1}"#, r#"{"client_id":""}"#] {
        assert_told(&json(&server, "/login/device/code", wrong), "invalid_request");
    }
    assert_told(&json(&server, "/login/device/code", r#"{"client_id":"x"}"#), "invalid_client");
    let twice = Request::new("POST", "/login/device/code?client_id=demo");
    let twice = twice.header("accept: application/json").form("client_id=demo");
    assert_told(&Conversation::with(server.http).ask(&twice), "invalid_request");
}
