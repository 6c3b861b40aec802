//! WatchedStore: what is reported, in which order, how late, and what is said when it is unclear.

mod changes;
mod doubt;
mod everywhere;
mod expiries;
mod order;
mod resuming;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use wane::clock::ManualClock;
use wane::store::{
    ClusteringRange, Event, EventKind, Fence, Notice, Outcome, Partition, Store, StoreError, Watch,
    WatchLimits, WatchedStore, Write,
};

use crate::gated::GatedStore;
use crate::{InnerStore, inner_store, key, manual_clock};

type Watched = WatchedStore<GatedStore<InnerStore>>;

/// A watched store, the gate below it, and its clock.
struct Setup {
    store: Watched,
    below: GatedStore<InnerStore>,
    clock: Arc<ManualClock>,
}

fn setup() -> Setup {
    setup_with(WatchLimits::default())
}

fn setup_with(limits: WatchLimits) -> Setup {
    let (manual, clock) = manual_clock();
    let below = GatedStore::new(inner_store(Arc::clone(&clock)));
    Setup { store: WatchedStore::with_limits(below.clone(), clock, limits), below, clock: manual }
}

impl Setup {
    async fn watch(&self) -> Watch {
        self.watch_range(ClusteringRange::ALL).await
    }

    async fn watch_range(&self, range: ClusteringRange) -> Watch {
        self.store.watch(&partition(), range).await.expect("the range can be read")
    }

    async fn watch_from(&self, id: u64) -> Watch {
        let watch = self.store.watch_from(&partition(), ClusteringRange::ALL, id).await;
        watch.expect("the range can be read")
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    async fn put(&self, name: &str, write: Write) {
        applied(self.store.put(&key(name), write).await);
    }

    async fn insert(&self, name: &str, write: Write) {
        applied(self.store.insert_if_not_exists(&key(name), write).await);
    }

    async fn swap(&self, name: &str, old: &str, write: Write) {
        applied(self.store.compare_and_swap(&key(name), old.as_bytes(), write).await);
    }

    async fn delete(&self, name: &str, old: &str) {
        applied(self.store.compare_and_delete(&key(name), old.as_bytes(), Fence::NONE).await);
    }
}

fn partition() -> Partition {
    Partition::new("tests").expect("short enough")
}

fn applied(result: Result<Outcome, StoreError>) {
    assert!(result.expect("no fault was asked for").is_applied());
}

/// The next notice. A watch that stays silent fails the test instead of hanging it.
async fn next(watch: &mut Watch) -> Notice {
    let notice = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
    notice.expect("a notice comes").expect("the store is open")
}

async fn next_event(watch: &mut Watch) -> Event {
    match next(watch).await {
        Notice::Event(event) => event,
        Notice::Gap { newest } => panic!("a gap up to {newest}"),
    }
}

/// Asserts what the next event is.
async fn expect(watch: &mut Watch, kind: EventKind, name: &str, text: &str) -> Event {
    let event = next_event(watch).await;
    let had = (event.kind, event.key.clone(), &*event.value);
    assert_eq!(had, (kind, key(name), text.as_bytes()));
    event
}

async fn expect_gap(watch: &mut Watch) -> u64 {
    match next(watch).await {
        Notice::Gap { newest } => newest,
        Notice::Event(event) => panic!("{event:?} instead of a gap"),
    }
}

/// Asserts that nothing is reported although every task had its turn.
async fn expect_silence(watch: &mut Watch) {
    settle().await;
    let mut next = pin!(watch.next());
    let polled = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "{polled:?}");
}

/// Lets every other task of a single-threaded runtime go as far as it can.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
