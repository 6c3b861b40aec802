//! Where the server and the key come from, and that the key goes nowhere else.

use std::fs;

use super::Desk;
use crate::cli::Exit;
use crate::client::tests::stage::{KEY, Player};

async fn presented(desk: &Desk, player: &Player, line: &str) -> String {
    player.answers(200, "application/octet-stream", "v");
    assert_eq!(desk.asks(line).await, Exit::Done, "{}", desk.err.text());
    player.heard().headers["authorization"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_flag_beats_the_environment_beats_a_file() {
    let (player, url) = Player::start().await;
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("demo.key"), "file.key\n").unwrap();
    let mut desk = Desk::default();
    desk.env.insert("WANE_URL", url.into());
    desk.env.insert("WANE_DATA", data.path().into());
    assert_eq!(presented(&desk, &player, "ttl get k").await, "Bearer file.key");
    desk.env.insert("WANE_KEY", "variable.key".into());
    assert_eq!(presented(&desk, &player, "ttl get k").await, "Bearer variable.key");
    assert_eq!(presented(&desk, &player, "ttl get k --key flag.key").await, "Bearer flag.key");

    let (other, url) = Player::start().await;
    let line = format!("ttl get k --url {url}");
    assert_eq!(presented(&desk, &other, &line).await, "Bearer variable.key");
}

#[tokio::test]
async fn the_directory_of_a_flag_beats_that_of_the_environment() {
    let (player, url) = Player::start().await;
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("demo.key"), "file.key").unwrap();
    let mut desk = Desk::default();
    desk.env.insert("WANE_URL", url.into());
    desk.env.insert("WANE_DATA", "nowhere".into());
    let line = format!("ttl get k --data {}", data.path().display());
    assert_eq!(presented(&desk, &player, &line).await, "Bearer file.key");
}

#[tokio::test]
async fn operators_have_a_key_and_an_address_of_their_own() {
    let (player, url) = Player::start().await;
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("demo.key"), "demo.key").unwrap();
    fs::write(data.path().join("admin.key"), "admin.key").unwrap();
    let mut desk = Desk::default();
    desk.env.insert("WANE_URL", "http://127.0.0.1:1".into());
    desk.env.insert("WANE_ADMIN_URL", url.into());
    desk.env.insert("WANE_DATA", data.path().into());
    player.json(200, r#"{"items":[],"next":null}"#);
    assert_eq!(desk.asks("app list").await, Exit::Done, "{}", desk.err.text());
    assert_eq!(player.heard().headers["authorization"], "Bearer admin.key");
}

#[tokio::test]
async fn without_a_key_nothing_is_asked() {
    let (player, url) = Player::start().await;
    let mut desk = Desk::default();
    desk.env.insert("WANE_URL", url.into());
    desk.env.insert("WANE_DATA", "nowhere".into());
    assert_eq!(desk.asks("ttl get k").await, Exit::Failed);
    let err = desk.err.text();
    assert!(err.starts_with("error: cannot take the key from nowhere/demo.key"), "{err}");
    assert!(err.contains("wane serve"), "{err}");
    assert_eq!(player.requests(), 0);
}

/// The demo key would make every entry of another app look absent.
#[tokio::test]
async fn the_demo_key_is_for_the_demo_app() {
    let (player, url) = Player::start().await;
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("demo.key"), "demo.key").unwrap();
    let mut desk = Desk::default();
    desk.env.insert("WANE_URL", url.into());
    desk.env.insert("WANE_DATA", data.path().into());
    assert_eq!(desk.asks("ttl get k --app acme/two").await, Exit::Failed);
    assert!(desk.err.text().contains("no key for acme/two"), "{}", desk.err.text());
    assert_eq!(player.requests(), 0);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let mut desk = Desk::at("http://127.0.0.1:1");
    assert_eq!(desk.asks("ttl insert k v --ttl 1").await, Exit::Failed);
    let err = desk.err.text();
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.starts_with("error: cannot reach http://127.0.0.1:1: "), "{err}");
    assert!(err.contains("is the server running?"), "{err}");
    desk.err = super::Paper::default();
    desk.asks("app list").await;
    assert!(desk.err.text().contains("--admin-url"), "{}", desk.err.text());
}

#[tokio::test]
async fn no_failure_shows_the_secret() {
    let (player, url) = Player::start().await;
    let (_, secret) = KEY.split_once('.').unwrap();
    for line in ["ttl get k", "ttl get k --json", "ttl touch k --ttl 1", "app list"] {
        let desk = Desk::at(&url);
        let body = format!(r#"{{"code":"unauthorized","detail":"no {KEY}"}}"#);
        player.answers(401, "application/problem+json", body);
        assert_eq!(desk.asks(line).await, Exit::Failed);
        let said = desk.err.text() + &desk.out.text();
        assert!(!said.contains(secret), "{said}");
        assert!(said.contains("WANE_KEY"), "{said}");
    }
    for line in ["ttl --help", "ttl get k --key=SECRET-WORD --no-such-flag"] {
        let desk = Desk::at(&url);
        desk.types(line);
        let said = desk.err.text() + &desk.out.text();
        assert!(!said.contains(secret) && !said.contains("SECRET-WORD"), "{said}");
    }
}
