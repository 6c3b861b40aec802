//! The redis backend on a real server, under names of its own, on the server's clock.
//!
//! The server is the one that the run lists. Where a test has to restart or break one, it starts
//! its own: see `redis_server`.

use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Connection, FromRedisValue};
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::conformance::Harness;
use wane::store::{StoreError, Ttl};
use wane_backends::redis::{RedisSettings, RedisStore};

use super::listed::settings_of;

/// The URL of the listed server, or none where the run lists none.
pub(crate) fn listed_url() -> Option<String> {
    let mut settings = settings_of("redis")?;
    Some(settings.remove("WANE_REDIS_URL").expect("scripts/servers tells WANE_REDIS_URL"))
}

/// Settings for a store of its own at `url`.
pub(crate) fn fresh_settings(url: &str) -> RedisSettings {
    let mut settings = RedisSettings::from_url(url).expect("a legal URL");
    settings.prefix = format!("test-{:016x}", SystemClock::shared().random_u64());
    settings
}

/// A store of its own on the listed server.
pub(crate) struct Redis {
    settings: RedisSettings,
    clock: SharedClock,
    keys: Keys,
    /// None only while the store is reopened.
    store: Mutex<Option<RedisStore>>,
}

impl Redis {
    pub(crate) async fn new() -> Option<Self> {
        Some(Self::at(&listed_url()?).await)
    }

    pub(crate) async fn at(url: &str) -> Self {
        let (settings, clock) = (fresh_settings(url), SystemClock::shared());
        let store = RedisStore::connect(settings.clone(), clock.clone()).await;
        let store = Mutex::new(Some(store.expect("the listed server answers")));
        let keys = Keys::new(url, &settings.prefix);
        Self { settings, clock, keys, store }
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// Drops the handle that this harness holds.
    pub(crate) fn close(&self) {
        *self.store.lock() = None;
    }

    /// A second handle with connections of its own.
    pub(crate) async fn another(&self) -> RedisStore {
        let other = RedisStore::connect(self.settings.clone(), SystemClock::shared()).await;
        other.expect("the listed server answers")
    }

    /// What the server holds of this store.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn settings(&self) -> &RedisSettings {
        &self.settings
    }
}

impl Harness for Redis {
    type Store = RedisStore;

    fn name(&self) -> &str {
        "redis"
    }

    fn store(&self) -> RedisStore {
        self.store.lock().clone().expect("the store is open")
    }

    async fn outlive(&self, ttl: Ttl) {
        // The server counts from when it was asked, which may be up to a moment ago.
        self.clock.sleep(ttl.as_duration() + Duration::from_millis(5)).await;
    }

    fn clock(&self) -> Option<&ManualClock> {
        None
    }

    async fn reopen(&self) -> Result<bool, StoreError> {
        *self.store.lock() = None;
        let opened = RedisStore::connect(self.settings.clone(), self.clock.clone()).await;
        *self.store.lock() = Some(opened.expect("the store opens again"));
        Ok(true)
    }

    fn footprint(&self) -> Option<u64> {
        Some(self.keys.bytes())
    }

    fn consistent_scan(&self) -> bool {
        false
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        *self.store.lock() = None;
        self.keys.remove();
    }
}

/// The keys of one store, seen past the store.
pub(crate) struct Keys {
    client: Client,
    prefix: String,
}

impl Keys {
    pub(crate) fn new(url: &str, prefix: &str) -> Self {
        let client = Client::open(url).expect("a URL that redis takes too");
        Self { client, prefix: prefix.to_owned() }
    }

    pub(crate) fn connection(&self) -> Connection {
        self.client.get_connection().expect("the server answers")
    }

    /// Runs a command on the server.
    pub(crate) fn run<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let (name, arguments) = command.split_first().expect("a command");
        redis::cmd(name).arg(arguments).query(&mut self.connection()).expect("the server obeys")
    }

    /// The names of all keys but the one that tells the layout.
    pub(crate) fn names(&self) -> Vec<String> {
        let pattern = format!("{}:*", self.prefix);
        let mut connection = self.connection();
        let mut names: Vec<String> = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let mut step = redis::cmd("SCAN");
            step.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
            let (next, found): (u64, Vec<String>) = step.query(&mut connection).expect("a step");
            names.extend(found);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.ends_with(":layout"));
        names
    }

    /// The memory that they take on the server.
    pub(crate) fn bytes(&self) -> u64 {
        let mut connection = self.connection();
        let mut sum = 0;
        for name in self.names() {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(name).arg("SAMPLES").arg(0);
            let bytes: Option<u64> = usage.query(&mut connection).expect("its size");
            sum += bytes.unwrap_or_default();
        }
        sum
    }

    /// Removes them all.
    pub(crate) fn remove(&self) {
        let mut connection = self.connection();
        let layout = format!("{}:layout", self.prefix);
        for name in self.names().into_iter().chain([layout]) {
            redis::cmd("UNLINK").arg(name).exec(&mut connection).expect("removed");
        }
    }
}
