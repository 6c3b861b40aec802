//! What is not success means what the interface says, and nothing that another server says is
//! mistaken for it.

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use wane::store::Timestamp;

use super::stage::{KEY, Player, case, client, demo};
use crate::client::{AppTtl, ClientError, Current};

const LIFE: Duration = Duration::from_secs(1);

async fn stage() -> (Player, AppTtl) {
    let (player, url) = Player::start().await;
    (player, client(&url).app_ttl(&demo()))
}

#[tokio::test]
async fn a_refusal_carries_what_stood_in_the_way() {
    let (player, entries) = stage().await;
    let body = r#"{"code":"refused","detail":"there","current":{"value":"w","expiresAt":5}}"#;
    player.answers(409, "application/problem+json", body);
    let Err(ClientError::Refused { current, detail }) = entries.insert("k", "v", LIFE).await else {
        panic!("not refused")
    };
    let expires_at = Some(Timestamp::from_unix_millis(5));
    assert_eq!(current, Some(Current { value: "w".into(), expires_at }));
    assert_eq!(detail, "there");

    let body = r#"{"code":"refused","detail":"","current":null}"#;
    player.answers(409, "application/problem+json", body);
    let refused = entries.insert("k", "v", LIFE).await;
    assert!(matches!(refused, Err(ClientError::Refused { current: None, .. })), "{refused:?}");
}

#[tokio::test]
async fn problems_keep_their_case_for_reads_and_writes() {
    let (player, entries) = stage().await;
    for (status, code, expected) in [
        (404, "absent", "absent"),
        (400, "invalid_ttl", "problem"),
        (401, "unauthorized", "problem"),
        (409, "stale_token", "problem"),
        (429, "limited", "problem"),
        (503, "unavailable", "problem"),
        (504, "unknown_outcome", "unknown"),
    ] {
        player.problem(status, code);
        assert_eq!(case(&entries.get("k").await.unwrap_err()), expected, "{code}");
        player.problem(status, code);
        assert_eq!(case(&entries.touch("k", LIFE).await.unwrap_err()), expected, "{code}");
    }
}

#[tokio::test]
async fn a_problem_says_when_to_try_again() {
    let (player, entries) = stage().await;
    let body = r#"{"code":"limited","detail":"too fast"}"#;
    let answer = Response::builder().status(429).header("retry-after", "7");
    player.answers_with(answer.body(Body::from(body)).unwrap());
    let Err(ClientError::Problem { code, status, detail, retry_after }) = entries.get("k").await
    else {
        panic!("not a problem")
    };
    assert_eq!((&*code, status, &*detail), ("limited", 429, "too fast"));
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
}

/// A missing page of any web server is no absent entry, and its broken gateway no refusal.
#[tokio::test]
async fn words_of_other_servers_are_not_taken_for_ours() {
    let (player, entries) = stage().await;
    for (status, of_read, of_write) in [
        (404, "protocol", "protocol"),
        (409, "protocol", "protocol"),
        (500, "protocol", "unknown"),
        (502, "protocol", "unknown"),
        (302, "protocol", "protocol"),
    ] {
        player.answers(status, "text/html", "<h1>sorry</h1>");
        assert_eq!(case(&entries.get("k").await.unwrap_err()), of_read, "{status}");
        player.answers(status, "text/html", "<h1>sorry</h1>");
        assert_eq!(case(&entries.delete("k").await.unwrap_err()), of_write, "{status}");
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_leaves_a_write_open() {
    let (player, entries) = stage().await;
    for body in [
        "",
        "{",
        "[]",
        r#"{"expiresAt":"soon"}"#,
        r#"{"expiresAt":-1}"#,
        r#"{"value":"v","valueBase64":"dg==","expiresAt":1,"ttlMillis":1}"#,
        r#"{"valueBase64":"?","expiresAt":1,"ttlMillis":1}"#,
        r#"{"value":"v","expiresAt":1,"ttlMillis":null}"#,
    ] {
        player.json(200, body);
        assert_eq!(case(&entries.get("k").await.unwrap_err()), "protocol", "{body}");
    }
    for body in ["", "{", "[]", r#"{"expiresAt":"soon"}"#, "{}"] {
        player.json(200, body);
        assert_eq!(case(&entries.touch("k", LIFE).await.unwrap_err()), "unknown", "{body}");
    }
}

/// Memory is bounded by us, not by who answers.
#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let (player, entries) = stage().await;
    let endless = || {
        let chunks =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 1 << 16]));
        Response::new(Body::from_stream(chunks))
    };
    player.answers_with(endless());
    assert_eq!(case(&entries.get("k").await.unwrap_err()), "protocol");
    player.answers_with(endless());
    assert_eq!(case(&entries.touch("k", LIFE).await.unwrap_err()), "unknown");
}

/// A credential goes to the server that it was given for and to no other.
#[tokio::test]
async fn redirects_are_not_followed() {
    let (elsewhere, other) = Player::start().await;
    let (player, entries) = stage().await;
    for status in [301, 302, 303, 307, 308] {
        let answer = Response::builder().status(status).header("location", &other);
        player.answers_with(answer.body(Body::empty()).unwrap());
        let error = entries.get("k").await.unwrap_err();
        assert!(error.to_string().contains(&other), "{error}");
    }
    assert_eq!((player.requests(), elsewhere.requests()), (5, 0));
}

#[tokio::test]
async fn a_secret_that_comes_back_is_masked() {
    let (player, entries) = stage().await;
    let body = format!(r#"{{"code":"unauthorized","detail":"bad key {KEY}"}}"#);
    player.answers(401, "application/problem+json", body);
    let error = entries.get("k").await.unwrap_err();
    let (_, secret) = KEY.split_once('.').unwrap();
    assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    assert!(error.to_string().contains("1-0123456789abcdef.***"), "{error}");
    assert!(!format!("{entries:?}").contains(secret));
}
