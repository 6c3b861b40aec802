//! Pull streams from the command line: what is sent, what is kept, and when it is acknowledged.

mod pull;
mod push;
mod troubles;

use serde_json::{Value, json};
use wane::clock::SystemClock;

use super::Desk;
use crate::cli::Exit;
use crate::client::tests::stage::Player;

/// A desk where time passes.
async fn stage() -> (Player, Desk) {
    let (player, url) = Player::start().await;
    (player, Desk { clock: Some(SystemClock::shared()), ..Desk::at(&url) })
}

/// Each line of standard output as an object.
fn objects(desk: &Desk) -> Vec<Value> {
    desk.out.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn operators_see_how_far_a_stream_is() {
    const STATUS: &str = r#"{"ispb":"00000208","liveReaders":2,"inFlight":15,"requeued":3,
        "headRow":7,"tailRow":9,"lagMillis":61500}"#;
    let (player, desk) = stage().await;
    player.json(200, STATUS);
    assert_eq!(desk.asks("stream status --ispb 00000208").await, Exit::Done);
    assert_eq!(player.heard().line, "GET /api/v1/admin/streams/00000208");
    let table = "ispb          00000208\nlive readers  2\nin flight     15\nrequeued      3\n\
                 head row      7\ntail row      9\nlag           1m 1s\n";
    assert_eq!(desk.out.text(), table);

    let (player, desk) = stage().await;
    player.json(200, STATUS);
    assert_eq!(desk.asks("stream status --ispb 00000208 --json").await, Exit::Done);
    let status: Value = serde_json::from_str(STATUS).unwrap();
    assert_eq!(objects(&desk), [status]);

    let (player, desk) = stage().await;
    player.problem(403, "forbidden");
    assert_eq!(desk.asks("stream status --ispb 00000208 --json").await, Exit::Failed);
    assert_eq!(objects(&desk)[0]["code"], json!("forbidden"));
}

/// The keys in the files of a server open no stream, and would only be refused.
#[tokio::test]
async fn a_stream_needs_a_key_of_its_own_or_a_certificate() {
    let data = tempfile::tempdir().unwrap();
    for name in ["demo.key", "admin.key"] {
        std::fs::write(data.path().join(name), "file.key\n").unwrap();
    }
    let (player, url) = Player::start().await;
    let mut desk = Desk::default();
    desk.env.insert("WANE_URL", url.clone().into());
    desk.env.insert("WANE_ADMIN_URL", url.into());
    desk.env.insert("WANE_DATA", data.path().into());
    for (line, scope) in [
        ("stream push --ispb 00000208 -", "produce"),
        ("stream pull --ispb 00000208", "pull"),
        ("stream pull --ispb 00000208 --cert a --key-file b", "pull"),
    ] {
        desk.err = super::Paper::default();
        assert_eq!(desk.asks(line).await, Exit::Failed, "{line}");
        let said = desk.err.text();
        assert!(said.contains(&format!("there is no key with the scope {scope}")), "{said}");
        assert!(said.contains("wane stream credential"), "{said}");
    }
    assert_eq!(player.requests(), 0);
    player.json(
        200,
        r#"{"liveReaders":0,"inFlight":0,"requeued":0,"headRow":0,"tailRow":0,"lagMillis":0}"#,
    );
    assert_eq!(desk.asks("stream status --ispb 00000208").await, Exit::Done, "{}", desk.err.text());
    assert_eq!(player.heard().headers["authorization"], "Bearer file.key");

    // Over TLS the certificate will do, and is looked for.
    desk.err = super::Paper::default();
    let line =
        "stream pull --ispb 00000208 --url https://127.0.0.1:1 --cert a.pem --key-file b.pem";
    assert_eq!(desk.asks(line).await, Exit::Failed);
    let said = desk.err.text();
    assert!(said.contains("cannot take the certificate of the client from a.pem"), "{said}");
    desk.env.insert("WANE_CERT", "c.pem".into());
    assert_eq!(desk.asks("stream pull --ispb 00000208").await, Exit::Usage);
    assert!(desk.err.text().contains("go together"), "{}", desk.err.text());
}
