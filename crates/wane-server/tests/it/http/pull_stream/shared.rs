//! Two servers on one store: no node has what another cannot take over.

use std::time::Duration;

use super::wire::{Call, Pulled};
use super::{ISPB, MANY, SHORT_HOLD, Streams, pushing, start};
use crate::server::{Server, eventually};
use crate::shared::each_listed;
use crate::stopwatch;

/// Streams at one server, and another server on the same store.
fn two(flags: &[String], more: &[&str]) -> (Streams, Server) {
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let streams = Streams::of(Server::with(&flags));
    let other = Server::with(&flags);
    (streams, other)
}

fn at(server: &Server, streams: &Streams, path: &str) -> Pulled {
    let call = Call::new("GET", path).key(&streams.reader).header(MANY);
    Pulled::of(call.send(server.http))
}

#[test]
fn a_reader_goes_from_server_to_server_and_a_retry_is_the_same_at_both() {
    each_listed(|flags| {
        let (streams, other) = two(flags, &SHORT_HOLD);
        let ids = streams.push_numbers(0..35);
        let first = streams.start();
        let second = at(&other, &streams, &first.next);
        assert_eq!(second.ids(), ids[10..20]);
        streams.after(&first).assert_same(&second);
        let third = streams.after(&second);
        assert_eq!(third.ids(), ids[20..30]);
        at(&other, &streams, &second.next).assert_same(&third);
        let (reader, producer) = (streams.reader.clone(), streams.producer.clone());
        streams.server.kill();
        let streams = Streams { server: other, producer, reader };
        let fourth = streams.after(&third);
        assert_eq!(fourth.ids(), ids[30..], "what one began the other goes on with");
        streams.end(&fourth);
        let status = streams.status();
        assert_eq!((&status["inFlight"], &status["liveReaders"]), (&0.into(), &0.into()));
    });
}

#[test]
fn a_message_wakes_those_who_wait_at_the_other_server() {
    each_listed(|flags| {
        let more = ["--stream-hold-ms=15000", "--stream-lease-ms=60000"];
        let (streams, other) = two(flags, &more);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| streams.pull(&start(ISPB), &[MANY]));
            let parked = || streams.metric("wane_stream_parked_readers", "") == Some(1.0);
            assert!(eventually(parked), "nobody waits");
            let took = stopwatch();
            let sent = pushing(&streams.producer, &[b"<a/>"]).send(other.http);
            assert_eq!(sent.status, 201, "{}", sent.text());
            let pulled = waiting.join().unwrap();
            assert_eq!(pulled.messages[0].bytes, b"<a/>");
            assert!(took() < Duration::from_secs(8), "answered after {:?}", took());
        });
    });
}

/// Also when all come at once, to both.
#[test]
fn six_readers_are_six_over_both_servers() {
    each_listed(|flags| {
        let (streams, other) = two(flags, &SHORT_HOLD);
        streams.push_numbers(0..80);
        let replies: Vec<_> = std::thread::scope(|scope| {
            let storm = (0..12).map(|number| {
                let server = if number % 2 == 0 { &streams.server } else { &other };
                let call = Call::new("GET", &start(ISPB)).key(&streams.reader).header(MANY);
                scope.spawn(move || call.send(server.http))
            });
            let storm: Vec<_> = storm.collect();
            storm.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        let begun = replies.iter().filter(|reply| reply.status == 200).count();
        let refused = replies.iter().filter(|reply| reply.status == 429).count();
        assert_eq!((begun, refused), (6, 6));
        let given = replies.into_iter().filter(|reply| reply.status == 200).map(Pulled::of);
        let given: Vec<_> = given.collect();
        let mut ids: Vec<_> = given.iter().flat_map(|pulled| pulled.ids()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 60, "no two have one message");
    });
}
