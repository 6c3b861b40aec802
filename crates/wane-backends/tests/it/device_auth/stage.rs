//! A backend with device authorization on it, as two nodes serve it, and a case run on each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tempfile::TempDir;
use wane::clock::{OffClock, SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::device_auth::{
    AppDeviceAuth, Approval, Asking, Client, Decided, DeviceAuth, DeviceAuthError,
    DeviceAuthSettings, DeviceId, DeviceKey, Guesser, Issued, NewClient, Pace, Polled, Started,
};
use wane::store::{PageLimit, StoreError};
use wane_backends::AnyStore;

use super::hasty::{Hasty, Swaps};
use crate::harness::urls::{Address, shared_stores};

/// Every stage has an application of its own.
static APPS: AtomicU32 = AtomicU32::new(1);

/// The shortest life of a code.
const CODE_LIFE: Duration = Duration::from_secs(60);

/// How often whoever gets no answer asks again.
const PATIENCE: usize = 40;

pub(super) type Node = AppDeviceAuth<Hasty<AnyStore>>;

/// A backend, and two nodes of it.
pub(super) struct Stage {
    pub(super) backend: &'static str,
    /// How often a race is run: servers take longer.
    pub(super) rounds: usize,
    pub(super) clock: SharedClock,
    pub(super) swaps: Arc<Swaps>,
    pub(super) client: Client,
    app: ClusterAppId,
    stores: [Hasty<AnyStore>; 2],
    nodes: [Node; 2],
    _directory: Option<TempDir>,
}

/// What became of a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Click {
    Won(DeviceId),
    Lost,
    NoSuchCode,
    /// An answer was lost, and what was decided may be this click or another.
    Unclear,
}

fn service(store: Hasty<AnyStore>, clock: SharedClock, app: ClusterAppId) -> Node {
    let pace = Pace { burst: 1_000_000, every: Duration::from_millis(1) };
    let settings = DeviceAuthSettings {
        starts_per_client: pace,
        starts_per_source: pace,
        ..DeviceAuthSettings::default()
    };
    DeviceAuth::new(store, clock, DeviceKey::from_bytes([7; 32]), settings).of(app)
}

impl Stage {
    /// Two nodes over these stores.
    async fn over(backend: &'static str, rounds: usize, stores: [AnyStore; 2]) -> Self {
        let (clock, swaps) = (SystemClock::shared(), Arc::<Swaps>::default());
        let stores = stores.map(|store| Hasty::new(store, &swaps));
        let app = ClusterAppId(APPS.fetch_add(1, Ordering::Relaxed));
        let nodes = stores.clone().map(|store| service(store, Arc::clone(&clock), app));
        let television = NewClient { code_life: CODE_LIFE, ..NewClient::default() };
        let client = nodes[0].register(television).await.expect("it is registered").client;
        Self { backend, rounds, clock, swaps, client, app, stores, nodes, _directory: None }
    }

    pub(super) async fn memory() -> Self {
        let store = open("mem:").await;
        Self::over("mem", 40, [store.clone(), store]).await
    }

    async fn file() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("file:{}", directory.path().join("store").display());
        let store = open(&url).await;
        let stage = Self::over("file", 20, [store.clone(), store]).await;
        Self { _directory: Some(directory), ..stage }
    }

    /// Two nodes, each with connections of its own.
    pub(super) async fn shared(address: Address) -> Self {
        let Address { backend, url, .. } = address;
        let one = Box::pin(open(&url)).await;
        let other = Box::pin(open(&url)).await;
        Self::over(backend, 6, [one, other]).await
    }

    pub(super) fn node(&self, number: usize) -> &Node {
        &self.nodes[number % 2]
    }

    /// A node whose clock is behind that of the others.
    pub(super) fn behind(&self, by: Duration) -> Node {
        let millis = i64::try_from(by.as_millis()).expect("not long");
        let clock = OffClock::ahead_of(Arc::clone(&self.clock), -millis);
        service(self.stores[1].clone(), Arc::new(clock), self.app)
    }

    /// The answer, which must be one.
    #[track_caller]
    pub(super) fn ok<T>(&self, answer: Result<T, DeviceAuthError>) -> T {
        answer.unwrap_or_else(|error| panic!("{}: {error}: {error:?}", self.backend))
    }

    pub(super) async fn started(&self) -> Started {
        self.ok(self.node(0).start(&self.client, None, &Asking::default()).await)
    }

    /// A code that has only so much of its life left: a node whose clock is behind hands it out.
    pub(super) async fn started_with(&self, left: Duration) -> Started {
        let early = self.behind(CODE_LIFE - left);
        self.ok(early.start(&self.client, None, &Asking::default()).await)
    }

    /// What a device is told that asks again where it gets no answer.
    pub(super) async fn poll(&self, node: &Node, started: &Started) -> Polled {
        let code = started.device_code.reveal();
        self.insist(async || node.poll(&self.client, &code).await).await.0
    }

    pub(super) async fn revoke(&self, node: &Node, device: DeviceId) -> bool {
        let (was_there, lost) = self.insist(async || node.revoke(device).await).await;
        was_there || lost > 0
    }

    pub(super) async fn is_good(&self, issued: &Issued) -> bool {
        let token = issued.token.reveal();
        let found = [0, 1].map(|node| async move {
            self.insist(async || self.node(node).introspect(token).await).await.0.is_some()
        });
        let found = join_all(found).await;
        assert_eq!(found[0], found[1], "{}: the nodes do not agree", self.backend);
        found[0]
    }

    pub(super) async fn subject_of(&self, issued: &Issued) -> String {
        let found = self.ok(self.node(1).introspect(issued.token.reveal()).await);
        found.unwrap_or_else(|| panic!("{}: a token that is not good", self.backend)).subject
    }

    pub(super) async fn devices_of(&self, subject: &str) -> Vec<DeviceId> {
        let page = self.ok(self.node(1).list(Some(subject), None, PageLimit::MAX).await);
        page.devices.into_iter().map(|device| device.id).collect()
    }

    /// Approves for a subject, or denies.
    pub(super) async fn click(&self, node: &Node, at: &Started, subject: Option<&str>) -> Click {
        let typed = at.user_code.reveal();
        let click = async || match subject {
            Some(subject) => {
                let approval = Approval { subject: subject.into(), link_token: None };
                node.approve(&typed, &approval, Guesser::App).await
            }
            None => node.deny(&typed, Guesser::App).await,
        };
        match self.insist(click).await {
            (Decided::Done(device), _) => Click::Won(device),
            (_, lost) if lost > 0 => Click::Unclear,
            (Decided::AlreadyDecided, _) => Click::Lost,
            (Decided::NoSuchCode, _) => Click::NoSuchCode,
        }
    }

    /// Asks until there is an answer; and how often there was none.
    async fn insist<T>(&self, ask: impl AsyncFn() -> Result<T, DeviceAuthError>) -> (T, usize) {
        for lost in 0..PATIENCE {
            match ask().await {
                Ok(answer) => return (answer, lost),
                Err(
                    DeviceAuthError::Contended
                    | DeviceAuthError::Store(
                        StoreError::Unknown { .. } | StoreError::Unavailable { .. },
                    ),
                ) => self.clock.sleep(Duration::from_millis(25)).await,
                Err(error) => panic!("{}: {error}: {error:?}", self.backend),
            }
        }
        panic!("{}: no answer", self.backend)
    }
}

#[track_caller]
pub(super) fn issued(polled: Polled) -> Issued {
    let Polled::Issued(issued) = polled else { panic!("{polled:?}") };
    issued
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

/// Every backend of the run, one after the other: those who open a store next to each other would
/// both make it.
async fn stages() -> Vec<Stage> {
    static OPENING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = OPENING.lock().await;
    let mut stages = vec![Stage::memory().await, Stage::file().await];
    for address in addresses() {
        stages.push(Stage::shared(address).await);
    }
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
