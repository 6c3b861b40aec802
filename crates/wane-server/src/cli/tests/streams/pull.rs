//! Messages on their way out: where they go, and that they are kept before they are acknowledged.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{objects, stage};
use crate::cli::Exit;
use crate::client::tests::stage::Player;
use crate::client::tests::streams::{asked, delivers, delivers_nothing, ends, id};

/// Two batches of three messages, and the end.
fn plays(player: &Player) {
    delivers(player, "t1", &[(1, "<a>\r\n</a>"), (2, "<b/>")]);
    delivers(player, "t2", &[(3, "<c/>")]);
    delivers_nothing(player, "t3");
    ends(player);
}

const PLAYED: [&str; 4] = ["GET start", "GET t1", "GET t2", "DELETE t3"];

fn file_of(directory: &Path, number: u8) -> PathBuf {
    let name = id(number).to_string().replace('/', "_").replace('+', "-");
    directory.join(format!("{name}.xml"))
}

#[tokio::test]
async fn messages_go_to_standard_output_with_a_line_feed_each() {
    let (player, desk) = stage().await;
    plays(&player);
    assert_eq!(desk.asks("stream pull --ispb 00000208").await, Exit::Done);
    assert_eq!(desk.out.text(), "<a>\r\n</a>\n<b/>\n<c/>\n");
    assert_eq!(desk.err.text(), "");
    assert_eq!(asked(&player), PLAYED);
    assert_eq!(player.all_heard()[0].headers["accept"], "multipart/mixed");
}

#[tokio::test]
async fn programs_get_a_line_for_each_message() {
    let (player, desk) = stage().await;
    plays(&player);
    assert_eq!(desk.asks("stream pull --ispb 00000208 --json").await, Exit::Done);
    let line = |number, text: &str| json!({"id": id(number).to_string(), "message": text});
    let lines = [line(1, "<a>\r\n</a>"), line(2, "<b/>"), line(3, "<c/>")];
    assert_eq!(objects(&desk), lines);
}

/// What an institution is sent does not move the cursor of its operator.
#[tokio::test]
async fn on_a_terminal_control_characters_are_shown() {
    let (player, mut desk) = stage().await;
    desk.is_terminal = true;
    delivers(&player, "t1", &[(1, "<a>\r\n\t\u{1b}[2J</a>")]);
    ends(&player);
    assert_eq!(desk.asks("stream pull --ispb 00000208 --max-batches 1").await, Exit::Done);
    assert_eq!(desk.out.text(), "<a>\n\t\\u{1b}[2J</a>\n");
}

#[tokio::test]
async fn a_directory_has_a_file_for_each_message() {
    let place = tempfile::tempdir().unwrap();
    let (player, desk) = stage().await;
    plays(&player);
    let out = place.path().join("inbox");
    let line = ["stream", "pull", "--ispb", "00000208", "--out", out.to_str().unwrap()];
    assert_eq!(desk.asks_with(&line).await, Exit::Done);
    for (number, text) in [(1, "<a>\r\n</a>"), (2, "<b/>"), (3, "<c/>")] {
        assert_eq!(fs::read_to_string(file_of(&out, number)).unwrap(), text);
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
    let paths: String = (1..4).map(|n| format!("{}\n", file_of(&out, n).display())).collect();
    assert_eq!(desk.out.text(), paths);

    // It comes again after a crash: the file stays, and whoever reads the paths hears of it.
    let (player, desk) = stage().await;
    fs::write(file_of(&out, 2), "as it was").unwrap();
    delivers(&player, "t1", &[(2, "<b/>")]);
    ends(&player);
    let line = [&line[..], &["--max-batches", "1", "--json"]].concat();
    assert_eq!(desk.asks_with(&line).await, Exit::Done);
    assert_eq!(fs::read_to_string(file_of(&out, 2)).unwrap(), "as it was");
    let file = file_of(&out, 2);
    assert_eq!(objects(&desk), [json!({"id": id(2).to_string(), "file": file})]);
    assert_eq!(asked(&player), ["GET start", "DELETE t1"]);
}

#[tokio::test]
async fn it_says_what_it_takes_and_who_it_is() {
    let (player, desk) = stage().await;
    plays(&player);
    let line = "stream pull --ispb 00000208 --single --gzip --client-id reader-1";
    assert_eq!(desk.asks(line).await, Exit::Done);
    for heard in player.all_heard() {
        assert_eq!(heard.headers["pi-client-id"], "reader-1", "{}", heard.line);
        if heard.line.starts_with("GET") {
            assert_eq!(heard.headers["accept"], "application/xml");
            assert_eq!(heard.headers["accept-encoding"], "gzip");
        }
    }
}

#[tokio::test]
async fn batches_can_be_counted() {
    let (player, desk) = stage().await;
    delivers_nothing(&player, "t1");
    delivers(&player, "t2", &[(1, "<a/>")]);
    delivers(&player, "t3", &[(2, "<b/>")]);
    ends(&player);
    let line = "stream pull --ispb 00000208 --follow --max-batches 2";
    assert_eq!(desk.asks(line).await, Exit::Done);
    assert_eq!(asked(&player), ["GET start", "GET t1", "GET t2", "DELETE t3"]);
    assert_eq!(desk.out.text(), "<a/>\n<b/>\n");
}

/// A command for each message: its bytes, its id, its file.
#[tokio::test]
async fn a_command_is_run_for_each_message() {
    let place = tempfile::tempdir().unwrap();
    let (inbox, seen) = (place.path().join("inbox"), place.path().join("seen"));
    let (player, desk) = stage().await;
    plays(&player);
    let command = format!(
        "echo \"$WANE_ISPB $WANE_RESOURCE_ID $WANE_FILE\" >> '{0}'; cat >> '{0}'; echo >> '{0}'",
        seen.display()
    );
    let inbox_text = inbox.to_str().unwrap();
    let line = ["stream", "pull", "--ispb", "00000208", "--out", inbox_text, "--exec", &command];
    assert_eq!(desk.asks_with(&line).await, Exit::Done, "{}", desk.err.text());
    let expected: String = [(1, "<a>\r\n</a>"), (2, "<b/>"), (3, "<c/>")]
        .map(|(n, text)| format!("00000208 {} {}\n{text}\n", id(n), file_of(&inbox, n).display()))
        .concat();
    assert_eq!(fs::read_to_string(&seen).unwrap(), expected);
    assert_eq!(asked(&player), PLAYED);

    let (player, desk) = stage().await;
    plays(&player);
    // One that reads nothing has done its part too.
    let line = ["stream", "pull", "--ispb", "00000208", "--exec", "true"];
    assert_eq!(desk.asks_with(&line).await, Exit::Done, "{}", desk.err.text());
    assert_eq!(desk.out.text(), "", "the messages are the command's");
}

/// What was not dealt with is not acknowledged: neither by a call nor by the end.
#[tokio::test]
async fn a_command_that_fails_acknowledges_nothing() {
    let (player, desk) = stage().await;
    delivers(&player, "t1", &[(1, "<a/>")]);
    delivers(&player, "t2", &[(2, "<b/>"), (3, "<fails/>"), (4, "<d/>")]);
    ends(&player);
    let line = ["stream", "pull", "--ispb", "00000208", "--exec", "! grep -q fails"];
    assert_eq!(desk.asks_with(&line).await, Exit::Failed);
    assert_eq!(asked(&player), ["GET start", "GET t1", "DELETE t1"], "t2 would acknowledge it");
    let said = desk.err.text();
    assert!(said.contains(&format!("the command failed for {}: exit code 1", id(3))), "{said}");
    assert!(said.contains("the batch was given back"), "{said}");

    // With the first batch there is no token that gives it back.
    let (player, desk) = stage().await;
    delivers(&player, "t1", &[(1, "<a/>")]);
    let line = ["stream", "pull", "--ispb", "00000208", "--exec", "kill -9 $$", "--json"];
    assert_eq!(desk.asks_with(&line).await, Exit::Failed);
    assert_eq!(asked(&player), ["GET start"]);
    assert!(desk.err.text().contains("signal 9"), "{}", desk.err.text());
    assert!(desk.err.text().contains("once its lease has ended"), "{}", desk.err.text());
    assert_eq!(objects(&desk)[0]["code"], "failed");
}

#[tokio::test]
async fn what_cannot_be_written_is_not_acknowledged() {
    let place = tempfile::tempdir().unwrap();
    let (player, desk) = stage().await;
    delivers(&player, "t1", &[(1, "<a/>")]);
    // A directory in the place of the draft.
    let draft = file_of(place.path(), 1).with_extension("xml.part");
    fs::create_dir(&draft).unwrap();
    let out = place.path().to_str().unwrap();
    let line = ["stream", "pull", "--ispb", "00000208", "--out", out];
    assert_eq!(desk.asks_with(&line).await, Exit::Failed);
    assert_eq!(asked(&player), ["GET start"]);
    assert!(desk.err.text().contains("cannot use"), "{}", desk.err.text());

    let (player, desk) = stage().await;
    let line = ["stream", "pull", "--ispb", "00000208", "--out", "/no/such/place"];
    assert_eq!(desk.asks_with(&line).await, Exit::Absent);
    assert_eq!(player.requests(), 0, "it is looked at before a slot is taken");
}
