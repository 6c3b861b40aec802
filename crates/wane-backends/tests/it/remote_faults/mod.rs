//! Backends on servers behind a network that fails: the unclear answers of the contract, by name,
//! and histories under faults, checked for an order.
//!
//! Each backend brings a [`Ground`]: a handle through the proxy, and one past it that shows what is
//! really there. The cases in `unclear` and the histories in `histories` are the same for all of
//! them. `liar` is the control: a store that guesses must be caught by the same histories. `load`
//! is for servers that die, stop and come back.
//!
//! A backend runs where `WANE_TEST_BACKENDS` lists it. `WANE_TEST_REDIS_HISTORIES`,
//! `WANE_TEST_DYNAMODB_HISTORIES` and `WANE_TEST_CASSANDRA_HISTORIES` set how many histories.

mod histories;
mod liar;
mod load;
mod unclear;

#[cfg(feature = "cassandra")]
pub(crate) mod cassandra;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "redis")]
mod redis;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use wane::clock::{OffClock, SharedClock, SystemClock};
use wane::store::{Key, Store};

use crate::proxy::{Proxy, Rules};

/// How long a backend may take to find its server again.
const RECOVERY: Duration = Duration::from_secs(30);

/// A backend, its server, and the proxy in between.
pub(crate) struct Ground<S> {
    /// What the backend is called in its errors.
    pub(crate) name: &'static str,
    pub(crate) proxy: Arc<Proxy>,
    /// A handle whose every byte passes the proxy.
    pub(crate) through: Arc<S>,
    /// A second node through the proxy, whose clock is off.
    pub(crate) second: Arc<S>,
    /// A handle of its own past the proxy: what it shows is there.
    pub(crate) direct: Arc<S>,
    pub(crate) patience: Patience,
    pub(crate) clock: SharedClock,
    keys: AtomicU64,
}

/// What is special about a backend that waits for its server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// How long it waits for the answer to a request.
    pub(crate) request: Duration,
    /// How long a call takes at most, whatever happens.
    pub(crate) call: Duration,
    /// Whether a delete reads before it writes. It may then fail before anything was sent.
    pub(crate) delete_reads_first: bool,
}

impl<S: Store> Ground<S> {
    /// Puts a proxy before `server`; `open` opens the store at an address. The clock of the second
    /// node is `ahead` milliseconds ahead.
    pub(crate) async fn new(
        name: &'static str,
        server: SocketAddr,
        patience: Patience,
        ahead: i64,
        open: impl AsyncFn(SocketAddr, SharedClock) -> S,
    ) -> Self {
        let clock = SystemClock::shared();
        let proxy = Arc::new(Proxy::before(server, 1).await);
        let direct = Arc::new(open(server, Arc::clone(&clock)).await);
        let through = Arc::new(open(proxy.address(), Arc::clone(&clock)).await);
        let off = Arc::new(OffClock::ahead_of(Arc::clone(&clock), ahead));
        let second = Arc::new(open(proxy.address(), off).await);
        let keys = AtomicU64::new(0);
        let ground = Self { name, proxy, through, second, direct, patience, clock, keys };
        let before = ground.proxy.counts().requests;
        ground.recover().await;
        assert!(ground.proxy.counts().requests > before, "{name} goes round the proxy");
        ground
    }

    /// A key that no one has used.
    pub(crate) fn fresh_key(&self) -> Key {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        // Partitions of their own, so that no call waits for another.
        Key::new(format!("faults {number}").as_bytes(), b"").expect("a short partition")
    }

    /// Lets everything pass and waits until the backend has found its server again.
    pub(crate) async fn recover(&self) {
        self.proxy.set(Rules::PASS).await;
        let key = self.fresh_key();
        let found = async {
            // Several in a row: a pool may hold more than one connection.
            let mut in_a_row = 0;
            while in_a_row < 4 {
                let both = tokio::join!(self.through.get(&key), self.second.get(&key));
                in_a_row = if both.0.is_ok() && both.1.is_ok() { in_a_row + 1 } else { 0 };
                self.clock.sleep(Duration::from_millis(5)).await;
            }
        };
        let found = timeout(RECOVERY, found).await;
        assert!(found.is_ok(), "{} does not find its server again", self.name);
    }

    /// Waits until `done` is true of what is there.
    pub(crate) async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let waited = async {
            while !done().await {
                self.clock.sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = timeout(RECOVERY, waited).await;
        assert!(waited.is_ok(), "{}: {what} did not come about", self.name);
    }
}

/// The cases of `unclear`, each as a test of the backend that `$on` sets up.
macro_rules! unclear_cases {
    ($on:path) => {
        crate::remote_faults::unclear_cases! { $on:
            an_applied_write_whose_answer_is_lost_is_reported_applied,
            an_applied_write_that_another_followed_is_unknown,
            a_write_that_never_arrived_is_never_reported_applied_or_refused,
            a_write_that_cannot_be_sent_is_unavailable,
            a_write_that_arrives_late_was_reported_unknown_and_is_applied_once,
            a_server_that_stops_answering_is_told_within_the_deadline,
            nothing_is_applied_twice,
        }
    };
    ($on:path: $($name:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $on(async |ground| crate::remote_faults::unclear::$name(ground).await).await;
        }
    )*};
}
pub(crate) use unclear_cases;
