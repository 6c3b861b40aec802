//! The audit from the command line: what is asked, printed, and told of damage.

use serde_json::{Value, json};

use super::Desk;
use crate::cli::Exit;
use crate::client::tests::stage::Player;

async fn stage() -> (Player, Desk) {
    let (player, url) = Player::start().await;
    (player, Desk::at(&url))
}

const WHOLE: &str = r#"{"chains":[{"chain":"transitions","rows":12,"entries":40},
    {"chain":"remarks","rows":3,"entries":3}]}"#;

#[tokio::test]
async fn an_audit_that_is_whole_is_counted() {
    let (player, desk) = stage().await;
    player.json(200, WHOLE);
    assert_eq!(desk.asks("audit verify --ispb 00000208").await, Exit::Done);
    assert_eq!(player.heard().line, "GET /api/v1/admin/audit/verify?ispb=00000208&limit=1000");
    let table = "CHAIN        ROWS  ENTRIES\ntransitions  12    40\nremarks      3     3\n";
    assert_eq!(desk.out.text(), table);

    let (player, desk) = stage().await;
    player.json(200, WHOLE);
    assert_eq!(desk.asks("audit verify --ispb 00000208 --json").await, Exit::Done);
    let told: Value = serde_json::from_str(&desk.out.text()).unwrap();
    assert_eq!(told["ispb"], "00000208");
    assert_eq!(told["chains"][0], json!({ "chain": "transitions", "rows": 12, "entries": 40 }));
}

/// However long the audit is, no call reads all of it.
#[tokio::test]
async fn an_audit_is_checked_part_by_part() {
    let (player, desk) = stage().await;
    player
        .json(200, r#"{"chains":[{"chain":"transitions","rows":1000,"entries":1}],"next":"x y"}"#);
    player.json(200, WHOLE);
    assert_eq!(desk.asks("audit verify --ispb 00000208").await, Exit::Done);
    let asked = "GET /api/v1/admin/audit/verify?ispb=00000208&limit=1000";
    let lines: Vec<_> = player.all_heard().into_iter().map(|heard| heard.line).collect();
    assert_eq!(lines, [asked.to_owned(), format!("{asked}&after=x%20y")]);
    let printed = desk.out.text();
    assert!(printed.contains("transitions  12    40"), "what the last part tells: {printed}");
    // Broken off in the middle, it is not whole.
    let (player, desk) = stage().await;
    player.json(200, r#"{"chains":[],"next":"more"}"#);
    player.problem(503, "unavailable");
    assert_eq!(desk.asks("audit verify --ispb 00000208").await, Exit::Failed);
    assert_eq!(desk.out.text(), "");
}

#[tokio::test]
async fn an_audit_that_is_broken_ends_with_1_and_names_the_row() {
    const BROKEN: &str = r#"{"code":"audit_broken","status":409,"chain":"remarks","row":7,
        "detail":"audit, row 7 of the remarks: it is missing","reason":"it is missing"}"#;
    let (player, desk) = stage().await;
    player.answers(409, "application/problem+json", BROKEN);
    assert_eq!(desk.asks("audit verify --ispb 00000208").await, Exit::Failed);
    let said = desk.err.text();
    assert!(said.contains("row 7 of the remarks: it is missing"), "{said}");
    assert!(said.contains("keep the store as it is"), "{said}");
    assert_eq!(desk.out.text(), "");
}

#[tokio::test]
async fn an_export_goes_from_page_to_page_and_prints_what_came() {
    let (player, desk) = stage().await;
    player.json(200, r#"{"entries":[{"at":1,"who":"a"},{"at":2,"new":[]}],"next":"x y"}"#);
    player.json(200, r#"{"entries":[{"at":3}],"next":null}"#);
    let line = "audit export --ispb 00000208 --from 1 --to 9";
    assert_eq!(desk.asks(line).await, Exit::Done, "{}", desk.err.text());
    let asked = "GET /api/v1/admin/audit?ispb=00000208&limit=1000&from=1&to=9";
    let lines: Vec<_> = player.all_heard().into_iter().map(|heard| heard.line).collect();
    assert_eq!(lines, [asked.to_owned(), format!("{asked}&after=x%20y")]);
    let printed: Vec<Value> =
        desk.out.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [json!({"at": 1, "who": "a"}), json!({"at": 2, "new": []}), json!({"at": 3})];
    assert_eq!(printed, expected);
}

/// A program that reads it must not take a part for the whole.
#[tokio::test]
async fn an_export_that_breaks_off_fails() {
    let (player, desk) = stage().await;
    player.json(200, r#"{"entries":[{"at":1}],"next":"more"}"#);
    player.problem(503, "unavailable");
    assert_eq!(desk.asks("audit export --ispb 00000208").await, Exit::Failed);
    assert_eq!(desk.out.text(), "{\"at\":1}\n");
    let (player, desk) = stage().await;
    player.problem(400, "invalid_request");
    assert_eq!(desk.asks("audit export --ispb 00000208 --from 2 --to 1").await, Exit::Usage);
}
