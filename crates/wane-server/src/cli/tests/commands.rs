//! What commands send and print.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Desk, Paper};
use crate::cli::Exit;
use crate::client::tests::stage::{KEY, Play, Player, Raw};

/// 14 minutes and 59 seconds after the time of the tests.
const EXPIRY: u64 = 1_000_000_899_999;

fn written() -> String {
    format!(r#"{{"expiresAt":{EXPIRY}}}"#)
}

async fn stage() -> (Player, Desk) {
    let (player, url) = Player::start().await;
    (player, Desk::at(&url))
}

fn parsed(desk: &Desk) -> Value {
    serde_json::from_str(&desk.out.text()).unwrap()
}

#[tokio::test]
async fn get_prints_the_value_as_it_is() {
    let (player, mut desk) = stage().await;
    player.answers(200, "application/octet-stream", "v\u{7}");
    assert_eq!(desk.asks("ttl get k").await, Exit::Done);
    assert_eq!(desk.out.text(), "v\u{7}");

    desk.is_terminal = true;
    player.answers(200, "application/octet-stream", "w");
    desk.out = Paper::default();
    desk.asks("ttl get k").await;
    assert_eq!(desk.out.text(), "w\n");
}

#[tokio::test]
async fn get_for_programs_has_the_life_too() {
    let (player, mut desk) = stage().await;
    player.json(200, r#"{"value":"v","expiresAt":5,"ttlMillis":4}"#);
    assert_eq!(desk.asks("ttl get k --json").await, Exit::Done);
    assert_eq!(parsed(&desk), json!({"value": "v", "expiresAt": 5, "ttlMillis": 4}));

    desk.out = Paper::default();
    player.json(200, r#"{"valueBase64":"/w==","expiresAt":null,"ttlMillis":null}"#);
    desk.asks("ttl get k --json").await;
    assert_eq!(parsed(&desk), json!({"valueBase64": "/w==", "expiresAt": null, "ttlMillis": null}));
}

#[tokio::test]
async fn writes_say_what_was_done_and_what_is_left() {
    for (line, method, body, said) in [
        ("insert k v --ttl 900", "POST", json!({"value": "v", "ttlMillis": 900_000}), "inserted"),
        ("set k -5 --ttl 500ms", "PUT", json!({"value": "-5", "ttlMillis": 500}), "set"),
        ("touch k --ttl 15m", "PATCH", json!({"ttlMillis": 900_000}), "touched"),
        (
            "swap k a b --keep-expiry",
            "PUT",
            json!({"expectedValue": "a", "newValue": "b", "keepExpiry": true}),
            "swapped",
        ),
        (
            "swap k a b --ttl 2h",
            "PUT",
            json!({"expectedValue": "a", "newValue": "b", "ttlMillis": 7_200_000}),
            "swapped",
        ),
    ] {
        let (player, mut desk) = stage().await;
        player.json(200, &written());
        assert_eq!(desk.asks(&format!("ttl {line} --app acme/two")).await, Exit::Done, "{line}");
        assert_eq!(desk.out.text(), format!("{said}, left: 14m 59s\n"));
        assert_eq!(player.heard().line, format!("{method} /api/v2/apps/acme/two/ttl/k"));
        assert_eq!(player.heard().json(), body);

        desk.out = Paper::default();
        player.json(200, &written());
        desk.asks(&format!("ttl {line} --json")).await;
        assert_eq!(parsed(&desk), json!({"expiresAt": EXPIRY}));
    }
}

#[tokio::test]
async fn delete_has_a_condition_where_one_is_given() {
    let (player, desk) = stage().await;
    player.answers(204, "", "");
    assert_eq!(desk.asks("ttl delete k").await, Exit::Done);
    assert!(player.heard().body.is_empty());
    player.answers(204, "", "");
    assert_eq!(desk.asks("ttl delete k --expected -v").await, Exit::Done);
    assert_eq!(player.heard().json(), json!({"expectedValue": "-v"}));
    assert_eq!(desk.out.text(), "deleted\ndeleted\n");
}

#[tokio::test]
async fn a_dash_reads_the_value_from_standard_input() {
    let (player, mut desk) = stage().await;
    desk.input = vec![b'v', b'\n', 255];
    player.json(201, &written());
    assert_eq!(desk.asks("ttl insert k - --ttl 1").await, Exit::Done);
    assert_eq!(player.heard().json(), json!({"valueBase64": "dgr/", "ttlMillis": 1_000}));

    assert_eq!(desk.asks("ttl swap k - - --ttl 1").await, Exit::Usage);
    desk.input = vec![b'x'; 65_537];
    assert_eq!(desk.asks("ttl insert k - --ttl 1").await, Exit::Usage);
    assert_eq!(player.requests(), 1);
}

#[tokio::test]
async fn a_refusal_ends_with_three_and_says_what_stands_there() {
    let (player, desk) = stage().await;
    let body = format!(
        r#"{{"code":"refused","detail":"the key is taken","current":{{"value":"w\u001b","expiresAt":{EXPIRY}}}}}"#
    );
    player.answers(409, "application/problem+json", body);
    assert_eq!(desk.asks("ttl insert k v --ttl 1 --json").await, Exit::Refused);
    let lines = "error: refused: the key is taken\n\
                 there stands w\\u{1b}, left: 14m 59s; read it and decide anew\n";
    assert_eq!(desk.err.text(), lines);
    let answer = parsed(&desk);
    assert_eq!(answer["code"], "refused");
    assert_eq!(answer["current"], json!({"value": "w\u{1b}", "expiresAt": EXPIRY}));
}

#[tokio::test]
async fn absent_ends_with_four_and_prints_nothing_on_standard_output() {
    let (player, mut desk) = stage().await;
    player.problem(404, "absent");
    assert_eq!(desk.asks("ttl get k").await, Exit::Absent);
    assert_eq!(desk.out.text(), "");
    assert_eq!(desk.err.text().lines().count(), 2, "{}", desk.err.text());

    desk.is_terminal = true;
    desk.err = Paper::default();
    player.problem(404, "absent");
    desk.asks("ttl get k").await;
    assert!(desk.err.text().starts_with("\x1b[1;31merror:\x1b[0m "), "{}", desk.err.text());
}

#[tokio::test]
async fn a_lost_answer_ends_with_five_for_writes_only() {
    let (_, url) = Raw::start(vec![Play::Say(String::new()), Play::Say(String::new())]).await;
    let desk = Desk::at(&url);
    assert_eq!(desk.asks("ttl delete k").await, Exit::Unknown);
    assert!(desk.err.text().contains("read what is there before deciding"), "{}", desk.err.text());
    assert_eq!(desk.asks("ttl get k").await, Exit::Failed);
}

#[tokio::test]
async fn scan_prints_a_table_and_says_where_to_go_on() {
    let (player, mut desk) = stage().await;
    let items = format!(
        r#"[{{"key":"a:1","value":"v\n","expiresAt":{EXPIRY}}},{{"key":"a:22","value":"long","expiresAt":null}}]"#
    );
    player.json(200, &format!(r#"{{"items":{items},"next":"a:22"}}"#));
    assert_eq!(desk.asks("ttl scan a: --limit 2").await, Exit::Done);
    let table = "KEY   VALUE  LEFT\na:1   v\\n    14m 59s\na:22  long   never\n";
    assert_eq!(desk.out.text(), table);
    assert_eq!(desk.err.text(), "there are more: --after a:22\n");

    desk.out = Paper::default();
    player.json(200, &format!(r#"{{"items":{items},"next":"a:22"}}"#));
    player.json(200, r#"{"items":[],"next":null}"#);
    assert_eq!(desk.asks("ttl scan --prefix a: --all --json").await, Exit::Done);
    assert!(player.heard().line.ends_with("?prefix=a%3A&limit=100&after=a%3A22"));
    let pages = desk.out.text();
    let pages: Vec<Value> = pages.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(pages[0]["items"][1], json!({"key": "a:22", "value": "long", "expiresAt": null}));
    assert_eq!(pages[1], json!({"items": [], "next": null}));
}

#[tokio::test]
async fn watch_prints_a_line_per_change() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let data = format!(r#"{{"key":"a","value":"v","expiresAt":{EXPIRY}}}"#);
    let events =
        format!("{head}id: 7\nevent: inserted\ndata: {data}\n\nevent: gap\ndata: {{}}\n\n");
    let play = Play::Say(events);
    let (_, url) = Raw::start(vec![play.clone(), play]).await;
    let mut desk = Desk::at(&url);
    assert_eq!(desk.asks("ttl watch --count 2").await, Exit::Done, "{}", desk.err.text());
    let lines = "inserted  a  v  14m 59s\ngap       changes may have been missed: read anew\n";
    assert_eq!(desk.out.text(), lines);

    desk.out = Paper::default();
    desk.asks("ttl watch --count 1 --json").await;
    let event =
        json!({"event": "inserted", "id": "7", "key": "a", "value": "v", "expiresAt": EXPIRY});
    assert_eq!(parsed(&desk), event);
}

#[tokio::test]
async fn app_create_shows_the_key_this_once() {
    let (player, mut desk) = stage().await;
    let created = format!(r#"{{"clusterAppId":2,"key":"{KEY}"}}"#);
    player.json(201, &created);
    assert_eq!(desk.asks("app create acme/two").await, Exit::Done);
    assert_eq!(desk.out.text(), format!("app  acme/two\nid   2\nkey  {KEY}\n"));

    desk.out = Paper::default();
    player.json(201, &created);
    desk.asks("app create acme/two --json").await;
    assert_eq!(parsed(&desk), json!({"clusterAppId": 2, "key": KEY}));

    player.problem(409, "refused");
    assert_eq!(desk.asks("app create acme/two").await, Exit::Refused);
}

#[tokio::test]
async fn app_list_follows_all_pages() {
    let (player, mut desk) = stage().await;
    let app = |name: &str, id: u32| {
        format!(
            r#"{{"owner":"acme","app":"{name}","clusterAppId":{id},"limits":{{"maxKeys":3}},"keys":[{{"id":"{id}-ab","scopes":["read"]}}]}}"#
        )
    };
    let pages = || {
        player.json(200, &format!(r#"{{"items":[{}],"next":"acme/one"}}"#, app("one", 1)));
        player.json(200, &format!(r#"{{"items":[{}],"next":null}}"#, app("two", 2)));
    };
    pages();
    assert_eq!(desk.asks("app list").await, Exit::Done, "{}", desk.err.text());
    let text = desk.out.text();
    let rows: Vec<_> = text.lines().collect();
    assert_eq!(rows[0], "APP       ID  MAX KEYS  MAX BYTES   PER SECOND  KEYS");
    assert_eq!(rows[2], "acme/two  2   3         1073741824  10000       2-ab");
    assert!(player.heard().line.ends_with("/apps?after=acme%2Fone"));

    desk.out = Paper::default();
    pages();
    desk.asks("app list --json").await;
    let apps = &parsed(&desk)["items"];
    assert_eq!((&apps[1]["clusterAppId"], &apps[1]["limits"]["maxKeys"]), (&json!(2), &json!(3)));
    assert_eq!(apps[0]["keys"], json!([{"id": "1-ab", "scopes": ["read"]}]));
}

#[tokio::test]
async fn keys_are_added_and_revoked_by_their_id() {
    let (player, desk) = stage().await;
    player.json(201, r#"{"key":"1-ab.s"}"#);
    assert_eq!(desk.asks("app key add demo/app --scopes read,write").await, Exit::Done);
    assert_eq!(desk.out.text(), "1-ab.s\n");
    assert_eq!(player.heard().json(), json!({"scopes": ["read", "write"]}));
    player.answers(204, "", "");
    assert_eq!(desk.asks("app key revoke demo/app 1-ab.s").await, Exit::Done);
    assert_eq!(player.heard().line, "DELETE /api/v1/admin/apps/demo/app/keys/1-ab");
}

#[tokio::test]
async fn limits_are_changed_where_given_and_shown_all() {
    let (player, desk) = stage().await;
    player.json(200, r#"{"maxKeys":5}"#);
    let line = "app limits demo/app --max-keys 5 --max-bytes default";
    assert_eq!(desk.asks(line).await, Exit::Done);
    assert_eq!(player.heard().json(), json!({"maxKeys": 5, "maxBytes": null}));
    let text = desk.out.text();
    assert!(text.starts_with("maxKeys            5\nmaxBytes           1073741824\n"), "{text}");
    assert!(text.ends_with("defaultTtlSeconds  none\n"), "{text}");
}

/// A reader who has read enough, such as `head`.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_who_has_read_enough_is_no_failure() {
    let desk = Desk::default();
    for words in [["wane", "completions", "bash"], ["wane", "ttl", "--help"]] {
        let mut surroundings = desk.surroundings();
        surroundings.out = Box::new(Gone);
        assert_eq!(crate::cli::run(words, &mut surroundings), Exit::Done);
    }
    assert_eq!(desk.err.text(), "");
}
