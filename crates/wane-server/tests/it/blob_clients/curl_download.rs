//! Downloads by curl: parts, resumption, names, conditions, pace.

use super::curl::Via;
use super::*;

/// Three chunks, the last one short.
const SIZE: usize = 2 * CHUNK + 4_321;

fn with_blob() -> (Site, Vec<u8>, String) {
    let (site, bytes) = (Site::on_file(), sample(SIZE));
    let id = site.uploaded(&bytes, &[]);
    let url = site.url(&format!("tblobs/{id}"));
    (site, bytes, url)
}

#[test]
fn a_download_that_was_cut_goes_on_where_it_was() {
    let (site, bytes, url) = with_blob();
    let part = site.folder.path().join("part");
    for kept in [1, 1_000, CHUNK - 1, CHUNK, CHUNK + 1, SIZE - 1] {
        std::fs::write(&part, &bytes[..kept]).unwrap();
        let resumed = site.curl_in(site.folder.path(), &["-C", "-", "-o", text(&part), &url]);
        assert_eq!((resumed.exit, resumed.status), (0, 206), "{kept}: {}", resumed.said);
        let range = format!("bytes {kept}-{}/{SIZE}", SIZE - 1);
        assert_eq!(resumed.header("content-range"), Some(&*range));
        assert_eq!(resumed.told["size_download"], SIZE - kept);
        assert_same(&std::fs::read(&part).unwrap(), &bytes);
    }
}

/// There is nothing to go on with: curl calls that a success, and the file stays as it is.
#[test]
fn a_download_that_is_complete_stays_as_it_is() {
    let (site, bytes, url) = with_blob();
    let whole = site.file("whole", &bytes);
    let resumed = site.curl_in(site.folder.path(), &["-C", "-", "-o", text(&whole), &url]);
    assert_eq!((resumed.exit, resumed.status), (0, 416), "{}", resumed.said);
    assert_eq!(resumed.header("content-range"), Some(&*format!("bytes */{SIZE}")));
    assert_same(&std::fs::read(&whole).unwrap(), &bytes);
}

#[test]
fn one_range_is_answered_with_those_bytes() {
    let (site, bytes, url) = with_blob();
    let last = SIZE - 1;
    let cases = [
        ("0-0", 0, 0),
        ("100-199", 100, 199),
        ("102399-102400", CHUNK - 1, CHUNK),
        ("102400-", CHUNK, last),
        ("-5", SIZE - 5, last),
        ("0-", 0, last),
        ("209000-999999999", 209_000, last),
        ("-999999999", 0, last),
    ];
    for via in [Via::Http1, Via::Http2] {
        for (range, from, to) in cases {
            let ran = site.curl(&["-r", range, via.flag(), &url]);
            assert_eq!((ran.exit, ran.status), (0, 206), "{range}: {}", ran.said);
            let content_range = format!("bytes {from}-{to}/{SIZE}");
            assert_eq!(ran.header("content-range"), Some(&*content_range), "{range}");
            assert_eq!(ran.header("content-digest"), None, "it would be that of the whole");
            assert_same(&ran.body, &bytes[from..=to]);
        }
    }
}

#[test]
fn several_ranges_are_answered_with_the_whole() {
    let (site, bytes, url) = with_blob();
    let ran = site.curl(&["-r", "0-1,5-6", &url]);
    assert_eq!((ran.status, ran.header("content-range")), (200, None));
    assert_same(&ran.body, &bytes);
}

#[test]
fn a_range_beyond_the_end_is_answered_with_the_size() {
    let (site, _, url) = with_blob();
    for range in [format!("{SIZE}-"), format!("{}-{}", SIZE + 5, SIZE + 9)] {
        let ran = site.curl(&["-r", &range, &url]);
        assert_eq!(ran.status, 416, "{range}");
        assert_eq!(ran.header("content-range"), Some(&*format!("bytes */{SIZE}")));
    }
}

/// More than the buffers of the system hold, and than curl takes at once before it slows down (about
/// 10 MB): the server has to wait for its client.
#[test]
fn a_slow_download_is_served_to_its_end() {
    let site = Site::on_file();
    let bytes = sample(24 * MIB);
    let id = site.uploaded(&bytes, &[]);
    let ran = site.curl(&["--limit-rate", "4M", &site.url(&format!("tblobs/{id}"))]);
    assert_eq!((ran.exit, ran.status), (0, 200), "{}", ran.said);
    assert!(ran.seconds() > 2.0, "it was not slow: {} s", ran.seconds());
    assert_same(&ran.body, &bytes);
}

#[test]
fn nothing_is_compressed_though_curl_would_take_it() {
    let site = Site::in_memory();
    let bytes = vec![b'a'; 300_000];
    let id = site.uploaded(&bytes, &["Content-Type: text/plain"]);
    let ran = site.curl(&["--compressed", &site.url(&format!("tblobs/{id}"))]);
    assert_eq!((ran.status, ran.header("content-encoding")), (200, None));
    assert_eq!(ran.told["size_download"], 300_000);
    assert_same(&ran.body, &bytes);
}

/// curl saves under the name that is plain ASCII, and no name leads out of the folder.
#[test]
fn curl_saves_under_the_name_and_in_its_folder() {
    let site = Site::in_memory();
    let names = [
        ("plain.txt", "plain.txt"),
        ("a%20b.txt", "a b.txt"),
        ("say%20%22hi%22.txt", "say _hi_.txt"),
        ("%E2%82%AC%20rates.csv", "_ rates.csv"),
        ("..%2F..%2Fescape.txt", ".._.._escape.txt"),
        ("%2Fetc%2Fescape", "_etc_escape"),
        ("..%5Cescape", ".._escape"),
        ("..", "__"),
        (".", "_"),
        ("semi;colon", "semi;colon"),
        ("-o", "-o"),
    ];
    for (given, saved) in names {
        let id = site.uploaded(given.as_bytes(), &[&format!("Blob-Name: {given}")]);
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("in/side");
        std::fs::create_dir_all(&inner).unwrap();
        let ran = site.curl_in(&inner, &["-J", "-O", &site.url(&format!("tblobs/{id}"))]);
        assert_eq!((ran.exit, ran.status), (0, 200), "{given}: {}", ran.said);
        assert_eq!(listed(&inner), [saved], "{given}");
        assert_same(&std::fs::read(inner.join(saved)).unwrap(), given.as_bytes());
        assert_eq!(listed(outer.path()), ["in"], "{given}");
        assert_eq!(listed(&outer.path().join("in")), ["side"], "{given}");
    }
}

#[test]
fn what_curl_has_already_is_not_sent_again() {
    let (site, bytes, url) = with_blob();
    let tag = site.folder.path().join("tag");
    let first = site.curl(&["--etag-save", text(&tag), &url]);
    assert_eq!(first.status, 200);
    assert_eq!(std::fs::read_to_string(&tag).unwrap().trim(), first.header("etag").unwrap());
    let again = site.curl(&["--etag-compare", text(&tag), &url]);
    assert_eq!((again.exit, again.status), (0, 304), "{}", again.said);
    assert_eq!((again.body.len(), again.header("etag")), (0, first.header("etag")));

    let other = site.uploaded(b"other", &[]);
    let ran = site.curl(&["--etag-compare", text(&tag), &site.url(&format!("tblobs/{other}"))]);
    assert_eq!(ran.status, 200);
    assert_same(&ran.body, b"other");
    assert_same(&first.body, &bytes);
}

/// A BLOB has no time of change to compare with: the condition does not count.
#[test]
fn a_date_that_curl_compares_with_gets_the_whole() {
    let (site, bytes, url) = with_blob();
    for date in ["Mon, 01 Jan 2035 00:00:00 GMT", "-Mon, 01 Jan 2001 00:00:00 GMT"] {
        let ran = site.curl(&["-z", date, &url]);
        assert_eq!((ran.exit, ran.status), (0, 200), "{date}: {}", ran.said);
        assert_same(&ran.body, &bytes);
    }
}

#[test]
fn a_part_is_sent_only_of_what_the_client_has() {
    let (site, bytes, url) = with_blob();
    let tag = site.downloaded(url.rsplit('/').next().unwrap()).header("etag").unwrap().to_owned();
    let same = site.curl(&["-r", "5-9", "-H", &format!("If-Range: {tag}"), &url]);
    assert_eq!(same.status, 206);
    assert_same(&same.body, &bytes[5..10]);
    let other = site.curl(&["-r", "5-9", "-H", "If-Range: \"other\"", &url]);
    assert_eq!(other.status, 200);
    assert_same(&other.body, &bytes);
}

#[test]
fn a_blob_for_one_download_is_had_once_and_whole() {
    let site = Site::on_file();
    let bytes = sample(CHUNK + 1);
    let url = site.url(&format!("tblobs/{}", site.uploaded(&bytes, &["Blob-Downloads: 1"])));
    let shown = site.curl(&["-I", &url]);
    assert_eq!((shown.status, shown.header("blob-downloads-left")), (200, Some("1")));
    let once = site.curl(&["-r", "0-9", &url]);
    assert_eq!((once.status, once.header("accept-ranges")), (200, Some("none")));
    assert_same(&once.body, &bytes);
    assert_eq!(site.curl(&[&url]).status, 404);
}

#[test]
fn a_blob_is_removed_by_its_secret_without_a_key() {
    let site = Site::in_memory();
    let file = site.file("short", b"short");
    let made = site.curl(&["-X", "POST", "-T", text(&file), &site.url("tblobs")]);
    let url = site.url(&format!("tblobs/{}", made.made()));
    let made: Json = serde_json::from_slice(&made.body).unwrap();
    let removed = |secret: &str| {
        let secret = format!("Blob-Delete-Secret: {secret}");
        let bare = ["-X", "DELETE", "-H", &secret, &url];
        let mut command = std::process::Command::new("curl");
        let output = run(command
            .args(["-q", "-sS", "-w", "%{response_code}", "-o", "/dev/null"])
            .args(bare));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(removed(&"A".repeat(43)), "404");
    assert_eq!(site.curl(&[&url]).status, 200);
    assert_eq!(removed(made["deleteSecret"].as_str().unwrap()), "204");
    assert_eq!(site.curl(&[&url]).status, 404);
}

/// Control: an answer that ends early is no whole one to curl.
#[test]
fn an_answer_that_ends_early_is_noticed() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The request is short: one read takes all of it.
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").unwrap();
    });
    let ran = Site::in_memory().curl(&[&url]);
    server.join().unwrap();
    assert_eq!((ran.exit, &*ran.body), (18, &b"hello"[..]), "{}", ran.said);
}
