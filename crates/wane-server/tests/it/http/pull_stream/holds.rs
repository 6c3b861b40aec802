//! Legal holds over HTTP: held messages stay in the store whatever their retention, and go when they
//! are released.

use std::time::Duration;

use serde_json::{Value as Json, json};
use wane::clock::SystemClock;

use super::{ISPB, OTHER, Streams};
use crate::server::{Answer, eventually};
use crate::wait;

const HOLDS: &str = "/api/v1/admin/holds";

fn place(streams: &Streams, body: &Json) -> Answer {
    streams.server.administer("POST", HOLDS, &body.to_string())
}

fn list(streams: &Streams, ispb: &str) -> Vec<Json> {
    let answer = streams.server.administer("GET", &format!("{HOLDS}?ispb={ispb}"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

fn release(streams: &Streams, id: &str) -> Answer {
    streams.server.administer("DELETE", &format!("{HOLDS}/{id}"), "")
}

/// All of the past, and some of the future.
fn always(ispb: &str) -> Json {
    json!({ "ispb": ispb, "from": 0, "to": 9_000_000_000_000_u64, "reason": "case 17" })
}

/// What came in until now.
fn so_far(ispb: &str) -> Json {
    let mut hold = always(ispb);
    hold["to"] = SystemClock::shared().now().as_unix_millis().into();
    hold
}

#[test]
fn what_is_held_is_read_after_its_retention_and_what_is_not_is_gone() {
    let streams = Streams::new();
    let policy = format!("/api/v1/admin/policies/{ISPB}");
    streams.server.administer("PUT", &policy, r#"{"retentionSeconds":3}"#);
    let held = streams.push(&[b"<a/>"]);
    wait(Duration::from_millis(5));
    let placed = place(&streams, &so_far(ISPB));
    assert_eq!(placed.status, 201, "{}", placed.body);
    assert_eq!(placed.json()["rows"], 1);
    let id = placed.json()["holdId"].as_str().unwrap().to_owned();
    streams.push(&[b"<b/>"]);
    let listed = list(&streams, ISPB);
    assert_eq!((&listed[0]["holdId"], &listed[0]["state"]), (&json!(id), &json!("placing")));
    assert_eq!(list(&streams, OTHER), [] as [Json; 0]);
    wait(Duration::from_secs(4));
    let pulled = streams.start();
    assert_eq!(pulled.ids(), held, "the second is gone");
    streams.end(&pulled);

    assert_eq!(release(&streams, &id).status, 204);
    assert_eq!(list(&streams, ISPB), [] as [Json; 0]);
    assert_eq!(release(&streams, &id).status, 404);
}

/// The server looks after holds that reach into the future by itself.
#[test]
fn what_comes_in_later_is_held_within_seconds() {
    let streams = Streams::new();
    place(&streams, &always(ISPB));
    assert_eq!(list(&streams, ISPB)[0]["rows"], 0);
    streams.push(&[b"<a/>"]);
    let is_held = || list(&streams, ISPB)[0]["rows"] == 1;
    assert!(eventually(is_held));
}

#[test]
fn what_is_asked_wrongly_is_refused_and_changes_nothing() {
    let streams = Streams::new();
    let right = always(ISPB);
    for (field, wrong) in [
        ("ispb", json!("208")),
        ("ispb", json!(null)),
        ("from", json!(-1)),
        ("from", json!("0")),
        ("from", json!(1.5)),
        ("to", json!(0)),
        ("to", json!(null)),
        ("reason", json!("")),
        ("reason", json!("x".repeat(513))),
        ("reason", json!("a\u{7}b")),
        ("why", json!("case 17")),
    ] {
        let mut body = right.clone();
        body[field] = wrong.clone();
        let answer = place(&streams, &body);
        assert_eq!((answer.status, &*answer.code()), (400, "invalid_request"), "{field}: {wrong}");
    }
    for missing in ["ispb", "from", "to", "reason"] {
        let mut body = right.clone();
        body.as_object_mut().unwrap().remove(missing);
        assert_eq!(place(&streams, &body).status, 400, "{missing}");
    }
    assert_eq!(list(&streams, ISPB), [] as [Json; 0]);
    for (id, status) in [
        ("00000208-0123456789abcdef", 404),
        ("00000208", 400),
        ("00000208-0123456789ABCDEF", 400),
        ("%FF", 400),
    ] {
        assert_eq!(release(&streams, id).status, status, "{id}");
    }
    for query in ["", "?ispb=1", "?ispb=00000208&ispb=00000208", "?isbp=00000208"] {
        let answer = streams.server.administer("GET", &format!("{HOLDS}{query}"), "");
        assert_eq!(answer.status, 400, "{query}");
    }
}
