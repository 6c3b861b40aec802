//! Files on their way in.

use std::path::Path;

use serde_json::json;

use super::{objects, stage};
use crate::cli::Exit;
use crate::cli::tests::Desk;
use crate::client::tests::stage::{Play, Player, Raw};
use crate::client::tests::streams::{id, takes};

/// So many files, `0.xml` with the message `<0/>` and so on.
fn files(directory: &Path, count: usize) -> Vec<String> {
    let file = |number| {
        let path = directory.join(format!("{number}.xml"));
        std::fs::write(&path, format!("<{number}/>")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    (0..count).map(file).collect()
}

async fn pushes(desk: &Desk, flags: &[&str], files: &[String]) -> Exit {
    let files: Vec<_> = files.iter().map(|file| &**file).collect();
    desk.asks_with(&[&["stream", "push", "--ispb", "00000208"], flags, &files].concat()).await
}

/// Plays that so many messages were taken in, numbered from `first` on.
fn takes_from(player: &Player, first: u8, count: u8) {
    takes(player, &(first..first + count).collect::<Vec<_>>());
}

#[tokio::test]
async fn files_go_in_order_ten_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let (player, desk) = stage().await;
    for (first, count) in [(0, 10), (10, 10), (20, 5)] {
        takes_from(&player, first, count);
    }
    assert_eq!(pushes(&desk, &[], &files(place.path(), 25)).await, Exit::Done);
    let ids: String = (0..25).map(|number| format!("{}\n", id(number))).collect();
    assert_eq!(desk.out.text(), ids);
    let heard = player.all_heard();
    assert_eq!(heard.len(), 3);
    let all: Vec<u8> = heard.iter().flat_map(|heard| heard.body.to_vec()).collect();
    let all = String::from_utf8(all).unwrap();
    let places: Vec<_> =
        (0..25).map(|n| all.find(&format!("\r\n\r\n<{n}/>\r\n")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[tokio::test]
async fn one_message_may_come_from_standard_input() {
    let (player, mut desk) = stage().await;
    desk.input = b"<a>\r\n\xFF</a>\n".to_vec();
    takes(&player, &[7]);
    assert_eq!(desk.asks("stream push --ispb 00000208 - --json").await, Exit::Done);
    assert_eq!(objects(&desk), [json!({"id": id(7).to_string(), "file": "-"})]);
    assert_eq!(player.heard().body, desk.input, "every byte as it was");
    assert_eq!(player.heard().headers["content-type"], "application/xml;charset=utf-8");
}

#[tokio::test]
async fn compressed_is_said_so() {
    let place = tempfile::tempdir().unwrap();
    let (player, desk) = stage().await;
    takes(&player, &[0, 1]);
    assert_eq!(pushes(&desk, &["--gzip"], &files(place.path(), 2)).await, Exit::Done);
    assert_eq!(player.heard().headers["content-encoding"], "gzip");
}

/// A typing error in the last name must not leave the first files sent.
#[tokio::test]
async fn nothing_is_sent_where_a_file_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let good = files(place.path(), 12);
    let wrong = |name: &str, bytes: &[u8]| {
        let path = place.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let absent = place.path().join("absent.xml").to_str().unwrap().to_owned();
    for (file, exit, says) in [
        (absent, Exit::Absent, "absent.xml"),
        (wrong("empty.xml", b""), Exit::Usage, "empty.xml is no message: it is empty"),
        (wrong("long.xml", &[b' '; 204_801]), Exit::Usage, "more than 204800 bytes"),
        (place.path().to_str().unwrap().to_owned(), Exit::Failed, "is a directory"),
    ] {
        let (player, desk) = stage().await;
        let files = [&good[..], &[file]].concat();
        assert_eq!(pushes(&desk, &[], &files).await, exit, "{says}");
        assert!(desk.err.text().contains(says), "{}", desk.err.text());
        assert_eq!((player.requests(), &*desk.out.text()), (0, ""), "{says}");
    }
    let (player, mut desk) = stage().await;
    desk.input = vec![b' '; 204_801];
    assert_eq!(desk.asks("stream push --ispb 00000208 -").await, Exit::Usage);
    assert!(desk.err.text().contains("standard input is no message"), "{}", desk.err.text());
    assert_eq!(player.requests(), 0);
}

#[tokio::test]
async fn a_refusal_says_of_each_file_what_became_of_it() {
    let place = tempfile::tempdir().unwrap();
    let files = files(place.path(), 22);
    let (player, desk) = stage().await;
    takes_from(&player, 0, 10);
    player.problem(503, "unavailable");
    assert_eq!(pushes(&desk, &[], &files).await, Exit::Failed);
    assert_eq!(player.requests(), 2, "nothing is sent twice, and nothing after it");
    assert_eq!(desk.out.text().lines().count(), 10);
    let said = desk.err.text();
    assert_eq!(said.lines().filter(|line| line.starts_with("sent ")).count(), 10, "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("not sent ")).count(), 12, "{said}");
    let first = format!("sent      {}", files[0]);
    assert!(said.lines().any(|line| line.starts_with(&first)), "{said}");
    assert!(said.contains(&id(9).to_string()), "{said}");
    assert!(said.contains("of 22 files, sent: 10, unknown: 0, not sent: 12"), "{said}");
}

#[tokio::test]
async fn an_answer_that_was_lost_is_no_refusal() {
    let place = tempfile::tempdir().unwrap();
    let files = files(place.path(), 12);
    let (player, desk) = stage().await;
    player.problem(504, "unknown_outcome");
    assert_eq!(pushes(&desk, &["--json"], &files).await, Exit::Unknown);
    let said = desk.err.text();
    assert_eq!(said.lines().filter(|line| line.starts_with("unknown ")).count(), 10, "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("not sent ")).count(), 2, "{said}");
    assert!(said.contains("sent twice they are two messages"), "{said}");
    let failure = &objects(&desk)[0];
    assert_eq!(failure["code"], "unknown_outcome");
    assert_eq!(failure["unknown"], json!(files[..10]));
    assert_eq!((&failure["notSent"], &failure["sent"]), (&json!(files[10..]), &json!([])));

    let (_, url) = Raw::start(vec![Play::Say(String::new())]).await;
    let desk = Desk::at(&url);
    assert_eq!(pushes(&desk, &[], &files[..1]).await, Exit::Unknown);
    let desk = Desk::at(&url);
    assert_eq!(pushes(&desk, &[], &files[..1]).await, Exit::Failed, "nobody listens any more");
    assert_eq!(desk.err.text().lines().count(), 2, "one file needs no table");
}

/// Whoever reads the ids may have read enough; the task is to send the files.
#[tokio::test]
async fn files_are_sent_where_nobody_reads_their_ids() {
    struct Gone;
    impl std::io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let place = tempfile::tempdir().unwrap();
    let files = files(place.path(), 12);
    let (player, desk) = stage().await;
    takes_from(&player, 0, 10);
    takes_from(&player, 10, 2);
    let mut surroundings = desk.surroundings();
    surroundings.out = Box::new(Gone);
    let files: Vec<_> = files.iter().map(|file| &**file).collect();
    let line = [&["stream", "push", "--ispb", "00000208"], &files[..]].concat();
    assert_eq!(Desk::asks_in(&line, surroundings).await, Exit::Done);
    assert_eq!(player.requests(), 2);
}
