//! Writing: the numbers first, then the offset that says so.
//!
//! An offset is sent only after every number of its batch was acknowledged. Whatever fails is tried
//! again until it works or the sequencer ends: growing is the same done twice, so that an unclear
//! outcome needs no other care.

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::backoff::Backoff;
use super::event_log::{EventLog, Offset};
use super::keeper::Keeper;
use super::ledger::Pending;
use super::records::{Counter, Stands, grow, offset_key};
use crate::store::{Store, StoreError};

/// Numbers that are not stored yet.
pub(super) type Numbers = Vec<(Counter, Pending)>;

impl<S: Store, L: EventLog> Keeper<S, L> {
    /// Writes what transactions leave, until the ledger is closed and nothing is left. `stands` is
    /// the offset that is stored.
    pub(super) async fn keep_flushing(&self, mut stands: Stands) {
        while self.ledger.has_work().await {
            self.gather().await;
            let Some(batch) = self.ledger.batch() else { continue };
            self.write_numbers(batch.numbers.clone()).await;
            stands = self.write_offset(stands, batch.next).await;
            self.ledger.written(&batch);
        }
    }

    /// Lets more transactions join, unless somebody waits.
    async fn gather(&self) {
        if self.settings.gather.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = self.ledger.is_urgent() => {}
            () = self.clock.sleep(self.settings.gather) => {}
        }
    }

    /// Stores all numbers, however long it takes.
    pub(super) async fn write_numbers(&self, mut left: Numbers) {
        let mut backoff = Backoff::new(&self.settings);
        while !left.is_empty() {
            let before = left.len();
            let Err(error) = self.try_numbers(&mut left).await else { return };
            if left.len() < before {
                backoff.reset();
            }
            self.pause(&mut backoff, error).await;
        }
    }

    /// Stores numbers side by side, and stops sending at the first failure. What is not known to be
    /// stored is left.
    async fn try_numbers(&self, left: &mut Numbers) -> Result<(), StoreError> {
        let mut failure = Ok(());
        let mut failed = Vec::new();
        let mut writes = FuturesUnordered::new();
        loop {
            while failure.is_ok() && writes.len() < self.settings.concurrency {
                let Some(number) = left.pop() else { break };
                writes.push(self.try_number(number));
            }
            match writes.next().await {
                None => break,
                Some(Ok(())) => {}
                Some(Err((number, error))) => {
                    failed.push(number);
                    failure = Err(error);
                }
            }
        }
        left.append(&mut failed);
        failure
    }

    async fn try_number(
        &self,
        number: (Counter, Pending),
    ) -> Result<(), ((Counter, Pending), StoreError)> {
        let (counter, Pending { stands, last }) = number;
        let growing = async {
            let key = counter.key(self.settings.app)?;
            grow(&*self.store, &key, stands, last).await
        };
        growing.await.map(drop).map_err(|error| (number, error))
    }

    /// Stores the offset, however long it takes, and returns what stands then.
    pub(super) async fn write_offset(&self, stands: Stands, next: Offset) -> Stands {
        let mut backoff = Backoff::new(&self.settings);
        loop {
            match self.try_offset(stands, next).await {
                Ok(offset) => return Stands::At(offset),
                Err(error) => self.pause(&mut backoff, error).await,
            }
        }
    }

    async fn try_offset(&self, stands: Stands, next: Offset) -> Result<u64, StoreError> {
        let key = offset_key(self.settings.app, self.settings.partition)?;
        grow(&*self.store, &key, stands, next.0).await
    }
}
