//! The rule of tokens: what a token is answered once, it is answered again, byte by byte, through
//! restarts and rotations of the keys; and a stream that was ended is gone.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value as Json;

use super::wire::Pulled;
use super::{ISPB, MANY, Streams, start};
use crate::server::{Server, eventually};
use crate::stopwatch;

/// Header and payload of a token.
fn opened(token: &str) -> [Json; 2] {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    let mut part = || serde_json::from_slice(&parts.next().unwrap()).unwrap();
    [part(), part()]
}

fn kid(pulled: &Pulled) -> String {
    opened(pulled.token())[0]["kid"].as_str().unwrap().to_owned()
}

#[test]
fn a_token_says_where_a_reader_stands() {
    let streams = Streams::new();
    streams.push_numbers(0..30);
    let before = crate::wall_clock() / 1_000;
    let first = streams.start();
    let [header, payload] = opened(first.token());
    assert_eq!((&header["alg"], &header["typ"]), (&"HS512".into(), &"PI-PULL-NEXT".into()));
    assert!(header["kid"].is_string());
    assert_eq!(payload["ispb"], ISPB);
    assert!(payload["thread"].as_u64().unwrap() < 6);
    let issued = payload["issued_at"].as_u64().unwrap();
    assert!((before..=crate::wall_clock() / 1_000).contains(&issued), "{issued}");
    let life = payload["exp"].as_u64().unwrap() - issued;
    assert!((300..=301).contains(&life), "good for {life} s");
    for name in ["cursor_offset", "shard", "epoch"] {
        assert!(!payload[name].is_null(), "{name}");
    }
    let sequence = |pulled: &Pulled| opened(pulled.token())[1]["cursor_seq"].as_u64().unwrap();
    let second = streams.after(&first);
    assert!(sequence(&second) > sequence(&first), "it only grows");
    assert_eq!(first.token().split('.').count(), 3);
    assert!(first.next.len() < 1_024 && first.next.is_ascii());
}

/// Every form is kept with its batch, whatever the retry asks for.
#[test]
fn a_retry_is_the_same_after_kills_of_the_server() {
    let (data, flags) = (tempfile::tempdir().unwrap(), super::SHORT_HOLD);
    let mut streams = Streams::of(Server::start(data.path(), &flags));
    streams.push_numbers(0..40);
    let forms: [&[&str]; 4] =
        [&[MANY], &[MANY, "accept-encoding: gzip"], &[], &["accept-encoding: gzip"]];
    let firsts = forms.map(|form| streams.pull(&start(ISPB), form));
    let seconds: Vec<_> =
        firsts.iter().zip(forms).map(|(first, form)| streams.pull(&first.next, form)).collect();
    for _ in 0..2 {
        let before = streams.standing();
        streams = streams.restarted(data.path(), &flags);
        for (first, second) in firsts.iter().zip(&seconds) {
            for form in forms {
                streams.pull(&first.next, form).assert_same(second);
            }
        }
        assert_eq!(streams.standing(), before);
    }
    for (second, form) in seconds.iter().zip(forms) {
        let third = streams.pull(&second.next, form);
        assert!(!third.ids().iter().any(|id| second.ids().contains(id)), "it goes on");
    }
}

/// A start and its batch are there again too, by the token that came with them.
#[test]
fn what_was_pushed_and_claimed_outlives_a_kill() {
    let (data, flags) = (tempfile::tempdir().unwrap(), super::SHORT_HOLD);
    let streams = Streams::of(Server::start(data.path(), &flags));
    let ids = streams.push_numbers(0..25);
    let first = streams.start();
    let streams = streams.restarted(data.path(), &flags);
    let second = streams.after(&first);
    assert_eq!(second.ids(), ids[10..20], "its token is good at the next server");
    streams.end(&second);
    let streams = streams.restarted(data.path(), &flags);
    assert_eq!(streams.ask("DELETE", &second.next, &[]).problem(), (410, "gone".into()));
    assert_eq!(streams.start().ids(), ids[20..]);
}

fn key(kid: &str) -> String {
    format!("{kid}:{}", STANDARD.encode(kid.repeat(64 / kid.len())))
}

/// Makes these the keys, the first one the current one, and waits until the server goes by them.
fn rotate(streams: &Streams, file: &Path, kids: &[&str]) {
    let keys: Vec<_> = kids.iter().map(|kid| key(kid)).collect();
    // As careful operators do: never half a file.
    let beside = file.with_extension("new");
    std::fs::write(&beside, format!("{}\n", keys.join("\n"))).unwrap();
    std::fs::rename(&beside, file).unwrap();
    let is_current = || {
        let fresh = streams.start();
        streams.end(&fresh);
        kid(&fresh) == kids[0]
    };
    assert!(eventually(is_current), "the server does not take {} up", kids[0]);
}

#[test]
fn tokens_in_flight_survive_a_rotation_of_the_key_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stream.keys");
    std::fs::write(&file, key("k1")).unwrap();
    let from = format!("file:{}", file.display());
    let flags = [&super::SHORT_HOLD[..], &["--stream-lease-ms=120000", "--stream-keys", &from]];
    let streams = Streams::of(Server::with(&flags.concat()));
    let ids = streams.push_numbers(0..30);
    let first = streams.start();
    let second = streams.after(&first);
    let third = streams.after(&second);
    assert_eq!([&first, &second, &third].map(kid), ["k1", "k1", "k1"]);

    rotate(&streams, &file, &["k2", "k1"]);
    let again = streams.after(&second);
    again.assert_same(&third);
    let fourth = streams.after(&third);
    assert_eq!((kid(&fourth), fourth.reply.status), ("k2".into(), 204), "it goes on");
    assert_eq!(third.ids(), ids[20..]);

    rotate(&streams, &file, &["k3", "k2"]);
    let before = streams.standing();
    let refused = streams.ask("GET", &third.next, &[MANY]);
    assert_eq!(refused.problem(), (401, "invalid_token".into()), "two rotations are too many");
    assert_eq!(streams.standing(), before);
    streams.push_numbers(30..31);
    let fifth = streams.after(&fourth);
    assert_eq!((kid(&fifth), fifth.messages.len()), ("k3".into(), 1), "and one is not");
}

/// A broken file is told, and the keys that were in force stay so.
#[test]
fn a_key_file_that_is_broken_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stream.keys");
    std::fs::write(&file, key("k1")).unwrap();
    let from = format!("file:{}", file.display());
    let flags = [&super::SHORT_HOLD[..], &["--stream-keys", &from]].concat();
    let streams = Streams::of(Server::with(&flags));
    let first = streams.start();
    std::fs::write(&file, "nonsense").unwrap();
    // Longer than it takes to notice that a file has changed.
    crate::wait(Duration::from_millis(2_500));
    let second = streams.after(&first);
    assert_eq!((second.reply.status, kid(&second)), (204, "k1".into()));
    assert!(!streams.server.log().contains(&STANDARD.encode("k1".repeat(32))), "no key is logged");
    rotate(&streams, &file, &["k2", "k1"]);
}

#[test]
fn keys_on_the_command_line_are_alike_at_two_servers() {
    let keys = format!("{},{}", key("b"), key("a"));
    let data = tempfile::tempdir().unwrap();
    let flags = [&super::SHORT_HOLD[..], &["--stream-keys", &keys]].concat();
    let streams = Streams::of(Server::start(data.path(), &flags));
    streams.push_numbers(0..20);
    let first = streams.start();
    assert_eq!(kid(&first), "b");
    let keys = format!("{},{}", key("c"), key("b"));
    let flags = [&super::SHORT_HOLD[..], &["--stream-keys", &keys]].concat();
    let streams = streams.restarted(data.path(), &flags);
    let second = streams.after(&first);
    assert_eq!((second.messages.len(), kid(&second)), (10, "c".into()));
}

#[test]
fn a_stream_that_was_ended_is_gone() {
    let streams = Streams::new();
    let ids = streams.push_numbers(0..25);
    let first = streams.start();
    let second = streams.after(&first);
    assert_eq!(streams.status()["liveReaders"], 1);
    streams.end(&second);
    let status = streams.status();
    assert_eq!((&status["liveReaders"], &status["inFlight"]), (&0.into(), &0.into()));
    let before = streams.standing();
    for token in [&second, &first] {
        let gone = streams.ask("DELETE", &token.next, &[]);
        assert_eq!(gone.problem(), (410, "gone".into()));
        let refused = streams.ask("GET", &token.next, &[MANY]);
        assert_eq!(refused.problem(), (401, "token_expired".into()));
    }
    assert_eq!(streams.standing(), before);
    assert_eq!(streams.start().ids(), ids[20..], "what was delivered is acknowledged");
}

/// A token before the last one ends the stream and acknowledges nothing of the last batch.
#[test]
fn an_end_with_the_token_before_gives_back_what_was_delivered() {
    let streams = Streams::new();
    let ids = streams.push_numbers(0..20);
    let first = streams.start();
    let second = streams.after(&first);
    assert_eq!(second.ids(), ids[10..]);
    streams.end(&first);
    assert_eq!(streams.status()["requeued"], 10);
    let took = stopwatch();
    assert_eq!(streams.start().ids(), ids[10..], "at once, and not when a lease ends");
    assert!(took() < Duration::from_secs(20), "it took {:?}", took());
}
