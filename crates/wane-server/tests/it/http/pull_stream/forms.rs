//! Forms: one message or ten, compressed or not, and bytes as they came.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::wire::{Call, gunzip, gzip, mixed};
use super::{ISPB, MANY, OTHER, Streams, credential, ids_in, inbox, message, reader_of, start};
use crate::server::Server;
use crate::wall_clock;

/// Bytes that nothing on the way may touch.
fn odd_messages() -> Vec<Vec<u8>> {
    vec![
        b"<a>\r\n</a>".to_vec(),
        b"<a>\n\r\r\n\n</a>\r\n".to_vec(),
        b"\xEF\xBB\xBF<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>S\xE3o Paulo</a>".to_vec(),
        (0..=255).collect(),
        b"\r\n--of-the-tes\r\n--of the test--\r\n".to_vec(),
        b"--pi-boundary\r\nPI-ResourceId: none\r\n\r\n".to_vec(),
        b"\0".to_vec(),
        b"\r\n".to_vec(),
        "<Sgntr>\r\nMIIG\r\n</Sgntr>\u{1F980}".as_bytes().to_vec(),
        vec![b'x'; 200 * 1_024],
    ]
}

#[test]
fn bytes_come_out_as_they_went_in_in_every_form() {
    let streams = Streams::new();
    let messages = odd_messages();
    let batch: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    for (sent_in_parts, gzipped_in, taken_in_parts, gzipped_out) in
        (0..16).map(|form| (form & 1 > 0, form & 2 > 0, form & 4 > 0, form & 8 > 0))
    {
        let form = format!("{sent_in_parts} {gzipped_in} {taken_in_parts} {gzipped_out}");
        let mut ids = Vec::new();
        for part in batch.chunks(if sent_in_parts { 10 } else { 1 }) {
            let (kind, body) = match part {
                [one] => ("content-type: application/xml", one.to_vec()),
                _ => ("content-type: multipart/mixed;boundary=\"of-the-test\"", parts(part)),
            };
            let sent = if gzipped_in {
                streams.send(&[kind, "content-encoding: gzip"], &gzip(&body))
            } else {
                streams.send(&[kind], &body)
            };
            assert_eq!(sent.status, 201, "{form}: {}", sent.text());
            ids.extend(ids_in(&sent));
        }
        let accept = if taken_in_parts { MANY } else { "accept: application/xml" };
        let encoding = if gzipped_out { "accept-encoding: gzip" } else { "accept-encoding: br" };
        let mut pulled = streams.pull(&start(ISPB), &[accept, encoding]);
        let mut read = Vec::new();
        while !pulled.messages.is_empty() {
            let encoded = pulled.reply.header("content-encoding");
            assert_eq!(encoded, gzipped_out.then_some("gzip"), "{form}");
            read.append(&mut pulled.messages);
            pulled = streams.pull(&pulled.next, &[accept, encoding]);
        }
        streams.end(&pulled);
        assert_eq!(
            read.iter().map(|message| &message.id).collect::<Vec<_>>(),
            Vec::from_iter(&ids)
        );
        for (message, expected) in read.iter().zip(&messages) {
            assert!(message.bytes == *expected, "{form}: {} bytes differ", expected.len());
        }
    }
}

fn parts(messages: &[&[u8]]) -> Vec<u8> {
    mixed("of-the-test", messages)
}

#[test]
fn one_message_is_answered_with_its_id_in_the_head() {
    let streams = Streams::new();
    let ids = streams.push_numbers(0..2);
    let pulled = streams.pull(&start(ISPB), &[]);
    assert_eq!(pulled.reply.header("content-type"), Some("application/xml;charset=utf-8"));
    assert_eq!(pulled.reply.header("pi-resourceid"), Some(&*ids[0]));
    assert_eq!(pulled.reply.body, message(0));
}

/// Base64 of `PI`, 48 bits of milliseconds and a UUIDv4.
#[test]
fn ids_say_when_a_message_came_and_no_two_are_alike() {
    let streams = Streams::new();
    let before = wall_clock();
    let mut ids = streams.push_numbers(0..60);
    let after = wall_clock();
    for id in &ids {
        let bytes = STANDARD.decode(id).unwrap();
        assert_eq!((id.len(), bytes.len(), &bytes[..2]), (32, 24, &b"PI"[..]));
        let millis = bytes[2..8].iter().fold(0, |millis, byte| millis << 8 | u64::from(*byte));
        assert!((before..=after).contains(&millis), "{millis} is not in {before}..={after}");
        assert_eq!((bytes[14] >> 4, bytes[16] >> 6), (4, 2), "a UUIDv4");
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60);
}

#[test]
fn a_message_keeps_its_id_when_it_is_delivered_again() {
    let streams = Streams::with(&["--stream-lease-ms", "800", "--stream-token-ms", "60000"]);
    let ids = streams.push_numbers(0..1);
    for round in 0..3 {
        let pulled = streams.start();
        assert_eq!(pulled.ids(), ids, "{round}");
        assert_eq!(pulled.messages[0].bytes, message(0));
        crate::wait(std::time::Duration::from_millis(900));
    }
}

#[test]
fn a_batch_gathers_what_came_one_by_one() {
    let streams = Streams::new();
    let ids: Vec<_> = (0..12).flat_map(|number| streams.push(&[&message(number)])).collect();
    let first = streams.start();
    assert_eq!(first.ids(), ids[..10]);
    let again = streams.pull(&first.next, &[MANY, "accept-encoding: gzip"]);
    assert_eq!(again.ids(), ids[10..]);
    let plain = gunzip(&again.reply.body);
    assert!(plain.len() > again.reply.body.len(), "it is smaller");
}

#[test]
fn a_message_goes_to_the_institution_that_it_was_sent_to() {
    let streams = Streams::new();
    let ids = streams.push_numbers(0..1);
    let other = reader_of(&streams.server, OTHER);
    let ask = |key: &str, ispb| Call::new("GET", &start(ispb)).key(key).send(streams.server.http);
    assert_eq!(ask(&other, OTHER).status, 204);
    let call = Call::new("POST", &inbox(OTHER)).key(&streams.producer);
    let sent = call.header("content-type: application/xml; charset=ISO-8859-1").body(b"<o/>");
    assert_eq!(sent.send(streams.server.http).status, 201);
    let second = super::Pulled::of(ask(&other, OTHER));
    assert_eq!(second.messages[0].bytes, b"<o/>");
    assert_eq!(streams.pull(&start(ISPB), &[]).ids(), ids);
}

/// As programs send bodies whose length they do not know.
#[test]
fn a_body_may_come_in_chunks() {
    let server = Server::with(&["--storage", "mem"]);
    let key = credential(&server, r#"{"scopes":["produce"]}"#);
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/xml\r\ntransfer-encoding: chunked\r\n\r\n\
         3\r\n<a>\r\n4\r\n</a>\r\n0\r\n\r\n",
        inbox(ISPB)
    );
    assert_eq!(crate::server::raw(server.http, request.as_bytes()).status, 201);
    let streams = Streams::of(server);
    assert_eq!(streams.pull(&start(ISPB), &[]).messages[0].bytes, b"<a></a>");
}
