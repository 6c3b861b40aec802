//! Claims: which messages a reader is given next, without giving them yet.
//!
//! First what was requeued, then what follows `head`, across rows. Where there is nothing, a slot
//! whose lease has ended is ended too, and what it had is claimed; one whose lease ended longer ago
//! than a lease lasts is ended first, so that a busy stream does not starve what was abandoned. Rows
//! that retention has removed are passed over.
//!
//! Invariant: a claim only moves messages. What it takes, what it leaves requeued and what lies
//! beyond its head are together what was there before, but for rows that are gone.

use std::collections::{BTreeMap, BTreeSet};

use super::transitions::Moment;
use super::{Position, Slot, Span, State, messages_in};

/// What is known of the log: of each row that was looked for, how many messages it has.
///
/// A row from `head` up to below `end` that is not here is gone. So is one in `gone`; of any other
/// row before `head` nothing is known, and what was requeued from it stays requeued.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Supply {
    pub(in super::super) rows: BTreeMap<u64, u8>,
    pub(in super::super) gone: BTreeSet<u64>,
    /// The first row from `head` on that nothing is known of.
    pub(in super::super) end: u64,
    /// Whether the log goes on from there: so many rows before were gone that no more were read.
    pub(in super::super) is_cut: bool,
}

/// What a claim would take and leave.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) spans: Vec<Span>,
    pub(super) head: Position,
    pub(super) requeued: Vec<Span>,
    /// Slots that are ended for it.
    pub(super) ended: Vec<usize>,
}

impl State {
    /// Up to `most` messages for the slot `own`; `spans` is empty where there are none.
    pub(super) fn claim(&self, own: usize, most: usize, at: &Moment<'_>) -> Claim {
        let (requeued, head) = (self.requeued.clone(), self.head);
        let mut claim = Claim { spans: Vec::new(), head, requeued, ended: Vec::new() };
        let now = at.now.as_unix_millis();
        let lease = at.rules.lease.as_millis() as u64;
        // Longer gone than a lease lasts: it does not wait until there is nothing else.
        for index in self.abandoned(own, now.saturating_sub(lease)) {
            claim.end(index, &self.slots[index]);
        }
        claim.take_requeued(most, at.supply);
        claim.take_from_head(most, at.supply);
        for index in self.abandoned(own, now) {
            if claim.spans.is_empty() && !claim.ended.contains(&index) {
                claim.end(index, &self.slots[index]);
                claim.take_requeued(most, at.supply);
            }
        }
        claim
    }

    /// Slots of others that have messages in flight, and whose lease had ended by then.
    fn abandoned(&self, own: usize, by: u64) -> impl Iterator<Item = usize> {
        let slots = self.slots.iter().enumerate();
        let is_abandoned = move |slot: &Slot| slot.lease_until <= by && !slot.in_flight.is_empty();
        slots
            .filter(move |(index, slot)| *index != own && is_abandoned(slot))
            .map(|(index, _)| index)
    }
}

impl Claim {
    fn room(&self, most: usize) -> u8 {
        // At most ten.
        most.saturating_sub(messages_in(&self.spans)) as u8
    }

    fn end(&mut self, index: usize, slot: &Slot) {
        self.ended.push(index);
        self.requeued.splice(0..0, slot.in_flight.iter().copied());
    }

    fn push(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(last) if last.row == span.row && last.index + last.count == span.index => {
                last.count += span.count;
            }
            Some(_) | None => self.spans.push(span),
        }
    }

    fn take_requeued(&mut self, most: usize, supply: &Supply) {
        let mut left = Vec::new();
        for mut span in std::mem::take(&mut self.requeued) {
            if supply.gone.contains(&span.row) {
                continue;
            }
            let is_known = supply.rows.contains_key(&span.row);
            let count = if is_known { span.count.min(self.room(most)) } else { 0 };
            if count > 0 {
                self.push(Span { count, ..span });
                span.index += count;
                span.count -= count;
            }
            if span.count > 0 {
                left.push(span);
            }
        }
        self.requeued = left;
    }

    fn take_from_head(&mut self, most: usize, supply: &Supply) {
        while self.head.row < supply.end && self.room(most) > 0 {
            let in_row = supply.rows.get(&self.head.row).copied().unwrap_or(0);
            let count = in_row.saturating_sub(self.head.index).min(self.room(most));
            if count > 0 {
                self.push(Span { row: self.head.row, index: self.head.index, count });
                self.head.index += count;
            }
            if self.head.index >= in_row {
                self.head = Position { row: self.head.row + 1, index: 0 };
            }
        }
    }
}
