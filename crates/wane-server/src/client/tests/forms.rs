//! Requests have the form that the interface says, and answers are read as it says.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use wane::services::app_ttl::Renewal;
use wane::services::apps::{LimitsChange, Scope};
use wane::store::Timestamp;

use super::stage::{KEY, Player, client, demo};
use crate::client::{
    AppTtl, BatchAnswer, BatchOperation, ClientError, Entry, Item, ScanPage, ScanRange,
};

const AT: Timestamp = Timestamp::from_unix_millis(1_700_000_000_000);

const LIFE: Duration = Duration::from_secs(900);

const WRITTEN: &str = r#"{"expiresAt":1700000000000}"#;

async fn stage() -> (Player, AppTtl) {
    let (player, url) = Player::start().await;
    (player, client(&url).app_ttl(&demo()))
}

#[tokio::test]
async fn an_entry_is_read_with_its_life() {
    let (player, entries) = stage().await;
    player.json(200, r#"{"value":"v","expiresAt":1700000000000,"ttlMillis":900000}"#);
    let entry = entries.get("k").await.unwrap();
    assert_eq!(entry, Entry { value: "v".into(), expires_at: Some(AT), remaining: Some(LIFE) });
    let heard = player.heard();
    assert_eq!(heard.line, "GET /api/v2/apps/demo/app/ttl/k");
    assert_eq!(heard.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(heard.headers["accept"], "application/json");
}

#[tokio::test]
async fn a_permanent_entry_has_no_end() {
    let (player, entries) = stage().await;
    player.json(200, r#"{"value":"","expiresAt":null,"ttlMillis":null}"#);
    let entry = entries.get("k").await.unwrap();
    assert_eq!(entry, Entry { value: Bytes::new(), expires_at: None, remaining: None });
}

#[tokio::test]
async fn bytes_come_raw_where_asked_for() {
    let (player, entries) = stage().await;
    player.answers(200, "application/octet-stream", vec![0, 255]);
    assert_eq!(entries.get_bytes("k").await.unwrap(), &[0, 255][..]);
    assert_eq!(player.heard().headers["accept"], "application/octet-stream");

    player.answers(200, "text/html", "<p>hello");
    let wrong = entries.get_bytes("k").await;
    assert!(matches!(wrong, Err(ClientError::Protocol { .. })), "{wrong:?}");
}

/// Any byte of a key reaches the server as data: no slash, query or step up is made of it.
#[tokio::test]
async fn keys_are_data_in_the_path() {
    let (player, entries) = stage().await;
    for (key, path) in [
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        ("a?b#c d%e", "a%3Fb%23c%20d%25e"),
        ("\u{e9}:", "%C3%A9%3A"),
        ("", ""),
    ] {
        player.answers(204, "", "");
        entries.delete(key).await.unwrap();
        assert_eq!(player.heard().line, format!("DELETE /api/v2/apps/demo/app/ttl/{path}"));
    }
}

#[tokio::test]
async fn writes_say_what_they_want() {
    let (player, entries) = stage().await;

    player.json(201, WRITTEN);
    assert_eq!(entries.insert("k", "v", LIFE).await.unwrap(), AT);
    assert_eq!(player.heard().line, "POST /api/v2/apps/demo/app/ttl/k");
    assert_eq!(player.heard().headers["content-type"], "application/json");
    assert_eq!(player.heard().json(), json!({"value": "v", "ttlMillis": 900_000}));

    player.json(200, WRITTEN);
    assert_eq!(entries.swap("k", "a", "b", Renewal::For(LIFE)).await.unwrap(), Some(AT));
    assert_eq!(player.heard().line, "PUT /api/v2/apps/demo/app/ttl/k");
    let swap = json!({"expectedValue": "a", "newValue": "b", "ttlMillis": 900_000});
    assert_eq!(player.heard().json(), swap);

    player.json(200, r#"{"expiresAt":null}"#);
    assert_eq!(entries.swap("k", "a", "b", Renewal::Keep).await.unwrap(), None);
    let swap = json!({"expectedValue": "a", "newValue": "b", "keepExpiry": true});
    assert_eq!(player.heard().json(), swap);

    player.json(200, WRITTEN);
    assert_eq!(entries.set("k", "v", Duration::from_micros(1_500)).await.unwrap(), AT);
    assert_eq!(player.heard().line, "PUT /api/v2/apps/demo/app/ttl/k");
    assert_eq!(player.heard().json(), json!({"value": "v", "ttlMillis": 2}));

    player.json(200, WRITTEN);
    assert_eq!(entries.touch("k", LIFE).await.unwrap(), AT);
    assert_eq!(player.heard().line, "PATCH /api/v2/apps/demo/app/ttl/k");
    assert_eq!(player.heard().json(), json!({"ttlMillis": 900_000}));
}

#[tokio::test]
async fn deletes_with_and_without_a_condition() {
    let (player, entries) = stage().await;
    player.answers(204, "", "");
    entries.compare_and_delete("k", "b").await.unwrap();
    assert_eq!(player.heard().json(), json!({"expectedValue": "b"}));
    player.answers(204, "", "");
    entries.delete("k").await.unwrap();
    assert!(player.heard().body.is_empty());
}

#[tokio::test]
async fn bytes_that_are_no_text_travel_in_base64() {
    let (player, entries) = stage().await;
    player.json(200, WRITTEN);
    entries.swap("k", [255], "text", Renewal::Keep).await.unwrap();
    let swap = json!({"expectedValueBase64": "/w==", "newValue": "text", "keepExpiry": true});
    assert_eq!(player.heard().json(), swap);
    player.json(200, r#"{"valueBase64":"/w==","expiresAt":null,"ttlMillis":null}"#);
    assert_eq!(entries.get("k").await.unwrap().value, &[255][..]);
}

#[tokio::test]
async fn a_scan_asks_for_a_page() {
    let (player, entries) = stage().await;
    player.json(200, r#"{"items":[{"key":"a:1","value":"v","expiresAt":null}],"next":"a:1"}"#);
    let range =
        ScanRange { prefix: "a:".into(), after: Some("a:0&limit=9".into()), limit: Some(1) };
    let item = Item { key: "a:1".into(), value: "v".into(), expires_at: None };
    let page = ScanPage { items: vec![item], next: Some("a:1".into()) };
    assert_eq!(entries.scan(&range).await.unwrap(), page);
    let line = "GET /api/v2/apps/demo/app/ttl?prefix=a%3A&limit=1&after=a%3A0%26limit%3D9";
    assert_eq!(player.heard().line, line);
}

#[tokio::test]
async fn a_batch_answers_each_in_its_place() {
    let (player, entries) = stage().await;
    player.json(
        200,
        r#"{"results":[
            {"status":200,"body":{"value":"v","expiresAt":null,"ttlMillis":null}},
            {"status":201,"body":{"expiresAt":1700000000000}},
            {"status":409,"body":{"code":"refused","detail":"other","current":null}},
            {"status":204,"body":null},
            {"status":500,"body":null}
        ]}"#,
    );
    let (key, b) = ("k".to_owned(), Bytes::from("b"));
    let delete = BatchOperation::Delete { key: key.clone(), expected: None };
    let operations = [
        BatchOperation::Get { key: key.clone() },
        BatchOperation::Insert { key: key.clone(), value: b.clone(), ttl: LIFE },
        BatchOperation::Swap { key, expected: b.clone(), new: b, renewal: Renewal::Keep },
        delete.clone(),
        delete,
    ];
    let answers = entries.batch(&operations).await.unwrap();
    let [got, inserted, swapped, deleted, failed] = &answers[..] else {
        panic!("{} answers", answers.len())
    };
    assert!(matches!(got, Ok(BatchAnswer::Entry(entry)) if entry.value == "v"), "{got:?}");
    assert!(matches!(inserted, Ok(BatchAnswer::Written(Some(AT)))), "{inserted:?}");
    assert!(matches!(swapped, Err(ClientError::Refused { current: None, .. })), "{swapped:?}");
    assert!(matches!(deleted, Ok(BatchAnswer::Deleted)), "{deleted:?}");
    assert!(matches!(failed, Err(ClientError::UnknownOutcome { .. })), "{failed:?}");
    assert_eq!(player.heard().line, "POST /api/v2/apps/demo/app/ttl:batch");
    let sent = &player.heard().json()["operations"];
    assert_eq!(sent[0], json!({"op": "get", "key": "k"}));
    assert_eq!(sent[1], json!({"op": "insert", "key": "k", "value": "b", "ttlMillis": 900_000}));
    assert_eq!(sent[3], json!({"op": "delete", "key": "k"}));
}

/// Results that cannot be told apart are not guessed at.
#[tokio::test]
async fn a_batch_with_a_result_too_few_is_unknown() {
    let (player, entries) = stage().await;
    player.json(200, r#"{"results":[]}"#);
    let operations = [BatchOperation::Delete { key: "k".into(), expected: None }];
    let answer = entries.batch(&operations).await;
    assert!(matches!(answer, Err(ClientError::UnknownOutcome { .. })), "{answer:?}");
}

#[tokio::test]
async fn operators_make_apps_and_keys() {
    let (player, url) = Player::start().await;
    let admin = client(&url).admin();

    player.json(201, &format!(r#"{{"clusterAppId":2,"key":"{KEY}"}}"#));
    let created = admin.create_app(&"acme/two".parse().unwrap()).await.unwrap();
    assert_eq!((created.id.0, created.key.reveal()), (2, KEY));
    assert_eq!(player.heard().line, "POST /api/v1/admin/apps");
    assert_eq!(player.heard().json(), json!({"owner": "acme", "app": "two"}));

    player.json(201, r#"{"key":"a.b"}"#);
    assert_eq!(admin.add_key(&demo(), &[Scope::Read]).await.unwrap().reveal(), "a.b");
    assert_eq!(player.heard().line, "POST /api/v1/admin/apps/demo/app/keys");
    assert_eq!(player.heard().json(), json!({"scopes": ["read"]}));

    player.json(201, r#"{"key":"a.b"}"#);
    admin.add_key(&demo(), &[]).await.unwrap();
    assert_eq!(player.heard().json(), json!({}));

    player.answers(204, "", "");
    admin.revoke_key(&demo(), "1-ab").await.unwrap();
    assert_eq!(player.heard().line, "DELETE /api/v1/admin/apps/demo/app/keys/1-ab");

    player.json(201, r#"{"key":"a.b"}"#);
    admin.add_credential(&[Scope::Pull], Some("12345678")).await.unwrap();
    assert_eq!(player.heard().line, "POST /api/v1/admin/credentials");
    assert_eq!(player.heard().json(), json!({"scopes": ["pull"], "ispb": "12345678"}));
}

#[tokio::test]
async fn operators_set_some_limits_and_see_all() {
    let (player, url) = Player::start().await;
    player.json(200, r#"{"maxKeys":5,"inFlight":7}"#);
    let change =
        LimitsChange { max_keys: Some(Some(5)), max_bytes: Some(None), ..LimitsChange::default() };
    let limits = client(&url).admin().set_limits(&demo(), &change).await.unwrap();
    assert_eq!((limits.max_keys(), limits.in_flight()), (5, 7));
    assert_eq!(player.heard().line, "PUT /api/v1/admin/apps/demo/app/limits");
    assert_eq!(player.heard().json(), json!({"maxKeys": 5, "maxBytes": null}));
}

#[tokio::test]
async fn operators_list_apps_by_page() {
    let (player, url) = Player::start().await;
    let app = r#"{"owner":"demo","app":"app","clusterAppId":1,"limits":{"maxKeys":3},
        "keys":[{"id":"1-ab","scopes":["read"]}]}"#;
    player.json(200, &format!(r#"{{"items":[{app}],"next":"demo/app"}}"#));
    let page = client(&url).admin().list_apps(Some(&demo())).await.unwrap();
    assert_eq!(player.heard().line, "GET /api/v1/admin/apps?after=demo%2Fapp");
    assert_eq!(page.next, Some(demo()));
    let app = &page.apps[0];
    assert_eq!((app.id.0, app.limits.max_keys(), &*app.keys[0].id), (1, 3, "1-ab"));
}

#[tokio::test]
async fn health_is_asked_on_either_listener() {
    let (player, url) = Player::start().await;
    player.answers(200, "text/plain", "ok");
    client(&url).livez().await.unwrap();
    assert_eq!(player.heard().line, "GET /livez");
    player.problem(503, "unavailable");
    client(&url).readyz().await.unwrap_err();
    assert_eq!(player.heard().line, "GET /readyz");
}
