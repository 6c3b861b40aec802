//! Downloads: whole, in part, under conditions, and a number of times.

use super::{Reply, ask, bytes, upload};
use crate::server::Server;

#[test]
fn a_range_is_those_bytes() {
    let server = Server::on_file();
    let body = bytes(250_000, 1);
    let blob = upload(&server, &[], &body);
    let get = |range: &str| ask(&server, "GET", &blob.path, &[&format!("range: {range}")], b"");
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=102399-102400", 102_399, 102_401),
        ("bytes=100-249999", 100, 250_000),
        ("bytes=204800-", 204_800, 250_000),
        ("bytes=-1", 249_999, 250_000),
        ("bytes=249999-999999999", 249_999, 250_000),
    ] {
        let got = get(range);
        assert_eq!((got.status(), got.is_whole()), (206, true), "{range}");
        let expected = format!("bytes {from}-{}/250000", to - 1);
        assert_eq!(got.header("content-range"), expected, "{range}");
        assert!(got.bytes == body[from..to], "{range}: other bytes");
        assert_eq!(got.answer.header("content-digest"), None, "that would be of the part");
    }
    for whole in ["bytes=0-1,5-9", "bytes=9-1", "lines=0-1", "nonsense"] {
        let got = get(whole);
        assert_eq!((got.status(), got.bytes == body), (200, true), "{whole}");
    }
    for outside in ["bytes=250000-", "bytes=-0", "bytes=999999999999999999999-"] {
        let got = get(outside);
        assert_eq!(got.problem(), (416, "range_not_satisfiable".into()), "{outside}");
        assert_eq!(got.header("content-range"), "bytes */250000", "{outside}");
    }
}

#[test]
fn conditions_are_kept_to() {
    let server = Server::in_memory();
    let blob = upload(&server, &[], b"0123456789");
    let get = |headers: &[&str]| ask(&server, "GET", &blob.path, headers, b"");
    let etag = get(&[]).header("etag").to_owned();
    let (same, other) = (format!("if-range: {etag}"), "if-range: \"other\"");
    assert_eq!(get(&["range: bytes=1-2", &same]).status(), 206);
    let whole = get(&["range: bytes=1-2", other]);
    assert_eq!((whole.status(), &*whole.bytes), (200, &b"0123456789"[..]));
    let known = get(&[&format!("if-none-match: \"x\", {etag}")]);
    assert_eq!((known.status(), known.bytes.len()), (304, 0));
    assert_eq!(known.header("etag"), etag);
    assert_eq!(get(&["if-none-match: \"x\""]).status(), 200);
    assert_eq!(get(&[&format!("if-match: {etag}")]).status(), 200);
    assert_eq!(get(&["if-match: \"x\""]).problem(), (412, "refused".into()));
    // The same bytes are the same to whoever has them.
    let again = upload(&server, &["blob-name: other"], b"0123456789");
    assert_eq!(ask(&server, "HEAD", &again.path, &[], b"").header("etag"), etag);
}

#[test]
fn head_says_what_get_would_and_sends_nothing() {
    let server = Server::in_memory();
    let blob = upload(&server, &["blob-downloads: 1"], b"0123456789");
    for _ in 0..3 {
        let head = ask(&server, "HEAD", &blob.path, &["range: bytes=1-2"], b"");
        assert_eq!((head.status(), head.bytes.len()), (200, 0));
        assert_eq!(
            (head.header("content-length"), head.header("blob-downloads-left")),
            ("10", "1")
        );
    }
    assert_eq!(ask(&server, "GET", &blob.path, &[], b"").bytes, b"0123456789");
}

#[test]
fn of_racing_downloads_of_a_one_time_blob_exactly_one_gets_it() {
    for server in [Server::in_memory(), Server::on_file()] {
        for round in 0..5 {
            let body = bytes(300_000, round);
            let blob = upload(&server, &["blob-downloads: 1"], &body);
            let replies: Vec<Reply> = std::thread::scope(|scope| {
                let race = || scope.spawn(|| ask(&server, "GET", &blob.path, &[], b""));
                let racers: Vec<_> = (0..8).map(|_| race()).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).collect()
            });
            let (won, lost): (Vec<_>, Vec<_>) =
                replies.iter().partition(|reply| reply.status() == 200);
            assert_eq!((won.len(), lost.len()), (1, 7));
            assert!(won[0].bytes == body, "the one got other bytes");
            assert!(lost.iter().all(|reply| reply.problem() == (404, "absent".into())));
            super::assert_gone(&server, &body);
        }
    }
}

#[test]
fn a_number_of_downloads_is_counted_down() {
    let server = Server::in_memory();
    let blob = upload(&server, &["blob-downloads: 2"], b"0123456789");
    let get = |headers: &[&str]| ask(&server, "GET", &blob.path, headers, b"");
    let first = get(&["range: bytes=1-2"]);
    assert_eq!((first.status(), &*first.bytes), (200, &b"0123456789"[..]), "ranges are ignored");
    assert_eq!(first.header("blob-downloads-left"), "1");
    assert_eq!(
        (first.header("accept-ranges"), first.header("cache-control")),
        ("none", "no-store")
    );
    let etag = format!("if-none-match: {}", first.header("etag"));
    assert_eq!(get(&[&etag]).status(), 304, "takes none");
    let second = get(&[]);
    assert_eq!((second.status(), second.header("blob-downloads-left")), (200, "0"));
    assert_eq!(get(&[]).problem(), (404, "absent".into()));
    assert_eq!(ask(&server, "HEAD", &blob.path, &[], b"").status(), 404);
}
