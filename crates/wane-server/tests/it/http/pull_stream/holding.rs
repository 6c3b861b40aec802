//! Long polls: answered as soon as a message is there, and with nothing when the hold is over.

use std::io::Read as _;
use std::time::Duration;

use super::wire::{Call, Pulled};
use super::{ISPB, MANY, Streams, message, start};
use crate::server::{Server, eventually};
use crate::stopwatch;

/// Far longer than any test takes.
const LONG_HOLD: [&str; 3] =
    ["--storage=mem", "--stream-hold-ms=60000", "--stream-lease-ms=120000"];

fn long() -> Streams {
    Streams::of(Server::with(&LONG_HOLD))
}

#[test]
fn an_empty_stream_is_answered_after_the_hold() {
    let streams = Streams::with(&["--stream-hold-ms", "1000"]);
    let took = stopwatch();
    let first = streams.start();
    assert_eq!(first.reply.status, 204);
    assert!(took() >= Duration::from_millis(1_000), "held for {:?}", took());
    let took = stopwatch();
    let second = streams.after(&first);
    assert_eq!(second.reply.status, 204);
    assert!(took() >= Duration::from_millis(1_000), "held for {:?}", took());
    assert!(took() < Duration::from_secs(10), "held for {:?}", took());
    streams.push_numbers(0..1);
    assert_eq!(streams.after(&second).messages.len(), 1, "its token asks again");
}

/// Starts and calls with a token, each answered by the message that comes while they wait.
#[test]
fn a_call_that_waits_is_answered_as_soon_as_a_message_comes() {
    let streams = long();
    let mut path = start(ISPB);
    for number in 0..3 {
        let pulled = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| streams.pull(&path, &[MANY]));
            let parked = || streams.metric("wane_stream_parked_readers", "") == Some(1.0);
            assert!(eventually(parked), "nobody waits");
            assert!(!waiting.is_finished());
            let took = stopwatch();
            let ids = streams.push(&[&message(number)]);
            let pulled = waiting.join().unwrap();
            assert!(took() < Duration::from_secs(10), "answered after {:?}", took());
            assert_eq!(pulled.ids(), ids);
            pulled
        });
        assert_eq!(pulled.messages[0].bytes, message(number));
        path = pulled.next;
    }
}

/// A token that waited in vain may wait again; what answers it then is what it names.
#[test]
fn a_token_that_waited_names_one_batch() {
    let streams = Streams::new();
    let waited = streams.after(&streams.start());
    assert!(waited.messages.is_empty());
    for _ in 0..3 {
        assert_eq!(streams.after(&waited).reply.status, 204, "used again and again");
    }
    let ids = streams.push_numbers(0..3);
    let answered = streams.after(&waited);
    assert_eq!(answered.ids(), ids);
    streams.push_numbers(3..6);
    streams.after(&waited).assert_same(&answered);
}

/// Of several that wait, one gets a lone message, and the others go on waiting.
#[test]
fn a_message_answers_one_of_those_who_wait() {
    let streams = long();
    std::thread::scope(|scope| {
        let call = Call::new("GET", &start(ISPB)).key(&streams.reader);
        let connections: Vec<_> = (0..3).map(|_| call.begin(streams.server.http)).collect();
        let parked = || streams.metric("wane_stream_parked_readers", "");
        assert!(eventually(|| parked() == Some(3.0)), "{:?} wait", parked());
        let ids = streams.push_numbers(0..1);
        assert!(eventually(|| parked() == Some(2.0)), "{:?} wait", parked());
        streams.push_numbers(1..3);
        assert!(eventually(|| parked() == Some(0.0)), "{:?} wait", parked());
        let answers = connections.into_iter().map(|mut connection| {
            scope.spawn(move || {
                let mut all = Vec::new();
                connection.read_to_end(&mut all).unwrap();
                String::from_utf8_lossy(&all).into_owned()
            })
        });
        let answers: Vec<_> = answers.collect();
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.join().unwrap()).collect();
        let with_first = answers.iter().filter(|answer| answer.contains(&ids[0])).count();
        assert_eq!(with_first, 1);
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200")));
    });
}

/// A reader that hangs up is no reader that waits, and takes no message along.
#[test]
fn a_reader_that_hangs_up_takes_nothing_along() {
    let streams = long();
    let call = Call::new("GET", &start(ISPB)).key(&streams.reader).header(MANY);
    let waiting = call.begin(streams.server.http);
    let parked = || streams.metric("wane_stream_parked_readers", "");
    assert!(eventually(|| parked() == Some(1.0)), "{:?} wait", parked());
    drop(waiting);
    assert!(eventually(|| parked() == Some(0.0)), "{:?} wait", parked());
    let ids = streams.push_numbers(0..1);
    assert_eq!(streams.start().ids(), ids);
}

/// What a reader that died had comes to one that waits, without a new start.
#[test]
fn an_abandoned_batch_comes_to_a_reader_that_waits() {
    let flags = ["--storage=mem", "--stream-hold-ms=8000", "--stream-lease-ms=9000"];
    let streams = Streams::of(Server::with(&flags));
    let ids = streams.push_numbers(0..10);
    let took = stopwatch();
    assert_eq!(streams.start().ids(), ids);
    let mut waiting = streams.start();
    while waiting.messages.is_empty() {
        assert!(took() < Duration::from_secs(60), "it never comes");
        waiting = streams.after(&waiting);
    }
    assert_eq!(waiting.ids(), ids);
    assert!(took() >= Duration::from_secs(9), "before the lease ended: {:?}", took());
}

/// An operator who stops a server does not wait for its readers, and they lose nothing.
#[test]
fn a_server_that_stops_lets_go_of_those_who_wait() {
    let flags = ["--stream-hold-ms=60000", "--stream-lease-ms=120000"];
    let streams = Streams::of(Server::with(&flags));
    let Streams { server, reader, .. } = streams;
    let call = Call::new("GET", &start(ISPB)).key(&reader);
    let (http, waiting) = (server.http, call.clone());
    let waiting = std::thread::spawn(move || waiting.attempt(http));
    let parked = || {
        let metrics = server.administer("GET", "/metrics", "").body;
        metrics.contains("wane_stream_parked_readers 1")
    };
    assert!(eventually(parked), "nobody waits");
    let took = stopwatch();
    assert_eq!(server.stop(), Some(0));
    assert!(took() < Duration::from_secs(15), "it took {:?}", took());
    if let Some(reply) = waiting.join().unwrap() {
        assert!(matches!(reply.status, 204 | 503), "{}", reply.head);
        if reply.status == 204 {
            assert!(Pulled::of(reply).messages.is_empty());
        }
    }
}
