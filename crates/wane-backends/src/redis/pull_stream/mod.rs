//! What Redis does for pull streams beside a store: a view of slots and tokens, and a lock.
//!
//! Neither decides anything. Servers that are flushed, stopped or lost change how long a call takes,
//! and what an operator sees, and no answer.

mod pending;
mod redlock;
mod tier;

pub use redlock::{LockCounts, Redlock};
pub use tier::{RedisTier, ShownToken, TierCounts, TierError};

use super::link::Link;
use super::opening::ready_for_tls;
use super::settings::RedisSettings;
use crate::OpenError;

/// The one server that a URL names. Nothing is asked of it yet.
fn server(url: &str) -> Result<Link, OpenError> {
    let bad = |reason: &str| OpenError::BadUrl { backend: "redis", reason: reason.to_owned() };
    if !["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(bad("give redis://host:port/database, or rediss:// for TLS"));
    }
    let settings = RedisSettings::from_url(url)?;
    let [host] = &settings.hosts[..] else {
        return Err(bad("it is to name one server, which is in no cluster"));
    };
    if url.contains("prefix=") {
        return Err(bad(
            "names have no prefix here; give a database of its own, as redis://host/1",
        ));
    }
    ready_for_tls(&settings);
    settings.link(host).map_err(|error| bad(&error.to_string()))
}
