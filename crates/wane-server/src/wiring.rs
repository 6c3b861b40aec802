//! Wiring: backend, wrappers, services. The only place that names concrete types.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use wane::clock::SharedClock;
use wane::services::app_ttl::{AppTtl, AppTtlStorage};
use wane::services::apps::Apps;
use wane::services::backup::{Backup, BackupError};
use wane::services::blobs::{self, Blobs, BlobsSettings};
use wane::services::device_auth::{
    self, DeviceAuth, DeviceAuthError, DeviceAuthSettings, DeviceKey, GuessSettings, UserCodeLength,
};
use wane::services::elections::{self, Elections, LeaseRules};
use wane::services::pull_stream::{
    Archive, KeyService, PullStream, PullStreamError, PullStreamSettings, WrapError,
    WrappedKeysError, home_region,
};
use wane::services::sequences::{self, Sequences};
use wane::store::{
    BoxedStore, CacheSettings, CachedStore, DeadlineStore, ObservedStore, SpreadError, SpreadStore,
    StoreError, Ttl, WatchedStore, prometheus_text,
};
use wane_backends::{AnyStore, ObjectArchive, OpenError};

use crate::archiver::ArchiveMetrics;
use crate::http::{
    DeviceLogin, DevicePage, Limiters, MOST_ARRIVING, Origin, RequestMetrics, StreamMetrics,
};
use crate::listen::Connections;
use crate::settings::{PublicUrl, Settings, Storage, StreamProfile};
use crate::shutdown::Closing;
use crate::snapshots::SnapshotCounts;
use crate::stream_holds;
use crate::stream_keys::{self, StreamKeysError};
use crate::stream_tier::{StreamTier, StreamTierError};

/// Observation is next to the backend, to time it alone; a merged read of many buckets is one call
/// to the deadline; what the cache answers waits for nobody. Calls are boxed below the cache: a request
/// that waits for something else would hold room for the largest of them.
type CachedReads = CachedStore<BoxedStore<DeadlineStore<SpreadStore<ObservedStore<AnyStore>>>>>;

/// Watches see what was applied, and are told what nobody heard of in time.
type ServedStore = WatchedStore<CachedReads>;

/// Chunks of BLOBs that all uploads together write at once beyond their own: 13 MB, enough for one
/// alone to fill the commits of a file.
const BLOBS_AHEAD: usize = 128;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// How often each node counts anew what an app holds, where other nodes write too.
const RECOUNT: Duration = Duration::from_secs(300);

/// The storage of one application, as HTTP uses it.
pub(crate) type AppStorage = AppTtlStorage<ServedStore>;

/// The same for plain reads.
pub(crate) type AppReads = AppTtlStorage<CachedReads>;

/// The elections of one application. Coordination never reads from the cache.
pub(crate) type AppElections = elections::AppElections<CachedReads>;

/// A watch over one of them.
pub(crate) type ElectionWatch = elections::ElectionWatch<CachedReads>;

/// The BLOBs of one application, never from the cache: a chunk is read once.
pub(crate) type AppBlobs = blobs::AppBlobs<CachedReads>;

/// The bytes of one of them on their way out.
pub(crate) type BlobReading = blobs::Reading<CachedReads>;

/// Bytes on their way into a resumable upload.
pub(crate) type BlobAppend = blobs::Append<CachedReads>;

/// Device login of one application, never from the cache: it would revive a code that was used.
pub(crate) type AppDeviceAuth = device_auth::AppDeviceAuth<CachedReads>;

/// The sequences of one application.
pub(crate) type AppSequences = sequences::AppSequences<ServedStore>;

/// Why the services could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// The store does not open.
    #[error(transparent)]
    Open(#[from] OpenError),

    /// The store opens, and its records lie otherwise.
    #[error("{0}{setting}", setting = setting_of(.0))]
    Spread(#[from] SpreadError),

    /// The key of device login is not to be had.
    #[error("the key of device login: {0}")]
    DeviceKey(#[from] DeviceAuthError),

    /// The keys of pull streams are not to be had.
    #[error(transparent)]
    StreamKeys(#[from] StreamKeysError),

    /// The archive of pull streams cannot be used.
    #[error("the archive of pull streams: {0}")]
    Archive(OpenError),

    /// What Redis is to do for pull streams cannot be as the settings want it.
    #[error(transparent)]
    StreamTier(#[from] StreamTierError),

    /// Pull streams cannot be as the settings want them.
    #[error("pull streams: {0}")]
    PullStream(#[from] PullStreamError),
}

/// The setting to look at, where the number of buckets is the reason.
fn setting_of(error: &SpreadError) -> &'static str {
    if matches!(error, SpreadError::Store(_)) { "" } else { " (WANE_SPREAD_BUCKETS)" }
}

impl WiringError {
    /// Whether the store may answer later without anything being changed.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Open(error) => matches!(error, OpenError::Unreachable { .. }),
            Self::Spread(SpreadError::Store(error))
            | Self::DeviceKey(DeviceAuthError::Store(error))
            | Self::StreamKeys(StreamKeysError::Store(PullStreamError::Store(error)))
            | Self::PullStream(PullStreamError::Store(error)) => {
                matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
            }
            Self::StreamKeys(StreamKeysError::Kms(error)) => {
                matches!(error, OpenError::Unreachable { .. })
            }
            Self::StreamKeys(StreamKeysError::Closed(error)) => may_open_later(error),
            Self::Spread(_)
            | Self::DeviceKey(_)
            | Self::StreamKeys(_)
            | Self::Archive(_)
            | Self::StreamTier(_)
            | Self::PullStream(_) => false,
        }
    }
}

fn may_open_later(error: &WrappedKeysError) -> bool {
    match error {
        WrappedKeysError::Service(error) => matches!(error, WrapError::Away { .. }),
        WrappedKeysError::Stream(PullStreamError::Store(error)) => {
            matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
        }
        WrappedKeysError::Stream(_) => false,
    }
}

/// Everything that answers requests. A clone is a second handle, and one reference count: each
/// request makes several.
#[derive(Debug, Clone)]
pub struct Services(Arc<Parts>);

/// What the services are made of.
#[derive(Debug)]
pub struct Parts {
    pub(crate) clock: SharedClock,
    pub(crate) app_ttl: AppTtl<ServedStore>,
    /// The same storage for plain reads, which may come from the cache.
    pub(crate) app_ttl_reads: AppTtl<CachedReads>,
    pub(crate) apps: Apps<ServedStore>,
    pub(crate) elections: Elections<CachedReads>,
    pub(crate) sequences: Sequences<ServedStore>,
    pub(crate) blobs: Blobs<CachedReads>,
    pub(crate) device_auth: DeviceAuth<CachedReads>,
    pub(crate) device_login: DeviceLogin,
    pub(crate) device_page: DevicePage,
    pub(crate) pull_stream: PullStream<CachedReads>,
    pub(crate) stream_metrics: StreamMetrics,
    /// How the service does that opens the keys of tokens, where there is one.
    stream_key_service: Option<watch::Receiver<KeyService>>,
    pub(crate) archive_metrics: ArchiveMetrics,
    stream_tier: StreamTier,
    /// Batches of messages that may be read at a time.
    pub(crate) stream_arrivals: Semaphore,
    /// Institutions show certificates.
    pub(crate) wants_certificates: bool,
    pub(crate) stream_profile: StreamProfile,
    pub(crate) origin: Origin,
    pub(crate) limiters: Limiters,
    pub(crate) requests: RequestMetrics,
    pub(crate) closing: Closing,
    pub(crate) snapshots: SnapshotCounts,
    observed: ObservedStore<AnyStore>,
    store: ServedStore,
    cached: CachedReads,
    /// Whether other processes write to the same store.
    pub(crate) is_shared: bool,
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
    /// Opens the store that the settings name and puts the services on top.
    pub async fn open(settings: &Settings, clock: SharedClock) -> Result<Self, WiringError> {
        let backend = wane_backends::open(&settings.store_url(), Arc::clone(&clock)).await?;
        let name = backend.name();
        let observed = ObservedStore::new(backend, name, Arc::clone(&clock));
        let spread = SpreadStore::open(observed.clone(), settings.buckets()).await?;
        let key = DeviceKey::in_store(&spread, &*clock).await?;
        let stream_keys = stream_keys::open(settings.stream_keys.as_ref(), &spread, &clock).await?;
        let stream_home = home_region(&spread, settings.region.as_str()).await?;
        let deadline = settings.store_deadline_ms;
        let in_time = DeadlineStore::new(spread, name, deadline, Arc::clone(&clock));
        let is_shared = settings.storage.is_shared();
        let cached =
            CachedStore::new(BoxedStore::new(in_time), cache(settings), Arc::clone(&clock));
        let store = WatchedStore::new(cached.uncached(), Arc::clone(&clock));
        let app_ttl = match is_shared {
            true => AppTtl::recounting(store.clone(), Arc::clone(&clock), RECOUNT),
            false => AppTtl::new(store.clone(), Arc::clone(&clock)),
        };
        let blobs = BlobsSettings {
            recount: is_shared.then_some(RECOUNT),
            shared_ahead: if is_shared { 0 } else { BLOBS_AHEAD },
            ..BlobsSettings::default()
        };
        let blobs = Blobs::with_settings(cached.uncached(), Arc::clone(&clock), blobs);
        let device_auth = device_auth_settings(settings)?;
        let device_auth = DeviceAuth::new(cached.uncached(), Arc::clone(&clock), key, device_auth);
        let stream_tier = StreamTier::new(settings, &clock)?;
        let wanted = pull_stream_settings(settings, stream_home, &stream_tier)?;
        // Never from the cache: a lease that was seen is none.
        let pull_stream =
            PullStream::new(cached.uncached(), Arc::clone(&clock), stream_keys.source, wanted)?;
        let services = Arc::new(Parts {
            app_ttl,
            app_ttl_reads: AppTtl::new(cached.clone(), Arc::clone(&clock)),
            apps: Apps::new(store.clone(), Arc::clone(&clock)),
            elections: Elections::new(store.clone(), Arc::clone(&clock), leases(settings.storage)),
            sequences: Sequences::new(store.clone(), Arc::clone(&clock)),
            blobs,
            device_auth,
            device_login: DeviceLogin::from(settings),
            device_page: DevicePage::new(&clock),
            pull_stream,
            stream_metrics: StreamMetrics::default(),
            stream_key_service: stream_keys.service,
            archive_metrics: ArchiveMetrics::default(),
            stream_tier,
            stream_arrivals: Semaphore::new(MOST_ARRIVING),
            wants_certificates: settings.tls_client_ca.is_some(),
            stream_profile: settings.stream_profile,
            origin: Origin::from(settings),
            limiters: Limiters::default(),
            requests: RequestMetrics::of(&clock),
            closing: Closing::default(),
            snapshots: SnapshotCounts::default(),
            observed,
            store,
            cached,
            is_shared,
            backend: name,
            connections: OnceLock::new(),
            clock: Arc::clone(&clock),
        });
        tokio::spawn(stream_holds::keep(Arc::downgrade(&services), clock));
        Ok(Self(services))
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
    pub(crate) async fn metrics_text(&self) -> String {
        let mut text = prometheus_text(&[self.observed.metrics()]);
        text += &self.requests.prometheus_text();
        text += &self.cache_text();
        text += &self.snapshots.prometheus_text();
        text += &self.stream_metrics.prometheus_text(self).await;
        text += &self.key_service_text();
        text += &self.archive_metrics.prometheus_text();
        text += &self.stream_tier.prometheus_text();
        text += &format!(
            "# HELP wane_blobs_left_to_expiry_total Removals of BLOBs that failed: the rest expires.\n\
             # TYPE wane_blobs_left_to_expiry_total counter\n\
             wane_blobs_left_to_expiry_total {}\n",
            self.blobs.left_to_expiry()
        );
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

    /// What an operator should know although the server works.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let service = self.stream_key_service.as_ref()?.borrow();
        matches!(*service, KeyService::Fails { .. }).then_some(
            "the key service does not open the keys of pull streams; those at hand are in use",
        )
    }

    /// Whether the service answers that opens keys; nothing where there is none.
    fn key_service_text(&self) -> String {
        let Some(service) = &self.stream_key_service else { return String::new() };
        let answers = matches!(*service.borrow(), KeyService::Answers);
        format!(
            "# HELP wane_stream_key_service_up Whether the service answers that opens the keys of tokens.\n\
             # TYPE wane_stream_key_service_up gauge\n\
             wane_stream_key_service_up {}\n",
            u8::from(answers)
        )
    }

    /// What was counted of the cache; nothing where there is none.
    fn cache_text(&self) -> String {
        let Some(stats) = self.cached.stats() else { return String::new() };
        format!(
            "# HELP wane_cache_reads_total Records that were asked for.\n\
             # TYPE wane_cache_reads_total counter\n\
             wane_cache_reads_total{{answered_by=\"cache\"}} {}\n\
             wane_cache_reads_total{{answered_by=\"store\"}} {}\n\
             # HELP wane_cache_bytes Memory that cached records take.\n\
             # TYPE wane_cache_bytes gauge\n\
             wane_cache_bytes {}\n",
            stats.hits, stats.misses, stats.bytes
        )
    }
}

/// What the clocks of a storage allow its leases to be.
fn leases(storage: Storage) -> LeaseRules {
    match storage {
        Storage::Mem | Storage::File => LeaseRules::ONE_PROCESS,
        Storage::Redis | Storage::Cas1 | Storage::Cas3 => {
            LeaseRules::shared(Duration::from_secs(3), wane_backends::MAX_SKEW)
        }
        Storage::Dynamodb => {
            // It tells whole seconds, and only what is certain refuses a node.
            let max_skew = wane_backends::MAX_SKEW_DYNAMODB + Duration::from_secs(1);
            LeaseRules::shared(Duration::from_secs(10), max_skew)
        }
    }
}

/// Device login as the settings want it: what all nodes together may let through is divided.
fn device_auth_settings(settings: &Settings) -> Result<DeviceAuthSettings, DeviceAuthError> {
    let whole = DeviceAuthSettings::default();
    let share = |whole: usize| (whole / settings.nodes).max(1);
    let guesses = GuessSettings { budget: share(whole.guesses.budget), ..whole.guesses };
    Ok(DeviceAuthSettings {
        user_code: UserCodeLength::new(settings.user_code_letters)?,
        guesses,
        recount: settings.storage.is_shared().then_some(RECOUNT),
        ..whole
    })
}

/// Pull streams as the settings want them.
fn pull_stream_settings(
    settings: &Settings,
    home: String,
    tier: &StreamTier,
) -> Result<PullStreamSettings, WiringError> {
    let usual = PullStreamSettings::default();
    let days = settings.stream_retention_days as u64;
    Ok(PullStreamSettings {
        region: settings.region.as_str().to_owned(),
        home,
        hold: settings.stream_hold_ms,
        lease: settings.stream_lease_ms,
        token_life: settings.stream_token_ms,
        retention: Ttl::from_secs(days * 24 * 60 * 60).unwrap_or(usual.retention),
        replay_life: Ttl::try_from(settings.stream_replay_ms).unwrap_or(usual.replay_life),
        look_every: usual.look_every.filter(|_| settings.storage.is_shared()),
        archive: archive(settings)?,
        archive_before: HOUR * settings.stream_archive_before_hours as u32,
        view: tier.view(),
        lock: tier.lock(),
        ..usual
    })
}

/// Where pull streams are archived, if they are.
fn archive(settings: &Settings) -> Result<Option<Arc<dyn Archive>>, WiringError> {
    let Some(place) = &settings.stream_archive else { return Ok(None) };
    let endpoint = settings.stream_archive_endpoint.as_ref().map(PublicUrl::as_str);
    let archive = ObjectArchive::open(place.as_str(), endpoint).map_err(WiringError::Archive)?;
    Ok(Some(Arc::new(archive)))
}

/// The cache that the settings ask for. A store of one process needs none.
fn cache(settings: &Settings) -> Option<CacheSettings> {
    let (max_stale, max_bytes) = (settings.cache_max_stale_ms, settings.cache_bytes as u64);
    settings.storage.is_shared().then_some(CacheSettings { max_stale, max_bytes })
}

#[cfg(test)]
mod tests {
    use wane::clock::SystemClock;
    use wane::store::{Key, Life, Outcome, Store, StoreError, Value, Write};

    use super::*;

    /// The answer of a store on disk to a batch that takes it many milliseconds.
    async fn write_within(deadline: Duration) -> Result<Vec<Outcome>, StoreError> {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            data: directory.path().to_path_buf(),
            store_deadline_ms: deadline,
            ..Settings::default()
        };
        let services = Services::open(&settings, SystemClock::shared()).await.unwrap();
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
