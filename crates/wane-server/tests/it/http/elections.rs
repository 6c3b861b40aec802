//! Elections over HTTP: each call of the interface, and each way to ask wrongly.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::http::TTL;
use crate::http::conversation::{Conversation, Request};
use crate::http::watch::Watch;
use crate::server::{Answer, Server};
use crate::{stopwatch, wait};

const ELECTIONS: &str = "/api/v2/apps/demo/app/elections";

fn campaign(server: &Server, name: &str, holder: &str, millis: u64) -> Answer {
    let body = json!({"holder": holder, "ttlMillis": millis}).to_string();
    server.ask("POST", &format!("{ELECTIONS}/{name}/campaign"), &body)
}

fn step(server: &Server, step: &str, name: &str, lease: &Json, token: u64) -> Answer {
    let body = json!({"leaseId": lease, "token": token}).to_string();
    server.ask("POST", &format!("{ELECTIONS}/{name}/{step}"), &body)
}

fn standing(server: &Server, name: &str) -> Json {
    let answer = server.ask("GET", &format!("{ELECTIONS}/{name}"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn an_election_is_won_renewed_resigned_and_won_again() {
    let server = Server::in_memory();
    assert_eq!(server.ask("GET", &format!("{ELECTIONS}/e"), "").code(), "absent");
    let won = campaign(&server, "e", "node-1", 10_000);
    assert_eq!(won.status, 200, "{}", won.body);
    let lease = won.json();
    assert_eq!(lease["token"], 1);
    assert_eq!(lease["renewWithinMillis"], 8_750);
    assert!(lease["expiresAt"].is_u64() && lease["leaseId"].is_string());
    let held = campaign(&server, "e", "node-2", 10_000);
    assert_eq!((held.status, held.code().as_str()), (409, "refused"));
    assert_eq!((&held.json()["holder"], &held.json()["token"]), (&json!("node-1"), &json!(1)));
    assert!(held.json()["remainingMillis"].as_u64().unwrap() > 9_000, "{}", held.body);
    let renewed = step(&server, "renew", "e", &lease["leaseId"], 1);
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    assert_eq!(renewed.json()["leaseId"], lease["leaseId"]);
    assert_eq!(standing(&server, "e")["holder"], "node-1");
    assert_eq!(step(&server, "resign", "e", &lease["leaseId"], 1).status, 204);
    let vacant = standing(&server, "e");
    assert_eq!(vacant, json!({"holder": null, "token": 1, "remainingMillis": 0}));
    let late = step(&server, "renew", "e", &lease["leaseId"], 1);
    assert_eq!((late.status, late.json()["holder"].clone()), (409, Json::Null));
    assert_eq!(campaign(&server, "e", "node-2", 10_000).json()["token"], 2);
}

#[test]
fn a_lease_ends_by_itself_and_its_holder_is_told() {
    let server = Server::in_memory();
    let lease = campaign(&server, "e", "node-1", 1_000).json();
    let passed = stopwatch();
    while campaign(&server, "e", "node-2", 1_000).status == 409 {
        assert!(passed() < Duration::from_secs(5), "it never ends");
        wait(Duration::from_millis(20));
    }
    assert!(passed() >= Duration::from_millis(950), "{:?}", passed());
    let lost = step(&server, "renew", "e", &lease["leaseId"], 1);
    assert_eq!((lost.status, lost.json()["token"].clone()), (409, json!(2)));
    assert_eq!(step(&server, "resign", "e", &lease["leaseId"], 1).status, 409);
}

#[test]
fn tokens_grow_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(campaign(&server, "e", "node-1", 60_000).json()["token"], 1);
    server.kill();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(campaign(&server, "e", "node-2", 60_000).json()["holder"], "node-1");
    let name = "e%2Fwith%20%C3%A9";
    assert_eq!(campaign(&server, name, "node-1", 60_000).json()["token"], 1);
    assert_eq!(standing(&server, name)["token"], 1);
}

#[test]
fn what_is_asked_wrongly_is_refused_by_name() {
    let server = Server::in_memory();
    let lease = campaign(&server, "e", "node-1", 60_000).json();
    let id = lease["leaseId"].as_str().unwrap();
    let too_long = "n".repeat(1_025);
    let body = |holder: &str, ttl: &str| format!(r#"{{"holder":"{holder}","ttlMillis":{ttl}}}"#);
    let campaigns = [
        ("e", body("h", "999"), "invalid_ttl"),
        ("e", body("h", "3600001"), "invalid_ttl"),
        ("e", body("h", "-1"), "invalid_ttl"),
        ("e", body("h", "1500.5"), "invalid_ttl"),
        ("e", r#"{"holder":"h"}"#.to_owned(), "invalid_ttl"),
        ("e", r#"{"holder":"h","ttlMillis":"5000"}"#.to_owned(), "invalid_request"),
        ("e", body("", "5000"), "invalid_request"),
        ("e", body(&too_long, "5000"), "invalid_request"),
        ("e", r#"{"ttlMillis":5000}"#.to_owned(), "invalid_request"),
        ("e", r#"{"holder":"h","ttlMillis":5000,"more":1}"#.to_owned(), "invalid_request"),
        ("e", String::new(), "invalid_request"),
        (&too_long, body("h", "5000"), "invalid_request"),
        ("%FF", body("h", "5000"), "invalid_request"),
        ("%00", body("h", "5000"), "invalid_request"),
        ("%zz", body("h", "5000"), "invalid_request"),
        ("", body("h", "5000"), "invalid_request"),
    ];
    for (name, body, code) in campaigns {
        let answer = server.ask("POST", &format!("{ELECTIONS}/{name}/campaign"), &body);
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{name} {body}");
    }
    let lease = |id: &str, token: &str| format!(r#"{{"leaseId":"{id}","token":{token}}}"#);
    for (body, status) in [
        (lease("", "1"), 400),
        (lease("xyz", "1"), 400),
        (lease(id, "0"), 400),
        (lease(id, "9007199254740992"), 400),
        (lease(id, "1.5"), 400),
        (lease(id, "2"), 409),
        (lease(&"0".repeat(32), "1"), 409),
    ] {
        for step in ["renew", "resign"] {
            let answer = server.ask("POST", &format!("{ELECTIONS}/e/{step}"), &body);
            assert_eq!(answer.status, status, "{step} {body}: {}", answer.body);
        }
    }
    assert_eq!(server.ask("GET", &format!("{ELECTIONS}/"), "").code(), "invalid_request");
    assert_eq!(server.ask("PUT", &format!("{ELECTIONS}/e"), "{}").status, 405);
    assert_eq!(standing(&server, "e")["holder"], "node-1", "nothing was touched");
}

#[test]
fn a_watch_tells_who_holds_the_election() {
    let server = Server::in_memory();
    let mut watch = Watch::at(&server, &format!("{ELECTIONS}/e/watch"), None);
    let lease = campaign(&server, "e", "node-1", 1_500).json();
    let event = watch.next();
    assert_eq!((&*event.name, &event.data["holder"]), ("changed", &json!("node-1")));
    assert_eq!(step(&server, "renew", "e", &lease["leaseId"], 1).status, 200);
    let passed = stopwatch();
    assert_eq!(watch.next().data, json!({"holder": null, "token": 1, "remainingMillis": 0}));
    assert!(passed() > Duration::from_millis(1_300), "a renewal is no change: {:?}", passed());
    let second = campaign(&server, "e", "node-2", 60_000).json();
    assert_eq!(watch.next().data["token"], 2);
    let passed = stopwatch();
    assert_eq!(step(&server, "resign", "e", &second["leaseId"], 2).status, 204);
    assert_eq!(watch.next().data["holder"], Json::Null);
    assert!(passed() < Duration::from_millis(500), "{:?}", passed());
}

/// A write of this method to the entry `key`, guarded.
fn guarded(server: &Server, method: &str, key: &str, body: &str, guard: &str) -> Answer {
    let request = Request::new(method, &format!("{TTL}/{key}"))
        .key(&server.key)
        .header(&format!("wane-guard: {guard}"))
        .body(body);
    Conversation::with(server.http).ask(&request)
}

#[test]
fn a_guarded_write_passes_with_the_newest_token_only() {
    const SET: &str = r#"{"value":"v","ttlSeconds":60}"#;
    const TOUCH: &str = r#"{"ttlSeconds":60}"#;
    const SWAP: &str = r#"{"expectedValue":"v","newValue":"v","ttlSeconds":60}"#;
    let server = Server::in_memory();
    let name = "lead%20er%3B%2F";
    let lease = campaign(&server, name, "node-1", 60_000).json();
    let writes = [
        ("POST", "new", SET, 201),
        ("PUT", "kept", SET, 200),
        ("PUT", "kept", SWAP, 200),
        ("PATCH", "kept", TOUCH, 200),
        ("DELETE", "kept", r#"{"expectedValue":"v"}"#, 204),
        ("DELETE", "kept", "", 204),
    ];
    for (method, key, body, status) in writes {
        let answer = guarded(&server, method, key, body, &format!("{name};1"));
        assert_eq!(answer.status, status, "{method} {body}: {}", answer.body);
    }
    assert_eq!(step(&server, "resign", name, &lease["leaseId"], 1).status, 204);
    assert_eq!(campaign(&server, name, "node-2", 60_000).json()["token"], 2);
    for (method, key, body, _) in writes {
        for guard in [format!("{name};1"), format!("{name};3"), "never;1".to_owned()] {
            let answer = guarded(&server, method, key, body, &guard);
            assert_eq!((answer.status, answer.code().as_str()), (409, "stale_token"), "{method}");
        }
    }
    let batch = r#"{"operations":[{"op":"get","key":"new"},
        {"op":"insert","key":"a","value":"v","ttlSeconds":60},{"op":"delete","key":"new"}]}"#;
    let ask = |guard: &str| {
        let request = Request::new("POST", &format!("{TTL}:batch")).key(&server.key);
        let request = request.header(&format!("wane-guard: {guard}")).body(batch);
        let results = Conversation::with(server.http).ask(&request).json();
        let status = |at: usize| results["results"][at]["status"].as_u64().unwrap();
        [status(0), status(1), status(2)]
    };
    assert_eq!(ask(&format!("{name};1")), [200, 409, 409]);
    assert_eq!(ask(&format!("{name};2")), [200, 201, 204]);
}

/// A server that stalls between the check and the write: the fence is what is left.
#[test]
fn an_entry_that_the_successor_has_written_refuses_lower_tokens_by_itself() {
    const SET: &str = r#"{"value":"v","ttlSeconds":60}"#;
    let server = Server::in_memory();
    let (low, high) = ("low", "high");
    for _ in 0..3 {
        let lease = campaign(&server, high, "node", 60_000).json();
        step(&server, "resign", high, &lease["leaseId"], lease["token"].as_u64().unwrap());
    }
    campaign(&server, low, "node", 60_000);
    assert_eq!(guarded(&server, "PUT", "k", SET, "high;3").status, 200);
    let stale = guarded(&server, "PUT", "k", SET, "low;1");
    assert_eq!((stale.status, stale.code().as_str()), (409, "stale_token"), "{}", stale.body);
    assert_eq!(server.ask("PUT", &format!("{TTL}/k"), SET).status, 200, "no guard, no question");
}

#[test]
fn a_guard_that_cannot_be_read_is_refused_untouched() {
    const SET: &str = r#"{"value":"v","ttlSeconds":60}"#;
    let server = Server::in_memory();
    campaign(&server, "e", "node-1", 60_000);
    for guard in ["", "e", "e;", ";1", "e;0", "e;-1", "e;+1", "e;1.0", "e; 1", "%zz;1", "%FF;1"] {
        let answer = guarded(&server, "PUT", "k", SET, guard);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{guard}");
    }
    let twice = Request::new("PUT", &format!("{TTL}/k")).key(&server.key).body(SET);
    let twice = twice.header("wane-guard: e;1").header("wane-guard: e;1");
    assert_eq!(Conversation::with(server.http).ask(&twice).status, 400);
    assert_eq!(server.ask("GET", &format!("{TTL}/k"), "").status, 404, "nothing was written");
}
