//! CachedStore: never older than it may be, never behind its own node, and within its bytes.

mod bounds;
mod naive;
mod races;
mod staleness;
mod suite;

use std::sync::Arc;
use std::time::Duration;

use wane::clock::ManualClock;
use wane::store::{CacheSettings, CachedStore, Fence, Life, Store, Write};

use crate::gated::GatedStore;
use crate::{InnerStore, inner_store, key, value};

const MAX_STALE: Duration = Duration::from_secs(1);

type Cached = CachedStore<GatedStore<InnerStore>>;

/// A node with a cache, the gate between it and the store, and another node that writes beside it.
struct Setup {
    clock: Arc<ManualClock>,
    store: Cached,
    below: GatedStore<InnerStore>,
    other: InnerStore,
}

fn setup() -> Setup {
    setup_with(settings(MAX_STALE))
}

fn settings(max_stale: Duration) -> Option<CacheSettings> {
    Some(CacheSettings { max_stale, max_bytes: 1 << 20 })
}

fn setup_with(settings: Option<CacheSettings>) -> Setup {
    let clock = ManualClock::seeded(1);
    let other = inner_store(clock.clone());
    let below = GatedStore::new(other.clone());
    let store = CachedStore::new(below.clone(), settings, clock.clone());
    Setup { clock, store, below, other }
}

/// What a get shows.
async fn shown(store: &impl Store, name: &str) -> Option<String> {
    let found = store.get(&key(name)).await.expect("no fault was asked for");
    found.map(|record| String::from_utf8(record.value.to_vec()).expect("tests write text"))
}

async fn put(store: &impl Store, name: &str, write: Write) {
    assert!(store.put(&key(name), write).await.expect("no fault was asked for").is_applied());
}

/// A write whose record is known when it was applied, and so may be cached.
fn fenced(text: &str) -> Write {
    Write::new(value(text), Life::Permanent).fenced(Fence(1))
}
