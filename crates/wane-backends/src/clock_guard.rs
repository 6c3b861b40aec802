//! [`ClockGuarded`]: a node whose clock is off does not touch a shared store.
//!
//! Nodes of a shared store decide by their own clocks whether a record has expired. That is sound
//! while no clock is off by more than `max_skew`, so each node compares itself with the server once
//! a second, and beyond the bound answers [`StoreError::Unavailable`] with the reason until it is
//! right again. Nothing is applied meanwhile.
//!
//! A comparison takes the node's time before and after the server's. What lies in between is not
//! known better, and counts for the node: only a difference that is certain refuses service. While
//! the server does not answer, the last comparison stands, for calls fail by themselves.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use wane::clock::SharedClock;
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Timestamp, Write,
};

/// How often a node compares itself with its server.
const PERIOD: Duration = Duration::from_secs(1);

/// The time of a server, as exactly as it tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTime {
    /// It was this or later.
    pub not_before: Timestamp,
    /// It was this or earlier.
    pub not_after: Timestamp,
}

impl ServerTime {
    /// A time that is told to the millisecond.
    #[must_use]
    pub fn exactly(at: Timestamp) -> Self {
        Self { not_before: at, not_after: at }
    }
}

/// A store whose server has a clock.
pub trait ServerClock: Store {
    /// The server's time at some moment of the call.
    fn server_time(&self) -> impl Future<Output = Result<ServerTime, StoreError>> + Send;
}

/// A [`Store`] that refuses service while the clock of this node is off.
#[derive(Debug)]
pub struct ClockGuarded<S> {
    inner: Arc<Inner<S>>,
}

impl<S> Clone for ClockGuarded<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<S> {
    store: S,
    backend: &'static str,
    max_skew: Duration,
    clock: SharedClock,
    /// How far this node was ahead at the last comparison, in milliseconds: behind is negative,
    /// and 0 what cannot be told from right.
    ahead: AtomicI64,
}

impl<S: ServerClock> ClockGuarded<S> {
    /// Compares the clocks once, and from then on every second while a handle lives.
    ///
    /// Needs a tokio runtime, which keeps comparing.
    pub async fn begin(
        store: S,
        backend: &'static str,
        max_skew: Duration,
        clock: SharedClock,
    ) -> Result<Self, StoreError> {
        let ahead = AtomicI64::new(0);
        let inner = Arc::new(Inner { store, backend, max_skew, clock, ahead });
        inner.compare().await?;
        tokio::spawn(keep_comparing(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// The store, where the clock allows it.
    fn store(&self) -> Result<&S, StoreError> {
        let Inner { store, backend, max_skew, ahead, .. } = &*self.inner;
        let ahead = ahead.load(Ordering::Relaxed);
        if u128::from(ahead.unsigned_abs()) <= max_skew.as_millis() {
            return Ok(store);
        }
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        let reason = format!(
            "the clock of this node is {} ms {side} the server's, {} ms are allowed; \
             set it right, as by NTP",
            ahead.unsigned_abs(),
            max_skew.as_millis()
        );
        Err(StoreError::Unavailable { backend, source: reason.into() })
    }

    /// The store underneath, whatever the clock says.
    pub fn unguarded(&self) -> &S {
        &self.inner.store
    }
}

impl<S: ServerClock> Inner<S> {
    async fn compare(&self) -> Result<(), StoreError> {
        let before = self.clock.now();
        let server = self.store.server_time().await?;
        let after = self.clock.now();
        self.ahead.store(certain_lead((before, after), server), Ordering::Relaxed);
        Ok(())
    }
}

/// By how much the node's clock was ahead of the server's at least; negative where behind.
fn certain_lead((before, after): (Timestamp, Timestamp), server: ServerTime) -> i64 {
    let millis = |from: Timestamp, to: Timestamp| {
        i64::try_from(from.until(to).as_millis()).unwrap_or(i64::MAX)
    };
    // At most one of the two is above zero.
    millis(server.not_after, before) - millis(after, server.not_before)
}

async fn keep_comparing<S: ServerClock>(inner: Weak<Inner<S>>) {
    while let Some(node) = inner.upgrade() {
        let clock = Arc::clone(&node.clock);
        if let Err(error) = node.compare().await {
            tracing::debug!(backend = node.backend, %error, "clocks were not compared");
        }
        // Not held while sleeping: the last handle ends the comparing.
        drop(node);
        clock.sleep(PERIOD).await;
    }
}

impl<S: ServerClock> Store for ClockGuarded<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.store()?.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.store()?.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.store()?.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.store()?.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.store()?.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.store()?.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.store()?.insert_if_not_exists(key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.store()?.compare_and_swap(key, expected, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.store()?.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.store()?.query_ttl(key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    /// The node looked at 1,000 and 1,100 while the server told a second of its own.
    #[test]
    fn only_what_is_certain_counts_as_a_lead() {
        for (server, lead) in [
            ((1_000, 1_000), 0),
            ((1_100, 1_100), 0),
            ((999, 999), 1),
            ((1_101, 1_101), -1),
            ((400, 900), 100),
            ((1_300, 1_800), -200),
            ((0, 999_999), 0),
            ((0, u64::MAX), 0),
        ] {
            let server = ServerTime { not_before: at(server.0), not_after: at(server.1) };
            assert_eq!(certain_lead((at(1_000), at(1_100)), server), lead, "{server:?}");
        }
    }
}
