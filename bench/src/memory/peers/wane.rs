//! Wane's own memory store, called through its asynchronous contract.
//!
//! Its futures are ready at the first poll, so they are polled once with a waker that does nothing:
//! entering a runtime for each call would measure the runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wane::clock::SharedClock;
use wane::store::{
    Fence, Key, Life, MemoryStore, Outcome, PageLimit, Store, StoreError, Ttl, Value, Write,
};

use crate::memory::peer::{Peer, RangeQuery};
use crate::workload::VALUE;

/// A memory store.
#[derive(Debug)]
pub(crate) struct Wane(MemoryStore);

impl Wane {
    /// An empty store.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self(MemoryStore::new(clock).expect("the system gives a thread to the sweeper"))
    }

    /// The store.
    pub(crate) fn store(&self) -> &MemoryStore {
        &self.0
    }
}

/// The result of a future that does not wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a call of the memory store is ready at once"),
    }
}

fn write(value: &[u8], life: Ttl) -> Write {
    Write::new(Value::copy_from_slice(value).expect("the value is short"), Life::For(life))
}

fn applied(result: Result<Outcome, StoreError>) -> bool {
    result.expect("the memory store does not fail").is_applied()
}

impl Peer for Wane {
    type Owned = wane::store::Record;

    fn get(&self, key: &Key) -> Option<Self::Owned> {
        ready(self.0.get(key)).expect("the memory store does not fail")
    }

    fn insert(&self, key: &Key, value: &[u8], life: Ttl) -> bool {
        applied(ready(self.0.insert_if_not_exists(key, write(value, life))))
    }

    fn swap(&self, key: &Key, expected: &[u8], value: &[u8], life: Ttl) -> bool {
        applied(ready(self.0.compare_and_swap(key, expected, write(value, life))))
    }

    fn remove(&self, key: &Key) {
        applied(ready(self.0.compare_and_delete(key, VALUE, Fence::NONE)));
    }

    fn range(&self, query: &RangeQuery, limit: usize) -> Option<usize> {
        let limit = PageLimit::new(limit).expect("the limit is legal");
        let page = ready(self.0.read(&query.partition, &query.range, limit));
        Some(page.expect("the memory store does not fail").rows.len())
    }
}
