//! Named sequences over HTTP: each call of the interface, and each way to ask wrongly.

use serde_json::json;

use super::conversation::{Conversation, Request};
use crate::server::{Answer, Server};

const SEQUENCES: &str = "/api/v2/apps/demo/app/sequences";

fn next(server: &Server, name: &str, count: &str, headers: &[&str]) -> Answer {
    let path = format!("{SEQUENCES}/{name}/next");
    let request = Request::new("POST", &path).key(&server.key);
    let request = headers.iter().fold(request, |request, line| request.header(line));
    let request = request.body(&format!(r#"{{"count":{count}}}"#));
    Conversation::with(server.http).ask(&request)
}

#[test]
fn numbers_start_at_one_and_go_on() {
    let server = Server::in_memory();
    assert_eq!(server.ask("GET", &format!("{SEQUENCES}/s"), "").code(), "absent");
    assert_eq!(next(&server, "s", "100", &[]).json(), json!({"first": 1, "count": 100}));
    assert_eq!(next(&server, "s", "100", &[]).json(), json!({"first": 101, "count": 100}));
    let shown = server.ask("GET", &format!("{SEQUENCES}/s"), "");
    assert_eq!((shown.status, shown.json()), (200, json!({"next": 201})));
    assert_eq!(next(&server, "other%2Fs", "1", &[]).json()["first"], 1);
}

#[test]
fn an_idempotency_key_gives_the_same_block_again() {
    let server = Server::in_memory();
    let key = "idempotency-key: import-7";
    let block = next(&server, "s", "10", &[key]).json();
    next(&server, "s", "5", &[]);
    assert_eq!(next(&server, "s", "10", &[key]).json(), block);
    let reused = next(&server, "s", "11", &[key]);
    assert_eq!((reused.status, reused.code().as_str()), (409, "refused"), "{}", reused.body);
    assert_eq!(next(&server, "s", "1", &[]).json()["first"], 16, "nothing was taken by it");
}

#[test]
fn numbers_survive_a_kill_and_are_not_given_out_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(next(&server, "s", "7", &["idempotency-key: k"]).json()["first"], 1);
    server.kill();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(next(&server, "s", "1", &[]).json()["first"], 8);
    assert_eq!(next(&server, "s", "7", &["idempotency-key: k"]).json()["first"], 1);
}

#[test]
fn what_is_asked_wrongly_is_refused_untouched() {
    let server = Server::in_memory();
    let too_long = "n".repeat(1_025);
    for count in ["0", "1000001", "-1", "1.5", "1e300", r#""1""#, "null", "[1]"] {
        let answer = next(&server, "s", count, &[]);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{count}");
    }
    for name in ["", &too_long, "%FF", "%00"] {
        let answer = next(&server, name, "1", &[]);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{name}");
    }
    let long_key = format!("idempotency-key: {}", "k".repeat(256));
    let keys = ["idempotency-key: ", "idempotency-key: a b", long_key.as_str()];
    for key in keys {
        let answer = next(&server, "s", "1", &[key]);
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{key}");
    }
    let twice = next(&server, "s", "1", &["idempotency-key: a", "idempotency-key: a"]);
    assert_eq!(twice.status, 400);
    assert_eq!(server.ask("POST", &format!("{SEQUENCES}/s/next"), "").status, 400);
    assert_eq!(server.ask("GET", &format!("{SEQUENCES}/"), "").status, 400);
    assert_eq!(server.ask("GET", &format!("{SEQUENCES}/s"), "").status, 404, "nothing was taken");
}

#[test]
fn guarded_numbers_are_given_to_the_newest_leader_only() {
    let server = Server::in_memory();
    let elections = "/api/v2/apps/demo/app/elections/e";
    let campaign = r#"{"holder":"one","ttlMillis":60000}"#;
    let lease = server.ask("POST", &format!("{elections}/campaign"), campaign).json();
    assert_eq!(next(&server, "s", "3", &["wane-guard: e;1"]).json()["first"], 1);
    let resign = json!({"leaseId": lease["leaseId"], "token": 1}).to_string();
    assert_eq!(server.ask("POST", &format!("{elections}/resign"), &resign).status, 204);
    assert_eq!(server.ask("POST", &format!("{elections}/campaign"), campaign).json()["token"], 2);
    let stale = next(&server, "s", "3", &["wane-guard: e;1"]);
    assert_eq!((stale.status, stale.code().as_str()), (409, "stale_token"));
    assert_eq!(next(&server, "s", "3", &["wane-guard: e;2"]).json()["first"], 4);
    assert_eq!(next(&server, "s", "1", &["wane-guard: never;2"]).code(), "stale_token");
}

/// Sixty-four callers at once: every number once.
#[test]
fn concurrent_callers_share_no_number() {
    let server = Server::on_file();
    let blocks: Vec<u64> = std::thread::scope(|scope| {
        let callers = (0..64).map(|_| {
            scope.spawn(|| {
                let blocks = (0..10).map(|_| next(&server, "s", "1", &[]).json()["first"].as_u64());
                blocks.map(Option::unwrap).collect::<Vec<_>>()
            })
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    let mut sorted = blocks;
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=640).collect::<Vec<_>>());
}
