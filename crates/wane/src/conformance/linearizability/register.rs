//! One key as a register: which states may follow when an operation takes effect.
//!
//! A [`State`] is what the register holds and the earliest time that fits all steps so far. The
//! earliest is enough: every later step only asks that time has not gone too far. The one thing
//! that a later time could improve, the expiry of an unconfirmed write, is kept as a span until
//! an answer names it ([`Expiry::Within`]).
//!
//! Where clocks may be off, a record that an operation took for gone is still there for the next
//! one, until it is past its expiry for every clock.
//!
//! The rules are written out here again, not taken from the store's own `change` module: a check
//! that shares its rules with what it checks would share their mistakes.

use std::collections::HashMap;

use super::{Allowance, Answer, Call, Event};
use crate::store::{Fence, Life, Outcome, Record, Timestamp, Value, Write};

/// What the register may hold at a point, and the earliest time of that point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: u64,
    pub(super) held: Option<Held>,
}

/// A record with its value as a number: equal values have equal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) value: u32,
    fence: u64,
    pub(super) expiry: Expiry,
}

/// What is known of an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Expiry {
    Never,
    At(u64),
    /// In this span, of a life that nobody reported. It is at most `lead` after the present: the
    /// write that gave it, or the clock that found it past, was no earlier.
    Within {
        first: u64,
        last: u64,
        lead: u64,
    },
}

/// A record as an answer showed it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    value: u32,
    fence: u64,
    expires_at: Option<u64>,
}

/// What an operation asks of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Anything,
    Nothing,
    Value(u32),
}

/// What an operation does where it finds what it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Read,
    Write(u32, Life),
    Delete,
}

/// What the answer claims.
#[derive(Debug, Clone, Copy)]
enum Claim {
    /// Left the record as it was, which was this.
    Saw(Option<Seen>),
    /// Took effect, on or with a record of this expiry.
    Applied(Option<u64>),
    /// Nothing: it may have taken effect.
    Unclear,
}

/// An event in the form that the search works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    /// The event's place in its history.
    pub(super) event: usize,
    wanted: Wanted,
    action: Action,
    fence: u64,
    claim: Claim,
    /// Order and time before which it had no effect.
    pub(super) invoked: (u64, u64),
    /// Order and time after which it had none; the end of time for an unclear one.
    pub(super) returned: (u64, u64),
    clocks: Clocks,
}

/// The clocks that judge expiry: an [`Allowance`] in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    skew: u64,
    dated: bool,
}

/// A step's surroundings: what it finds and between which times it would happen.
#[derive(Debug, Clone, Copy)]
struct View {
    /// The record that the operation finds.
    held: Option<Held>,
    /// The record that stays although this operation takes it for gone: others may find it.
    hidden: Option<Held>,
    /// When the operation was called: the earliest that a life given by it can count from.
    called: u64,
    earliest: u64,
    latest: u64,
    clocks: Clocks,
}

impl Op {
    /// The operations that may have had an effect or have seen one by the point `cut`. Those that
    /// had not returned by then are unclear.
    pub(super) fn all(
        events: &[&Event],
        cut: u64,
        allowance: Allowance,
        values: &mut Values,
    ) -> Vec<Op> {
        let clocks = Clocks::within(allowance);
        let began = |(_, event): &(usize, &&Event)| event.invoked.order <= cut;
        let numbered = events.iter().enumerate().filter(began);
        let new = |(index, event): (usize, &&Event)| Op::new(index, event, cut, clocks, values);
        numbered.filter_map(new).collect()
    }

    fn new(
        index: usize,
        event: &Event,
        cut: u64,
        clocks: Clocks,
        values: &mut Values,
    ) -> Option<Op> {
        let (wanted, action, fence) = match &event.call {
            Call::Get => (Wanted::Anything, Action::Read, Fence::NONE),
            Call::Put(write) => (Wanted::Anything, values.write(write), write.fence),
            Call::Insert(write) => (Wanted::Nothing, values.write(write), write.fence),
            Call::Swap { expected, write } => {
                (Wanted::Value(values.number(expected)), values.write(write), write.fence)
            }
            Call::Delete { expected, fence } => {
                (Wanted::Value(values.number(expected)), Action::Delete, *fence)
            }
        };
        let claim = match &event.answer {
            Answer::Unavailable => return None,
            _ if event.returned.order > cut => Claim::Unclear,
            Answer::Unknown => Claim::Unclear,
            Answer::Read(record) => Claim::Saw(record.as_ref().map(|seen| values.seen(seen))),
            Answer::Written(Outcome::Applied { expires_at }) => {
                Claim::Applied(expires_at.map(Timestamp::as_unix_millis))
            }
            Answer::Written(Outcome::Refused { current }) => {
                Claim::Saw(current.as_ref().map(|seen| values.seen(seen)))
            }
        };
        let unclear = matches!(claim, Claim::Unclear);
        if unclear && action == Action::Read {
            return None;
        }
        let point = |moment: super::Moment| (moment.order, moment.clock.as_unix_millis());
        let returned = if unclear { (u64::MAX, u64::MAX) } else { point(event.returned) };
        let invoked = point(event.invoked);
        Some(Op { event: index, wanted, action, fence: fence.0, claim, invoked, returned, clocks })
    }

    /// Whether the answer says nothing of the effect.
    pub(super) fn is_unclear(&self) -> bool {
        matches!(self.claim, Claim::Unclear)
    }

    /// Whether the answer says that nothing was changed.
    pub(super) fn changes_nothing(&self) -> bool {
        matches!(self.claim, Claim::Saw(_))
    }

    /// Whether this one, invoked later, could do nothing that `other` could not do in its place.
    ///
    /// Order and clock of an invocation are not taken in one step, so each is compared.
    pub(super) fn can_wait_for(&self, other: &Op) -> bool {
        let earlier = other.invoked.0 < self.invoked.0 && other.invoked.1 <= self.invoked.1;
        let same =
            (self.wanted, self.action, self.fence) == (other.wanted, other.action, other.fence);
        earlier && same
    }

    /// Whether the effect is the same whatever the register holds.
    fn is_blind_to(&self, held: Option<Held>) -> bool {
        let writes = matches!(self.action, Action::Write(..));
        writes && self.wanted == Wanted::Anything && held.is_none_or(|held| held.fence == 0)
    }

    fn takes_effect_on(&self, held: Option<Held>) -> bool {
        let found = match self.wanted {
            Wanted::Anything => true,
            Wanted::Nothing => held.is_none(),
            Wanted::Value(value) => held.is_some_and(|held| held.value == value),
        };
        let stamp = held.map_or(0, |held| held.fence);
        found && self.action != Action::Read && (self.fence == 0 || self.fence >= stamp)
    }

    /// The state after this operation in `view`, unless its answer rules that out.
    fn step(&self, view: View) -> Option<State> {
        let applies = self.takes_effect_on(view.held);
        match self.claim {
            Claim::Saw(seen) if !applies => view.showing(seen),
            Claim::Applied(expires_at) if applies => self.apply(view, Some(expires_at)),
            // An unclear operation that changes nothing may as well never happen.
            Claim::Unclear if applies => self.apply(view, None),
            Claim::Saw(_) | Claim::Applied(_) | Claim::Unclear => None,
        }
    }

    fn apply(&self, view: View, reported: Option<Option<u64>>) -> Option<State> {
        match self.action {
            Action::Read => None,
            Action::Delete => {
                let old = view.held?.expiry;
                let view = reported.map_or(Some(view), |at| old.agree(at, view));
                Some(State { now: view?.earliest, held: None })
            }
            Action::Write(value, life) => {
                let (expiry, now) = match reported {
                    Some(at) => view.reported_expiry(life, at)?,
                    None => (view.possible_expiry(life)?, view.earliest),
                };
                let fence = self.fence.max(view.held.map_or(0, |held| held.fence));
                let held = self.clocks.unless_past(Held { value, fence, expiry }, now);
                Some(State { now, held })
            }
        }
    }
}

impl State {
    /// The register before anything was written.
    pub(super) const START: State = State { now: 0, held: None };

    /// The states that may follow when `op` takes effect next.
    pub(super) fn after(self, op: &Op) -> impl Iterator<Item = State> {
        let [first, second] = self.views(op).map(|view| view.and_then(|view| op.step(view)));
        // The first happens earlier, so it can do whatever the second can, if it holds the same.
        let second = second.filter(|second| first.is_none_or(|first| first.held != second.held));
        first.into_iter().chain(second)
    }

    /// What `op` may find: the record still live, or gone.
    fn views(self, op: &Op) -> [Option<View>; 2] {
        let (called, clocks) = (op.invoked.1, op.clocks);
        let (earliest, latest) = (self.now.max(called), op.returned.1);
        let all = View { held: None, hidden: None, called, earliest, latest, clocks };
        let Some(held) = self.held.filter(|_| !op.is_blind_to(self.held)) else {
            return [all.if_possible(), None];
        };
        let live = View { held: Some(held), ..all };
        let (first, last) = match held.expiry {
            Expiry::Never => return [live.if_possible(), None],
            Expiry::At(expiry) => (expiry, expiry),
            Expiry::Within { first, last, .. } => (first, last),
        };
        [live.before_expiry(last), all.after_expiry(first, held)]
    }
}

impl Clocks {
    fn within(allowance: Allowance) -> Self {
        let skew = u64::try_from(allowance.skew.as_millis()).unwrap_or(u64::MAX);
        Self { skew, dated: allowance.dated_requests }
    }

    /// The record, unless it is past its expiry at `now` for whoever may still look at it.
    fn unless_past(self, held: Held, now: u64) -> Option<Held> {
        let live = match held.expiry {
            Expiry::Never => true,
            Expiry::At(last) | Expiry::Within { last, .. } => now < last.saturating_add(self.skew),
        };
        (live || self.dated).then_some(held)
    }

    /// The record as it stays behind an operation that took it for gone between these times.
    fn hide(self, held: Held, (earliest, latest): (u64, u64)) -> Option<Held> {
        if self.skew == 0 && !self.dated {
            return None;
        }
        let expiry = match held.expiry {
            Expiry::Within { first, last, lead } => {
                let last = last.min(latest.saturating_add(self.skew));
                Expiry::Within { first, last, lead: lead.min(self.skew) }
            }
            known @ (Expiry::Never | Expiry::At(_)) => known,
        };
        self.unless_past(Held { expiry, ..held }, earliest)
    }
}

impl View {
    fn if_possible(self) -> Option<View> {
        (self.earliest <= self.latest).then_some(self)
    }

    /// The part of it in which some clock shows a time before `expiry`.
    fn before_expiry(self, expiry: u64) -> Option<View> {
        let before = expiry.saturating_add(self.clocks.skew);
        if self.clocks.dated {
            return if self.called < before { self.if_possible() } else { None };
        }
        View { latest: self.latest.min(before.checked_sub(1)?), ..self }.if_possible()
    }

    /// The part of it in which some clock shows `expiry` or later, and `held` is gone for it.
    fn after_expiry(self, expiry: u64, held: Held) -> Option<View> {
        let earliest = self.earliest.max(expiry.saturating_sub(self.clocks.skew));
        let hidden = self.clocks.hide(held, (earliest, self.latest));
        View { earliest, hidden, ..self }.if_possible()
    }

    /// The state after an operation that changed nothing and was shown `seen`.
    fn showing(self, seen: Option<Seen>) -> Option<State> {
        match (self.held, seen) {
            (None, None) => Some(State { now: self.earliest, held: self.hidden }),
            (Some(held), Some(seen)) if (held.value, held.fence) == (seen.value, seen.fence) => {
                let view = held.expiry.agree(seen.expires_at, self)?;
                let expiry = seen.expires_at.map_or(Expiry::Never, Expiry::At);
                Some(State { now: view.earliest, held: Some(Held { expiry, ..held }) })
            }
            (None | Some(_), None | Some(_)) => None,
        }
    }

    /// The expiry that a write reported and the time of the write, if the life allows both.
    fn reported_expiry(self, life: Life, at: Option<u64>) -> Option<(Expiry, u64)> {
        let expiry = at.map_or(Expiry::Never, Expiry::At);
        let now = match life {
            Life::Permanent => at.is_none().then_some(self.earliest),
            Life::Until(instant) => (at == Some(instant.as_unix_millis())).then_some(self.earliest),
            Life::For(ttl) => {
                let counted = at?.checked_sub(ttl.as_millis())?;
                let skew = self.clocks.skew;
                let span = self.called.saturating_sub(skew)..=self.latest.saturating_add(skew);
                let earliest = self.earliest.max(counted.saturating_sub(skew));
                span.contains(&counted).then_some(earliest)
            }
            Life::Keep => self.held?.expiry.agree(at, self).map(|view| view.earliest),
        };
        Some((expiry, now?))
    }

    /// The expiry of a write that nobody confirmed.
    fn possible_expiry(self, life: Life) -> Option<Expiry> {
        Some(match life {
            Life::Permanent => Expiry::Never,
            Life::Until(instant) => Expiry::At(instant.as_unix_millis()),
            Life::For(ttl) => {
                let (ttl, skew) = (ttl.as_millis(), self.clocks.skew);
                let first = self.called.saturating_sub(skew) + ttl;
                let lead = ttl.saturating_add(skew);
                Expiry::Within { first, last: self.latest.saturating_add(lead), lead }
            }
            Life::Keep => self.held?.expiry,
        })
    }
}

impl Expiry {
    /// Narrows `view` to the times at which a live record of this expiry reads as `at`.
    fn agree(self, at: Option<u64>, view: View) -> Option<View> {
        match (self, at) {
            (Expiry::Never, None) => Some(view),
            (Expiry::At(expiry), Some(at)) if expiry == at => Some(view),
            (Expiry::Within { first, last, lead }, Some(at)) if (first..=last).contains(&at) => {
                let earliest = view.earliest.max(at.saturating_sub(lead));
                View { earliest, ..view }.before_expiry(at)
            }
            (Expiry::Never | Expiry::At(_) | Expiry::Within { .. }, None | Some(_)) => None,
        }
    }
}

/// Numbers for values, so that comparing and hashing states costs nothing.
#[derive(Debug, Default)]
pub(super) struct Values(HashMap<Vec<u8>, u32>);

impl Values {
    /// The value with this number, printable.
    pub(super) fn text(&self, number: u32) -> String {
        let found = self.0.iter().find(|(_, other)| **other == number);
        found.map_or_else(String::new, |(value, _)| value.escape_ascii().to_string())
    }

    fn number(&mut self, value: &[u8]) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(value.to_vec()).or_insert(next)
    }

    fn write(&mut self, write: &Write) -> Action {
        let Write { value, life, fence: _ } = write;
        Action::Write(self.number(value), *life)
    }

    fn seen(&mut self, record: &Record) -> Seen {
        let value: &Value = &record.value;
        let expires_at = record.expires_at.map(Timestamp::as_unix_millis);
        Seen { value: self.number(value), fence: record.fence.0, expires_at }
    }
}
