//! How many connections there are: a bounded number of seats, and counts for metrics.
//!
//! Every task that serves a connection holds its seat, those of single HTTP/2 requests too. So the
//! number of seats bounds the tasks, and once all seats are free nothing is running any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The place of one connection, free again once every clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    _taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken {
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts of one listener's connections. A cheap handle: clones count the same connections.
#[derive(Debug, Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    seats: Arc<Semaphore>,
    /// Counted apart: whoever waits for all seats holds the free ones meanwhile.
    open: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl Connections {
    pub(super) fn at_most(limit: usize) -> Self {
        let shared = Shared {
            limit,
            seats: Arc::new(Semaphore::new(limit)),
            open: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Connections that were served or are being served.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed at once because the limit was reached.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// A seat for a new connection, counted; none beyond the limit.
    pub(super) fn admit(&self) -> Option<Seat> {
        let Ok(permit) = Arc::clone(&self.shared.seats).try_acquire_owned() else {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.shared.accepted.fetch_add(1, Ordering::Relaxed);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let taken = Taken { shared: Arc::clone(&self.shared), _permit: permit };
        Some(Seat { _taken: Arc::new(taken) })
    }

    /// Completes once no connection is open. Nobody is admitted any more.
    pub(super) async fn ended(&self) {
        let all = u32::try_from(self.shared.limit).expect("checked when the listener was bound");
        let _all = self.shared.seats.acquire_many(all).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_taken_until_its_last_clone_is_dropped() {
        let connections = Connections::at_most(1);
        let seat = connections.admit().expect("the first is admitted");
        let stream = seat.clone();
        assert!(connections.admit().is_none());
        drop(seat);
        assert!(connections.admit().is_none());
        drop(stream);
        let _seat = connections.admit().expect("the seat is free again");
        let counts = (connections.open(), connections.accepted(), connections.refused());
        assert_eq!(counts, (1, 2, 2));
    }
}
