//! Views: what stands in the records, shown elsewhere as well, for caches and for people.
//!
//! Nothing is decided by a view, and nothing is read from one: a view that is lost, late or flushed
//! changes no answer. That is why it is told of a write after the write, and has no way to fail.

use std::fmt;

use super::Ispb;
use super::reader::Client;
use super::record::{State, messages_in};
use super::token::TokenHash;
use crate::store::Timestamp;

/// A reader's slot, as it stands since a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotView {
    /// Which of the six, from 0.
    pub thread: usize,
    /// Grows whenever the slot changes hands.
    pub epoch: u64,
    /// Who reads.
    pub client: Client,
    /// The number of the token that was issued last.
    pub cursor_seq: u64,
    /// Its hash, in base64url.
    pub token: Option<String>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// How many messages it acknowledges.
    pub in_flight: usize,
    /// Until when the token is good.
    pub expires_at: Timestamp,
    /// Until when the slot is the reader's.
    pub lease_until: Timestamp,
}

/// Somewhere that slots and tokens are shown.
///
/// - **After the fact.** It is told what stands in the store, by the node that wrote it.
/// - **Cheap.** It is called between rounds: whoever has to send something queues it and returns.
pub trait TokenView: fmt::Debug + Send + Sync + 'static {
    /// The slots of an institution that have a lease, after a write of its record. Writes of one
    /// node are told in their order; `version` tells the order of all of them.
    fn show(&self, ispb: Ispb, version: u64, slots: &[SlotView]);
}

/// What a token is remembered by, in base64url: the first half of its SHA-256.
#[must_use]
pub fn token_hash(token: &str) -> String {
    TokenHash::of(token).into()
}

/// The slots of a record that have a lease.
pub(super) fn slots_of(state: &State, now: Timestamp) -> Vec<SlotView> {
    let live = state.slots.iter().enumerate().filter(|(_, slot)| slot.is_live(now));
    let view = live.map(|(thread, slot)| SlotView {
        thread,
        epoch: slot.epoch,
        client: slot.client.clone(),
        cursor_seq: slot.seq,
        token: slot.token_hash.map(String::from),
        issued_at: Timestamp::from_unix_millis(slot.issued_at),
        in_flight: messages_in(&slot.in_flight),
        expires_at: Timestamp::from_unix_millis(slot.expires_at),
        lease_until: Timestamp::from_unix_millis(slot.lease_until),
    });
    view.collect()
}
