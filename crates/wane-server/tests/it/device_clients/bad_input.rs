//! Whatever else may be sent to the endpoints: each is refused in the form of the RFC, nothing breaks,
//! and the server goes on.

use super::curl::assert_refusal;
use super::*;

/// Endpoints, and the least that each takes.
const ENDPOINTS: [(&str, &str); 4] = [
    ("device_authorization", "client_id=demo"),
    (
        "token",
        "client_id=demo&grant_type=urn:ietf:params:oauth:grant-type:device_code&device_code=x",
    ),
    ("introspect", "client_id=demo&token=x"),
    ("revoke", "client_id=demo&token=x"),
];

/// The form of RFC 6749, whatever went wrong.
#[track_caller]
fn assert_refused(answer: &Answer, status: u16, error: &str) {
    assert_eq!(answer.status, status, "{}", answer.body);
    assert_refusal(&answer.body, error);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[test]
fn a_parameter_that_is_given_twice_is_refused() {
    let login = Login::new();
    for (endpoint, least) in ENDPOINTS {
        let names = least.split('&').map(|pair| pair.split_once('=').unwrap());
        for (name, value) in names.chain([("scope", "read"), ("unknown", "1")]) {
            for (first, second) in [(value, value), (value, "other"), (value, ""), ("", value)] {
                let others = least.split('&').filter(|pair| !pair.starts_with(name));
                let others: Vec<_> = others.collect();
                let form = format!("{name}={first}&{}&{name}={second}", others.join("&"));
                let answer = login.post(&format!("{APP}/{endpoint}"), &form);
                assert_refused(&answer, 400, "invalid_request");
            }
        }
    }
}

#[test]
fn a_body_of_another_type_is_refused() {
    let login = Login::new();
    for (endpoint, least) in ENDPOINTS {
        let path = format!("{APP}/{endpoint}");
        for wrong in [
            "application/json",
            "text/plain",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded2",
            "application",
            "",
            ";",
            "*/*",
        ] {
            let answer = login.post_with(&path, &[("content-type", wrong)], least);
            assert_refused(&answer, 400, "invalid_request");
        }
        assert_refused(&login.post_with(&path, &[], least), 400, "invalid_request");
        let json = json!({ "client_id": "demo", "token": "x" }).to_string();
        let answer = login.post_with(&path, &[("content-type", "application/json")], &json);
        assert_refused(&answer, 400, "invalid_request");
    }
    for right in [
        "application/x-www-form-urlencoded",
        "Application/X-WWW-Form-URLEncoded",
        "application/x-www-form-urlencoded; charset=UTF-8",
        "application/x-www-form-urlencoded;x",
    ] {
        let path = format!("{APP}/device_authorization");
        let answer = login.post_with(&path, &[("content-type", right)], "client_id=demo");
        assert_eq!(answer.status, 200, "{right}: {}", answer.body);
    }
}

#[test]
fn a_parameter_in_the_query_counts_for_nothing() {
    let login = Login::new();
    for (endpoint, least) in ENDPOINTS {
        let answer = login.post(&format!("{APP}/{endpoint}?{least}"), "");
        assert_refused(&answer, 400, "invalid_request");
    }
}

/// RFC 6749, section 3.1: a parameter without a value is one that was left out.
#[test]
fn an_empty_parameter_is_one_that_was_left_out_and_an_unknown_one_is_passed_over() {
    let login = Login::new();
    let path = format!("{APP}/device_authorization");
    for form in [
        "client_id=demo&scope=",
        "client_id=demo&scope",
        "client_id=demo&client_secret=",
        "&&client_id=demo&",
        "client_id=demo&audience=x&resource=https%3A%2F%2Fa%2F",
    ] {
        let answer = login.post(&path, form);
        assert_eq!(answer.status, 200, "{form}: {}", answer.body);
        let code = answer.json()["device_code"].as_str().unwrap().to_owned();
        let poll = [
            ("grant_type", GRANT),
            ("device_code", &*code),
            ("client_id", "demo"),
            ("client_secret", ""),
            ("scope", ""),
            ("unknown", "\u{20ac}"),
        ];
        let answer = login.post(&format!("{APP}/token"), &encoded(&poll));
        assert_refused(&answer, 400, "authorization_pending");
    }
    for form in ["", "client_id=", "client_id", "=demo", "demo", "&", "client_id+=demo"] {
        assert_refused(&login.post(&path, form), 400, "invalid_request");
    }
}

#[test]
fn what_is_not_well_encoded_utf8_is_refused() {
    let login = Login::new();
    for (endpoint, least) in ENDPOINTS {
        let path = format!("{APP}/{endpoint}");
        for wrong in ["x=%ff", "x=%c3", "%ff=x", "x=%ed%a0%80", "x=%", "x=%4", "x=%zz"] {
            let answer = login.post(&path, &format!("{least}&{wrong}"));
            assert_refused(&answer, 400, "invalid_request");
        }
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 5\r\n\
             content-type: application/x-www-form-urlencoded\r\n\r\n"
        );
        let answer = raw(login.server.http, &[head.as_bytes(), b"x=\xff\xfe\x80"].concat());
        assert_refused(&answer, 400, "invalid_request");
    }
}

/// Nothing that a client may send is kept, looked for or answered at length.
#[test]
fn whatever_is_too_long_is_refused_and_not_repeated() {
    let login = Login::new();
    let long = "B".repeat(9_000);
    let form = |pairs: &[(&str, &str)]| encoded(pairs);
    let cases = [
        ("device_authorization", form(&[("client_id", &long)]), 401, "invalid_client"),
        (
            "device_authorization",
            form(&[("client_id", "demo"), ("client_secret", &long)]),
            401,
            "invalid_client",
        ),
        (
            "device_authorization",
            form(&[("client_id", "demo"), ("scope", &long)]),
            400,
            "invalid_scope",
        ),
        (
            "token",
            form(&[("client_id", "demo"), ("grant_type", &long)]),
            400,
            "unsupported_grant_type",
        ),
        (
            "token",
            form(&[("client_id", "demo"), ("grant_type", GRANT), ("device_code", &long)]),
            400,
            "invalid_grant",
        ),
    ];
    for (endpoint, form, status, error) in &cases {
        let answer = login.post(&format!("{APP}/{endpoint}"), form);
        assert_refused(&answer, *status, error);
        assert!(answer.body.len() < 400, "{}", answer.body);
    }
    let answer =
        login.post(&format!("{APP}/revoke"), &form(&[("client_id", "demo"), ("token", &long)]));
    assert_eq!((answer.status, &*answer.body), (200, ""));
    assert_eq!(login.introspect(&long), json!({ "active": false }));

    // Larger than any form, in one parameter and in many.
    for body in [format!("client_id=demo&x={}", "B".repeat(100_000)), "x=1&".repeat(30_000)] {
        for (endpoint, _) in ENDPOINTS {
            let answer = login.post(&format!("{APP}/{endpoint}"), &body);
            assert_refused(&answer, 413, "invalid_request");
        }
    }
    let agent = "A".repeat(4_000);
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("user-agent", &*agent)];
    let started =
        login.post_with(&format!("{APP}/device_authorization"), &headers, "client_id=demo");
    assert_eq!(started.status, 200, "{}", started.body);
    login.approve(started.json()["user_code"].as_str().unwrap());
}

#[test]
fn the_code_of_another_application_is_nobodys() {
    let login = Login::new();
    let key = login.server.make_app("other", "app");
    let body = json!({ "owner": "other", "app": "app", "name": "Radio" }).to_string();
    let made = login.server.administer("POST", "/api/v1/admin/oauth-clients", &body).json();
    let other = made["clientId"].as_str().unwrap();
    let codes = login.demo();

    // Its own client in the path of the other one, and the other way round.
    let asked = |path: &str, client: &str| {
        login.post(&format!("{path}/device_authorization"), &encoded(&[("client_id", client)]))
    };
    assert_refused(&asked("/oauth/other/app", "demo"), 401, "invalid_client");
    assert_refused(&asked(APP, other), 401, "invalid_client");
    for nowhere in ["/oauth/no/app", "/oauth/%ff/app", "/oauth/../app", "/oauth/demo/%00"] {
        assert_refused(&asked(nowhere, "demo"), 401, "invalid_client");
    }
    let poll = |path: &str, client: &str| {
        let form =
            [("grant_type", GRANT), ("device_code", &*codes.device_code), ("client_id", client)];
        login.post(&format!("{path}/token"), &encoded(&form))
    };
    assert_refused(&poll("/oauth/other/app", other), 400, "invalid_grant");
    assert_refused(&poll("/oauth/other/app", "demo"), 401, "invalid_client");

    let approve = json!({ "userCode": codes.user_code, "subject": "mallory" }).to_string();
    let path = "/api/v2/apps/other/app/devices/approve";
    let answer = login.server.ask_as(Some(&key), "POST", path, &approve);
    assert_eq!((answer.status, &*answer.code()), (404, "absent"));
    let deny = json!({ "userCode": codes.user_code }).to_string();
    let path = "/api/v2/apps/other/app/devices/deny";
    assert_eq!(login.server.ask_as(Some(&key), "POST", path, &deny).status, 404);
    let path = "/api/v2/apps/demo/app/devices/approve";
    assert_eq!(login.server.ask_as(Some(&key), "POST", path, &approve).status, 404);

    let device = login.approve(&codes.user_code);
    assert_refused(&poll("/oauth/other/app", other), 400, "invalid_grant");
    let linked = login.redeemed(&codes);
    let token = linked["access_token"].as_str().unwrap();
    let authorization = format!("Bearer {key}");
    let headers =
        [("content-type", "application/x-www-form-urlencoded"), ("authorization", &*authorization)];
    let seen =
        login.post_with("/oauth/other/app/introspect", &headers, &encoded(&[("token", token)]));
    assert_eq!((seen.status, seen.json()), (200, json!({ "active": false })));
    let path = format!("/api/v2/apps/other/app/devices/{device}");
    assert_eq!(login.server.ask_as(Some(&key), "DELETE", &path, "").status, 404);
    assert_eq!(login.introspect(token)["active"], true);
}

/// A name that looks like HTML, and every other text, comes back as the JSON text that it is.
#[test]
fn html_in_names_and_agents_is_text() {
    let login = Login::new();
    let name = "<script>alert(1)</script> & \"TV\"";
    let client = login.register(json!({ "name": name, "scopes": ["read"] }));
    let agent = "<img src=x onerror=alert(1)>";
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("user-agent", agent)];
    let form = encoded(&[("client_id", &client.id)]);
    let started = login.post_with(&format!("{APP}/device_authorization"), &headers, &form).json();
    login.approve(started["user_code"].as_str().unwrap());
    login.redeemed(&Codes {
        client: client.id,
        secret: None,
        device_code: started["device_code"].as_str().unwrap().to_owned(),
        user_code: String::new(),
    });
    let listed = login.server.ask("GET", "/api/v2/apps/demo/app/devices", "");
    assert_eq!(listed.header("content-type"), Some("application/json"));
    let device = listed.json()["items"][0].clone();
    assert_eq!((&device["clientName"], &device["agent"]), (&json!(name), &json!(agent)));
}

/// The addresses of proxies that nobody trusts count for nothing: 20 starts from one place, however it
/// calls itself.
#[test]
fn an_address_that_is_made_up_does_not_evade_the_limit_of_starts() {
    let login = Login::alone(&[]);
    let path = format!("{APP}/device_authorization");
    let answers: Vec<_> = (0..40).map(|_| login.post(&path, "client_id=demo")).collect();
    let limited: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(limited.len() >= 15, "{} of 40", limited.len());
    for answer in limited {
        assert_refused(answer, 429, "temporarily_unavailable");
        assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
}
