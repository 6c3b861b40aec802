//! Recovery: what store and log say together, brought into the store before anything is given out.
//!
//! Reads the stored offset, then the log from there on, page by page. The highest number of each
//! counter on a page is written where the store has less, then the offset after the page: so a long
//! log needs little memory, and a recovery that is cut short goes on where it was. When the log
//! ends, the store alone knows everything.

use std::collections::BTreeMap;

use super::backoff::Backoff;
use super::error::Fault;
use super::event_log::{Event, EventLog, Offset};
use super::flush::Numbers;
use super::keeper::Keeper;
use super::ledger::Pending;
use super::records::{Counter, Stands, offset_key, stored};
use crate::store::{Store, StoreError};

impl<S: Store, L: EventLog> Keeper<S, L> {
    /// Recovers, however long it takes, and returns the stored offset.
    pub(super) async fn recover(&self) -> Stands {
        let mut backoff = Backoff::new(&self.settings);
        loop {
            match self.replay(&mut backoff).await {
                Ok((next, stands)) => {
                    self.ledger.recovered(next);
                    return stands;
                }
                // Begins at the stored offset again: events that it covers may be gone by now.
                Err(fault) => self.pause(&mut backoff, fault).await,
            }
        }
    }

    /// Brings the log into the store. Returns the offset of the next event and the stored one.
    async fn replay(&self, backoff: &mut Backoff) -> Result<(Offset, Stands), Fault> {
        let found = self.stored_offset().await?;
        let mut stands = Stands::from(found);
        let mut next = found.map_or(self.settings.first_offset, Offset);
        loop {
            let events =
                self.log.events_from(next, self.settings.page).await.map_err(Fault::Log)?;
            if events.is_empty() {
                return Ok((next, stands));
            }
            next = following(next, &events)?;
            self.write_numbers(highest(&events)).await;
            stands = self.write_offset(stands, next).await;
            self.ledger.reached(next);
            backoff.reset();
        }
    }

    async fn stored_offset(&self) -> Result<Option<u64>, StoreError> {
        let key = offset_key(self.settings.app, self.settings.partition)?;
        stored(&*self.store, &key).await
    }
}

/// The offset after a page that begins at `offset` and leaves nothing out.
fn following(offset: Offset, events: &[Event]) -> Result<Offset, Fault> {
    events.iter().try_fold(offset, |expected, event| {
        if event.offset != expected {
            return Err(Fault::LogGap { expected, found: event.offset });
        }
        expected.following().ok_or(Fault::LogFull)
    })
}

/// The highest number of each counter, of which it is not known what the store has.
fn highest(events: &[Event]) -> Numbers {
    let mut highest: BTreeMap<Counter, u64> = BTreeMap::new();
    for event in events {
        for (sequence, number) in &event.numbers {
            let counter = Counter { workspace: event.workspace, sequence: *sequence };
            let last = highest.entry(counter).or_insert(*number);
            *last = (*last).max(*number);
        }
    }
    let pending = |last| Pending { stands: Stands::Unknown, last };
    highest.into_iter().map(|(counter, last)| (counter, pending(last))).collect()
}
