//! The device authorization and token endpoints: their exact answers, and every way to ask wrongly.

use super::*;

#[test]
fn a_device_is_given_codes_in_the_form_of_the_rfc() {
    let server = Server::in_memory();
    let answer = send(&server, "device_authorization", "client_id=demo&scope=read");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_unkept(&answer);
    let json = answer.json();
    let text = |name: &str| json[name].as_str().unwrap();
    assert_eq!(text("device_code").len(), 43);
    let letters: String = text("user_code").split('-').collect();
    assert!(letters.len() == 10 && letters.bytes().all(|b| b"BCDFGHJKLMNPQRSTVWXZ".contains(&b)));
    assert_eq!(text("verification_uri"), "http://test/device");
    let complete = format!("http://test/device?user_code={}", text("user_code"));
    assert_eq!(text("verification_uri_complete"), complete);
    assert!((899..=900).contains(&json["expires_in"].as_u64().unwrap()), "{json}");
    assert_eq!(json["interval"], 5);
    assert_eq!(json.as_object().unwrap().len(), 6, "{json}");
}

#[test]
fn the_operator_says_where_the_page_is_and_whether_links_have_codes_in_them() {
    let flags = ["--storage", "mem", "--public-url", "https://login.example/"];
    let server = Server::with(&[&flags[..], &["--verification-uri-complete=false"]].concat());
    let json = send(&server, "device_authorization", "client_id=demo").json();
    assert_eq!(json["verification_uri"], "https://login.example/device");
    assert!(json.get("verification_uri_complete").is_none(), "{json}");
}

#[test]
fn a_device_is_linked_once_and_told_what_it_may() {
    let server = Server::in_memory();
    let codes = start_as(&server, "client_id=demo&scope=write+read");
    assert_refused(&poll(&server, &codes), 400, "authorization_pending");
    assert_eq!(approve(&server, &codes, "alice").status, 200);
    let linked = poll(&server, &codes);
    assert_eq!(linked.status, 200, "{}", linked.body);
    assert_unkept(&linked);
    let json = linked.json();
    assert_eq!((&json["token_type"], &json["scope"]), (&"Bearer".into(), &"write read".into()));
    assert_eq!(json["access_token"].as_str().unwrap().len(), 43);
    assert!((15_551_999..=15_552_000).contains(&json["expires_in"].as_u64().unwrap()), "{json}");
    let again = poll(&server, &codes).json();
    assert_eq!(again["access_token"], json["access_token"], "a repeat within the window");
}

#[test]
fn denied_and_unknown_codes_are_told_apart() {
    let server = Server::in_memory();
    let codes = start(&server);
    assert_eq!(deny(&server, &codes).status, 204);
    assert_refused(&poll(&server, &codes), 400, "access_denied");
    let unknown = Codes { device_code: "A".repeat(43), ..codes.clone() };
    assert_refused(&poll(&server, &unknown), 400, "invalid_grant");
    for wrong in ["x", "%F0%9F%93%BA", &"A".repeat(9_000), "A%20B", "%00"] {
        let wrong = Codes { device_code: wrong.to_owned(), ..codes.clone() };
        assert_refused(&poll(&server, &wrong), 400, "invalid_grant");
    }
}

#[test]
fn what_is_asked_wrongly_is_refused_in_the_form_of_the_rfc() {
    let server = Server::in_memory();
    let long = "x".repeat(20_000);
    let too_long = format!("client_id={}", "x".repeat(40_000));
    let long_client = format!("client_id={long}");
    let long_scope = format!("client_id=demo&scope={long}");
    let cases: [(&str, &str, u16, &str); 17] = [
        ("device_authorization", "", 400, "invalid_request"),
        ("device_authorization", "scope=read", 400, "invalid_request"),
        ("device_authorization", "client_id=&scope=read", 400, "invalid_request"),
        ("device_authorization", "client_id=demo&client_id=demo", 400, "invalid_request"),
        ("device_authorization", "client_id=demo&x=1&x=2", 400, "invalid_request"),
        ("device_authorization", "client_id=%zz", 400, "invalid_request"),
        ("device_authorization", "client_id=%ff", 400, "invalid_request"),
        ("device_authorization", "client_id=nobody", 401, "invalid_client"),
        ("device_authorization", &long_client, 401, "invalid_client"),
        ("device_authorization", &too_long, 413, "invalid_request"),
        ("device_authorization", "client_id=demo&client_secret=guess", 401, "invalid_client"),
        ("device_authorization", "client_id=demo&scope=admin", 400, "invalid_scope"),
        ("device_authorization", &long_scope, 400, "invalid_scope"),
        ("token", "client_id=demo", 400, "invalid_request"),
        ("token", "client_id=demo&grant_type=password", 400, "unsupported_grant_type"),
        ("token", &format!("client_id=demo&grant_type={DEVICE_GRANT}"), 400, "invalid_request"),
        ("token", &format!("device_code=x&grant_type={DEVICE_GRANT}"), 400, "invalid_request"),
    ];
    for (endpoint, form, status, error) in cases {
        let answer = send(&server, endpoint, form);
        assert!(answer.status == status, "{endpoint} {form:.80}: {}", answer.body);
        assert_refused(&answer, status, error);
    }
}

#[test]
fn parameters_that_nobody_knows_are_passed_over_and_empty_ones_left_out() {
    let server = Server::in_memory();
    let codes = start_as(&server, "client_id=demo&scope=&resource=x&client_secret=");
    assert_refused(
        &poll_as(&server, "client_id=demo&audience=y", &codes),
        400,
        "authorization_pending",
    );
}

#[test]
fn only_forms_are_read_and_queries_count_for_nothing() {
    let server = Server::in_memory();
    let path = "/oauth/demo/app/device_authorization";
    for content_type in ["application/json", "text/plain", "multipart/form-data; boundary=x"] {
        let line = format!("content-type: {content_type}");
        let request = Request::new("POST", path).header(&line).body("client_id=demo");
        assert_refused(&Conversation::with(server.http).ask(&request), 400, "invalid_request");
    }
    let utf8 = "content-type: Application/X-WWW-Form-URLEncoded; charset=UTF-8";
    let request = Request::new("POST", path).header(utf8).body("client_id=demo");
    assert_eq!(Conversation::with(server.http).ask(&request).status, 200);
    let in_query = send_with(&server, &format!("{path}?client_id=demo"), "scope=read", &[]);
    assert_refused(&in_query, 400, "invalid_request");
    let get = Conversation::with(server.http).ask(&Request::new("GET", path));
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
}

/// A television may be a browser.
#[test]
fn pages_of_any_origin_may_read_what_devices_are_told() {
    let server = Server::in_memory();
    let origin = ["origin: https://tv.example"];
    for (path, form) in [
        ("/oauth/demo/app/device_authorization", "client_id=demo"),
        ("/oauth/demo/app/token", "client_id=demo"),
    ] {
        let answer = send_with(&server, path, form, &origin);
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{path}");
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
}

/// Who has which application is nobody else's business.
#[test]
fn an_application_that_nobody_has_answers_as_one_without_this_client() {
    let server = Server::in_memory();
    let elsewhere =
        send_with(&server, "/oauth/no/body/device_authorization", "client_id=demo", &[]);
    let unknown = send(&server, "device_authorization", "client_id=nobody");
    assert_refused(&elsewhere, 401, "invalid_client");
    assert_eq!(elsewhere.body, unknown.body);
    server.make_app("acme", "two");
    let other = send_with(&server, "/oauth/acme/two/device_authorization", "client_id=demo", &[]);
    assert_eq!(other.body, unknown.body, "the client is another application's");
}

#[test]
fn a_code_is_bound_to_its_client_and_application() {
    let server = Server::in_memory();
    register(&server, r#""name":"Other","clientId":"other""#);
    let codes = start(&server);
    assert_eq!(approve(&server, &codes, "alice").status, 200);
    assert_refused(&poll_as(&server, "client_id=other", &codes), 400, "invalid_grant");
    server.make_app("acme", "two");
    let body = r#"{"owner":"acme","app":"two","name":"TV","clientId":"acme-tv"}"#;
    assert_eq!(server.administer("POST", "/api/v1/admin/oauth-clients", body).status, 201);
    let form =
        format!("grant_type={DEVICE_GRANT}&device_code={}&client_id=acme-tv", codes.device_code);
    assert_refused(&send_with(&server, "/oauth/acme/two/token", &form, &[]), 400, "invalid_grant");
    assert_eq!(poll(&server, &codes).status, 200, "and its own client still gets it");
}

#[test]
fn starts_are_paced_by_address_and_told_when_to_come_back() {
    let server = Server::in_memory();
    for number in 0..20 {
        let answer = send(&server, "device_authorization", "client_id=demo");
        assert_eq!(answer.status, 200, "{number}: {}", answer.body);
    }
    let last = send(&server, "device_authorization", "client_id=demo");
    assert_refused(&last, 429, "temporarily_unavailable");
    let seconds: u64 = last.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
}

/// A thousand homes behind one proxy are a thousand addresses.
#[test]
fn behind_a_trusted_proxy_each_home_has_its_own_pace() {
    let server = Server::with(&["--storage", "mem", "--trusted-proxies", "127.0.0.1"]);
    let path = "/oauth/demo/app/device_authorization";
    for home in 0..40 {
        let line = format!("x-forwarded-for: 10.0.0.{home}");
        assert_eq!(send_with(&server, path, "client_id=demo", &[&line]).status, 200, "{home}");
    }
    let from_one = || send_with(&server, path, "client_id=demo", &["x-forwarded-for: 10.1.0.1"]);
    for _ in 0..20 {
        assert_eq!(from_one().status, 200);
    }
    assert_eq!(from_one().status, 429);
}
