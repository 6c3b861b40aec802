//! Bodies of producers that are not what they say, too many or too much: the exact status, and
//! nothing of them in the stream.

use std::process::{Command, Stdio};

use super::wire::{Call, Reply, gzip, mixed};
use super::{ISPB, Streams, inbox, start};

const XML: &str = "content-type: application/xml";
const PARTS: &str = "content-type: multipart/mixed; boundary=b";
const GZIP: &str = "content-encoding: gzip";

/// The longest message.
const MOST: usize = 200 * 1_024;

/// A body by its name, with its headers, and what it is refused with.
type Case<'a> = (&'a str, Vec<&'a str>, Vec<u8>, u16, &'a str);

const INVALID: (u16, &str) = (400, "invalid_request");
const UNSUPPORTED: (u16, &str) = (415, "unsupported_media_type");
const TOO_LARGE: (u16, &str) = (413, "too_large");

fn case<'a>(
    name: &'a str,
    headers: &[&'a str],
    body: impl Into<Vec<u8>>,
    (status, code): (u16, &'a str),
) -> Case<'a> {
    (name, headers.to_vec(), body.into(), status, code)
}

/// Sends each, and fails unless it is refused as said and leaves nothing.
fn refused(streams: &Streams, cases: Vec<Case<'_>>) {
    let before = streams.status();
    assert_eq!(before["lagMillis"], 0, "nobody waits for anything");
    for (name, headers, body, status, code) in cases {
        let reply = streams.send(&headers, &body);
        assert_eq!(reply.problem(), (status, code.into()), "{name}");
        assert_eq!(reply.header("pi-resourceid"), None, "{name}");
        assert_eq!(streams.status(), before, "{name}");
    }
    let ids = streams.push_numbers(0..1);
    let first = streams.start();
    assert_eq!(first.ids(), ids, "the only message is the one that was good");
    streams.end(&first);
}

#[test]
fn types_that_are_no_messages_are_unsupported() {
    let streams = Streams::new();
    let body = "<a/>";
    let parts = || mixed("b", &[b"<a/>"]);
    refused(
        &streams,
        vec![
            case("no type", &[], body, UNSUPPORTED),
            case("an empty type", &["content-type: "], body, UNSUPPORTED),
            case("nonsense", &["content-type: nonsense"], body, UNSUPPORTED),
            case("text", &["content-type: text/plain"], body, UNSUPPORTED),
            case("text/xml", &["content-type: text/xml"], body, UNSUPPORTED),
            case("JSON", &["content-type: application/json"], body, UNSUPPORTED),
            case("more than xml", &["content-type: application/xml+x"], body, UNSUPPORTED),
            case("any", &["content-type: application/*"], body, UNSUPPORTED),
            case(
                "a form",
                &["content-type: multipart/form-data; boundary=b"],
                parts(),
                UNSUPPORTED,
            ),
            case("related", &["content-type: multipart/related; boundary=b"], parts(), UNSUPPORTED),
            case("brotli", &[XML, "content-encoding: br"], body, UNSUPPORTED),
            case("deflate", &[XML, "content-encoding: deflate"], body, UNSUPPORTED),
            case("zstd", &[XML, "content-encoding: zstd"], body, UNSUPPORTED),
            case(
                "twice",
                &[XML, "content-encoding: gzip, gzip"],
                gzip(&gzip(b"<a/>")),
                UNSUPPORTED,
            ),
            case("two headers", &[XML, GZIP, GZIP], gzip(&gzip(b"<a/>")), INVALID),
        ],
    );
    for encoding in ["content-encoding: identity", "Content-Encoding: Identity"] {
        assert_eq!(streams.send(&[XML, encoding], b"<a/>").status, 201, "{encoding}");
    }
    for kind in ["application/xml", "Application/XML", "application/xml;charset=utf-8"] {
        assert_eq!(
            streams.send(&[&format!("content-type: {kind}")], b"<a/>").status,
            201,
            "{kind}"
        );
    }
}

#[test]
fn a_body_that_is_no_multipart_is_invalid() {
    let streams = Streams::new();
    let good = String::from_utf8(mixed("b", &[b"<a/>", b"<b/>"])).unwrap();
    let part = |head: &str, body: &str| format!("--b\r\n{head}\r\n\r\n{body}\r\n--b--\r\n");
    let typed = "Content-Type: application/xml";
    let long_head = format!("{typed}\r\nX-Long: {}", "x".repeat(100_000));
    let many_heads = format!("{typed}{}", "\r\nX-A: a".repeat(10_000));
    let inner = String::from_utf8(mixed("c", &[b"<a/>"])).unwrap();
    let nested = part("Content-Type: multipart/mixed; boundary=c", &inner);
    let no_boundary = "content-type: multipart/mixed";
    let empty = "content-type: multipart/mixed; boundary=";
    let quoted = "content-type: multipart/mixed; boundary=\"\"";
    let long = format!("content-type: multipart/mixed; boundary={}", "b".repeat(71));
    let long_body = good.replace("--b", &format!("--{}", "b".repeat(71)));
    let wrong = "content-type: multipart/mixed; boundary=wrong";
    refused(
        &streams,
        vec![
            case("no boundary", &[no_boundary], &*good, INVALID),
            case("an empty boundary", &[empty], &*good, INVALID),
            case("an empty quoted boundary", &[quoted], &*good, INVALID),
            case("a boundary of 71", &[&long], long_body, INVALID),
            case("another boundary", &[wrong], &*good, INVALID),
            case("no end", &[PARTS], good.trim_end_matches("--b--\r\n"), INVALID),
            case("cut in the end", &[PARTS], good.trim_end_matches("-\r\n"), INVALID),
            case("cut in a part", &[PARTS], &good[..good.len() - 15], INVALID),
            case("cut in a head", &[PARTS], "--b\r\nContent-Ty", INVALID),
            case("line feeds alone", &[PARTS], good.replace("\r\n", "\n"), INVALID),
            case("no parts", &[PARTS], "--b--\r\n", INVALID),
            case("nothing", &[PARTS], "", INVALID),
            case("text", &[PARTS], "nothing of the kind", INVALID),
            case("an empty part", &[PARTS], part(typed, ""), INVALID),
            case("an empty part after a good one", &[PARTS], mixed("b", &[b"<a/>", b""]), INVALID),
            case("nested", &[PARTS], nested, INVALID),
            case("a long header", &[PARTS], part(&long_head, "<a/>"), INVALID),
            case("many headers", &[PARTS], part(&many_heads, "<a/>"), INVALID),
            case("a header that is none", &[PARTS], part("nonsense", "<a/>"), INVALID),
            case("a message of nothing", &[XML], "", INVALID),
        ],
    );
}

#[test]
fn more_than_ten_messages_are_invalid_and_ten_are_not() {
    let streams = Streams::new();
    let parts = |count: usize| mixed("b", &vec![&b"<a/>"[..]; count]);
    refused(
        &streams,
        vec![
            case("eleven", &[PARTS], parts(11), INVALID),
            case("a thousand", &[PARTS], parts(1_000), INVALID),
            case("eleven, compressed", &[PARTS, GZIP], gzip(&parts(11)), INVALID),
        ],
    );
    let ten = streams.send(&[PARTS], &parts(10));
    assert_eq!((ten.status, super::ids_in(&ten).len()), (201, 10));
}

#[test]
fn messages_and_bodies_have_limits() {
    let streams = Streams::new();
    let plain = 2_200_000 + 200_000;
    let parts = mixed("b", &[&vec![b'x'; MOST], &vec![b'x'; MOST + 1]]);
    refused(
        &streams,
        vec![
            case("a byte too long", &[XML], vec![b'x'; MOST + 1], TOO_LARGE),
            case("compressed", &[XML, GZIP], gzip(&vec![b'x'; MOST + 1]), TOO_LARGE),
            case("the second is a byte too long", &[PARTS], parts, TOO_LARGE),
            case("a body too long", &[PARTS], vec![b'x'; plain], TOO_LARGE),
            case("too long once plain", &[PARTS, GZIP], gzip(&vec![b'x'; plain]), TOO_LARGE),
        ],
    );
    let longest = vec![&[b'x'; MOST][..]; 10];
    for (headers, body) in
        [(&[PARTS][..], mixed("b", &longest)), (&[PARTS, GZIP], gzip(&mixed("b", &longest)))]
    {
        let sent = streams.send(headers, &body);
        assert_eq!((sent.status, super::ids_in(&sent).len()), (201, 10));
    }
    let mut pulled = streams.start();
    let mut read = 0;
    while !pulled.messages.is_empty() {
        assert!(pulled.messages.iter().all(|message| message.bytes == longest[0]));
        read += pulled.messages.len();
        pulled = streams.after(&pulled);
    }
    assert_eq!(read, 20);
}

/// A length that is announced is refused before anything of it is sent.
#[test]
fn a_body_that_announces_too_much_is_not_waited_for() {
    let streams = Streams::new();
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: multipart/mixed; boundary=b\r\ncontent-length: 4000000000\r\n\r\n",
        inbox(ISPB),
        streams.producer
    );
    assert_eq!(crate::server::raw(streams.server.http, request.as_bytes()).status, 413);
}

#[test]
fn a_body_that_is_no_gzip_is_invalid() {
    let streams = Streams::new();
    let good = gzip(b"<a>some message that is compressed</a>");
    let middle = good.len() / 2;
    let mut changed = good.clone();
    changed[middle] ^= 0x55;
    let mut checksum = good.clone();
    checksum[good.len() - 8] ^= 1;
    let mut length = good.clone();
    length[good.len() - 1] ^= 1;
    let trailing = |bytes: &[u8]| [&good, bytes].concat();
    refused(
        &streams,
        vec![
            case("plain", &[XML, GZIP], "<a/>", INVALID),
            case("nothing", &[XML, GZIP], "", INVALID),
            case("nothing, compressed", &[XML, GZIP], gzip(b""), INVALID),
            case("the magic alone", &[XML, GZIP], &good[..2], INVALID),
            case("the header alone", &[XML, GZIP], &good[..10], INVALID),
            case("cut in the middle", &[XML, GZIP], &good[..middle], INVALID),
            case("cut before its length", &[XML, GZIP], &good[..good.len() - 4], INVALID),
            case("cut by one", &[XML, GZIP], &good[..good.len() - 1], INVALID),
            case("a changed byte", &[XML, GZIP], changed, INVALID),
            case("another checksum", &[XML, GZIP], checksum, INVALID),
            case("another length", &[XML, GZIP], length, INVALID),
            case("bytes behind it", &[XML, GZIP], trailing(b"garbage"), INVALID),
            case("a zero behind it", &[XML, GZIP], trailing(b"\0"), INVALID),
            case(
                "garbage behind parts",
                &[PARTS, GZIP],
                [gzip(&mixed("b", &[b"<a/>"])), b"x".to_vec()].concat(),
                INVALID,
            ),
        ],
    );
    assert_eq!(streams.send(&[XML, GZIP], &good).status, 201, "the control");
    let names = streams.send(&[XML, "Content-Encoding: GZIP"], &good);
    assert_eq!(names.status, 201, "names of codings have no case");
}

/// The most memory that the server ever had, in KiB.
fn peak(streams: &Streams) -> u64 {
    let path = format!("/proc/{}/status", streams.server.pid());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Zeros that become so many times smaller.
fn bomb(mebibytes: u64) -> Vec<u8> {
    let script = format!("head -c {}M /dev/zero | gzip -9", mebibytes);
    let made = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success());
    made.stdout
}

#[test]
fn a_bomb_is_refused_in_flat_memory() {
    let streams = Streams::new();
    // Warm: a body as long as bodies may be.
    let longest = mixed("b", &[&[b'x'; MOST][..]; 10]);
    for _ in 0..4 {
        assert_eq!(streams.send(&[PARTS, GZIP], &gzip(&longest)).status, 201);
    }
    let bomb = bomb(200);
    assert!(bomb.len() < 2_200_000, "it is short enough to be looked at: {}", bomb.len());
    let before = peak(&streams);
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let throw = |kind: &'static str| {
            let call =
                Call::new("POST", &inbox(ISPB)).key(&streams.producer).headers(&[kind, GZIP]);
            let call = call.body(&bomb);
            scope.spawn(move || call.send(streams.server.http))
        };
        let thrown: Vec<_> = [XML, PARTS, XML, PARTS].into_iter().map(throw).collect();
        thrown.into_iter().map(|thrown| thrown.join().unwrap()).collect()
    });
    for reply in replies {
        assert_eq!(reply.problem(), (413, "too_large".into()));
    }
    let grown = peak(&streams) - before;
    assert!(grown < 24 * 1_024, "four bombs of 200 MiB took {grown} KiB");
}

/// Nothing of a body counts until all of it has come.
#[test]
fn a_body_whose_sender_goes_is_no_message() {
    let streams = Streams::new();
    let before = streams.status();
    let body = mixed("b", &[b"<a/>", b"<b/>"]);
    for cut in [1, body.len() / 2, body.len() - 1] {
        let call = Call::new("POST", &inbox(ISPB)).key(&streams.producer).header(PARTS).body(&body);
        let bytes = call.bytes();
        let mut stream = std::net::TcpStream::connect(streams.server.http).unwrap();
        let sent = &bytes[..bytes.len() - body.len() + cut];
        std::io::Write::write_all(&mut stream, sent).unwrap();
        drop(stream);
    }
    assert_eq!(streams.pull(&start(ISPB), &[]).reply.status, 204);
    let after = streams.status();
    assert_eq!(after["tailRow"], before["tailRow"]);
    assert!(!streams.server.log().contains("panicked"));
}
