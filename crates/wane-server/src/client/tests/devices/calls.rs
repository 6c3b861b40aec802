//! Requests have the form that the RFC and the interface say, and answers are read as they say.

use std::time::Duration;

use serde_json::json;
use wane::store::Timestamp;

use super::{DEVICE, LINKED, STARTED, refuses, stage, television};
use crate::client::tests::stage::{KEY, case, client, demo};
use crate::client::{ClientError, DevicePolled, NewOAuthClient, OAuthClient, StartedDevice};

async fn started() -> (super::Player, super::Devices, StartedDevice) {
    let (player, devices) = stage().await;
    player.json(200, STARTED);
    let started = devices.start(&television(), None).await.unwrap();
    (player, devices, started)
}

#[tokio::test]
async fn a_device_asks_by_a_form_and_without_the_key_of_the_app() {
    let (player, devices) = stage().await;
    player.json(200, STARTED);
    let started = devices.start(&television(), Some("read write:all")).await.unwrap();
    let heard = player.heard();
    assert_eq!(heard.line, "POST /oauth/demo/app/device_authorization");
    assert_eq!(heard.headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(heard.body, "client_id=tv&scope=read%20write%3Aall");
    assert!(!heard.headers.contains_key("authorization"));
    let agent = concat!("wane/", env!("CARGO_PKG_VERSION"));
    assert_eq!(heard.headers["user-agent"], agent, "whoever approves is told");
    assert_eq!(started.user_code, "BCDFG-HJKLM");
    assert_eq!((started.expires_in.as_secs(), started.interval.as_secs()), (900, 7));
}

/// RFC 6749, section 2.3.1: both are encoded as in a form before they are joined by a colon.
#[tokio::test]
async fn a_secret_goes_by_basic_authentication_and_is_repeated_by_no_error() {
    let (player, devices) = stage().await;
    let who = OAuthClient { id: "tv.1".parse().unwrap(), secret: Some("a secret:with%all".into()) };
    player.json(401, r#"{"error":"invalid_client","error_description":"not a secret:with%all"}"#);
    let refused = devices.start(&who, None).await.unwrap_err();
    // tv.1:a%20secret%3Awith%25all
    assert_eq!(
        player.heard().headers["authorization"],
        "Basic dHYuMTphJTIwc2VjcmV0JTNBd2l0aCUyNWFsbA=="
    );
    assert_eq!(player.heard().body, "client_id=tv.1");
    assert_eq!(refused.to_string(), "not *** (invalid_client, HTTP 401)");
}

#[tokio::test]
async fn an_interval_that_is_not_given_is_five_seconds() {
    let (player, devices) = stage().await;
    player
        .json(200, r#"{"device_code":"d","user_code":"u","verification_uri":"v","expires_in":60}"#);
    let started = devices.start(&television(), None).await.unwrap();
    assert_eq!(started.interval, Duration::from_secs(5));
    assert_eq!(started.verification_uri_complete, None);
}

#[tokio::test]
async fn every_answer_to_a_poll_is_told_apart() {
    let (player, devices, started) = started().await;
    for (error, polled) in [
        ("authorization_pending", DevicePolled::Pending),
        ("slow_down", DevicePolled::SlowDown),
        ("access_denied", DevicePolled::Denied),
        ("expired_token", DevicePolled::Expired),
    ] {
        refuses(&player, error);
        assert_eq!(devices.poll(&television(), &started).await.unwrap(), polled);
    }
    let heard = player.heard();
    assert_eq!(heard.line, "POST /oauth/demo/app/token");
    assert_eq!(
        heard.body,
        "client_id=tv&grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code\
         &device_code=the-device-code"
    );
    refuses(&player, "invalid_grant");
    let error = devices.poll(&television(), &started).await.unwrap_err();
    assert_eq!(error.to_string(), "because (invalid_grant, HTTP 400)");
    player.json(200, LINKED);
    let DevicePolled::Linked(token) = devices.poll(&television(), &started).await.unwrap() else {
        panic!("it is linked");
    };
    assert_eq!(token.access_token, "the-link-token");
    assert_eq!((&*token.token_type, &*token.scope), ("Bearer", "read write"));
    assert_eq!(token.expires_in, Some(Duration::from_secs(60)));
    assert_eq!(token.device.unwrap().to_string(), DEVICE);
}

#[tokio::test]
async fn codes_and_tokens_are_shown_by_no_debug() {
    let (player, devices, started) = started().await;
    player.json(200, LINKED);
    let polled = devices.poll(&television(), &started).await.unwrap();
    let shown = format!("{started:?} {polled:?}");
    for secret in ["the-device-code", "BCDFG", "the-link-token"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn the_app_decides_with_its_key() {
    let (player, devices) = stage().await;
    player.json(200, &format!(r#"{{"deviceId":"{DEVICE}"}}"#));
    let device = devices.approve("bcdfg hjklm", "alice", Some("own")).await.unwrap();
    assert_eq!(device.to_string(), DEVICE);
    let heard = player.heard();
    assert_eq!(heard.line, "POST /api/v2/apps/demo/app/devices/approve");
    assert_eq!(heard.headers["authorization"], format!("Bearer {KEY}"));
    let body = json!({"userCode": "bcdfg hjklm", "subject": "alice", "linkToken": "own"});
    assert_eq!(heard.json(), body);

    player.json(200, &format!(r#"{{"deviceId":"{DEVICE}"}}"#));
    devices.approve("c", "alice", None).await.unwrap();
    assert_eq!(player.heard().json(), json!({"userCode": "c", "subject": "alice"}));

    player.answers(204, "", "");
    devices.deny("c").await.unwrap();
    assert_eq!(player.heard().line, "POST /api/v2/apps/demo/app/devices/deny");
    assert_eq!(player.heard().json(), json!({"userCode": "c"}));

    player.problem(404, "absent");
    assert_eq!(case(&devices.deny("c").await.unwrap_err()), "absent");
    player.problem(409, "refused");
    assert_eq!(case(&devices.deny("c").await.unwrap_err()), "refused");

    player.answers(204, "", "");
    devices.revoke(device).await.unwrap();
    assert_eq!(player.heard().line, format!("DELETE /api/v2/apps/demo/app/devices/{DEVICE}"));
}

#[tokio::test]
async fn devices_come_in_pages() {
    let (player, devices) = stage().await;
    player.json(
        200,
        &format!(
            r#"{{"items":[{{"deviceId":"{DEVICE}","subject":"alice","clientId":"tv",
            "clientName":"TV","scope":"read write","linkedAt":5,"expiresAt":9,
            "address":"192.0.2.1","agent":"tv/1"}}],"next":"bA"}}"#
        ),
    );
    let page = devices.list(Some("a/b&c"), Some("x y")).await.unwrap();
    assert_eq!(
        player.heard().line,
        "GET /api/v2/apps/demo/app/devices?subject=a%2Fb%26c&after=x%20y"
    );
    assert_eq!(page.next.as_deref(), Some("bA"));
    let [device] = &page.devices[..] else { panic!("{page:?}") };
    assert_eq!(device.scope, ["read", "write"]);
    assert_eq!(device.asking.address, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(device.linked_at, Timestamp::from_unix_millis(5));

    player.json(200, r#"{"items":[]}"#);
    assert_eq!(devices.list(None, None).await.unwrap().next, None);
    assert_eq!(player.heard().line, "GET /api/v2/apps/demo/app/devices");

    player.json(200, r#"{"items":[{"deviceId":"short"}]}"#);
    assert_eq!(case(&devices.list(None, None).await.unwrap_err()), "protocol");
}

#[tokio::test]
async fn operators_register_and_remove_clients() {
    let (player, url) = super::Player::start().await;
    let admin = client(&url).admin();
    player.json(201, r#"{"clientId":"tv","clientSecret":"a-long-secret"}"#);
    let mut new = NewOAuthClient {
        id: Some("tv".parse().unwrap()),
        name: "TV".into(),
        is_confidential: true,
        scopes: vec!["read".into()],
        code_life: Some(Duration::from_secs(600)),
        token_life: None,
    };
    let registered = admin.register_client(&demo(), &new).await.unwrap();
    assert_eq!(registered.secret.as_ref().unwrap().reveal(), "a-long-secret");
    assert!(!format!("{registered:?}").contains("a-long-secret"));
    assert_eq!(player.heard().line, "POST /api/v1/admin/oauth-clients");
    let body = json!({"owner": "demo", "app": "app", "name": "TV", "confidential": true,
        "scopes": ["read"], "clientId": "tv", "codeLifeSeconds": 600});
    assert_eq!(player.heard().json(), body);

    (new.id, new.is_confidential, new.code_life) = (None, false, None);
    player.json(201, r#"{"clientId":"drawn","clientSecret":null}"#);
    assert_eq!(admin.register_client(&demo(), &new).await.unwrap().secret, None);
    let body = json!({"owner": "demo", "app": "app", "name": "TV", "confidential": false,
        "scopes": ["read"]});
    assert_eq!(player.heard().json(), body);

    player.answers(204, "", "");
    admin.remove_client(&demo(), &"tv".parse().unwrap()).await.unwrap();
    let line = "DELETE /api/v1/admin/apps/demo/app/oauth-clients/tv";
    assert_eq!(player.heard().line, line);
    player.problem(404, "absent");
    let absent = admin.remove_client(&demo(), &"tv".parse().unwrap()).await;
    assert!(matches!(absent, Err(ClientError::Absent)));
}
