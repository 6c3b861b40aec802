//! What operators set and see: policies, the state of a stream, metrics.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{ISPB, MANY, OTHER, Streams, start};
use crate::server::{Answer, Server, eventually};
use crate::{stopwatch, wait};

fn policy(streams: &Streams, method: &str, body: &str) -> Answer {
    streams.server.administer(method, &format!("/api/v1/admin/policies/{ISPB}"), body)
}

#[track_caller]
fn set(streams: &Streams, body: &str) -> Json {
    let answer = policy(streams, "PUT", body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn a_policy_says_what_is_in_force() {
    let streams = Streams::new();
    let month = json!({ "retentionSeconds": 30 * 24 * 3600, "maxReaders": 6 });
    assert_eq!(policy(&streams, "GET", "").json(), month, "without one, the defaults");
    let set_one = json!({ "retentionSeconds": 3600, "maxReaders": 2 });
    assert_eq!(set(&streams, &set_one.to_string()), set_one);
    assert_eq!(policy(&streams, "GET", "").json(), set_one);
    let left_out = set(&streams, r#"{"maxReaders":3}"#);
    assert_eq!(left_out, json!({ "retentionSeconds": 3600, "maxReaders": 3 }), "it stays");
    assert_eq!(set(&streams, "{}"), left_out);
    assert_eq!(policy(&streams, "GET", "").json(), left_out);
    let other = format!("/api/v1/admin/policies/{OTHER}");
    assert_eq!(streams.server.administer("GET", &other, "").json(), month);
}

#[test]
fn a_policy_that_is_not_legal_changes_nothing() {
    let streams = Streams::new();
    let kept = set(&streams, r#"{"retentionSeconds":3600,"maxReaders":2}"#);
    for wrong in [
        r#"{"maxReaders":0}"#,
        r#"{"maxReaders":7}"#,
        r#"{"maxReaders":-1}"#,
        r#"{"maxReaders":"3"}"#,
        r#"{"maxReaders":2.5}"#,
        r#"{"retentionSeconds":0}"#,
        r#"{"retentionSeconds":-5}"#,
        r#"{"retentionSeconds":18446744073709551615}"#,
        r#"{"retentionSeconds":"1h"}"#,
        r#"{"retention":3600}"#,
        r#"[]"#,
        r#"nonsense"#,
    ] {
        let answer = policy(&streams, "PUT", wrong);
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
        assert!(answer.code().starts_with("invalid_"), "{wrong}: {}", answer.body);
    }
    assert_eq!(policy(&streams, "GET", "").json(), kept);
}

#[test]
fn an_institution_may_be_held_to_fewer_readers() {
    let streams = Streams::new();
    set(&streams, r#"{"maxReaders":2}"#);
    let (one, two) = (streams.start(), streams.start());
    let before = streams.standing();
    let third = streams.ask("GET", &start(ISPB), &[MANY]);
    assert_eq!(third.problem(), (429, "limited".into()));
    assert!(third.header("retry-after").is_some());
    assert_eq!(streams.standing(), before);
    streams.end(&one);
    let three = streams.start();
    set(&streams, r#"{"maxReaders":1}"#);
    assert_eq!(streams.after(&two).reply.status, 204, "those who are there stay");
    streams.end(&three);
    assert_eq!(streams.ask("GET", &start(ISPB), &[]).status, 429);
    streams.end(&two);
    assert_eq!(streams.start().reply.status, 204);
}

/// What came under an older policy keeps its time.
#[test]
fn messages_go_with_the_retention_they_came_under() {
    for storage in ["--storage=mem", "--storage=file"] {
        let streams = Streams::of(Server::with(&[&[storage], &super::SHORT_HOLD[..]].concat()));
        let kept = streams.push_numbers(0..3);
        set(&streams, r#"{"retentionSeconds":2}"#);
        let brief = streams.push_numbers(3..6);
        set(&streams, r#"{"retentionSeconds":3600}"#);
        let later = streams.push_numbers(6..9);
        wait(Duration::from_millis(2_200));
        let mut pulled = streams.start();
        let mut ids = Vec::new();
        while !pulled.messages.is_empty() {
            ids.extend(pulled.messages.iter().map(|message| message.id.clone()));
            pulled = streams.after(&pulled);
        }
        assert_eq!(ids, [kept, later].concat(), "{storage}");
        assert!(!ids.contains(&brief[0]));
        assert_eq!(streams.push_numbers(9..10), streams.after(&pulled).ids(), "it goes on");
    }
}

#[test]
fn the_state_of_a_stream_is_told() {
    let streams = Streams::with(&["--stream-lease-ms=1500"]);
    let told = |names: &[&str]| {
        let status = streams.status();
        names.iter().map(|name| status[*name].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let counts = ["liveReaders", "inFlight", "requeued", "lagMillis"];
    assert_eq!(streams.status()["ispb"], ISPB);
    assert_eq!(told(&counts), [0, 0, 0, 0], "of a stream that nobody has touched");
    assert_eq!(told(&["headRow", "tailRow"]), [0, 0]);
    streams.push_numbers(0..25);
    let waited = stopwatch();
    wait(Duration::from_millis(300));
    let lag = told(&["lagMillis"])[0];
    assert!((300..=waited().as_millis() as u64 + 1_000).contains(&lag), "{lag} ms");
    let first = streams.start();
    assert_eq!(told(&["liveReaders", "inFlight"]), [1, 10]);
    let head = told(&["headRow"])[0];
    let second = streams.after(&first);
    let third = streams.after(&second);
    assert_eq!(told(&["inFlight"]), [5]);
    assert!(told(&["headRow"])[0] > head);
    assert!(eventually(|| told(&["tailRow"])[0] >= 3), "three rows at least");
    streams.after(&third);
    assert_eq!(told(&["inFlight", "requeued", "lagMillis"]), [0, 0, 0]);
    wait(Duration::from_millis(1_600));
    assert_eq!(told(&["liveReaders"]), [0], "its lease has ended");
}

/// Names of all metrics of streams.
const METRICS: [&str; 7] = [
    "wane_stream_requests_total",
    "wane_stream_lag_seconds",
    "wane_stream_live_slots",
    "wane_stream_invalid_tokens_total",
    "wane_stream_delivery_seconds",
    "wane_stream_batch_messages",
    "wane_stream_parked_readers",
];

#[test]
fn metrics_tell_what_goes_on() {
    let streams = Streams::new();
    let value = |name: &str, label: &str| streams.metric(name, label).unwrap_or(0.0);
    streams.push_numbers(0..25);
    let lags = || value("wane_stream_lag_seconds", ISPB) > 0.0;
    assert!(eventually(lags), "nobody has read them yet");
    let first = streams.start();
    let second = streams.after(&first);
    let third = streams.after(&second);
    assert_eq!(third.messages.len(), 5);
    assert!(eventually(|| value("wane_stream_live_slots", ISPB) == 1.0));
    for forged in ["nonsense", "a.b.c"] {
        let path = format!("/api/v1/out/{ISPB}/stream/{forged}");
        assert_eq!(streams.ask("GET", &path, &[]).status, 401);
    }
    let metrics = streams.server.administer("GET", "/metrics", "").body;
    for name in METRICS {
        for kind in ["HELP", "TYPE"] {
            assert!(metrics.contains(&format!("# {kind} {name} ")), "no {kind} of {name}");
        }
    }
    assert_eq!(value("wane_stream_invalid_tokens_total", "reason="), 2.0);
    assert_eq!(value("wane_stream_batch_messages_count", ""), 3.0);
    assert_eq!(value("wane_stream_batch_messages_sum", ""), 25.0);
    assert!(value("wane_stream_delivery_seconds_count", "") >= 3.0);
    assert!(value("wane_stream_delivery_seconds_sum", "") > 0.0);
    let requests = value("wane_stream_requests_total", "call=");
    assert!(requests >= 8.0, "three pushes, three pulls and two refusals: {requests}");
    let outcomes = value("wane_stream_requests_total", "outcome=");
    assert_eq!(outcomes, requests, "each has both labels");
    streams.end(&third);
    assert!(eventually(|| value("wane_stream_live_slots", ISPB) == 0.0));
    assert!(eventually(|| value("wane_stream_lag_seconds", ISPB) == 0.0));
    assert!(value("wane_stream_requests_total", "call=") > requests, "it moves");
    assert_eq!(value("wane_stream_parked_readers", ""), 0.0);
}

/// Labels come from institutions that are known, and not from whatever is asked for.
#[test]
fn names_that_strangers_make_up_are_no_labels() {
    let streams = Streams::new();
    for number in 0..50 {
        let path = start(&format!("9{number:07}"));
        assert_eq!(streams.ask("GET", &path, &[]).status, 403);
    }
    let metrics = streams.server.administer("GET", "/metrics", "").body;
    assert!(!metrics.contains("ispb=\"9"), "{metrics}");
}

#[test]
fn times_that_contradict_each_other_end_the_start() {
    for (flags, word) in [
        (&["--stream-hold-ms=30000", "--stream-lease-ms=30000"][..], "stream_hold_ms"),
        (&["--stream-lease-ms=300000", "--stream-token-ms=300000"], "stream_lease_ms"),
        (&["--stream-keys=nonsense"], "stream_keys"),
        (&["--stream-keys=k1:c2hvcnQ="], "stream_keys"),
        (&["--stream-keys=file:/nowhere/to/be/found"], "stream_keys"),
        (&["--stream-retention-days=0"], "stream_retention_days"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let ended = crate::server::wane()
            .args(["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--storage=mem"])
            .args(flags)
            .arg("--data")
            .arg(home.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).to_lowercase();
        assert!(!ended.status.success(), "{flags:?}: it started");
        let flag = format!("--{}", word.replace('_', "-"));
        assert!(said.contains(word) || said.contains(&flag), "{flags:?} is told: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!said.contains("c2hvcnq"), "a key is not for the screen: {said}");
    }
}
