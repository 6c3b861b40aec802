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

#[test]
fn a_client_made_for_github_is_linked() {
    let server = Server::with(&["--storage", "mem", "--github-aliases"]);
    let started =
        json(&server, "/login/device/code", r#"{"client_id":"demo","scope":"read","n":1}"#);
    assert_eq!(started.status, 200, "{}", started.body);
    let code = |name: &str| started.json()[name].as_str().unwrap().to_owned();
    let codes = Codes { user_code: code("user_code"), device_code: code("device_code") };
    let poll = format!(
        r#"{{"client_id":"demo","device_code":"{}","grant_type":"{DEVICE_GRANT}"}}"#,
        codes.device_code
    );
    let token = "/login/oauth/access_token";
    assert_refused(&json(&server, token, &poll), 400, "authorization_pending");
    assert_eq!(approve(&server, &codes, "alice").status, 200);
    assert_eq!(json(&server, token, &poll).json()["scope"], "read");
    let form =
        format!("grant_type={DEVICE_GRANT}&client_id=demo&device_code={}", codes.device_code);
    assert_eq!(send_with(&server, token, &form, &[]).status, 200, "a form is as good");
    for wrong in ["[]", "{", r#"{"client_id":1}"#, r#"{"client_id":""}"#] {
        assert_refused(&json(&server, "/login/device/code", wrong), 400, "invalid_request");
    }
    assert_refused(
        &json(&server, "/login/device/code", r#"{"client_id":"x"}"#),
        401,
        "invalid_client",
    );
}
