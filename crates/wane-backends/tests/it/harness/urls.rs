//! Stores of their own on every listed server, by URL.

use std::time::Duration;

use wane::clock::SystemClock;
use wane_backends::cassandra::Replication;
use wane_backends::{MAX_SKEW, MAX_SKEW_DYNAMODB};

use super::cassandra::Place;
use super::dynamodb::Server;

/// A store that no other test uses.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) backend: &'static str,
    pub(crate) url: String,
    /// What the clock of a node may be off by.
    pub(crate) max_skew: Duration,
}

/// One on each listed server.
pub(crate) fn shared_stores() -> Vec<Address> {
    let mut stores = Vec::new();
    let mut add = |backend, url, max_skew| stores.push(Address { backend, url, max_skew });
    if let Some(url) = super::redis::listed_url() {
        let prefix = SystemClock::shared().random_u64();
        add("redis", format!("{url}?prefix=shared-{prefix:x}"), MAX_SKEW);
    }
    for replication in [Replication::Cas1, Replication::Cas3] {
        if let Some(Place { settings }) = Place::new(replication) {
            let (name, hosts) = (replication.name(), settings.hosts.join(","));
            let datacenter = settings.datacenter.as_deref().unwrap_or("dc1");
            let url = format!("{name}://{hosts}/{}?datacenter={datacenter}", settings.keyspace);
            add(name, url, MAX_SKEW);
        }
    }
    if let Some(server) = Server::listed() {
        add("dynamodb", server.url(&server.endpoint), MAX_SKEW_DYNAMODB);
    }
    stores
}
