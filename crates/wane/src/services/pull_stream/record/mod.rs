//! The one record of an institution's stream: where its readers stand.
//!
//! JSON, so that later versions read it; what they add is kept. Every transition replaces the whole
//! record by a conditional write, so that a claim, its lease and the acknowledgement of what came
//! before are one step.
//!
//! Invariants:
//! - A message of the log is in exactly one place: acknowledged or expired, in flight on one slot,
//!   requeued, or not yet reached by `head`.
//! - `version` grows by one with each write and `nonce` is drawn for it, so that whoever finds its
//!   own pair in the store has written it.
//! - The epoch of a slot grows whenever it changes hands, and its `seq` with each token, so that no
//!   two tokens of a stream claim the same.
//!
//! Flow: `claim` says which messages are next, `transitions` what a call makes of the record.

mod claim;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
mod transitions;

pub(super) use claim::Supply;
pub(super) use transitions::{Answer, Call, Held, Issuer, Moment, Presented, Rules};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::audit::{AuditEntry, RowHash};
use super::message::MAX_BATCH;
use super::reader::{Client, Form};
use super::regions::{RegionMap, Regions};
use super::token::TokenHash;
use crate::clock::Clock;
use crate::store::{Key, Life, StoreError, Timestamp, Value, Write};

/// The most readers of one institution.
pub const MAX_READERS: usize = 6;

/// The format that this version writes.
const FORMAT: u32 = 1;

/// Beyond all numbers that are counted up one by one: sums of two of them do not overflow.
pub(super) const COUNT_LIMIT: u64 = u64::MAX / 2;

/// A place in the log: the next message is this one of that row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) row: u64,
    pub(super) index: u8,
}

/// Messages of one row that lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) row: u64,
    pub(super) index: u8,
    pub(super) count: u8,
}

impl Span {
    pub(super) fn is_legal(&self) -> bool {
        let end = usize::from(self.index) + usize::from(self.count);
        self.row < COUNT_LIMIT && self.count > 0 && end <= MAX_BATCH
    }
}

/// How many messages the spans have.
pub(super) fn messages_in(spans: &[Span]) -> usize {
    spans.iter().map(|span| usize::from(span.count)).sum()
}

/// A reader's place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slot {
    pub(super) epoch: u64,
    /// The number of the token that was issued last, and that acknowledges what is in flight.
    pub(super) seq: u64,
    /// The lowest token that was answered with what is in flight: from it up to below `seq`, every
    /// one is answered the same again.
    pub(super) since: u64,
    pub(super) in_flight: Vec<Span>,
    pub(super) form: Form,
    /// Unix milliseconds; zero for a slot that was given back.
    pub(super) lease_until: u64,
    /// When the last token was issued and until when it is good, in Unix milliseconds.
    pub(super) issued_at: u64,
    pub(super) expires_at: u64,
    pub(super) kid: String,
    pub(super) token_hash: Option<TokenHash>,
    pub(super) client: Client,
    /// Drawn by the start that took the slot, by which it knows the slot again.
    pub(super) opened_by: u64,
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Slot {
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        now.as_unix_millis() < self.lease_until
    }
}

/// Audit entries on their way to the chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Riding {
    /// The row of the chain that they go to.
    pub(super) row: u64,
    /// The hash of the row before.
    pub(super) prev: RowHash,
    pub(super) entries: Vec<AuditEntry>,
}

impl Riding {
    /// Forgets the first entries, which stand in the chain in the row with this hash.
    pub(super) fn arrived(&mut self, entries: usize, hash: RowHash) {
        self.entries.drain(..entries.min(self.entries.len()));
        self.row += 1;
        self.prev = hash;
    }
}

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    format: u32,
    pub(super) version: u64,
    pub(super) nonce: u64,
    /// Of the region that owns the stream. Kept, and changed by a failover alone.
    pub(super) region_epoch: u64,
    /// Which regions serve the stream since that epoch; absent where all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    regions: Option<Regions>,
    /// The first message that was never claimed.
    pub(super) head: Position,
    /// The end of the log as the last claim knew it.
    pub(super) tail_hint: u64,
    pub(super) requeued: Vec<Span>,
    pub(super) slots: Vec<Slot>,
    pub(super) audit: Riding,
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl State {
    /// A stream that nobody has read from.
    pub(super) fn untouched() -> Self {
        Self {
            format: FORMAT,
            version: 0,
            nonce: 0,
            region_epoch: 0,
            regions: None,
            head: Position::default(),
            tail_hint: 0,
            requeued: Vec::new(),
            slots: Vec::new(),
            audit: Riding::default(),
            more: Map::new(),
        }
    }

    /// The same as its next version, to be changed and written.
    pub(super) fn successor(&self, clock: &dyn Clock) -> Self {
        Self { version: self.version + 1, nonce: clock.random_u64(), ..self.clone() }
    }

    /// Its next version, in which these regions serve the stream, under an epoch beyond its own and
    /// beyond `known`.
    pub(super) fn handed_over(&self, regions: Regions, known: u64, clock: &dyn Clock) -> Self {
        let (region_epoch, regions) = (self.region_epoch.max(known) + 1, Some(regions));
        Self { region_epoch, regions, ..self.successor(clock) }
    }

    /// Which regions serve the stream; `None` where all do.
    pub(super) fn region_map(&self) -> Option<RegionMap> {
        self.regions.as_ref().map(|regions| regions.at_epoch(self.region_epoch))
    }

    /// The region that serves the stream, if it is another one than this.
    pub(super) fn elsewhere(&self, region: &str) -> Option<&str> {
        let owner = self.regions.as_ref().map(|regions| &*regions.primary);
        owner.filter(|owner| *owner != region)
    }

    /// Whether both are the same write.
    pub(super) fn is_write(&self, other: &Self) -> bool {
        (self.version, self.nonce) == (other.version, other.nonce)
    }

    /// The first row that no message was claimed from. Rows before it had been there.
    pub(super) fn first_unclaimed_row(&self) -> u64 {
        self.head.row + u64::from(self.head.index > 0)
    }

    /// Ends leases that last longer than any that is given: the clock of a node was far ahead, and
    /// slots and messages would be kept from others until then.
    pub(super) fn distrust_leases(&mut self, now: Timestamp, longest: Duration) {
        let now = now.as_unix_millis();
        let latest = now.saturating_add(longest.as_millis() as u64);
        for slot in self.slots.iter_mut().filter(|slot| slot.lease_until > latest) {
            slot.lease_until = now;
        }
    }

    /// Whether messages of the row are in flight or requeued.
    pub(super) fn holds(&self, row: u64) -> bool {
        let in_flight = self.slots.iter().flat_map(|slot| &slot.in_flight);
        self.requeued.iter().chain(in_flight).any(|span| span.row == row)
    }

    /// How many readers hold a lease.
    pub(super) fn live_readers(&self, now: Timestamp) -> usize {
        self.slots.iter().filter(|slot| slot.is_live(now)).count()
    }

    /// Rows that a claim at `now` may take from again.
    pub(super) fn rows_to_look_for(&self, now: Timestamp) -> impl Iterator<Item = u64> {
        let abandoned = self.slots.iter().filter(move |slot| !slot.is_live(now));
        let spans = self.requeued.iter().chain(abandoned.flat_map(|slot| &slot.in_flight));
        spans.map(|span| span.row)
    }

    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let corrupt = |reason: String| StoreError::Corrupt { key: key.clone(), reason };
        let state: Self = serde_json::from_slice(value)
            .map_err(|error| corrupt(format!("it is not the state of a stream: {error}")))?;
        if state.format != FORMAT {
            return Err(corrupt(format!("format {} is not {FORMAT}; upgrade", state.format)));
        }
        state.sound().map_err(|reason| corrupt(reason.into()))
    }

    /// What transitions take for granted: numbers that can be counted on, and batches that fit.
    fn sound(self) -> Result<Self, &'static str> {
        if self.slots.len() > MAX_READERS {
            return Err("it has more than six slots");
        }
        let counted =
            [self.version, self.region_epoch, self.head.row, self.tail_hint, self.audit.row];
        let of_slots = self.slots.iter().flat_map(|slot| [slot.epoch, slot.seq, slot.since]);
        if counted.into_iter().chain(of_slots).any(|count| count >= COUNT_LIMIT) {
            return Err("a number of it is beyond all that are counted");
        }
        let in_flight = self.slots.iter().flat_map(|slot| &slot.in_flight);
        if !self.requeued.iter().chain(in_flight).all(Span::is_legal) {
            return Err("it has messages that no row can have");
        }
        if usize::from(self.head.index) > MAX_BATCH {
            return Err("its head is where no row can have a message");
        }
        if self.slots.iter().any(|slot| messages_in(&slot.in_flight) > MAX_BATCH) {
            return Err("a slot has more in flight than a batch");
        }
        Ok(self)
    }

    pub(super) fn write(&self) -> Result<Write, StoreError> {
        let json = serde_json::to_vec(self).map_err(|error| {
            StoreError::invalid("state", format!("it cannot be written: {error}"))
        })?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }
}
