//! Regions: which server serves an institution, and another takes over, on real shared stores too.

use serde_json::json;

use super::wire::{Call, Pulled};
use super::{ISPB, MANY, OTHER, SHORT_HOLD, Streams, pushing, start};
use crate::server::{Answer, Server, eventually};
use crate::shared::each_listed;

fn regions(server: &Server, method: &str, body: &str) -> Answer {
    server.administer(method, &format!("/api/v1/admin/regions/{ISPB}"), body)
}

fn fail_over(server: &Server, body: &str) -> Answer {
    server.administer("POST", &format!("/api/v1/admin/regions/{ISPB}/failover"), body)
}

/// The epoch of an answer, which has nothing else in it.
#[track_caller]
fn epoch(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = answer.json();
    assert_eq!(told.as_object().unwrap().len(), 1, "{told}");
    told["epoch"].as_u64().unwrap()
}

fn problem(answer: &Answer) -> (u16, String) {
    (answer.status, answer.code())
}

/// Every call of a stream.
fn calls(streams: &Streams, token: &str) -> [Call; 4] {
    let reading = |method: &str, path: &str| Call::new(method, path).key(&streams.reader);
    [
        pushing(&streams.producer, &[b"<a/>"]),
        reading("GET", &start(ISPB)),
        reading("GET", token),
        reading("DELETE", token),
    ]
}

/// All of them are refused at this server, with the region to ask in.
#[track_caller]
fn assert_elsewhere(streams: &Streams, server: &Server, token: &str, region: &str) {
    for call in calls(streams, token) {
        let reply = call.send(server.http);
        assert_eq!(reply.status, 421, "{}", reply.text());
        assert_eq!(reply.problem(), (421, "elsewhere".into()));
        assert_eq!(reply.json()["region"], region);
    }
}

#[test]
fn a_region_is_named_taken_over_from_and_given_back() {
    let streams = Streams::with(&["--region=r1"]);
    let server = &streams.server;
    assert_eq!(regions(server, "GET", "").status, 404, "every region serves it");
    let pair = r#"{"primary":"r1","secondary":"r2"}"#;
    assert_eq!(epoch(&regions(server, "PUT", pair)), 1);
    let map = json!({ "primary": "r1", "secondary": "r2", "epoch": 1 });
    assert_eq!(regions(server, "GET", "").json(), map);
    streams.push_numbers(0..20);
    let first = streams.start();

    assert_eq!(epoch(&fail_over(server, r#"{"to":"r2","reason":"a drill"}"#)), 2);
    assert_eq!(epoch(&fail_over(server, r#"{"to":"r2"}"#)), 2, "the same again changes nothing");
    let map = regions(server, "GET", "").json();
    assert_eq!((&map["primary"], &map["secondary"]), (&json!("r2"), &json!("r1")));
    assert!(map["failedOverAt"].as_u64().unwrap() > 1_700_000_000_000, "{map}");
    assert_elsewhere(&streams, server, &first.next, "r2");
    let other = Call::new("GET", &start(OTHER)).key(&super::reader_of(server, OTHER));
    assert_eq!(other.send(server.http).status, 204, "other institutions go on");

    assert_eq!(epoch(&fail_over(server, "")), 3, "back, without a word");
    assert_eq!(streams.after(&first).messages.len(), 10, "and the reader goes on");
}

#[test]
fn what_is_no_pair_of_regions_is_refused_and_changes_nothing() {
    let streams = Streams::new();
    let server = &streams.server;
    assert_eq!(problem(&fail_over(server, "{}")), (404, "absent".into()));
    for wrong in [
        "",
        "{}",
        "[]",
        "nonsense",
        r#"{"primary":"r1"}"#,
        r#"{"primary":"r1","secondary":"r1"}"#,
        r#"{"primary":"R1","secondary":"r2"}"#,
        r#"{"primary":"","secondary":"r2"}"#,
        r#"{"primary":"r1","secondary":"a b"}"#,
        r#"{"primary":1,"secondary":"r2"}"#,
        r#"{"primary":"r1","secondary":"r2","epoch":7}"#,
    ] {
        let answer = regions(server, "PUT", wrong);
        assert_eq!(problem(&answer), (400, "invalid_request".into()), "{wrong}: {}", answer.body);
    }
    let long = format!(r#"{{"primary":"{}","secondary":"r2"}}"#, "r".repeat(33));
    assert_eq!(regions(server, "PUT", &long).status, 400);
    assert_eq!(regions(server, "GET", "").status, 404);
    assert_eq!(epoch(&regions(server, "PUT", r#"{"primary":"local","secondary":"r2"}"#)), 1);
    let wordy = format!(r#"{{"reason":"{}"}}"#, "x".repeat(257));
    for wrong in [r#"{"to":"r3"}"#, r#"{"reason":7}"#, r#"{"too":"r2"}"#, "[]", &wordy] {
        let answer = fail_over(server, wrong);
        assert_eq!(problem(&answer), (400, "invalid_request".into()), "{wrong}: {}", answer.body);
    }
    for path in ["1234567", "123456789", "abcdefgh", "%31"] {
        let answer = server.administer("GET", &format!("/api/v1/admin/regions/{path}"), "");
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    }
    assert_eq!(regions(server, "GET", "").json()["epoch"], 1);
    assert_eq!(streams.start().reply.status, 204);
}

/// What it had before is found: the home of the store stays, whatever the region of its node is.
#[test]
fn a_server_that_gets_another_region_goes_on_with_its_streams() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let of = |region: &'static str| [&["--region", region][..], &SHORT_HOLD].concat();
    let streams = Streams::of(Server::start(&data, &of("r1")));
    let ids = streams.push_numbers(0..20);
    let first = streams.start();
    let streams = streams.restarted(&data, &of("r2"));
    assert_eq!(streams.after(&first).ids(), ids[10..]);
}

/// Two regions on one store: one server of each.
fn two(flags: &[String]) -> (Streams, Server) {
    let of = |region: &str| -> Server {
        let flags = flags.iter().map(String::as_str).chain(SHORT_HOLD).chain(["--region", region]);
        Server::with(&flags.collect::<Vec<_>>())
    };
    let streams = Streams::of(of("r1"));
    let other = of("r2");
    (streams, other)
}

fn at(server: &Server, streams: &Streams, path: &str) -> Pulled {
    let call = Call::new("GET", path).key(&streams.reader).header(MANY);
    Pulled::of(call.send(server.http))
}

#[test]
fn a_region_whose_server_is_killed_is_taken_over_from() {
    each_listed(|flags| {
        let (streams, other) = two(flags);
        let pair = r#"{"primary":"r1","secondary":"r2"}"#;
        assert_eq!(epoch(&regions(&other, "PUT", pair)), 1);
        let ids = streams.push_numbers(0..40);
        let first = streams.start();
        let second = streams.after(&first);
        assert_elsewhere(&streams, &other, &first.next, "r1");
        let Streams { server, producer, reader } = streams;
        server.kill();

        assert_eq!(epoch(&fail_over(&other, r#"{"to":"r2","reason":"r1 is dark"}"#)), 2);
        let streams = Streams { server: other, producer, reader };
        streams.after(&first).assert_same(&second);
        let third = streams.after(&second);
        assert_eq!(third.ids(), ids[20..30]);
        let fourth = streams.after(&third);
        assert_eq!(fourth.ids(), ids[30..], "nothing that was taken in there is lost");
        assert_eq!(streams.push(&[b"<b/>"]), streams.after(&fourth).ids());
    });
}

/// The server of the region that lost it lives, and has served a moment ago.
#[test]
fn a_region_that_lost_an_institution_serves_nothing_of_it_at_once() {
    each_listed(|flags| {
        let (streams, other) = two(flags);
        let pair = r#"{"primary":"r1","secondary":"r2"}"#;
        assert_eq!(epoch(&regions(&streams.server, "PUT", pair)), 1);
        let ids = streams.push_numbers(0..40);
        let mut pulled = streams.start();
        let owned =
            |pulled: &Pulled| pulled.ids().into_iter().map(String::from).collect::<Vec<_>>();
        let mut read = owned(&pulled);
        for (turn, to) in [(0, "r2"), (1, "r1"), (2, "r2")] {
            let servers = [&streams.server, &other];
            let (loses, takes) = (servers[turn % 2], servers[(turn + 1) % 2]);
            let asked = epoch(&fail_over(servers[turn / 2], &format!(r#"{{"to":"{to}"}}"#)));
            assert_eq!(asked, turn as u64 + 2);
            let refused = Call::new("GET", &pulled.next).key(&streams.reader).send(loses.http);
            assert_eq!(refused.status, 421, "{}", refused.text());
            pulled = at(takes, &streams, &pulled.next);
            read.extend(owned(&pulled));
            assert_elsewhere(&streams, loses, &pulled.next, to);
        }
        assert_eq!(read, ids, "each once, in order, by one region after the other");
        let told =
            |server: &Server| pushing(&streams.producer, &[b"<c/>"]).send(server.http).status;
        assert!(eventually(|| told(&streams.server) == 421), "producers within a second");
        assert_eq!(told(&other), 201);
    });
}
