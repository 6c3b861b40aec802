//! Linearizability: whether recorded answers of concurrent clients fit some order of single steps.
//!
//! Keys are independent, so each key's events are checked alone, as a register that holds one
//! record or none. An event took effect at one point between its invocation and its return, and
//! the store's clock showed some time then that lies between the readings at both ends. [`check`]
//! looks for an order of all events, and a time for each, that never falls, under which every
//! answer is the one the contract demands (`register` has those rules, `search` the order).
//!
//! Expiry needs no event of its own: a record is there at points before its expiry and gone from
//! then on. Where an event's window spans the expiry both are possible; once an answer said
//! "absent", time is past the expiry for everything after, so the record cannot come back.
//!
//! `Unavailable` took no effect. `Unknown` took effect once, at any point after its invocation
//! (even after its return), or never.
//!
//! Shared stores are judged by clocks that the history does not know: a server's, or those of
//! several nodes. [`check_within`] allows each of them to be off by an [`Allowance`]: around its
//! expiry a record may then be there for one answer, gone for the next and there again. Nothing
//! else is loosened.
//!
//! Not here: recording, which is in `history`.

#[cfg(test)]
mod brute_force;
mod register;
mod report;
mod search;
#[cfg(test)]
mod tests;

pub use report::Violation;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::store::{Fence, Key, Outcome, Record, Timestamp, Write};
use register::{Op, Values};
use search::Finding;

/// A point of a history: its place among all points, and what the store's clock showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Its place: of two points, the one with the lower number came first.
    pub order: u64,
    /// The store's clock. At an invocation it is read before the call, at a return after it.
    pub clock: Timestamp,
}

/// What a client asked of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the parameters of Store are")]
pub enum Call {
    /// `get`
    Get,
    /// `put`
    Put(Write),
    /// `insert_if_not_exists`
    Insert(Write),
    /// `compare_and_swap`
    Swap { expected: Bytes, write: Write },
    /// `compare_and_delete`
    Delete { expected: Bytes, fence: Fence },
}

/// What the client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What a get found.
    Read(Option<Record>),
    /// What became of a write.
    Written(Outcome),
    /// The call failed and nothing was applied.
    Unavailable,
    /// The write may be applied, now or later, or never.
    Unknown,
}

/// One call of one client, from its invocation to its return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which client called.
    pub client: usize,
    /// The key it called about.
    pub key: Key,
    /// What it asked.
    pub call: Call,
    /// What it was told.
    pub answer: Answer,
    /// When it asked.
    pub invoked: Moment,
    /// When it was told.
    pub returned: Moment,
}

/// How far the clocks that judge expiry may be from the one that stamps a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowance {
    /// By how much each of them may be ahead or behind. Whole milliseconds count.
    pub skew: Duration,
    /// Whether a request brings the time along by which it is judged, so that one that was long on
    /// its way may still find a record that has expired meanwhile. Where the store judges by its
    /// own clock when the request takes effect this is `false`.
    pub dated_requests: bool,
}

impl Allowance {
    /// None: the store lives by the clock that stamps the history.
    pub const NONE: Self = Self::skew(Duration::ZERO);

    /// Clocks that are off by at most `skew`, asked when a request takes effect.
    pub const fn skew(skew: Duration) -> Self {
        Self { skew, dated_requests: false }
    }

    /// The same clocks, asked before a request is sent.
    #[must_use]
    pub const fn dated(self) -> Self {
        Self { dated_requests: true, ..self }
    }
}

/// What [`check`] found.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// Some order of single steps explains every answer.
    Linearizable,
    /// The search gave up before it found an order or ruled all out.
    Undecided,
    /// No order explains the answers.
    Violated(Box<Violation>),
}

/// The steps that a round of the search for one key may take before it gives up.
const STEPS: usize = 50_000;

/// Checks a history that begins on absent keys. See the module's documentation.
pub fn check(events: &[Event]) -> Verdict {
    check_within(events, Allowance::NONE)
}

/// Checks a history that begins on absent keys and was judged by clocks off by `allowance`.
pub fn check_within(events: &[Event], allowance: Allowance) -> Verdict {
    let mut keys: BTreeMap<&Key, Vec<&Event>> = BTreeMap::new();
    for event in events {
        keys.entry(&event.key).or_default().push(event);
    }
    let mut verdict = Verdict::Linearizable;
    for events in keys.values_mut() {
        events.sort_by_key(|event| event.invoked.order);
        let all = Op::all(events, u64::MAX, allowance, &mut Values::default());
        match search::search(&all, STEPS) {
            Finding::Ordered => {}
            Finding::GaveUp => verdict = Verdict::Undecided,
            Finding::Stuck(_) => {
                let violation = report::explain(events, allowance, STEPS);
                return Verdict::Violated(Box::new(violation));
            }
        }
    }
    verdict
}
