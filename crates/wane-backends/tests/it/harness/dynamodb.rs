//! DynamoDB in a table of its own, on a clock that the suite moves.
//!
//! The clock starts at the present: DynamoDB removes by its own clock what expired long ago.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use parking_lot::Mutex;
use wane::clock::{Clock, ManualClock, SharedClock, Sleep, SystemClock};
use wane::conformance::{Harness, outlive};
use wane::store::{StoreError, Timestamp, Ttl};
use wane_backends::dynamodb::{DynamodbSettings, DynamodbStore};

use super::listed::settings_of;

/// A running DynamoDB, and a table in it that nobody else uses.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) endpoint: String,
    pub(crate) table: String,
    key_id: String,
    secret: String,
    region: String,
    /// Long enough for a machine that has other things to do.
    pub(crate) timeout: Duration,
    /// For looking at items as they are, and for removing the table.
    pub(crate) client: Client,
}

impl Server {
    /// The server of this run, unless the run does not list it.
    pub(crate) fn listed() -> Option<Self> {
        let mut settings = settings_of("dynamodb")?;
        let mut setting = |name: &str| {
            settings.remove(name).unwrap_or_else(|| panic!("scripts/servers tells no {name}"))
        };
        let endpoint = setting("WANE_DYNAMODB_ENDPOINT");
        let (key_id, secret) = (setting("AWS_ACCESS_KEY_ID"), setting("AWS_SECRET_ACCESS_KEY"));
        let region = setting("AWS_REGION");
        let credentials = Credentials::new(&key_id, &secret, None, None, "tests");
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(credentials)
            .endpoint_url(&endpoint)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .region(Region::new(region.clone()))
            .build();
        let table = format!("wane-test-{:016x}", SystemClock::shared().random_u64());
        let client = Client::from_conf(config);
        let timeout = Duration::from_secs(30);
        Some(Self { endpoint, table, key_id, secret, region, timeout, client })
    }

    /// How the table is opened through `endpoint`, the server itself or something before it.
    pub(crate) fn url(&self, endpoint: &str) -> String {
        let Self { key_id, secret, table, region, .. } = self;
        let endpoint = endpoint.replace(':', "%3A").replace('/', "%2F");
        format!(
            "dynamodb://{key_id}:{secret}@/{table}?endpoint={endpoint}&region={region}&timeout_ms={}",
            self.timeout.as_millis()
        )
    }

    pub(crate) async fn connect(&self, clock: SharedClock) -> DynamodbStore {
        self.connect_through(&self.endpoint, clock).await
    }

    pub(crate) async fn connect_through(
        &self,
        endpoint: &str,
        clock: SharedClock,
    ) -> DynamodbStore {
        let settings = DynamodbSettings::from_url(&self.url(endpoint)).expect("a legal URL");
        DynamodbStore::connect(settings, clock).await.expect("the server answers")
    }

    /// The item with this key, as it is stored.
    pub(crate) async fn item(
        &self,
        partition: &[u8],
        stored_clustering: &[u8],
    ) -> Option<std::collections::HashMap<String, AttributeValue>> {
        let binary = |bytes: &[u8]| AttributeValue::B(bytes.to_vec().into());
        let found = self.client.get_item().table_name(&self.table).consistent_read(true);
        let found = found.key("p", binary(partition)).key("c", binary(stored_clustering));
        found.send().await.expect("the server answers").item
    }

    pub(crate) async fn remove_table(&self) {
        let removed = self.client.delete_table().table_name(&self.table).send().await;
        removed.expect("the table is removed");
    }
}

/// A clock that a test moves, but for the pauses between requests: those are to a real server.
#[derive(Debug)]
struct RealPauses {
    moved: Arc<ManualClock>,
    real: SharedClock,
}

impl Clock for RealPauses {
    fn now(&self) -> Timestamp {
        self.moved.now()
    }

    fn monotonic(&self) -> Duration {
        self.moved.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.real.sleep(duration)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.moved.fill_random(bytes);
    }

    fn never_before(&self, floor: Timestamp) {
        self.moved.never_before(floor);
    }
}

/// What a store lives by whose time `moved` tells.
pub(crate) fn with_real_pauses(moved: Arc<ManualClock>) -> SharedClock {
    Arc::new(RealPauses { moved, real: SystemClock::shared() })
}

/// A clock that a test moves, from the present on.
pub(crate) fn clock_of_today() -> Arc<ManualClock> {
    ManualClock::starting_at(SystemClock::shared().now(), 1)
}

pub(crate) struct Dynamodb {
    pub(crate) server: Server,
    clock: Arc<ManualClock>,
    store: Mutex<DynamodbStore>,
}

impl Dynamodb {
    pub(crate) async fn new(server: Server) -> Self {
        let clock = clock_of_today();
        let store = Mutex::new(server.connect(with_real_pauses(clock.clone())).await);
        Self { server, clock, store }
    }
}

impl Harness for Dynamodb {
    type Store = DynamodbStore;

    fn name(&self) -> &str {
        "dynamodb"
    }

    fn store(&self) -> DynamodbStore {
        self.store.lock().clone()
    }

    async fn outlive(&self, ttl: Ttl) {
        outlive(&self.clock, ttl);
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        let opened = self.server.connect(with_real_pauses(self.clock.clone())).await;
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
