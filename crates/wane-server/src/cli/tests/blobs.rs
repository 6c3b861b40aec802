//! `wane blob` against a server that plays its part: what is sent, kept here, and printed.

use std::fs;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::Response;
use axum::http::response::Builder;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tempfile::TempDir;
use wane::services::blobs::Sha256Sum;

use super::{Desk, Paper};
use crate::cli::Exit;
use crate::client::tests::stage::Player;

const ID: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

const SECRET: &str = "__________________________________________8";

/// 15 minutes after the time of the tests.
const EXPIRES: &str = "Sun, 09 Sep 2001 02:01:40 GMT";

const EXPIRES_AT: u64 = 1_000_000_900_000;

/// Longer than what is compared at the end of a part.
const SIZE: usize = 200_000;

fn bytes() -> Vec<u8> {
    (0..=250).cycle().take(SIZE).collect()
}

struct Stage {
    player: Player,
    desk: Desk,
    place: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let (player, url) = Player::start().await;
        let place = tempfile::tempdir().unwrap();
        let mut desk = Desk::at(&url);
        desk.env.insert("XDG_STATE_HOME", place.path().join("state").into());
        Self { player, desk, place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name).display().to_string()
    }

    async fn asks(&mut self, words: &[&str]) -> Exit {
        (self.desk.out, self.desk.err) = (Paper::default(), Paper::default());
        self.desk.asks_with(&[&["blob"], words].concat()).await
    }

    fn said(&self) -> String {
        format!("{}{}", self.desk.out.text(), self.desk.err.text())
    }

    /// Methods of the requests since `from`.
    fn methods(&self, from: usize) -> Vec<String> {
        let heard = self.player.all_heard();
        let method = |line: &str| line.split(' ').next().unwrap().to_owned();
        heard[from..].iter().map(|heard| method(&heard.line)).collect()
    }

    fn remembered(&self) -> usize {
        fs::read_dir(self.path("state/wane/uploads")).map_or(0, Iterator::count)
    }

    fn creates(&self) {
        let answer = Response::builder()
            .status(201)
            .header("location", format!("/x/{ID}"))
            .header("blob-delete-secret", SECRET)
            .header("upload-expires", EXPIRES);
        self.player.answers_with(answer.body(Body::empty()).unwrap());
    }

    fn stands_at(&self, offset: usize) {
        let answer = Response::builder().header("upload-offset", offset);
        let answer = answer.header("upload-length", SIZE).body(Body::empty());
        self.player.answers_with(answer.unwrap());
    }

    fn keeps(&self, offset: usize) {
        let answer = Response::builder().status(204).header("upload-offset", offset);
        self.player.answers_with(answer.body(Body::empty()).unwrap());
    }

    /// The head of an answer about a BLOB of these bytes.
    fn tells(&self, bytes: &[u8]) {
        let answer = about(bytes).header("content-length", bytes.len());
        self.player.answers_with(answer.body(Body::empty()).unwrap());
    }

    fn sends(&self, bytes: &[u8]) {
        let answer = about(bytes).header("content-length", bytes.len());
        self.player.answers_with(answer.body(Body::from(bytes.to_vec())).unwrap());
    }

    fn sends_from(&self, bytes: &[u8], from: usize) {
        let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
        let answer = about(bytes).status(206).header("content-range", range);
        self.player.answers_with(answer.body(Body::from(bytes[from..].to_vec())).unwrap());
    }
}

fn about(bytes: &[u8]) -> Builder {
    let sum = STANDARD.encode(Sha256Sum::of(bytes).0);
    Response::builder()
        .header("content-type", "text/plain")
        .header("blob-name", "caf%C3%A9")
        .header("expires", EXPIRES)
        .header("repr-digest", format!("sha-256=:{sum}:"))
}

fn left(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

#[tokio::test]
async fn put_prints_the_id_and_shows_the_secret_once() {
    let mut stage = Stage::new().await;
    let file = stage.file("f.bin", &bytes());
    for flag in ["--color=never", "--json"] {
        stage.creates();
        stage.keeps(SIZE);
        stage.tells(&bytes());
        let exit = stage.asks(&["put", &file, "--workspace", "7", flag]).await;
        assert_eq!(exit, Exit::Done, "{}", stage.said());
        assert_eq!(stage.remembered(), 0, "it is forgotten");
        if flag == "--json" {
            let printed: Value = serde_json::from_str(&stage.desk.out.text()).unwrap();
            let uploaded =
                json!({"blobSUUID": ID, "deleteSecret": SECRET, "expiresAt": EXPIRES_AT});
            assert_eq!(printed, uploaded);
        } else {
            let table =
                format!("id             {ID}\ndelete secret  {SECRET}\nleft           15m 0s\n");
            assert_eq!(stage.desk.out.text(), table);
            assert_eq!(stage.desk.err.text(), "keep the delete secret: it is shown this once\n");
        }
    }
    let heard = stage.player.all_heard();
    assert_eq!(heard[0].line, "POST /api/v2/apps/demo/app/workspaces/7/tblobs-tus");
    let metadata = "filename Zi5iaW4=,filetype YXBwbGljYXRpb24vb2N0ZXQtc3RyZWFt";
    assert_eq!(heard[0].headers["upload-metadata"], metadata);
    assert!(heard[1].body == bytes());
}

/// The same command goes on where it stopped, and sends nothing that is there.
#[tokio::test]
async fn put_goes_on_where_it_stopped() {
    let mut stage = Stage::new().await;
    let file = stage.file("f", &bytes());
    stage.creates();
    stage.player.problem(401, "unauthorized");
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Failed);
    assert!(stage.said().contains("0 of 200000 bytes are there"), "{}", stage.said());
    assert!(stage.said().contains("the same command again"), "{}", stage.said());
    assert!(!stage.said().contains(SECRET), "{}", stage.said());
    assert_eq!(stage.remembered(), 1);

    stage.stands_at(102_400);
    stage.keeps(SIZE);
    stage.tells(&bytes());
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Done, "{}", stage.said());
    assert!(stage.said().contains("going on at byte 102400"), "{}", stage.said());
    assert!(stage.desk.out.text().contains(SECRET), "it was kept for now");
    assert_eq!(stage.methods(2), ["HEAD", "PATCH", "HEAD"]);
    let heard = stage.player.all_heard();
    assert!(heard[3].body == bytes()[102_400..]);
    assert_eq!(stage.remembered(), 0);
}

/// Said otherwise it is another BLOB, and what was begun stays where it is.
#[tokio::test]
async fn another_command_does_not_go_on_with_it() {
    let mut stage = Stage::new().await;
    let file = stage.file("f", &bytes());
    stage.creates();
    stage.player.problem(401, "unauthorized");
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Failed);
    for words in [["--ttl", "2h"], ["--name", "g"], ["--workspace", "2"], ["--downloads", "1"]] {
        let from = stage.player.requests();
        stage.creates();
        stage.keeps(SIZE);
        stage.tells(&bytes());
        assert_eq!(stage.asks(&["put", &file, words[0], words[1]]).await, Exit::Done);
        assert_eq!(stage.methods(from), ["POST", "PATCH", "HEAD"], "{words:?}");
    }
    assert_eq!(stage.remembered(), 1);
}

#[tokio::test]
async fn put_begins_anew_where_the_file_is_another_or_is_asked_to() {
    for restart in [true, false] {
        let mut stage = Stage::new().await;
        let file = stage.file("f", &bytes());
        stage.creates();
        stage.player.problem(401, "unauthorized");
        assert_eq!(stage.asks(&["put", &file]).await, Exit::Failed);
        let mut words = vec!["put", &file];
        if restart {
            words.push("--restart");
        } else {
            stage.file("f", &[&bytes()[..], b"!"].concat());
        }
        stage.player.answers(204, "", "");
        stage.creates();
        stage.player.problem(401, "unauthorized");
        assert_eq!(stage.asks(&words).await, Exit::Failed);
        assert_eq!(stage.methods(2), ["DELETE", "POST", "PATCH"], "{restart}");
        assert!(stage.player.all_heard()[2].line.ends_with(&format!("/tblobs-tus/{ID}")));
    }
}

#[tokio::test]
async fn an_upload_that_is_gone_is_begun_anew() {
    let mut stage = Stage::new().await;
    let file = stage.file("f", &bytes());
    stage.creates();
    stage.player.problem(401, "unauthorized");
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Failed);
    stage.player.answers(404, "application/problem+json", "");
    stage.player.problem(404, "absent");
    stage.creates();
    stage.keeps(SIZE);
    stage.tells(&bytes());
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Done, "{}", stage.said());
}

/// Bytes of two states of a file are no file.
#[tokio::test]
async fn what_differs_from_the_file_is_removed() {
    let mut stage = Stage::new().await;
    let file = stage.file("f", &bytes());
    stage.creates();
    stage.keeps(SIZE);
    stage.tells(b"something else");
    stage.player.answers(204, "", "");
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Failed);
    assert!(stage.said().contains("changed while it was put"), "{}", stage.said());
    assert_eq!(stage.methods(0), ["POST", "PATCH", "HEAD", "DELETE"]);
    assert_eq!((stage.remembered(), &*stage.desk.out.text()), (0, ""));
}

#[tokio::test]
async fn a_key_that_can_only_write_will_do() {
    let mut stage = Stage::new().await;
    let file = stage.file("f", &bytes());
    stage.creates();
    stage.keeps(SIZE);
    stage.player.answers(403, "application/problem+json", "");
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Done, "{}", stage.said());
}

#[tokio::test]
async fn without_a_place_to_remember_it_says_so_and_puts() {
    let mut stage = Stage::new().await;
    let file = stage.file("f", &bytes());
    stage.desk.env.remove("XDG_STATE_HOME");
    stage.creates();
    stage.keeps(SIZE);
    stage.tells(&bytes());
    assert_eq!(stage.asks(&["put", &file]).await, Exit::Done);
    assert!(stage.said().contains("it cannot be resumed if it stops"), "{}", stage.said());
}

#[tokio::test]
async fn what_is_piped_goes_in_one_request() {
    let mut stage = Stage::new().await;
    stage.desk.input = bytes();
    let body = format!(r#"{{"blobSUUID":"{ID}","deleteSecret":"{SECRET}","expiresAt":5}}"#);
    stage.player.json(201, &body);
    let exit = stage.asks(&["put", "-", "--name", "caf\u{e9}", "--ttl", "90"]).await;
    assert_eq!(exit, Exit::Done, "{}", stage.said());
    let heard = stage.player.heard();
    assert!(heard.line.starts_with("POST ") && heard.line.ends_with("/workspaces/1/tblobs"));
    assert_eq!(heard.headers["ttl"], "90s");
    assert_eq!(heard.headers["blob-name"], "caf%C3%A9");
    assert!(heard.body == bytes());

    stage.player.answers(502, "text/html", "");
    assert_eq!(stage.asks(&["put", "-"]).await, Exit::Unknown);
    assert!(stage.said().contains("put it again"), "{}", stage.said());
}

#[tokio::test]
async fn get_writes_a_file_once_it_is_whole() {
    let mut stage = Stage::new().await;
    let target = stage.path("out").display().to_string();
    stage.sends(&bytes());
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Done, "{}", stage.said());
    assert!(left(&stage.path("out")).unwrap() == bytes());
    let sum = Sha256Sum::of(&bytes());
    assert_eq!(stage.desk.out.text(), format!("{target}, 200000 bytes, SHA-256 {sum}\n"));

    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Refused);
    assert_eq!(stage.player.requests(), 1, "nothing is asked for that has no place");
    stage.sends(b"other");
    assert_eq!(stage.asks(&["get", ID, "-o", &target, "--force", "--json"]).await, Exit::Done);
    assert_eq!(left(&stage.path("out")).unwrap(), b"other");
    let printed: Value = serde_json::from_str(&stage.desk.out.text()).unwrap();
    assert_eq!((&printed["file"], &printed["size"]), (&json!(target), &json!(5)));
    assert_eq!(left(&stage.path("out.part")), None);
}

#[tokio::test]
async fn get_prints_the_bytes_as_they_are() {
    let mut stage = Stage::new().await;
    stage.sends(b"milk\x07");
    stage.desk.is_terminal = true;
    assert_eq!(stage.asks(&["get", ID, "-o", "-"]).await, Exit::Done);
    assert_eq!(stage.desk.out.text(), "milk\x07");
    assert_eq!(stage.asks(&["get", ID, "-o", "-", "--json"]).await, Exit::Usage);
}

/// The control of the comparison: nothing is left of a file with other bytes.
#[tokio::test]
async fn other_bytes_leave_no_file() {
    let mut stage = Stage::new().await;
    let target = stage.path("out").display().to_string();
    let answer = about(b"milk").header("content-length", 4).body(Body::from("silk"));
    stage.player.answers_with(answer.unwrap());
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Failed);
    assert!(stage.said().contains("it is not what was uploaded"), "{}", stage.said());
    assert_eq!((left(&stage.path("out")), left(&stage.path("out.part"))), (None, None));
}

#[tokio::test]
async fn get_goes_on_with_a_part() {
    for there in [1, 65_536, 65_537, 150_000, SIZE] {
        let mut stage = Stage::new().await;
        let target = stage.path("out").display().to_string();
        stage.file("out.part", &bytes()[..there]);
        stage.tells(&bytes());
        let from = there - there.min(65_536);
        stage.sends_from(&bytes(), from);
        assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Done, "{}", stage.said());
        assert!(left(&stage.path("out")).unwrap() == bytes(), "{there}");
        assert_eq!(left(&stage.path("out.part")), None);
        let heard = stage.player.heard();
        assert_eq!(heard.headers["range"], format!("bytes={from}-"));
        let tag = String::from(Sha256Sum::of(&bytes()));
        assert_eq!(heard.headers["if-range"], format!("\"{tag}\""));
    }
}

/// Somebody's file that happens to have the name of a part is neither continued nor lost.
#[tokio::test]
async fn a_part_of_something_else_is_left_alone() {
    let mut other = bytes();
    other[100_000] ^= 1;
    for part in [&other[..120_000], &[&bytes()[..], b"more"].concat()] {
        let mut stage = Stage::new().await;
        let target = stage.path("out").display().to_string();
        stage.file("out.part", part);
        stage.tells(&bytes());
        stage.sends_from(&bytes(), 120_000 - 65_536);
        assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Refused);
        assert!(stage.said().contains("--force"), "{}", stage.said());
        assert!(left(&stage.path("out.part")).unwrap() == part);

        let mut stage = Stage::new().await;
        let target = stage.path("out").display().to_string();
        stage.file("out.part", part);
        stage.tells(&bytes());
        if part.len() < SIZE {
            stage.sends_from(&bytes(), 120_000 - 65_536);
        }
        stage.sends(&bytes());
        let exit = stage.asks(&["get", ID, "-o", &target, "--force"]).await;
        assert_eq!(exit, Exit::Done, "{}", stage.said());
        assert!(left(&stage.path("out")).unwrap() == bytes());
    }
}

/// Where only the beginning of a part differs, the sum of the whole tells.
#[tokio::test]
async fn a_part_that_was_damaged_is_not_completed() {
    let mut stage = Stage::new().await;
    let target = stage.path("out").display().to_string();
    let mut part = bytes()[..120_000].to_vec();
    part[0] ^= 1;
    stage.file("out.part", &part);
    stage.tells(&bytes());
    stage.sends_from(&bytes(), 120_000 - 65_536);
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Failed);
    assert_eq!((left(&stage.path("out")), left(&stage.path("out.part"))), (None, None));
    stage.sends(&bytes());
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Done);
}

#[tokio::test]
async fn numbered_downloads_are_not_continued() {
    let mut stage = Stage::new().await;
    let target = stage.path("out").display().to_string();
    stage.file("out.part", &bytes()[..5]);
    let answer = about(&bytes()).header("blob-downloads-left", 1).header("content-length", SIZE);
    stage.player.answers_with(answer.body(Body::empty()).unwrap());
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Refused);
    assert!(stage.said().contains("the downloads of this BLOB are numbered"), "{}", stage.said());
    assert_eq!(stage.methods(0), ["HEAD"], "no download is taken");
    assert!(left(&stage.path("out.part")).unwrap() == bytes()[..5]);
}

#[tokio::test]
async fn a_numbered_download_that_breaks_is_spent() {
    let mut stage = Stage::new().await;
    let target = stage.path("out").display().to_string();
    let broken = stream::once(async {
        // The head and the first bytes are on their way by then.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        Err(std::io::Error::other("broken"))
    });
    let broken = stream::iter([Ok(bytes()[..70_000].to_vec())]).chain(broken);
    let answer = about(&bytes()).header("blob-downloads-left", 0).header("content-length", SIZE);
    stage.player.answers_with(answer.body(Body::from_stream(broken)).unwrap());
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Failed);
    assert!(stage.said().contains("it is gone"), "{}", stage.said());
    assert_eq!((left(&stage.path("out")), left(&stage.path("out.part"))), (None, None));
    assert_eq!(stage.player.requests(), 1);
}

#[tokio::test]
async fn an_absent_blob_leaves_no_part() {
    let mut stage = Stage::new().await;
    let target = stage.path("out").display().to_string();
    stage.player.problem(404, "absent");
    assert_eq!(stage.asks(&["get", ID, "-o", &target]).await, Exit::Absent);
    assert_eq!(left(&stage.path("out.part")), None);
}

#[tokio::test]
async fn info_says_what_it_is() {
    let mut stage = Stage::new().await;
    stage.tells(&bytes());
    assert_eq!(stage.asks(&["info", ID]).await, Exit::Done);
    let sum = Sha256Sum::of(&bytes());
    let table = format!(
        "id              {ID}\nname            caf\u{e9}\ntype            text/plain\n\
         size            200000\nsha256          {sum}\nleft            15m 0s\n\
         downloads left  any number\n"
    );
    assert_eq!(stage.desk.out.text(), table);
    stage.tells(&bytes());
    assert_eq!(stage.asks(&["info", ID, "--json"]).await, Exit::Done);
    let printed: Value = serde_json::from_str(&stage.desk.out.text()).unwrap();
    let expected = json!({"blobSUUID": ID, "name": "caf\u{e9}", "contentType": "text/plain",
        "size": SIZE, "sha256": sum.to_string(), "expiresAt": EXPIRES_AT, "downloadsLeft": null});
    assert_eq!(printed, expected);
}

#[tokio::test]
async fn a_delete_secret_does_instead_of_a_key() {
    let mut stage = Stage::new().await;
    stage.desk.env.remove("WANE_KEY");
    stage.desk.env.insert("WANE_DATA", stage.path("nothing").into());
    stage.player.answers(204, "", "");
    assert_eq!(stage.asks(&["delete", ID, "--secret", SECRET]).await, Exit::Done);
    assert_eq!(stage.desk.out.text(), "deleted\n");
    assert!(!stage.player.heard().headers.contains_key("authorization"));
    assert_eq!(stage.asks(&["delete", ID]).await, Exit::Failed, "there is no key");
    assert_eq!(stage.player.requests(), 1);
}
