//! The contestants of the memory benchmark.
//!
//! Keys are [`Key`](::wane::store::Key) for all that take any key: in place at this length, cheap to
//! clone, which is kind to those that ask for an owned key on every write. Peers without expiry carry it in
//! the value and compare it with the same clock on every read, as they would have to.

mod dashmap;
mod moka;
mod nested_maps;
mod quick_cache;
mod wane;

pub(crate) use self::dashmap::Dashmap;
pub(crate) use self::moka::Moka;
pub(crate) use self::nested_maps::NestedMaps;
pub(crate) use self::quick_cache::QuickCache;
pub(crate) use self::wane::{Wane, ready};

use ::wane::store::Timestamp;
use bytes::Bytes;

/// A value and its expiry, for peers that have no expiry of their own.
#[derive(Debug, Clone)]
struct Stored {
    value: Bytes,
    expires_at: Timestamp,
}
