//! Traps that real clients and servers fell into, each by its name, as a client sees them. Those that
//! only time shows are in `over_time`, those of the limiter in `guesses`, those of one library beside
//! that library, and those of the page with the page.

use super::*;

/// The `oauth2` crate and Octokit poll at once.
#[test]
fn the_first_poll_is_never_throttled() {
    let login = Login::new();
    for _ in 0..20 {
        assert_eq!(login.refused(&login.demo()), "authorization_pending");
    }
}

/// Every poll within the same second, from however many connections, is one poll.
#[test]
fn a_failing_poll_sent_many_times_at_once_is_one_poll_with_one_answer() {
    let login = Login::new();
    let codes = login.demo();
    std::thread::scope(|scope| {
        let polls: Vec<_> = (0..8).map(|_| scope.spawn(|| login.refused(&codes))).collect();
        for poll in polls {
            assert_eq!(poll.join().unwrap(), "authorization_pending");
        }
    });
}

#[test]
fn the_granted_scope_is_exactly_the_one_asked_in_its_order() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read", "write", "admin"] }));
    for asked in ["read", "write read", "admin read write", "write"] {
        let codes = login.start(&client, Some(asked));
        login.approve(&codes.user_code);
        let linked = login.redeemed(&codes);
        assert_eq!(linked["scope"], asked);
        assert_eq!(login.introspect(linked["access_token"].as_str().unwrap())["scope"], asked);
    }
    let codes = login.start(&client, None);
    login.approve(&codes.user_code);
    assert_eq!(login.redeemed(&codes)["scope"], "read write admin", "all that it may have");
}

#[test]
fn the_scope_cannot_widen_at_the_token_call() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read", "write"] }));
    let codes = login.start(&client, Some("read"));
    login.approve(&codes.user_code);
    let form = [
        ("grant_type", GRANT),
        ("device_code", &*codes.device_code),
        ("client_id", &*codes.client),
        ("scope", "read write"),
    ];
    let answer = login.post(&format!("{APP}/token"), &encoded(&form));
    assert_eq!((answer.status, &answer.json()["scope"]), (200, &json!("read")), "{}", answer.body);
    let token = answer.json()["access_token"].as_str().unwrap().to_owned();
    assert_eq!(login.introspect(&token)["scope"], "read");
}

#[test]
fn an_approved_grant_is_never_withheld_by_slow_down() {
    let login = Login::new();
    let codes = login.demo();
    login.refused(&codes);
    crate::wait(std::time::Duration::from_millis(1_100));
    assert_eq!(login.refused(&codes), "slow_down");
    login.approve(&codes.user_code);
    login.redeemed(&codes);
}

#[test]
fn many_polls_of_one_approved_code_get_one_token() {
    let login = Login::new();
    for _ in 0..5 {
        let codes = login.demo();
        login.approve(&codes.user_code);
        let tokens: Vec<Json> = std::thread::scope(|scope| {
            let polls: Vec<_> = (0..8).map(|_| scope.spawn(|| login.redeemed(&codes))).collect();
            polls.into_iter().map(|poll| poll.join().unwrap()).collect()
        });
        for other in &tokens[1..] {
            assert_eq!(other["access_token"], tokens[0]["access_token"]);
            assert_eq!(other["device_id"], tokens[0]["device_id"]);
        }
    }
    let listed = login.server.ask("GET", "/api/v2/apps/demo/app/devices?subject=alice", "").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 5, "five codes, five devices");
}

#[test]
fn a_late_approval_does_not_revive_a_redeemed_code() {
    let login = Login::new();
    let codes = login.demo();
    login.approve(&codes.user_code);
    let linked = login.redeemed(&codes);
    let body = json!({ "userCode": codes.user_code, "subject": "mallory" });
    let late = login.decide("approve", &body);
    assert_eq!((late.status, &*late.code()), (409, "refused"));
    let denied = login.decide("deny", &json!({ "userCode": codes.user_code }));
    assert_eq!((denied.status, &*denied.code()), (409, "refused"));
    let token = linked["access_token"].as_str().unwrap();
    assert_eq!(login.introspect(token)["sub"], "alice");
    assert_eq!(login.redeemed(&codes)["access_token"], token, "a repeat, for a lost answer");
}

#[test]
fn a_code_is_bound_to_its_client() {
    let login = Login::new();
    let (own, other) = (login.confidential(), login.confidential());
    let codes = login.start(&own, None);
    let stolen = [
        Codes { client: other.id.clone(), secret: other.secret.clone(), ..codes.clone() },
        Codes { client: "demo".into(), secret: None, ..codes.clone() },
    ];
    let assert_useless = || {
        for stolen in &stolen {
            assert_eq!(login.refused(stolen), "invalid_grant");
        }
        let nobody = login.poll(&Codes { secret: None, ..codes.clone() });
        assert_eq!((nobody.status, &*error_of(&nobody)), (401, "invalid_client"));
    };
    assert_useless();
    login.approve(&codes.user_code);
    assert_useless();
    let linked = login.redeemed(&codes);
    assert_useless();
    // Nor is its token another client's to revoke.
    let token = linked["access_token"].as_str().unwrap();
    let revoked =
        login.post(&format!("{APP}/revoke"), &encoded(&[("client_id", "demo"), ("token", token)]));
    assert_eq!(revoked.status, 200, "RFC 7009: {}", revoked.body);
    assert_eq!(login.introspect(token)["active"], true);
}

/// The alphabet of device codes has two characters that are neither letters nor digits.
#[test]
fn punctuation_in_the_device_code_survives_every_way_of_encoding_it() {
    let login = Login::new();
    let codes = std::iter::repeat_with(|| login.demo());
    let codes = codes
        .take(100)
        .find(|codes| codes.device_code.contains('-') && codes.device_code.contains('_'))
        .expect("two in five codes have both");
    let grant = encoded(&[("grant_type", GRANT)]);
    let escaped: String = codes.device_code.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for code in [&*codes.device_code, &escaped, &escaped.to_uppercase().replace("%2D", "-")] {
        let form = format!("client_id=demo&{grant}&device_code={code}");
        let answer = login.post(&format!("{APP}/token"), &form);
        assert_eq!(error_of(&answer), "authorization_pending", "{code}");
    }
    let grant = GRANT;
    let form = format!("client_id=demo&grant_type={grant}&device_code={}", codes.device_code);
    let answer = login.post(&format!("{APP}/token"), &form);
    assert_eq!(error_of(&answer), "authorization_pending", "colons need no escape");
    for other in [
        codes.device_code.replace('-', "+"),
        codes.device_code.replace('_', "/"),
        format!("{}=", codes.device_code),
        format!(" {}", codes.device_code),
        codes.device_code.to_lowercase(),
    ] {
        let stolen = Codes { device_code: other, ..codes.clone() };
        assert_eq!(login.refused(&stolen), "invalid_grant");
    }
}

/// Case, dashes and blanks make no difference to what a person types.
#[test]
fn every_way_of_writing_a_code_finds_it() {
    let login = Login::new();
    let ways: [fn(&str) -> String; 6] = [
        str::to_owned,
        |shown| shown.replace('-', ""),
        |shown| shown.to_lowercase(),
        |shown| format!("  {}\t", shown.replace('-', " ")),
        |shown| shown.replace('-', "\u{2013}"),
        |shown| shown.chars().flat_map(|letter| [letter, '-']).collect(),
    ];
    for way in ways {
        let codes = login.demo();
        login.approve(&way(&codes.user_code));
        login.redeemed(&codes);
    }
}

#[test]
fn a_wrong_code_has_a_message() {
    let login = Login::new();
    let long = "B".repeat(200);
    for typed in ["", "-", "AEIOU-AEIOU", "<b>BCDFG</b>", "BCDFG", &long, &wrong_code(1)] {
        for what in ["approve", "deny"] {
            let mut body = json!({ "userCode": typed });
            if what == "approve" {
                body["subject"] = json!("alice");
            }
            let answer = login.decide(what, &body);
            assert_eq!(
                (answer.status, &*answer.code()),
                (404, "absent"),
                "{typed}: {}",
                answer.body
            );
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("no device shows this code"), "{detail}");
        }
    }
}

#[test]
fn without_a_scope_somebody_must_approve_all_the_same() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": [] }));
    let codes = login.start(&client, None);
    assert_eq!(login.refused(&codes), "authorization_pending");
    login.approve(&codes.user_code);
    let linked = login.redeemed(&codes);
    assert!(linked["scope"].as_str().is_none_or(str::is_empty), "{linked}");
    let active = login.introspect(linked["access_token"].as_str().unwrap());
    assert_eq!((&active["active"], &active["sub"]), (&json!(true), &json!("alice")));
}

/// `gh` needs it, and so may others.
#[test]
fn the_interval_is_always_told() {
    for flags in [&[][..], &["--verification-uri-complete=false", "--user-code-letters=12"]] {
        let login = Login::with(flags);
        let answer = login.ask_for_codes(&Client { id: "demo".into(), secret: None }, None);
        let told = answer.json();
        assert_eq!(told["interval"], 5, "{told}");
        let has_complete = flags.is_empty();
        assert_eq!(told["verification_uri_complete"].is_string(), has_complete, "{told}");
        assert_eq!(told["user_code"].as_str().unwrap().len(), if has_complete { 11 } else { 14 });
    }
}
