//! Integration tests of the `wane` crate: one binary, one module per concern.

mod app_ttl;
mod apps;
mod blobs;
mod cached;
mod conformance;
mod deadline;
mod device_auth;
mod differential;
mod elections;
mod faulty;
mod gated;
mod linearizability;
mod lying_store;
mod observed;
mod pull_stream;
mod sequencer;
mod sequences;
mod simulation;
mod spread;
mod stalled;
mod tidy;
mod watched;

use std::sync::Arc;

use wane::clock::{ManualClock, SharedClock};
use wane::store::{Key, Life, MemoryStore, Ttl, Value, Write};

/// The store that wrappers are tested over.
type InnerStore = MemoryStore;

fn inner_store(clock: SharedClock) -> InnerStore {
    MemoryStore::new(clock).expect("a thread for the sweeper")
}

fn inner_footprint(store: &InnerStore) -> Option<u64> {
    Some(store.allocated_bytes() as u64)
}

/// A manual clock, and the same one as wrappers take it.
fn manual_clock() -> (Arc<ManualClock>, SharedClock) {
    let clock = ManualClock::seeded(1);
    (Arc::clone(&clock), clock)
}

fn key(clustering: &str) -> Key {
    Key::new(b"tests", clustering.as_bytes()).expect("short enough")
}

fn value(text: &str) -> Value {
    Value::new(text.to_owned()).expect("short enough")
}

fn permanent(text: &str) -> Write {
    Write::new(value(text), Life::Permanent)
}

fn lasting(text: &str, millis: u64) -> Write {
    Write::new(value(text), Life::For(Ttl::from_millis(millis).expect("within the limits")))
}
