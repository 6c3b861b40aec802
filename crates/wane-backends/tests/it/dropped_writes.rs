//! Writes whose callers stopped waiting: whole, and nothing is kept of them but the record.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use wane::clock::{ManualClock, SystemClock};
use wane::store::{DeadlineStore, Key, Life, Store, StoreError, Value, Write};
use wane_backends::file::FileStore;

const DROPPED: usize = 300;
const LEN: usize = 20_000;

/// Bytes that can be told to be gone.
struct Traced(Arc<[u8]>);

impl AsRef<[u8]> for Traced {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A write, and what is left of its bytes.
fn traced(number: usize) -> (Write, Weak<[u8]>) {
    let bytes: Arc<[u8]> = vec![number as u8; LEN].into();
    let trace = Arc::downgrade(&bytes);
    let value = Value::new(Bytes::from_owner(Traced(bytes))).expect("a legal value");
    (Write::new(value, Life::Permanent), trace)
}

fn key(number: usize) -> Key {
    Key::new(b"dropped", &number.to_be_bytes()).expect("a legal key")
}

fn store() -> (TempDir, FileStore) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = FileStore::create(directory.path(), SystemClock::shared()).expect("a new store");
    (directory, store)
}

fn poll_once<T>(request: impl Future<Output = T>) -> bool {
    pin!(request).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// One writer serves the queue in order, so that its answer to a later write tells of all before.
async fn settle(store: &FileStore) {
    let value = Value::new("last").expect("a legal value");
    let outcome = store.put(&key(usize::MAX), Write::new(value, Life::Permanent)).await;
    assert!(outcome.expect("the store works").is_applied());
}

#[tokio::test]
async fn dropped_inserts_are_whole_or_absent_and_leave_nothing_behind() {
    let (_directory, store) = store();
    let mut traces = Vec::new();
    for number in 0..DROPPED {
        let (write, trace) = traced(number);
        traces.push(trace);
        let name = key(number);
        let insert = store.insert_if_not_exists(&name, write);
        if number % 3 > 0 {
            poll_once(insert);
        }
    }
    settle(&store).await;
    for (number, trace) in traces.iter().enumerate() {
        assert!(trace.upgrade().is_none(), "the bytes of write {number} are still held");
        let found = store.get(&key(number)).await.expect("the store works");
        let whole = found.map(|record| *record.value == vec![number as u8; LEN]);
        // What was never polled was never asked for.
        assert_eq!(whole, (number % 3 > 0).then_some(true), "write {number}");
    }
}

/// The control: bytes that somebody keeps are noticed.
#[test]
fn kept_bytes_are_told_from_dropped_ones() {
    let (write, trace) = traced(1);
    assert!(trace.upgrade().is_some());
    drop(write);
    assert!(trace.upgrade().is_none());
}

/// A deadline ends the wait, not the write: it stands whole once the writer has come to it.
#[tokio::test]
async fn writes_that_missed_their_deadline_are_whole() {
    let (_directory, store) = store();
    let clock = ManualClock::seeded(1);
    let hasty = DeadlineStore::new(store.clone(), "file", Duration::ZERO, clock);
    let mut late = Vec::new();
    for number in 0..DROPPED {
        let (write, trace) = traced(number);
        match hasty.insert_if_not_exists(&key(number), write).await {
            Err(StoreError::Unknown { backend: "file", .. }) => late.push((number, trace)),
            // The writer was faster than the thread that asked it.
            Ok(outcome) => assert!(outcome.is_applied()),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(late.len() > DROPPED / 2, "only {} were late", late.len());
    settle(&store).await;
    for (number, trace) in late {
        assert!(trace.upgrade().is_none(), "the bytes of write {number} are still held");
        let found = store.get(&key(number)).await.unwrap().expect("it was queued, then dropped");
        assert!(*found.value == vec![number as u8; LEN], "write {number}");
    }
}
