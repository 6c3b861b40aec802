//! Python with requests: the loop with its retries, in every form.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ledger::{Line, digest};
use super::{Habits, MANY, Reader, lines, python, url};
use crate::http::pull_stream::{Streams, message};
use crate::server::{Server, eventually};
use crate::{stopwatch, wait};

/// What was delivered, in order; retries of a token aside.
fn delivered(lines: &[Line]) -> Vec<(String, String)> {
    let mut seen = std::collections::BTreeSet::new();
    let first = lines.iter().filter(|line| seen.insert((&line.session, &line.token)));
    first.flat_map(|line| line.messages.clone()).collect()
}

fn push(streams: &Streams, numbers: std::ops::Range<usize>) -> Vec<(String, String)> {
    let messages = numbers.map(|number| match number % 5 {
        0 => [&message(number)[..], b"\r\n\0\xFF\xFE\r"].concat(),
        _ => message(number),
    });
    let messages: Vec<_> = messages.collect();
    let batches = messages.chunks(7).flat_map(|batch| {
        let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
        let ids = streams.push(&batch);
        ids.into_iter().zip(batch.into_iter().map(digest)).collect::<Vec<_>>()
    });
    batches.collect()
}

#[test]
fn requests_reads_a_stream_in_every_form() {
    let Some(python) = python() else { return };
    for (accept, encoding) in [
        ("multipart/mixed", "identity"),
        ("multipart/mixed", "gzip"),
        ("application/xml", "identity"),
        ("application/xml", "gzip"),
    ] {
        let streams = Streams::new();
        let sent = push(&streams, 0..40);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("reader.log");
        let habits = Habits { accept, encoding, count: Some(40), ..MANY };
        let mut reader = Reader::start(&python, &[url(&streams)], &streams.reader, &log, habits);
        let ended = eventually(|| reader.process.try_wait().unwrap().is_some());
        assert!(ended && reader.process.wait().unwrap().success(), "{}", reader.said());
        let lines = lines(&log);
        assert_eq!(delivered(&lines), sent, "{accept} {encoding}: each once, in order");
        let mut answers = BTreeMap::new();
        for line in &lines {
            let whole = answers.entry(&line.token).or_insert(&line.whole);
            assert!(line.messages.is_empty() || *whole == &line.whole, "another answer");
        }
        let status = streams.status();
        assert_eq!(status["liveReaders"], 0, "it gave its slot back: {status}");
        assert_eq!((&status["inFlight"], &status["requeued"]), (&0.into(), &0.into()));
    }
}

#[test]
fn requests_goes_on_after_the_server_was_killed() {
    let Some(python) = python() else { return };
    let data = tempfile::tempdir().unwrap();
    let flags = ["--stream-hold-ms=300"];
    let mut streams = Streams::of(Server::start(data.path(), &flags));
    let (address, folder) = (streams.server.http, tempfile::tempdir().unwrap());
    let log = folder.path().join("reader.log");
    let mut reader = Reader::start(&python, &[url(&streams)], &streams.reader, &log, MANY);
    let mut sent = Vec::new();
    for round in 0..3 {
        sent.extend(push(&streams, round * 30..(round + 1) * 30));
        let took = stopwatch();
        while delivered(&lines(&log)).len() < sent.len() {
            reader.assert_at_work();
            assert!(took() < Duration::from_secs(60), "{}", reader.said());
            wait(Duration::from_millis(20));
        }
        let Streams { server, producer, reader } = streams;
        server.kill();
        streams =
            Streams { server: Server::start_at(address, data.path(), &flags), producer, reader };
    }
    assert_eq!(delivered(&lines(&log)), sent, "each once, in order, by one reader");
    let sessions: Vec<_> = lines(&log).into_iter().map(|line| line.session.1).collect();
    assert_eq!(sessions.iter().max(), Some(&1), "its tokens outlived the server");
}
