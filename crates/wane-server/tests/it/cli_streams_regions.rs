//! `wane stream region` and `wane stream failover` as operators type them, at a real server.

use serde_json::{Value as Json, json};

use crate::server::{Server, wane};

const ISPB: &str = "00000208";

/// The exit code, and what was printed and said.
fn told(server: &Server, words: &[&str]) -> (i32, String, String) {
    let mut command = wane();
    command.arg("stream").args(words);
    command.env("WANE_ADMIN_URL", format!("http://{}", server.admin));
    let output = command.env("WANE_DATA", server.data()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn done(server: &Server, words: &[&str]) -> String {
    let (code, out, err) = told(server, words);
    assert_eq!(code, 0, "{err}");
    out
}

fn region<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["region", "--ispb", ISPB], more].concat()
}

#[test]
fn an_operator_names_regions_and_lets_one_take_over() {
    let server = Server::with(&["--storage=mem", "--region=r1"]);
    let (code, _, err) = told(&server, &region(&[]));
    assert_eq!(code, 4, "nobody has named any: {err}");
    let pair = region(&["--primary", "r1", "--secondary", "r2"]);
    assert_eq!(done(&server, &pair), "r1 serves it, epoch 1\n");
    let failover = ["failover", "--ispb", ISPB, "--to", "r2", "--reason", "a drill"];
    for time in ["once", "and typed again"] {
        assert_eq!(done(&server, &failover), "r2 serves it, epoch 2\n", "{time}");
    }
    let shown: Json = serde_json::from_str(&done(&server, &region(&["--json"]))).unwrap();
    let pair = (&shown["primary"], &shown["secondary"], &shown["epoch"]);
    assert_eq!(pair, (&json!("r2"), &json!("r1"), &json!(2)));
    assert!(shown["failedOverAt"].is_u64(), "{shown}");
    let table = done(&server, &region(&[]));
    for words in ["primary", "r2", "secondary", "r1", "epoch", "failed over at"] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

#[test]
fn what_an_operator_types_wrong_is_told() {
    let server = Server::with(&["--storage=mem"]);
    let of = ["--ispb", ISPB];
    for (words, code) in [
        (&["region", "--primary", "r1"][..], 2),
        (&["region", "--primary", "r1", "--secondary", "r1"], 2),
        (&["region", "--primary", "R1", "--secondary", "r2"], 2),
        (&["failover", "--to", "r2"], 2),
        (&["failover", "--reason", "why"], 2),
        (&["failover", "--to", "r2", "--reason", "why"], 4),
    ] {
        let (told_code, out, err) = told(&server, &[words, &of].concat());
        assert_eq!((told_code, &*out), (code, ""), "{words:?}: {err}");
        assert!(!err.is_empty() && !err.contains("panicked"), "{words:?}: {err}");
    }
}
