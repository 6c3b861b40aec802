//! A backend with BLOBs on it, as two nodes see them, and a case run on each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::sync::Mutex;
use wane::clock::{SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsError, BlobsSettings, NewBlob};
use wane::services::blobs::{Suuid, Uploaded};
use wane::store::{Key, Record, Store};
use wane_backends::AnyStore;

use super::noted::{Noted, Notes};
use super::{LONG, WORKSPACE, living, upload};
use crate::harness::urls::{Address, shared_stores};

/// How often the nodes of a stage count anew what is held.
pub(super) const RECOUNT: Duration = Duration::from_millis(300);

/// Every stage has an application of its own.
static APPS: AtomicU32 = AtomicU32::new(1);

/// A backend, and two nodes of it.
pub(super) struct Stage {
    pub(super) backend: &'static str,
    pub(super) app: ClusterAppId,
    pub(super) clock: SharedClock,
    /// How far off its expiry a record may vanish or linger.
    pub(super) max_skew: Duration,
    pub(super) stores: [Noted<AnyStore>; 2],
    pub(super) services: [Blobs<Noted<AnyStore>>; 2],
    pub(super) notes: Arc<Notes>,
    _directory: Option<TempDir>,
}

impl Stage {
    /// Two nodes over these stores.
    fn over(backend: &'static str, max_skew: Duration, stores: [AnyStore; 2]) -> Self {
        let (clock, notes) = (SystemClock::shared(), Notes::new());
        let settings = BlobsSettings { recount: Some(RECOUNT), ..BlobsSettings::default() };
        let stores = stores.map(|store| Noted::new(store, &notes));
        let services =
            stores.clone().map(|store| Blobs::with_settings(store, Arc::clone(&clock), settings));
        let app = ClusterAppId(APPS.fetch_add(1, Ordering::Relaxed));
        Self { backend, app, clock, max_skew, stores, services, notes, _directory: None }
    }

    pub(super) async fn memory() -> Self {
        let store = open("mem:").await;
        Self::over("mem", Duration::ZERO, [store.clone(), store])
    }

    pub(super) async fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("file:{}", directory.path().join("store").display());
        let store = open(&url).await;
        let stage = Self::over("file", Duration::ZERO, [store.clone(), store]);
        Self { _directory: Some(directory), ..stage }
    }

    /// Two nodes, each with connections of its own.
    pub(super) async fn shared(address: Address) -> Self {
        let Address { backend, url, max_skew } = address;
        make(&url).await;
        let (one, other) = tokio::join!(Box::pin(open(&url)), Box::pin(open(&url)));
        Self::over(backend, max_skew, [one, other])
    }

    /// The BLOBs of the stage's application, as a node of it serves them.
    pub(super) fn node(&self, number: usize) -> AppBlobs<Noted<AnyStore>> {
        self.limited(number, BlobLimits::default())
    }

    pub(super) fn limited(&self, node: usize, limits: BlobLimits) -> AppBlobs<Noted<AnyStore>> {
        self.services[node].of(self.app, limits)
    }

    /// One more service over the store of the first node, which knows nothing of the others.
    pub(super) fn restarted(&self) -> AppBlobs<Noted<AnyStore>> {
        let service = Blobs::new(self.stores[0].clone(), Arc::clone(&self.clock));
        service.of(self.app, BlobLimits::default())
    }

    /// The answer, which must be one.
    #[track_caller]
    pub(super) fn ok<T>(&self, answer: Result<T, BlobsError>) -> T {
        answer.unwrap_or_else(|error| panic!("{}: {error}: {error:?}", self.backend))
    }

    pub(super) async fn upload(&self, bytes: &[u8]) -> Uploaded {
        self.upload_as(living(LONG), bytes).await
    }

    pub(super) async fn upload_as(&self, blob: NewBlob, bytes: &[u8]) -> Uploaded {
        self.ok(upload(&self.node(0), blob, bytes, 65_537).await)
    }

    /// Whether both nodes have the BLOB, on which they must agree.
    pub(super) async fn is_there(&self, id: Suuid) -> bool {
        let found = [0, 1].map(|node| async move {
            self.ok(self.node(node).info(WORKSPACE, id).await).is_some()
        });
        let found = join_all(found).await;
        assert_eq!(found[0], found[1], "{}: the nodes do not agree", self.backend);
        found[0]
    }

    /// Waits until everything that is being removed has gone.
    pub(super) async fn settle(&self) {
        for service in &self.services {
            service.settle().await;
            assert_eq!(service.left_to_expiry(), 0, "{}: a removal failed", self.backend);
        }
    }

    /// What is there of all that was ever written.
    pub(super) async fn left(&self) -> Vec<(Key, Record)> {
        self.settle().await;
        left(&self.stores[0].inner, &self.notes.keys()).await
    }

    pub(super) async fn assert_nothing_left(&self, after: &str) {
        let left: Vec<_> = self.left().await.into_iter().map(|(key, _)| key).collect();
        assert!(left.is_empty(), "{}: {after} leaves {left:?}", self.backend);
    }
}

/// The live ones of these keys.
pub(super) async fn left<S: Store>(store: &S, keys: &[Key]) -> Vec<(Key, Record)> {
    let mut left = Vec::new();
    for keys in keys.chunks(100) {
        let found = store.get_batch(keys).await.expect("it can be read");
        let found = keys.iter().cloned().zip(found);
        left.extend(found.filter_map(|(key, record)| Some((key, record?))));
    }
    left
}

/// Opens a store once, so that those who open it next to each other find all of it made.
async fn make(url: &str) {
    static MADE: Mutex<BTreeSet<String>> = Mutex::const_new(BTreeSet::new());
    let mut made = MADE.lock().await;
    if made.insert(url.to_owned()) {
        drop(Box::pin(open(url)).await);
    }
}

async fn open(url: &str) -> AnyStore {
    let opened = wane_backends::open(url, SystemClock::shared()).await;
    opened.unwrap_or_else(|error| panic!("the store does not open: {error}"))
}

/// The stores on servers, one of each for all cases: a keyspace takes a while to be made.
fn addresses() -> Vec<Address> {
    static ADDRESSES: std::sync::OnceLock<Vec<Address>> = std::sync::OnceLock::new();
    ADDRESSES.get_or_init(shared_stores).clone()
}

/// Every backend of the run.
async fn stages() -> Vec<Stage> {
    let mut stages = vec![Stage::memory().await, Stage::file().await];
    stages.extend(join_all(addresses().into_iter().map(Stage::shared)).await);
    stages
}

/// Runs a case on one backend after the other, and tells how long it took on each.
pub(super) async fn on_every_backend(case: impl AsyncFn(&Stage)) {
    for it in stages().await {
        let began = it.clock.monotonic();
        case(&it).await;
        println!("{}: {:?}", it.backend, it.clock.monotonic() - began);
    }
}

/// The same side by side, for cases that mostly wait.
pub(super) async fn side_by_side(case: impl AsyncFn(&Stage)) {
    let stages = stages().await;
    join_all(stages.iter().map(async |it| case(it).await)).await;
}
