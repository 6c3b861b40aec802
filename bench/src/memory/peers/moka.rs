//! moka: a concurrent cache with an expiry of each entry's own, without a size limit here.
//!
//! Swap goes through `entry().and_compute_with`, its documented way to decide and write in one
//! step. Housekeeping is left on its own schedule while the clock runs.

use std::time::{Duration, Instant};

use ::moka::Expiry;
use ::moka::ops::compute::{CompResult, Op};
use ::moka::sync::Cache;
use bytes::Bytes;
use wane::store::{Key, Ttl};

use crate::memory::peer::Peer;

/// A moka cache.
#[derive(Debug)]
pub(crate) struct Moka(Cache<Key, Lasting>);

/// A value that says how long it lives: moka asks for it on each write.
#[derive(Debug, Clone)]
struct Lasting {
    value: Bytes,
    life: Duration,
}

struct OwnLife;

impl Expiry<Key, Lasting> for OwnLife {
    fn expire_after_create(&self, _: &Key, value: &Lasting, _: Instant) -> Option<Duration> {
        Some(value.life)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        value: &Lasting,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(value.life)
    }
}

impl Moka {
    /// An empty cache.
    pub(crate) fn new() -> Self {
        Self(Cache::builder().expire_after(OwnLife).build())
    }
}

impl Peer for Moka {
    type Owned = Bytes;

    fn get(&self, key: &Key) -> Option<Bytes> {
        self.0.get(key).map(|lasting| lasting.value)
    }

    fn insert(&self, key: &Key, value: &[u8], life: Ttl) -> bool {
        let lasting = Lasting { value: Bytes::copy_from_slice(value), life: life.as_duration() };
        self.0.entry(key.clone()).or_insert(lasting).is_fresh()
    }

    fn swap(&self, key: &Key, expected: &[u8], value: &[u8], life: Ttl) -> bool {
        let result = self.0.entry(key.clone()).and_compute_with(|current| match current {
            Some(current) if *current.value().value == *expected => {
                Op::Put(Lasting { value: Bytes::copy_from_slice(value), life: life.as_duration() })
            }
            Some(_) | None => Op::Nop,
        });
        matches!(result, CompResult::ReplacedWith(_))
    }

    fn remove(&self, key: &Key) {
        self.0.invalidate(key);
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}
