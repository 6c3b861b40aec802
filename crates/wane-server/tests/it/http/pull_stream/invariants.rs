//! The five invariants of the design and each row of its walkthrough, over HTTP and by their names.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::wire::Call;
use super::{ISPB, MANY, Streams, start};
use crate::wait;

/// Leases and tokens that end while a test waits. A token is good for up to a second more, as its
/// end is in whole seconds.
const BRIEF: [&str; 4] = ["--stream-lease-ms", "1000", "--stream-token-ms", "2000"];
const BRIEF_LEASE: Duration = Duration::from_millis(1_100);
const BRIEF_TOKEN: Duration = Duration::from_millis(3_100);

#[test]
fn fresh_cursor_consumption() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..25);
    let first = streams.start();
    assert_eq!(first.ids(), known[..10], "up to ten messages, in order");
    let second = streams.after(&first);
    assert_eq!(second.ids(), known[10..20], "the first use of a token is always good");
    assert_ne!(second.next, first.next, "and advances the cursor");
    let third = streams.after(&second);
    assert_eq!(third.ids(), known[20..]);
    for (number, message) in
        [&first, &second, &third].iter().flat_map(|pulled| &pulled.messages).enumerate()
    {
        assert!(message.bytes == super::message(number), "{number}: other bytes");
    }
    assert!(streams.after(&third).messages.is_empty());
}

#[test]
fn expired_cursor_rejection() {
    let streams = Streams::with(&BRIEF);
    let known = streams.push_numbers(0..20);
    let first = streams.start();
    wait(BRIEF_TOKEN);
    let before = streams.standing();
    for method in ["GET", "DELETE"] {
        let late = streams.ask(method, &first.next, &[MANY]);
        assert_eq!(late.problem(), (401, "token_expired".into()), "{method}");
        let advice = late.json()["detail"].as_str().unwrap().to_owned();
        assert!(advice.contains("stream/start"), "{advice}");
        assert_eq!(late.header("pi-pull-next"), None);
    }
    assert_eq!(streams.standing(), before, "nothing moved");
    let again = streams.start();
    assert_eq!(again.ids(), known[..10], "what was not acknowledged comes again, in order");
}

#[test]
fn replay_after_failure() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..25);
    let first = streams.start();
    let second = streams.after(&first);
    let before = streams.standing();
    for headers in [&[MANY][..], &[], &[MANY, "accept-encoding: gzip"]] {
        streams.pull(&first.next, headers).assert_same(&second);
    }
    assert_eq!(streams.standing(), before, "a retry moves nothing");
    let third = streams.after(&second);
    assert_eq!(third.ids(), known[20..], "acknowledged by the next token");
    let late = streams.ask("GET", &first.next, &[MANY]);
    assert_eq!(late.problem(), (400, "token_out_of_order".into()));
}

#[test]
fn concurrency_guardrail() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..70);
    let readers: Vec<_> = (0..6).map(|_| streams.start()).collect();
    let given: Vec<_> = readers.iter().flat_map(|reader| reader.ids()).collect();
    assert_eq!(given, known[..60], "six readers, none with what another has");
    let before = streams.standing();
    assert_eq!((&before["liveReaders"], &before["inFlight"]), (&6.into(), &60.into()));
    for _ in 0..3 {
        let seventh = streams.ask("GET", &start(ISPB), &[MANY]);
        assert_eq!(seventh.problem(), (429, "limited".into()));
        let after: u64 = seventh.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&after), "{after} s of a lease of 30 s");
        assert_eq!(seventh.header("pi-pull-next"), None);
    }
    assert_eq!(streams.standing(), before, "the cursor did not move");
    assert_eq!(streams.after(&readers[3]).ids(), known[60..], "the six go on");
    streams.end(&readers[0]);
    assert_eq!(streams.start().reply.status, 204, "a slot that was given back is free");
}

#[test]
fn out_of_order_token_detection() {
    let streams = Streams::new();
    let known = streams.push_numbers(0..50);
    let first = streams.start();
    let second = streams.after(&first);
    let third = streams.after(&second);
    let fourth = streams.after(&third);
    let before = streams.standing();
    for stale in [&first, &second] {
        for method in ["GET", "DELETE"] {
            let refused = streams.ask(method, &stale.next, &[MANY]);
            assert_eq!(refused.problem(), (400, "token_out_of_order".into()), "{method}");
        }
    }
    assert_eq!(streams.standing(), before);
    assert_eq!(streams.after(&fourth).ids(), known[40..], "the stream goes on where it was");
}

/// Walkthrough: expired tokens are known by `exp`, and by the record of the slot.
#[test]
fn expired_tokens_are_told_by_their_expiry_and_by_the_record() {
    let lasting = ["--stream-lease-ms", "1000", "--stream-token-ms", "60000"];
    let streams = Streams::with(&lasting);
    streams.push_numbers(0..3);
    let taken = streams.pull(&start(ISPB), &[]);
    wait(BRIEF_LEASE);
    // Whoever comes takes the slot whose reader has been gone for longest; the token is still young.
    let successors: Vec<_> = (0..6).map(|_| streams.ask("GET", &start(ISPB), &[])).collect();
    assert!(successors.iter().any(|reply| reply.status == 200), "what it had is there for others");
    let refused = streams.ask("GET", &taken.next, &[]);
    assert_eq!(refused.problem(), (401, "token_expired".into()), "by the record");
    assert_eq!(streams.ask("DELETE", &taken.next, &[]).problem(), (410, "gone".into()));
}

/// Walkthrough: a message stays undelivered until the next token is used.
#[test]
fn messages_stay_undelivered_until_the_next_token_is_used() {
    let streams = Streams::with(&["--stream-lease-ms", "1500", "--stream-token-ms", "60000"]);
    let known = streams.push_numbers(0..10);
    let lost = streams.start();
    assert_eq!(lost.ids(), known);
    wait(Duration::from_millis(1_600));
    let found = streams.start();
    assert_eq!(found.ids(), known, "to another reader, once the lease has ended");
    let bytes = |pulled: &super::Pulled| pulled.messages.clone();
    assert_eq!(bytes(&found), bytes(&lost), "under the same ids, with the same bytes");
    let empty = streams.after(&found);
    assert!(empty.messages.is_empty());
    let status = streams.status();
    let told = ["inFlight", "requeued", "lagMillis"].map(|name| status[name].as_u64().unwrap());
    assert_eq!(told, [0, 0, 0], "acknowledged by the next token: {status}");
}

/// Walkthrough: the seventh reader is kept out also when all come at once.
#[test]
fn a_storm_of_starts_makes_six_readers_and_no_two_have_one_message() {
    let streams = Streams::new();
    streams.push_numbers(0..100);
    let replies: Vec<_> = std::thread::scope(|scope| {
        let storm = (0..24).map(|_| {
            let call = Call::new("GET", &start(ISPB)).key(&streams.reader).header(MANY);
            scope.spawn(move || call.send(streams.server.http))
        });
        let storm: Vec<_> = storm.collect();
        storm.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let refused = replies.iter().filter(|reply| reply.status == 429).count();
    let begun = replies.into_iter().filter(|reply| reply.status == 200).map(super::Pulled::of);
    let begun: Vec<_> = begun.collect();
    assert_eq!((begun.len(), refused), (6, 18));
    let mut ids: Vec<_> = begun.iter().flat_map(|pulled| pulled.ids()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60, "each message once");
    assert_eq!(streams.status()["liveReaders"], 6);
}

/// Walkthrough: one token that is used by two at once is answered once, to both.
#[test]
fn calls_that_race_with_one_token_get_one_answer() {
    let streams = Streams::new();
    streams.push_numbers(0..100);
    let mut pulled = streams.start();
    for _ in 0..5 {
        let answers: Vec<_> = std::thread::scope(|scope| {
            let racers = (0..4).map(|_| scope.spawn(|| streams.after(&pulled)));
            let racers: Vec<_> = racers.collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        answers[1..].iter().for_each(|answer| answer.assert_same(&answers[0]));
        pulled = answers.into_iter().next().unwrap();
        assert_eq!(pulled.messages.len(), 10);
    }
    assert_eq!(streams.status()["inFlight"], 10);
}

/// Walkthrough: the audit has the hash of each token that was issued or used, and who did; a backup
/// holds all that is stored, and no token is in it.
#[test]
fn every_token_that_is_issued_or_used_is_audited_with_hash_and_client() {
    let streams = Streams::new();
    streams.push_numbers(0..20);
    let client = "pi-client-id: a reader of the test";
    let first = streams.pull(&start(ISPB), &[MANY, client]);
    let second = streams.pull(&first.next, &[MANY, client]);
    streams.ask("DELETE", &second.next, &[client]);
    let forged = format!("{}x", second.token());
    let path = second.next.replace(second.token(), &forged);
    assert_eq!(streams.ask("GET", &path, &[client]).status, 401);
    let hash = |token: &str| URL_SAFE_NO_PAD.encode(&Sha256::digest(token)[..16]);
    let is_stored = |text: &str| {
        let backup = Call::new("GET", "/api/v1/admin/backup").key(&streams.server.admin_key);
        let backup = backup.send(streams.server.admin);
        assert_eq!(backup.status, 200);
        backup.body.windows(text.len()).any(|window| window == text.as_bytes())
    };
    for token in [first.token(), second.token(), &forged] {
        assert!(crate::server::eventually(|| is_stored(&hash(token))), "{token}");
        assert!(!is_stored(token), "the token itself is stored nowhere");
    }
    assert!(is_stored("a reader of the test"));
}
