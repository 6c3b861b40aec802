//! Uploads by curl: each way it has of sending a file.

use super::curl::Via;
use super::*;

#[test]
fn a_file_comes_back_however_curl_sends_it() {
    for via in Via::ALL {
        let site = via.site();
        let url = site.url("tblobs");
        for size in [0, 1, CHUNK, 3 * MIB + 7] {
            let bytes = sample(size);
            let file = site.file("sent", &bytes);
            let at_file = format!("@{}", text(&file));
            let post = ["-X", "POST", via.flag(), &url];
            let put = site.curl(&[&["-T", text(&file)], &post[..]].concat());
            let streamed = site.curl_from(&file, &[&["-T", "-"], &post[..]].concat());
            let posted = site.curl(&["--data-binary", &at_file, via.flag(), &url]);
            // Of a stream curl counts the framing too.
            assert_eq!([&put, &posted].map(|made| made.bytes_up()), [size as u64; 2]);
            for made in [put, streamed, posted] {
                let id = made.made();
                assert_eq!(made.told["http_version"], via.version());
                let location = format!("{WORKSPACE}/tblobs/{id}");
                assert_eq!(made.header("location"), Some(&*location));
                let back = site.curl(&[via.flag(), &site.url(&format!("tblobs/{id}"))]);
                assert_eq!((back.exit, back.status), (0, 200), "{via:?}: {}", back.said);
                assert_eq!(back.told["http_version"], via.version());
                assert_eq!(back.header("content-length"), Some(&*size.to_string()));
                assert_same(&back.body, &bytes);
            }
        }
    }
}

#[test]
fn what_the_headers_of_an_upload_say_comes_back() {
    let site = Site::in_memory();
    let id = site.uploaded(b"text", &["Content-Type: text/plain", "Blob-Name: a%20b", "TTL: 90s"]);
    let back = site.downloaded(&id);
    assert_same(&back.body, b"text");
    assert_eq!(back.header("content-type"), Some("text/plain"));
    assert_eq!(back.header("blob-name"), Some("a%20b"));
    assert_eq!(back.header("content-disposition"), Some("attachment; filename=\"a b\""));
    assert_eq!(back.header("x-content-type-options"), Some("nosniff"));
    assert!(back.header("expires").is_some());
}

/// curl takes the form of web pages for granted; whoever does not say better gets that back.
#[test]
fn the_media_type_that_curl_makes_up_is_kept() {
    let site = Site::in_memory();
    let made = site.curl(&["--data-binary", "a=b", &site.url("tblobs")]).made();
    let back = site.downloaded(&made);
    assert_eq!(back.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_same(&back.body, b"a=b");
}

#[test]
fn a_slow_upload_is_taken() {
    let site = Site::on_file();
    let bytes = sample(700_000);
    let file = site.file("slow", &bytes);
    let slow = ["-X", "POST", "-T", text(&file), "--limit-rate", "250K"];
    let made = site.curl(&[&slow[..], &[&site.url("tblobs")]].concat());
    let id = made.made();
    assert!(made.seconds() > 1.5, "it was not slow: {} s", made.seconds());
    assert_same(&site.downloaded(&id).body, &bytes);
}

/// curl waits as long as it is told for leave to send; a refusal comes instead.
#[test]
fn an_upload_that_is_too_large_is_refused_before_its_first_byte() {
    let site = Site::in_memory();
    site.limit_blobs_to(2 * MIB);
    let url = site.url("tblobs");
    let sent = |size: usize| {
        let file = site.file("sized", &sample(size));
        let patient = ["--http1.1", "--expect100-timeout", "30", "-H", "Expect: 100-continue"];
        site.curl(&[&["-X", "POST", "-T", text(&file), &url], &patient[..]].concat())
    };
    let refused = sent(2 * MIB + 1);
    assert_eq!((refused.status, refused.bytes_up()), (413, 0), "{}", refused.said);
    assert!(refused.seconds() < 10.0, "it waited: {} s", refused.seconds());
    assert!(!refused.head.contains("100 Continue"), "{}", refused.head);
    let problem: Json = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(problem["code"], "too_large", "{problem}");

    let fits = sent(2 * MIB);
    fits.made();
    assert_eq!(fits.bytes_up(), 2 * MIB as u64);
    assert!(fits.head.contains("100 Continue"), "{}", fits.head);
}

/// Nothing says beforehand how much will come. Over HTTP/2 the answer is followed by a reset that says
/// that the rest is not wanted, and some versions of curl forget the answer over that.
#[test]
fn a_stream_that_grows_too_large_is_refused_under_way() {
    let site = Site::on_file();
    site.limit_blobs_to(MIB);
    let file = site.file("grown", &sample(4 * MIB));
    let sent = |via: Via| {
        site.curl_from(&file, &["-X", "POST", "-T", "-", via.flag(), &site.url("tblobs")])
    };
    let refused = sent(Via::Http1);
    assert_eq!(refused.status, 413, "{}", refused.said);
    let problem: Json = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(problem["code"], "too_large", "{problem}");

    let refused = sent(Via::Http2);
    assert!(refused.status == 413 || refused.exit == 92, "{refused:?}");
    assert_eq!(refused.header("location"), None);
}

#[test]
fn bytes_with_another_sum_than_announced_are_refused() {
    let site = Site::in_memory();
    let file = site.file("summed", b"abc");
    // sha-256 and sha-512 of `abc`.
    let right = [
        "Repr-Digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:",
        "Content-Digest: sha-512=:3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9\
         RU1EI2Q86A4qmslPpUyknw==:",
    ];
    let send =
        |digest: &str, url: &str| site.curl(&["-X", "POST", "-T", text(&file), "-H", digest, url]);
    let url = site.url("tblobs");
    for digest in right {
        let id = send(digest, &url).made();
        let back = site.downloaded(&id);
        assert_same(&back.body, b"abc");
        let sum = right[0].split_once(' ').unwrap().1;
        assert_eq!(back.header("repr-digest"), Some(sum));
        assert_eq!(back.header("content-digest"), Some(sum));

        let begin = digest.find("=:").unwrap() + 2;
        let wrong = format!("{}AAAA{}", &digest[..begin], &digest[begin + 4..]);
        let refused = send(&wrong, &url);
        assert_eq!((refused.status, refused.header("location")), (400, None), "{digest}");
        let said = String::from_utf8(refused.body).unwrap();
        assert!(said.contains("another") && said.contains("send the BLOB anew"), "{said}");
    }
}
