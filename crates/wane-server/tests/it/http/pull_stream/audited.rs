//! The audit over HTTP: what auditors are told, page by page, and what they are told of damage.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use wane::clock::SystemClock;
use wane::store::{ClusteringRange, Keyspace, Life, PageLimit, Store, Value, Write};

use super::wire::{Call, Pulled};
use super::{ISPB, OTHER, SHORT_HOLD, Streams, reader_of, start};
use crate::server::{Answer, Server, eventually};

fn look(streams: &Streams, query: &str) -> Answer {
    streams.server.administer("GET", &format!("/api/v1/admin/audit?{query}"), "")
}

#[track_caller]
fn page(streams: &Streams, query: &str) -> Json {
    let answer = look(streams, &format!("ispb={ISPB}{query}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Every entry, so many at a time.
fn entries(streams: &Streams, query: &str) -> Vec<Json> {
    let (mut entries, mut after) = (Vec::new(), String::new());
    loop {
        let page = page(streams, &format!("{query}{after}"));
        entries.extend(page["entries"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return entries,
        }
    }
}

fn token_hash(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16])
}

/// Takes, retries, mistakes and gives back: what must be told of it is returned, tokens and all.
fn used(streams: &Streams) -> Vec<Pulled> {
    streams.push_numbers(0..20);
    let first = streams.start();
    let second = streams.after(&first);
    streams.after(&first).assert_same(&second);
    let forged = streams.ask("GET", &format!("/api/v1/out/{ISPB}/stream/forged"), &[]);
    assert_eq!(forged.status, 401);
    streams.end(&second);
    let policy = format!("/api/v1/admin/policies/{ISPB}");
    assert_eq!(streams.server.administer("PUT", &policy, r#"{"maxReaders":5}"#).status, 200);
    // Entries of transitions are carried to their chain a moment later.
    assert!(eventually(|| entries(streams, "").len() == 6), "{:?}", entries(streams, ""));
    vec![first, second]
}

#[test]
fn what_happened_is_told_with_who_when_hash_outcome_and_row() {
    let streams = Streams::new();
    let began = crate::wall_clock();
    let used = used(&streams);
    let told = entries(&streams, "");
    let facts: Vec<_> = told
        .iter()
        .map(|entry| (entry["action"].as_str().unwrap(), entry["outcome"].as_str().unwrap()))
        .collect();
    let mut sorted = facts.clone();
    sorted.sort_unstable();
    let expected = [
        ("end", "done"),
        ("next", "delivered"),
        ("next", "replayed"),
        ("next", "tampered"),
        ("policy", "done"),
        ("start", "delivered"),
    ];
    assert_eq!(sorted, expected);
    assert_eq!(facts[0], ("start", "delivered"), "in the order of time");
    let times: Vec<_> = told.iter().map(|entry| entry["at"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] >= began && times[5] <= crate::wall_clock());

    let of = |action: &str, outcome: &str| {
        let is_it = |entry: &&Json| entry["action"] == action && entry["outcome"] == outcome;
        told.iter().find(is_it).unwrap().clone()
    };
    let (first, second) = (token_hash(used[0].token()), token_hash(used[1].token()));
    let begin = of("start", "delivered");
    assert_eq!((&begin["hash"], &begin["issuedHash"]), (&json!(first), &json!(first)));
    assert_eq!((&begin["messages"], &begin["thread"]), (&json!(10), &json!(0)));
    let next = of("next", "delivered");
    assert_eq!((&next["hash"], &next["issuedHash"]), (&json!(first), &json!(second)));
    assert_eq!(of("next", "replayed")["hash"], json!(first));
    assert_eq!(of("next", "tampered")["hash"], json!(token_hash("forged")));
    assert_eq!(of("end", "done")["hash"], json!(second));
    assert_eq!(of("policy", "done")["hash"], Json::Null);
    let (operator, _) = streams.server.admin_key.split_once('.').unwrap();
    assert_eq!(of("policy", "done")["who"], format!("key {operator}"));
    for entry in &told {
        let is_transition = entry["chain"]["name"] == "transitions";
        let rides = ["start", "end"].contains(&entry["action"].as_str().unwrap());
        assert!(is_transition || !rides, "{entry}");
        assert_eq!(entry["chain"]["hash"].as_str().unwrap().len(), 43, "{entry}");
        assert!(entry["chain"]["row"].is_u64(), "{entry}");
        assert!(entry.get("reason").is_some(), "{entry}");
    }
}

#[test]
fn pages_and_times_make_parts_of_the_whole() {
    let streams = Streams::new();
    used(&streams);
    let whole = entries(&streams, "");
    for limit in [1, 2, 5, 6, 1000] {
        assert_eq!(entries(&streams, &format!("&limit={limit}")), whole, "{limit}");
    }
    assert_eq!(page(&streams, "&limit=4")["entries"].as_array().unwrap().len(), 4);
    let at = |entry: &Json| entry["at"].as_u64().unwrap();
    let (from, to) = (at(&whole[1]), at(&whole[5]).max(at(&whole[1]) + 1));
    let expected: Vec<_> =
        whole.iter().filter(|entry| (from..to).contains(&at(entry))).cloned().collect();
    assert!(!expected.is_empty());
    assert_eq!(entries(&streams, &format!("&from={from}&to={to}&limit=1")), expected);
    assert_eq!(entries(&streams, &format!("&from={}", at(&whole[5]) + 1)), [Json::Null; 0]);
    let empty = look(&streams, &format!("ispb={OTHER}"));
    assert_eq!(empty.json(), json!({ "entries": [], "next": null }), "of nobody");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let streams = Streams::new();
    used(&streams);
    let next = page(&streams, "&limit=1")["next"].as_str().unwrap().to_owned();
    let cut = &next[..next.len() - 1];
    for query in [
        String::new(),
        "ispb=".into(),
        "ispb=1234567".into(),
        "ispb=1234567x".into(),
        format!("ispb={ISPB}&ispb={ISPB}"),
        format!("ispb={ISPB}&from=yesterday"),
        format!("ispb={ISPB}&from=-1"),
        format!("ispb={ISPB}&from=%2B1"),
        format!("ispb={ISPB}&from="),
        format!("ispb={ISPB}&to=99999999999999999999"),
        format!("ispb={ISPB}&from=2&to=1"),
        format!("ispb={ISPB}&from=2&to=2"),
        format!("ispb={ISPB}&to=0"),
        format!("ispb={ISPB}&limit=0"),
        format!("ispb={ISPB}&limit=1001"),
        format!("ispb={ISPB}&until=5"),
        format!("ispb={ISPB}&after="),
        format!("ispb={ISPB}&after=nonsense"),
        format!("ispb={ISPB}&after={cut}"),
        format!("ispb={ISPB}&from=1&after={next}"),
        format!("ispb={OTHER}&after={next}"),
    ] {
        let answer = look(&streams, &query);
        assert_eq!((answer.status, answer.code()), (400, "invalid_request".into()), "{query}");
    }
    assert_eq!(look(&streams, &format!("ispb={ISPB}&after={next}")).status, 200, "the control");
    let wrong = ["from=1", "limit=0", "limit=1001", "after=", "after=nonsense"];
    let wrong = wrong.map(|query| format!("?ispb={ISPB}&{query}"));
    let wrong = wrong.iter().map(String::as_str);
    for query in ["", "?ispb=", "?ispb=1234567"].into_iter().chain(wrong) {
        let path = format!("/api/v1/admin/audit/verify{query}");
        let answer = streams.server.administer("GET", &path, "");
        assert_eq!((answer.status, answer.code()), (400, "invalid_request".into()), "{query}");
    }
}

#[test]
fn the_audit_is_for_operators() {
    let streams = Streams::new();
    for path in ["/api/v1/admin/audit", "/api/v1/admin/audit/verify"] {
        let path = format!("{path}?ispb={ISPB}");
        let ask = |key| crate::server::request(streams.server.admin, key, "GET", &path, "");
        assert_eq!(ask(None).status, 401, "{path}");
        for key in [&streams.reader, &streams.producer] {
            assert_eq!(ask(Some(key)).status, 403, "{path}");
        }
        let elsewhere = streams.server.ask_as(Some(&streams.server.admin_key), "GET", &path, "");
        assert_eq!(elsewhere.status, 404, "{path} is not for the open port");
        assert_eq!(streams.server.administer("GET", &path, "").status, 200, "the control");
    }
}

/// Who called for somebody else's stream is in the audit of that one.
#[test]
fn an_institution_finds_who_tried() {
    let streams = Streams::new();
    let foreign = reader_of(&streams.server, OTHER);
    let turned = Call::new("GET", &start(ISPB)).key(&foreign).send(streams.server.http);
    assert_eq!(turned.status, 403);
    assert!(eventually(|| !entries(&streams, "").is_empty()));
    let told = &entries(&streams, "")[0];
    let (id, _) = foreign.split_once('.').unwrap();
    assert_eq!(told["outcome"], "foreign");
    assert_eq!(told["who"], format!("key {id}"));
    assert_eq!(told["chain"]["name"], "remarks");
}

fn verify(server: &Server) -> Answer {
    server.administer("GET", &format!("/api/v1/admin/audit/verify?ispb={ISPB}"), "")
}

/// Edits the text of a row where a server that is not running keeps it.
pub(crate) fn edit_row(data: &std::path::Path, ispb: &str, letter: u8, row: usize, to: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("file:{}", data.display());
        let store = wane_backends::open(&url, SystemClock::shared()).await.unwrap();
        let rest = [&[5][..], b"local", ispb.as_bytes(), &[letter], &[0; 8]].concat();
        let partition = Keyspace::Audit.partition(&rest).unwrap();
        let rows = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
        let row = &rows.rows[row];
        let text = String::from_utf8(row.record.value.to_vec()).unwrap();
        let edited = text.replace("\"at\":", to);
        assert_ne!(edited, text);
        let write = Write::new(Value::new(edited).unwrap(), Life::Permanent);
        assert!(store.put(&row.key, write).await.unwrap().is_applied());
    });
}

#[test]
fn damage_is_told_by_chain_row_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let streams = Streams::of(Server::start(&data, &SHORT_HOLD));
    used(&streams);
    let whole = verify(&streams.server);
    assert_eq!(whole.status, 200, "{}", whole.body);
    let chains = whole.json()["chains"].as_array().unwrap().clone();
    let counted: Vec<_> = chains.iter().map(|it| (&it["chain"], &it["entries"])).collect();
    let expected = [("transitions", 3), ("remarks", 3)].map(|(name, n)| (json!(name), json!(n)));
    assert_eq!(counted, expected.each_ref().map(|(name, n)| (name, n)));
    let Streams { server, .. } = streams;
    assert_eq!(server.stop(), Some(0));

    edit_row(&data, ISPB, b'r', 1, "\"at\":1");
    let server = Server::start(&data, &["--wait"]);
    let broken = verify(&server);
    assert_eq!((broken.status, broken.code()), (409, "audit_broken".into()), "{}", broken.body);
    let told = broken.json();
    assert_eq!((&told["chain"], &told["row"]), (&json!("remarks"), &json!(1)));
    assert!(told["reason"].as_str().is_some_and(|reason| reason.len() > 10), "{told}");
    assert!(told["detail"].as_str().unwrap().contains("row 1 of the remarks"), "{told}");

    assert_eq!(server.stop(), Some(0));
    edit_row(&data, ISPB, b'r', 2, "at\":");
    let server = Server::start(&data, &["--wait"]);
    let listed = server.administer("GET", &format!("/api/v1/admin/audit?ispb={ISPB}"), "");
    assert_eq!((listed.status, listed.code()), (409, "audit_broken".into()), "{}", listed.body);
    assert_eq!(listed.json()["row"], 2, "the row that cannot be read");
}
