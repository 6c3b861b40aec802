//! SpreadStore: the contract over any number of buckets, ordered pages, and the number of buckets.

mod keyspaced;
mod lanes;
mod opening;
mod paging;
mod suite;

use std::sync::Arc;

use wane::clock::ManualClock;
use wane::store::{Key, Keyspace, Partition, SpreadStore, Store};

use crate::{InnerStore, inner_store};

/// A spread over memory, and what is below it.
struct Setup {
    clock: Arc<ManualClock>,
    below: InnerStore,
    store: SpreadStore<InnerStore>,
}

async fn setup(buckets: u16) -> Setup {
    let clock = ManualClock::seeded(1);
    let below = inner_store(clock.clone());
    Setup { clock, store: spread(below.clone(), buckets).await, below }
}

async fn spread<S: Store>(below: S, buckets: u16) -> SpreadStore<S> {
    SpreadStore::open(below, buckets).await.expect("the number is new or the same")
}

/// A partition that is spread.
fn partition() -> Partition {
    Keyspace::AppTtl.partition(&7_u32.to_be_bytes()).expect("short enough")
}

fn row(clustering: impl AsRef<[u8]>) -> Key {
    Key::new(partition().as_bytes(), clustering.as_ref()).expect("the clustering is legal")
}
