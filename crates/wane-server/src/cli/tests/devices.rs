//! Device login from the command line: who sees what, and how it ends.

use serde_json::{Value, json};
use wane::clock::SystemClock;

use super::{Desk, Paper};
use crate::cli::Exit;
use crate::client::tests::stage::Player;
use crate::qr;

const DEVICE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

const LINK: &str = "http://h/device?user_code=BCDFG-HJKLM";

/// The codes are polled for after a second.
fn started(player: &Player) {
    player.json(
        200,
        &format!(
            r#"{{"device_code":"the-device-code","user_code":"BCDFG-HJKLM",
            "verification_uri":"http://h/device","verification_uri_complete":"{LINK}",
            "expires_in":900,"interval":1}}"#
        ),
    );
}

fn linked(player: &Player) {
    player.json(
        200,
        &format!(
            r#"{{"access_token":"the-link-token","token_type":"Bearer","expires_in":3600,
            "scope":"read write","device_id":"{DEVICE}"}}"#
        ),
    );
}

/// A desk where time passes, and no key is needed.
async fn stage() -> (Player, Desk) {
    let (player, url) = Player::start().await;
    let env = [("WANE_URL", url.into())].into();
    (player, Desk { env, clock: Some(SystemClock::shared()), ..Desk::default() })
}

/// A desk of the app, or of the operator.
async fn app_stage() -> (Player, Desk) {
    let (player, url) = Player::start().await;
    (player, Desk::at(&url))
}

fn parsed(desk: &Desk) -> Value {
    serde_json::from_str(&desk.out.text()).unwrap()
}

#[tokio::test]
async fn the_token_alone_is_on_standard_output() {
    let (player, desk) = stage().await;
    started(&player);
    linked(&player);
    assert_eq!(desk.asks("device start").await, Exit::Done);
    assert_eq!(desk.out.text(), "the-link-token\n");
    let said = desk.err.text();
    assert!(said.contains("open http://h/device and enter"), "{said}");
    assert!(said.contains("    B C D F G - H J K L M\n"), "{said}");
    assert!(said.contains("left: 15m 0s"), "{said}");
    let last = format!("linked, device id: {DEVICE}, scope: read write, left: 1h 0m\n");
    assert!(said.ends_with(&last), "{said}");
    assert!(!said.contains("the-device-code") && !said.contains("the-link-token"), "{said}");
    let [start, poll] = &player.all_heard()[..] else { panic!("one start, one poll") };
    assert_eq!(start.line, "POST /oauth/demo/app/device_authorization");
    assert_eq!(start.body, "client_id=demo");
    assert_eq!(poll.line, "POST /oauth/demo/app/token");
}

#[tokio::test]
async fn programs_get_one_object_with_the_names_of_the_rfc() {
    let (player, desk) = stage().await;
    started(&player);
    linked(&player);
    let line = ["device", "start", "--json", "--scope", "read write", "--app", "acme/two"];
    assert_eq!(desk.asks_with(&line).await, Exit::Done);
    let object = json!({"access_token": "the-link-token", "token_type": "Bearer",
        "expires_in": 3_600, "scope": "read write", "device_id": DEVICE});
    assert_eq!(parsed(&desk), object);
    assert!(desk.err.text().contains("B C D F G"), "a person has to read it");
    let start = &player.all_heard()[0];
    assert_eq!(start.line, "POST /oauth/acme/two/device_authorization");
    assert_eq!(start.body, "client_id=demo&scope=read%20write");
}

#[tokio::test]
async fn denied_and_expired_are_two_exit_codes() {
    for (error, exit, code, says) in [
        ("access_denied", Exit::Refused, 3, "denied"),
        ("expired_token", Exit::Absent, 4, "expired"),
        ("invalid_grant", Exit::Failed, 1, "not good any more"),
    ] {
        let (player, desk) = stage().await;
        started(&player);
        player.json(400, &format!(r#"{{"error":"{error}"}}"#));
        assert_eq!(desk.asks("device start --json").await, exit);
        assert_eq!(exit.code(), code);
        assert!(desk.err.text().contains(says), "{}", desk.err.text());
        let object = parsed(&desk);
        assert_eq!((&object["code"], &object["status"]), (&json!(error), &json!(400)));
    }
}

#[tokio::test]
async fn trouble_is_told_while_it_waits_on() {
    let (player, desk) = stage().await;
    started(&player);
    player.problem(503, "unavailable");
    linked(&player);
    assert_eq!(desk.asks("device start").await, Exit::Done);
    let said = desk.err.text();
    assert!(said.contains("because (unavailable, HTTP 503); still waiting"), "{said}");
}

#[tokio::test]
async fn the_qr_code_is_drawn_where_there_are_colours_and_room() {
    let drawing = qr::terminal(LINK).unwrap();
    for (line, columns, is_drawn) in [
        ("device start --color always", None, true),
        ("device start --color always", Some(37), true),
        ("device start --color always", Some(36), false),
        ("device start --color always --no-qr", None, false),
        ("device start", None, false),
    ] {
        let (player, mut desk) = stage().await;
        desk.columns = columns;
        started(&player);
        linked(&player);
        assert_eq!(desk.asks(line).await, Exit::Done);
        let said = desk.err.text();
        assert_eq!(said.contains(&drawing), is_drawn, "{line}, {columns:?}");
        assert_eq!(said.contains("\u{2580}"), is_drawn, "{line}, {columns:?}");
        assert_eq!(said.contains("scan the QR code"), is_drawn, "{line}, {columns:?}");
    }
}

#[tokio::test]
async fn the_secret_of_a_client_comes_from_a_file_or_the_environment() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret-of-file\n").unwrap();
    let path = file.path().to_str().unwrap();
    // tv:s3cret-of-file and tv:s3cret-of-env
    for (flag, sent) in [
        (&["--client-secret-file", path][..], "Basic dHY6czNjcmV0LW9mLWZpbGU="),
        (&[][..], "Basic dHY6czNjcmV0LW9mLWVudg=="),
    ] {
        let (player, mut desk) = stage().await;
        desk.env.insert("WANE_CLIENT_SECRET", "s3cret-of-env".into());
        player.json(401, r#"{"error":"invalid_client","error_description":"no"}"#);
        let line = [&["device", "start", "--client", "tv"], flag].concat();
        assert_eq!(desk.asks_with(&line).await, Exit::Failed);
        assert_eq!(player.heard().headers["authorization"], sent);
        let said = desk.err.text();
        assert!(said.contains("wane app client add") && !said.contains("s3cret"), "{said}");
    }
    let (player, desk) = stage().await;
    let line = ["device", "start", "--client-secret-file", "/no/such/file"];
    assert_eq!(desk.asks_with(&line).await, Exit::Failed);
    std::fs::write(file.path(), " \n").unwrap();
    let line = ["device", "start", "--client-secret-file", path];
    assert_eq!(desk.asks_with(&line).await, Exit::Usage);
    assert_eq!(player.requests(), 0);
}

#[tokio::test]
async fn a_code_is_approved_or_denied_and_errors_do_not_repeat_it() {
    let (player, mut desk) = app_stage().await;
    player.json(200, &format!(r#"{{"deviceId":"{DEVICE}"}}"#));
    assert_eq!(desk.asks("device approve BCDFG-HJKLM --subject alice").await, Exit::Done);
    assert_eq!(desk.out.text(), format!("approved, device id: {DEVICE}\n"));

    desk.input = b"own token\n".to_vec();
    player.json(200, &format!(r#"{{"deviceId":"{DEVICE}"}}"#));
    desk.asks("device approve BCDFG-HJKLM --subject alice --link-token -").await;
    assert_eq!(player.heard().json()["linkToken"], "own token");

    desk.out = Paper::default();
    player.answers(204, "", "");
    assert_eq!(desk.asks("device deny BCDFG-HJKLM").await, Exit::Done);
    assert_eq!(desk.out.text(), "denied\n");

    for (status, code, exit, advice) in [
        (404, "absent", Exit::Absent, "must start again"),
        (409, "refused", Exit::Refused, "wane device list"),
        (429, "limited", Exit::Failed, "try again"),
    ] {
        for line in ["approve BCDFG-HJKLM --subject alice", "deny BCDFG-HJKLM"] {
            desk.err = Paper::default();
            player.problem(status, code);
            assert_eq!(desk.asks(&format!("device {line}")).await, exit, "{line}");
            let said = desk.err.text();
            assert!(said.contains(advice) && !said.contains("BCDFG"), "{said}");
        }
    }
}

#[tokio::test]
async fn all_pages_of_devices_are_one_table_or_one_object() {
    let page = |subject: &str, next: &str| {
        format!(
            r#"{{"items":[{{"deviceId":"{DEVICE}","subject":"{subject}","clientId":"tv",
            "clientName":"T\u001bV","scope":"read write","linkedAt":5,
            "expiresAt":1000000899999,"address":"192.0.2.1","agent":"tv/1"}}],"next":{next}}}"#
        )
    };
    let (player, mut desk) = app_stage().await;
    player.json(200, &page("alice", r#""bA""#));
    player.json(200, &page("bob", "null"));
    assert_eq!(desk.asks("device list").await, Exit::Done);
    assert_eq!(
        desk.out.text(),
        format!(
            "DEVICE                                       SUBJECT  CLIENT    SCOPE       LEFT     \
             ADDRESS    AGENT\n\
             {DEVICE}  alice    T\\u{{1b}}V  read write  14m 59s  192.0.2.1  tv/1\n\
             {DEVICE}  bob      T\\u{{1b}}V  read write  14m 59s  192.0.2.1  tv/1\n"
        )
    );
    assert_eq!(player.heard().line, "GET /api/v2/apps/demo/app/devices?after=bA");

    desk.out = Paper::default();
    player.json(200, &page("alice", "null"));
    assert_eq!(desk.asks("device list --subject alice --json").await, Exit::Done);
    let device = json!({"deviceId": DEVICE, "subject": "alice", "clientId": "tv",
        "clientName": "T\u{1b}V", "scope": "read write", "linkedAt": 5,
        "expiresAt": 1_000_000_899_999_u64, "address": "192.0.2.1", "agent": "tv/1"});
    assert_eq!(parsed(&desk), json!({"items": [device], "next": null}));

    player.answers(204, "", "");
    desk.out = Paper::default();
    assert_eq!(desk.asks(&format!("device revoke {DEVICE}")).await, Exit::Done);
    assert_eq!(desk.out.text(), "revoked\n");
    player.problem(404, "absent");
    assert_eq!(desk.asks(&format!("device revoke {DEVICE}")).await, Exit::Absent);
    assert!(desk.err.text().contains("wane device list"), "{}", desk.err.text());
}

#[tokio::test]
async fn operators_see_the_secret_of_a_client_once() {
    let (player, mut desk) = app_stage().await;
    player.json(201, r#"{"clientId":"tv","clientSecret":"a-long-secret"}"#);
    let line = "app client add acme/two TV --confidential --scope read --id tv --token-life 30d";
    assert_eq!(desk.asks(line).await, Exit::Done);
    assert_eq!(desk.out.text(), "client  tv\nsecret  a-long-secret\n");
    assert!(desk.err.text().contains("this once"));
    let body = json!({"owner": "acme", "app": "two", "name": "TV", "confidential": true,
        "scopes": ["read"], "clientId": "tv", "tokenLifeSeconds": 2_592_000});
    assert_eq!(player.heard().json(), body);

    desk.out = Paper::default();
    player.json(201, r#"{"clientId":"drawn","clientSecret":null}"#);
    let line = ["app", "client", "add", "acme/two", "T V", "--json", "--scope", "read write"];
    assert_eq!(desk.asks_with(&line).await, Exit::Done);
    assert_eq!(parsed(&desk), json!({"clientId": "drawn", "clientSecret": null}));
    assert_eq!(player.heard().json()["scopes"], json!(["read", "write"]));

    player.answers(204, "", "");
    assert_eq!(desk.asks("app client remove acme/two tv").await, Exit::Done);
    player.problem(404, "absent");
    assert_eq!(desk.asks("app client remove acme/two tv").await, Exit::Absent);
    assert!(desk.err.text().contains("wane app list"), "{}", desk.err.text());
}
