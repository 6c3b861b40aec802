//! The application's side: approve, deny, list, unlink.

use serde_json::json;

use super::*;

#[test]
fn a_code_is_decided_once() {
    let server = Server::in_memory();
    let codes = start(&server);
    let approved = approve(&server, &codes, "alice");
    assert_eq!(approved.json()["deviceId"].as_str().unwrap().len(), 43);
    for late in [approve(&server, &codes, "mallory"), deny(&server, &codes)] {
        assert_eq!((late.status, late.code().as_str()), (409, "refused"), "{}", late.body);
    }
    let linked = poll(&server, &codes).json();
    assert_eq!(linked["device_id"], approved.json()["deviceId"]);
    assert_eq!(introspect(&server, linked["access_token"].as_str().unwrap())["sub"], "alice");
}

#[test]
fn codes_are_typed_as_people_type() {
    let server = Server::in_memory();
    let codes = start(&server);
    let typed = codes.user_code.to_lowercase().replace('-', " ");
    let typed = Codes { user_code: format!(" {typed} "), ..codes.clone() };
    assert_eq!(approve(&server, &typed, "alice").status, 200);
    assert_eq!(poll(&server, &codes).status, 200);
}

#[test]
fn wrong_codes_are_absent_and_those_of_others_too() {
    let server = Server::in_memory();
    let wrong = |code: &str| Codes { user_code: code.into(), device_code: String::new() };
    for code in ["BBBBB-BBBBB", "", "x", "12345-67890", &"B".repeat(5_000)] {
        let answer = approve(&server, &wrong(code), "alice");
        assert_eq!((answer.status, answer.code().as_str()), (404, "absent"), "{}", answer.body);
    }
    let other = server.make_app("acme", "two");
    let codes = start(&server);
    let body = format!(r#"{{"userCode":"{}","subject":"mallory"}}"#, codes.user_code);
    let path = "/api/v2/apps/acme/two/devices/approve";
    let foreign = server.ask_as(Some(&other), "POST", path, &body);
    assert_eq!(foreign.body, approve(&server, &wrong("BBBBB-BBBBC"), "a").body, "no difference");
    assert_refused(&poll(&server, &codes), 400, "authorization_pending");
}

#[test]
fn what_is_asked_wrongly_says_what_to_do() {
    let server = Server::in_memory();
    let codes = start(&server);
    let code = &codes.user_code;
    let long = "s".repeat(256);
    for body in [
        format!(r#"{{"userCode":"{code}"}}"#),
        format!(r#"{{"userCode":"{code}","subject":""}}"#),
        format!(r#"{{"userCode":"{code}","subject":"{long}"}}"#),
        format!(r#"{{"userCode":"{code}","subject":"a\nb"}}"#),
        format!(r#"{{"userCode":"{code}","subject":"a","linkToken":""}}"#),
        format!(r#"{{"userCode":"{code}","subject":"a","linkToken":"\u00e9"}}"#),
        format!(r#"{{"userCode":"{code}","subject":"a","extra":1}}"#),
        r#"{"subject":"a"}"#.to_owned(),
        "[]".to_owned(),
    ] {
        let answer = server.ask("POST", &format!("{DEVICES}/approve"), &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
        assert!(!answer.body.contains(code.as_str()), "codes are not repeated: {}", answer.body);
    }
    assert_refused(&poll(&server, &codes), 400, "authorization_pending");
}

#[test]
fn the_application_may_hand_on_a_payload_of_its_own() {
    let server = Server::in_memory();
    let codes = start(&server);
    let body = format!(
        r#"{{"userCode":"{}","subject":"alice","linkToken":"v4.public.their-own"}}"#,
        codes.user_code
    );
    assert_eq!(server.ask("POST", &format!("{DEVICES}/approve"), &body).status, 200);
    let linked = poll(&server, &codes).json();
    assert_eq!(linked["access_token"], "v4.public.their-own");
    assert!(linked.get("expires_in").is_none(), "only the application knows: {linked}");
    assert_eq!(poll(&server, &codes).json()["access_token"], "v4.public.their-own", "a repeat");
    assert_eq!(introspect(&server, "v4.public.their-own"), json!({"active": false}));
}

#[test]
fn devices_are_listed_by_person_in_pages_and_unlinked() {
    let server = Server::in_memory();
    let mine: Vec<Json> = (0..3).map(|_| link(&server, "alice")).collect();
    link(&server, "bob");
    let list = |query: &str| server.ask("GET", &format!("{DEVICES}{query}"), "").json();
    assert_eq!(list("")["items"].as_array().unwrap().len(), 4);
    let first = list("?subject=alice&limit=2");
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let next = first["next"].as_str().unwrap();
    let rest = list(&format!("?subject=alice&limit=2&after={next}"));
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (1, &Json::Null));
    let device = &rest["items"][0];
    assert_eq!((&device["subject"], &device["clientId"]), (&json!("alice"), &json!("demo")));
    assert_eq!(
        (&device["clientName"], &device["address"]),
        (&json!("Demo device"), &json!("127.0.0.1"))
    );
    let id = mine[0]["device_id"].as_str().unwrap();
    let path = format!("{DEVICES}/{id}");
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(server.ask("DELETE", &path, "").code(), "absent");
    assert_eq!(list("?subject=alice")["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        introspect(&server, mine[0]["access_token"].as_str().unwrap()),
        json!({"active": false})
    );
    assert_eq!(introspect(&server, mine[1]["access_token"].as_str().unwrap())["active"], true);
    for wrong in ["?after=x", "?limit=0", "?limit=1001", "?who=alice"] {
        assert_eq!(server.ask("GET", &format!("{DEVICES}{wrong}"), "").code(), "invalid_request");
    }
    assert_eq!(server.ask("DELETE", &format!("{DEVICES}/short"), "").code(), "invalid_request");
}

/// One of its people cannot use up the tries of all.
#[test]
fn a_person_that_guesses_is_stopped_and_others_go_on() {
    let server = Server::in_memory();
    let codes = start(&server);
    let guess = |letter: char, subject: &str| {
        let user_code = format!("BBBBB-BBBB{letter}");
        approve(&server, &Codes { user_code, device_code: String::new() }, subject)
    };
    for letter in "BCDFG".chars() {
        assert_eq!(guess(letter, "mallory").status, 404);
    }
    let limited = guess('H', "mallory");
    assert_eq!((limited.status, limited.code().as_str()), (429, "limited"));
    assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() <= 900);
    assert_eq!(approve(&server, &codes, "mallory").status, 429, "also where the next one is right");
    assert_eq!(approve(&server, &codes, "alice").status, 200);
}
