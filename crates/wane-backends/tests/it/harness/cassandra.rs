//! Cassandra, one node or three, in a keyspace of its own, on a clock that the suite moves.

use std::sync::Arc;

use parking_lot::Mutex;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::conformance::{Harness, outlive};
use wane::store::{StoreError, Ttl};
use wane_backends::cassandra::{CassandraSettings, CassandraStore, Replication};

use super::listed::settings_of;

/// Where the servers of a run are, and the keyspace that this test has for itself.
pub(crate) struct Place {
    pub(crate) settings: CassandraSettings,
}

impl Place {
    /// A keyspace that nobody else uses; none where the run does not list the server.
    pub(crate) fn new(replication: Replication) -> Option<Self> {
        let told = settings_of(replication.name())?;
        let hosts = told["WANE_CASSANDRA_HOSTS"].split(',').map(str::to_owned).collect();
        let keyspace = format!("t{:016x}", SystemClock::shared().random_u64());
        let datacenter = told.get("WANE_CASSANDRA_DATACENTER").cloned();
        let (user, password, ca) = (None, None, None);
        let settings =
            CassandraSettings { replication, user, password, hosts, keyspace, datacenter, ca };
        Some(Self { settings })
    }

    pub(crate) async fn connect(&self, clock: SharedClock) -> CassandraStore {
        let connected = CassandraStore::connect(self.settings.clone(), clock).await;
        connected.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The driver without the store, for what the store cannot show.
    pub(crate) async fn session(&self) -> Session {
        let builder = SessionBuilder::new().known_nodes(&self.settings.hosts);
        builder.build().await.expect("a session")
    }

    /// Removes every record.
    pub(crate) async fn empty(&self) {
        let session = self.session().await;
        for table in ["records", "stream_log"] {
            let empty = format!("TRUNCATE {}.{table}", self.settings.keyspace);
            session.query_unpaged(empty, ()).await.expect("an empty table");
        }
    }

    /// Drops the keyspace. A test that fails leaves it to whoever stops the servers.
    pub(crate) async fn remove(self) {
        let drop = format!("DROP KEYSPACE {}", self.settings.keyspace);
        self.session().await.query_unpaged(drop, ()).await.expect("the keyspace is dropped");
    }
}

pub(crate) struct Cassandra {
    place: Place,
    clock: Arc<ManualClock>,
    store: Mutex<CassandraStore>,
}

impl Cassandra {
    pub(crate) async fn new(place: Place) -> Self {
        let clock = ManualClock::seeded(1);
        let store = Mutex::new(place.connect(clock.clone()).await);
        Self { place, clock, store }
    }

    pub(crate) async fn remove(self) {
        self.place.remove().await;
    }
}

impl Harness for Cassandra {
    type Store = CassandraStore;

    fn name(&self) -> &str {
        self.place.settings.replication.name()
    }

    fn store(&self) -> CassandraStore {
        self.store.lock().clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        let opened = self.place.connect(self.clock.clone()).await;
        *self.store.lock() = opened;
        Ok(true)
    }

    fn footprint(&self) -> Option<u64> {
        None
    }

    fn consistent_scan(&self) -> bool {
        false
    }
}
