//! Wiring: backend, wrappers, services. The only place that names concrete types.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wane::clock::SharedClock;
use wane::services::app_ttl::{AppTtl, AppTtlStorage};
use wane::services::apps::Apps;
use wane::services::backup::{Backup, BackupError};
use wane::store::{DeadlineStore, ObservedStore, WatchedStore, prometheus_text};
use wane_backends::{AnyStore, OpenError};

use crate::http::{Limiters, RequestMetrics};
use crate::listen::Connections;
use crate::shutdown::Closing;

/// Watches see what was applied, and are told what nobody heard of in time; observation is next to
/// the backend, to time it alone.
type ServedStore = WatchedStore<DeadlineStore<ObservedStore<AnyStore>>>;

/// The storage of one application, as HTTP uses it.
pub(crate) type AppStorage = AppTtlStorage<ServedStore>;

/// Everything that answers requests. A clone is a second handle, and one reference count: each
/// request makes several.
#[derive(Debug, Clone)]
pub struct Services(Arc<Parts>);

/// What the services are made of.
#[derive(Debug)]
pub struct Parts {
    pub(crate) clock: SharedClock,
    pub(crate) app_ttl: AppTtl<ServedStore>,
    pub(crate) apps: Apps<ServedStore>,
    pub(crate) limiters: Limiters,
    pub(crate) requests: RequestMetrics,
    pub(crate) closing: Closing,
    observed: ObservedStore<AnyStore>,
    store: ServedStore,
    backend: &'static str,
    connections: OnceLock<Connections>,
}

impl Deref for Services {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Services {
    /// Opens the store that `url` names and puts the services on top. No call waits for the store
    /// beyond `deadline`.
    pub async fn open(
        url: &str,
        deadline: Duration,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let backend = wane_backends::open(url, Arc::clone(&clock)).await?;
        let name = backend.name();
        let observed = ObservedStore::new(backend, name, Arc::clone(&clock));
        let in_time = DeadlineStore::new(observed.clone(), name, deadline, Arc::clone(&clock));
        let store = WatchedStore::new(in_time, Arc::clone(&clock));
        Ok(Self(Arc::new(Parts {
            app_ttl: AppTtl::new(store.clone(), Arc::clone(&clock)),
            apps: Apps::new(store.clone(), Arc::clone(&clock)),
            limiters: Limiters::default(),
            requests: RequestMetrics::of(&clock),
            closing: Closing::default(),
            observed,
            store,
            backend: name,
            connections: OnceLock::new(),
            clock,
        })))
    }

    /// Begins a backup of the whole store.
    pub(crate) async fn backup(&self) -> Result<Backup<ServedStore>, BackupError> {
        Backup::begin(self.store.clone(), &*self.clock, self.backend).await
    }

    /// Adds the connections of the main listener to what is counted.
    pub(crate) fn watch_connections(&self, connections: Connections) {
        // Set once, by whoever serves.
        drop(self.connections.set(connections));
    }

    /// What was counted, as Prometheus reads it.
    pub(crate) fn metrics_text(&self) -> String {
        let mut text = prometheus_text(&[self.observed.metrics()]);
        text += &self.requests.prometheus_text();
        if let Some(connections) = self.connections.get() {
            text += &format!(
                "# HELP wane_connections Connections that are open.\n\
                 # TYPE wane_connections gauge\n\
                 wane_connections {}\n\
                 # HELP wane_connections_accepted_total Connections accepted.\n\
                 # TYPE wane_connections_accepted_total counter\n\
                 wane_connections_accepted_total {}\n\
                 # HELP wane_connections_refused_total Connections closed for want of room.\n\
                 # TYPE wane_connections_refused_total counter\n\
                 wane_connections_refused_total {}\n",
                connections.open(),
                connections.accepted(),
                connections.refused()
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use wane::clock::SystemClock;
    use wane::store::{Key, Life, Outcome, Store, StoreError, Value, Write};

    use super::*;

    /// The answer of a store on disk to a batch that takes it many milliseconds.
    async fn write_within(deadline: Duration) -> Result<Vec<Outcome>, StoreError> {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().display());
        let services = Services::open(&url, deadline, SystemClock::shared()).await.unwrap();
        let value = Value::new(vec![7; wane::store::MAX_VALUE]).unwrap();
        let write = |number: u8| {
            let key = Key::new(b"tests", &[number]).unwrap();
            (key, Write::new(value.clone(), Life::Permanent))
        };
        services.store.put_batch((0..100).map(write).collect()).await
    }

    #[tokio::test]
    async fn services_wait_for_the_store_as_long_as_they_are_told() {
        let hasty = write_within(Duration::ZERO).await.unwrap_err();
        assert!(hasty.to_string().contains("the deadline of 0ns"), "{hasty}");
        let patient = write_within(Duration::from_secs(60)).await.unwrap();
        assert!(patient.iter().all(Outcome::is_applied));
    }
}
