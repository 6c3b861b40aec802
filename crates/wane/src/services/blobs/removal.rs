//! Removal: what is left of a BLOB goes at once, and what cannot go now goes by its expiry.
//!
//! The contract has no delete without the value that is to go, and reading a BLOB to remove it
//! would be absurd. So a part is removed by writing an empty one over it whose life has ended: the
//! record is absent from that moment on, and the store sweeps it.
//!
//! Invariant: the state goes first. Where it is not known to be gone the chunks stay, so that a
//! BLOB is whole or absent whatever fails. A removal outlives whoever asked for it: it runs in a
//! task, and the service knows how many there are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::chunks::{BUCKET, Writes};
use super::place::Place;
use super::{Shared, settling};
use crate::store::{Fence, Key, Life, Store, StoreError, Timestamp, Value, Write};

/// Milliseconds that no two clocks around a store are apart.
const LONG_PAST: u64 = 60_000;

/// What becomes of the state record.
#[derive(Debug)]
pub(super) enum State {
    /// There is none, or somebody else's business.
    Leave,
    /// Nothing changes it any more: it goes.
    Forget,
    /// It may yet arrive: this one stands in its way until it would have expired.
    Bury(Write),
}

/// The parts of a BLOB that must go.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) place: Place,
    pub(super) state: State,
    pub(super) chunks: Range<u32>,
    /// Chunks of a higher fence belong to somebody else and stay.
    pub(super) fence: Fence,
    /// Writes of chunks that are still under way.
    pub(super) writes: Writes,
    /// Whether the BLOB goes as a whole, and with it its place in the index.
    pub(super) is_whole: bool,
}

/// The removals of the service.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// How many are under way.
    underway: watch::Sender<usize>,
    /// How many failed: their chunks are left to their expiry.
    failed: AtomicU64,
}

/// A removal under way.
pub(super) struct Underway<S>(Arc<Shared<S>>);

impl<S> Underway<S> {
    pub(super) fn begin(shared: &Arc<Shared<S>>) -> Self {
        shared.removals.underway.send_modify(|count| *count += 1);
        Self(Arc::clone(shared))
    }
}

impl<S> Drop for Underway<S> {
    fn drop(&mut self) {
        self.0.removals.underway.send_modify(|count| *count -= 1);
    }
}

impl Removals {
    /// Waits until none is under way.
    pub(super) async fn settle(&self) {
        let mut underway = self.underway.subscribe();
        // The sender lives as long as this call borrows it.
        drop(underway.wait_for(|count| *count == 0).await);
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl<S: Store> Shared<S> {
    /// Removes the parts in a task of its own; the receiver hears when it is done.
    pub(super) fn remove(
        self: &Arc<Self>,
        leftovers: Leftovers,
        runtime: &Handle,
    ) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        // Counted from here on, and until the task is done or the runtime drops it.
        let underway = Underway::begin(self);
        runtime.spawn(async move {
            let shared = &underway.0;
            if shared.remove_now(leftovers).await.is_err() {
                shared.removals.failed.fetch_add(1, Ordering::Relaxed);
            }
            // Whoever asked may have gone.
            let _ = done.send(());
        });
        is_done
    }

    async fn remove_now(&self, mut left: Leftovers) -> Result<(), StoreError> {
        // Whatever became of them: later than these none comes.
        while left.writes.join_next().await.is_some() {}
        let place = left.place;
        let state = match left.state {
            State::Leave => None,
            State::Forget => Some(self.gone()),
            State::Bury(tombstone) => Some(tombstone),
        };
        if let Some(write) = state {
            settling::put(&self.store, &place.state()?, &write).await?;
        }
        while !left.chunks.is_empty() {
            let end = (left.chunks.start / BUCKET + 1).saturating_mul(BUCKET).min(left.chunks.end);
            let bucket = (left.chunks.start..end)
                .map(|number| Ok((place.chunk(number)?, self.gone().fenced(left.fence))))
                .collect::<Result<Vec<(Key, Write)>, StoreError>>()?;
            settling::put_all(&self.store, &bucket).await?;
            left.chunks.start = end;
        }
        if left.is_whole {
            settling::put(&self.store, &place.index_row()?, &self.gone()).await?;
            self.ledgers.of(place.app).remove(place.id);
        }
        Ok(())
    }

    /// A write that leaves nothing: its life has ended on every clock that may be asked.
    fn gone(&self) -> Write {
        let past = self.clock.now().as_unix_millis().saturating_sub(LONG_PAST);
        Write::new(Value::default(), Life::Until(Timestamp::from_unix_millis(past)))
    }
}
