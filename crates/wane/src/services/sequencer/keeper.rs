//! The background task: it recovers, then flushes, and starts over whenever it is told to recover.

use std::sync::Arc;

use super::backoff::Backoff;
use super::error::Fault;
use super::event_log::EventLog;
use super::ledger::Ledger;
use super::settings::SequencerSettings;
use crate::clock::SharedClock;
use crate::store::Store;

#[derive(Debug)]
pub(super) struct Keeper<S, L> {
    pub(super) store: Arc<S>,
    pub(super) log: L,
    pub(super) clock: SharedClock,
    pub(super) settings: Arc<SequencerSettings>,
    pub(super) ledger: Arc<Ledger>,
}

impl<S: Store, L: EventLog> Keeper<S, L> {
    /// Works until the ledger is closed and everything is stored.
    pub(super) async fn run(self) {
        let _end = StopsAtEnd(&self.ledger);
        loop {
            tokio::select! {
                biased;
                // Writes under way are dropped: they may still arrive, and raise nothing above
                // what the log says.
                () = self.ledger.recovery_asked() => {}
                () = self.recover_and_flush() => return,
            }
        }
    }

    async fn recover_and_flush(&self) {
        let stands = self.recover().await;
        self.keep_flushing(stands).await;
    }

    /// Tells what failed and waits before the next attempt.
    pub(super) async fn pause(&self, backoff: &mut Backoff, fault: impl Into<Fault>) {
        self.ledger.failed(fault.into());
        backoff.pause(&*self.clock).await;
    }
}

/// Marks the sequencer as stopped, also when its task panics.
struct StopsAtEnd<'a>(&'a Ledger);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stopped();
    }
}
