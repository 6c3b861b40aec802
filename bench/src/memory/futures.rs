//! The memory path has no boxed future: what a call allocates, and how large its future is.
//!
//! A get returns short values in place and shares long ones, so whatever it allocated would be its
//! future.

use wane::clock::SystemClock;
use wane::store::{Key, Life, MemoryStore, Store, Value, Write};

use super::peers::{Wane, ready};
use crate::heap;
use crate::report::{Report, Row};
use crate::workload::{VALUE, key, long_life};

/// Records that are there before, so that tables seldom grow during a measurement.
const LOADED: u64 = 100_000;
const CALLS: u64 = 1_000;

/// Adds the rows, and the bars: no get allocates a byte.
pub(super) fn run(report: &mut Report) {
    let wane = Wane::new(SystemClock::shared());
    let store = wane.store();
    for index in 0..LOADED {
        insert(store, &key(index), VALUE);
    }
    let long = [7; 100];
    let keys: Vec<Key> = (LOADED..LOADED + 3 * CALLS).map(key).collect();
    let (short_keys, rest) = keys.split_at(CALLS as usize);
    let (long_keys, absent) = rest.split_at(CALLS as usize);
    let get = |key: &Key| drop(ready(store.get(key)));
    let rows = [
        ("insert of 32 bytes", each(short_keys, |key| insert(store, key, VALUE))),
        ("get of 32 bytes", each(short_keys, get)),
        ("swap of 32 bytes", each(short_keys, |key| swap(store, key))),
        ("insert of 100 bytes", each(long_keys, |key| insert(store, key, &long))),
        ("first get of 100 bytes", each(long_keys, get)),
        ("get of 100 bytes", each(long_keys, get)),
        ("get of nothing", each(absent, get)),
    ];
    for (operation, allocated) in rows {
        let size = match operation.split(' ').next() {
            Some("insert") => size_of_val(&store.insert_if_not_exists(&keys[0], write(VALUE))),
            Some("swap") => size_of_val(&store.compare_and_swap(&keys[0], VALUE, write(VALUE))),
            Some(_) | None => size_of_val(&store.get(&keys[0])),
        };
        report.row(Row {
            table: "memory: cost of the futures (a write allocates its value first)".into(),
            subject: "wane".into(),
            setting: operation.into(),
            measures: vec![
                ("future bytes".into(), Some(size as f64)),
                ("allocated bytes/call".into(), Some(allocated)),
            ],
            note: None,
        });
    }
    for operation in ["get of nothing", "get of 100 bytes", "get of 32 bytes"] {
        let allocated = report.find("wane", operation, "allocated bytes/call");
        report.bar(
            format!("memory {operation}: 1 / (1 + bytes allocated) (a get allocates nothing)"),
            (Some(1.0), allocated.map(|bytes| 1.0 + bytes)),
            1.0,
        );
    }
}

fn each(keys: &[Key], call: impl Fn(&Key)) -> f64 {
    heap::allocated_by(|| keys.iter().for_each(&call)) as f64 / keys.len() as f64
}

fn write(bytes: &[u8]) -> Write {
    let value = Value::new(bytes.to_vec()).expect("the value is short");
    Write::new(value, Life::For(long_life()))
}

fn insert(store: &MemoryStore, key: &Key, bytes: &[u8]) {
    let outcome = ready(store.insert_if_not_exists(key, write(bytes)));
    assert!(outcome.is_ok_and(|outcome| outcome.is_applied()), "the record was absent");
}

fn swap(store: &MemoryStore, key: &Key) {
    let outcome = ready(store.compare_and_swap(key, VALUE, write(VALUE)));
    assert!(outcome.is_ok_and(|outcome| outcome.is_applied()), "the value is as expected");
}
