//! Transitions: what a call makes of the record, and what it is answered.
//!
//! Pure: time, the log and the keys are arguments, and nothing is written here. A call that is
//! refused, a retry and an empty read of a fresh lease change nothing, and [`Step::changed`] says so.
//!
//! The rule of tokens, for a slot whose epoch the token has:
//! - `seq`: acknowledges what is in flight and is answered with what comes next.
//! - `since` up to below `seq`: answered with what is in flight, again. Where that is nothing, the
//!   call goes on waiting, as its token has not been answered with anything yet.
//! - below `since`: out of order. Above `seq`: ahead, which no reader of ours can be.
//!
//! Invariant: what is in flight is acknowledged only by the token that was issued together with it.

use std::time::Duration;

use super::claim::{Claim, Supply};
use super::{MAX_READERS, Slot, Span, State, messages_in};
use crate::services::pull_stream::audit::{Action, AuditEntry, Verdict};
use crate::services::pull_stream::keys::TokenKeys;
use crate::services::pull_stream::log::{ROWS_PER_RANGE, range_of_row};
use crate::services::pull_stream::reader::{Client, Reader};
use crate::services::pull_stream::token::{self, Claims, TokenHash};
use crate::services::pull_stream::{Ispb, Refusal};
use crate::store::Timestamp;

/// How long things last, and how many readers there may be.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Rules {
    pub(in super::super) lease: Duration,
    pub(in super::super) token: Duration,
    pub(in super::super) max_readers: usize,
}

/// Whose tokens are issued, and by which keys.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Issuer<'a> {
    pub(in super::super) ispb: Ispb,
    pub(in super::super) region: &'a str,
    pub(in super::super) keys: &'a TokenKeys,
}

/// Everything that a transition depends on beside the record and the call.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Moment<'a> {
    pub(in super::super) now: Timestamp,
    pub(in super::super) rules: Rules,
    pub(in super::super) supply: &'a Supply,
    pub(in super::super) issuer: Issuer<'a>,
}

/// The token of a call, as far as the record is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Presented {
    pub(in super::super) thread: u8,
    pub(in super::super) epoch: u64,
    pub(in super::super) seq: u64,
    /// `None` for a start that goes on waiting, which has no token yet.
    pub(in super::super) hash: Option<TokenHash>,
}

/// What is asked of a stream.
#[derive(Debug, Clone)]
pub(in super::super) enum Call {
    /// Take a slot. The number is drawn for each start.
    Start { reader: Reader, opened_by: u64 },
    /// Acknowledge and go on.
    Next { reader: Reader, presented: Presented },
    /// Acknowledge and give the slot back.
    End { client: Client, presented: Presented },
}

/// What a call is answered once the record stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Answer {
    /// These messages, in the form of the slot. `is_unnoted` for a retry that changes nothing, of which
    /// the record does not tell the audit.
    Batch { held: Held, spans: Vec<Span>, is_unnoted: bool },
    /// None so far. Something may come at `look_at` at the latest, where a lease ends or the log was
    /// not read to its end, and the next row of it will be `head_row`.
    Empty { held: Held, look_at: Option<u64>, head_row: u64 },
    /// The slot is free.
    Ended,
    /// What was answered before holds, and its token was signed with a key that is not known here.
    Unsigned,
    /// Nothing was changed.
    Refused(Refusal),
}

/// What a reader holds after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Held {
    /// What goes on waiting with, and is answered with the same batch until it is acknowledged.
    pub(in super::super) presented: Presented,
    pub(in super::super) form: crate::services::pull_stream::Form,
    pub(in super::super) token: String,
    /// Unix milliseconds.
    pub(in super::super) lease_until: u64,
}

/// What a call comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Step {
    pub(in super::super) answer: Answer,
    /// Whether the record must be written before the answer is given.
    pub(in super::super) changed: bool,
}

impl Step {
    fn unchanged(answer: Answer) -> Self {
        Self { answer, changed: false }
    }

    fn changed(answer: Answer) -> Self {
        Self { answer, changed: true }
    }

    fn refused(refusal: Refusal) -> Self {
        Self::unchanged(Answer::Refused(refusal))
    }
}

impl State {
    /// How many messages a call would take if they are there. A retry takes none.
    pub(in super::super) fn wanted_by(&self, call: &Call) -> usize {
        let (reader, presented) = match call {
            Call::Start { reader, .. } => return reader.form.capacity(),
            Call::Next { reader, presented } => (reader, presented),
            Call::End { .. } => return 0,
        };
        let slot = self.slots.get(usize::from(presented.thread));
        let is_given = |slot: &Slot| presented.seq < slot.seq && !slot.in_flight.is_empty();
        match slot.filter(|slot| slot.epoch == presented.epoch) {
            Some(slot) if !is_given(slot) => reader.form.capacity(),
            Some(_) | None => 0,
        }
    }

    /// Carries out a call.
    pub(in super::super) fn apply(&mut self, call: &Call, at: &Moment<'_>) -> Step {
        match call {
            Call::Start { reader, opened_by } => self.start(reader, *opened_by, at),
            Call::Next { reader, presented } => match self.checked(presented, at) {
                Ok(own) => self.next(own, reader, presented, at),
                Err(refusal) => Step::refused(refusal),
            },
            Call::End { client, presented } => match self.checked(presented, at) {
                Ok(own) => self.end(own, client, presented, at),
                Err(Refusal::Expired) => Step::refused(Refusal::Gone),
                Err(refusal) => Step::refused(refusal),
            },
        }
    }

    fn start(&mut self, reader: &Reader, opened_by: u64, at: &Moment<'_>) -> Step {
        let is_own = |slot: &Slot| slot.opened_by == opened_by && slot.is_live(at.now);
        if let Some(own) = self.slots.iter().position(is_own) {
            // The start was written before, and its answer was lost.
            let (thread, epoch) = (own as u8, self.slots[own].epoch);
            let presented = Presented { thread, epoch, seq: 0, hash: None };
            return self.next(own, reader, &presented, at);
        }
        let Some(own) = self.free_slot(at) else {
            let retry_after = self.next_free(at.now);
            return Step::refused(Refusal::TooManyReaders { retry_after });
        };
        while self.slots.len() <= own {
            self.slots.push(Slot::default());
        }
        self.release(own, at);
        let slot = &mut self.slots[own];
        let epoch = slot.epoch + 1;
        *slot = Slot { epoch, client: reader.client.clone(), opened_by, ..Slot::default() };
        let claim = self.claim(own, reader.form.capacity(), at);
        let spans = self.settle(claim, at);
        let presented = Presented { thread: own as u8, epoch, seq: 0, hash: None };
        let token = self.issue(own, spans, reader, at);
        let (action, verdict, client) = (Action::Start, self.verdict(own), &reader.client);
        self.note(own, Use { action, verdict, client, presented: &presented }, at);
        Step::changed(self.answer(own, presented, token, at))
    }

    fn next(
        &mut self,
        own: usize,
        reader: &Reader,
        presented: &Presented,
        at: &Moment<'_>,
    ) -> Step {
        let slot = &self.slots[own];
        let acknowledges = presented.seq == slot.seq;
        if !acknowledges && !slot.in_flight.is_empty() {
            return self.replay(own, reader, presented, at);
        }
        let claim = self.claim(own, reader.form.capacity(), at);
        // Rows that are gone are not looked for again by whoever comes next.
        let has_passed = claim.head.row >= self.head.row + ROWS_PER_RANGE
            || claim.requeued != self.requeued
            || !claim.ended.is_empty();
        let has_news = has_passed || !claim.spans.is_empty() || !slot.in_flight.is_empty();
        if !has_news && !self.is_fading(own, at) {
            let mut answer = self.answer(own, *presented, self.token(own, at), at);
            if let Answer::Empty { head_row, .. } = &mut answer {
                // Rows that are gone lie before it, and nothing will come there.
                *head_row = claim.head.row;
            }
            return Step::unchanged(answer);
        }
        let spans = self.settle(claim, at);
        if acknowledges {
            self.slots[own].since = presented.seq;
        }
        let token = self.issue(own, spans, reader, at);
        let (action, verdict, client) = (Action::Next, self.verdict(own), &reader.client);
        self.note(own, Use { action, verdict, client, presented }, at);
        Step::changed(self.answer(own, *presented, token, at))
    }

    /// The same again. The lease is prolonged once less than half of it is left.
    fn replay(
        &mut self,
        own: usize,
        reader: &Reader,
        presented: &Presented,
        at: &Moment<'_>,
    ) -> Step {
        let slot = &self.slots[own];
        let knows_key = at.issuer.keys.by_kid(&slot.kid).is_some();
        if !knows_key && at.now.as_unix_millis() < slot.expires_at {
            // The reader may hold that token, and no other one may stand for it.
            return Step::unchanged(Answer::Unsigned);
        }
        let is_fading = self.is_fading(own, at);
        let token = if knows_key { self.token(own, at) } else { self.sign(own, at) };
        if is_fading {
            self.slots[own].lease_until = later(at.now, at.rules.lease);
            let (action, verdict, client) = (Action::Next, Verdict::Replayed, &reader.client);
            self.note(own, Use { action, verdict, client, presented }, at);
        }
        let mut answer = self.answer(own, *presented, token, at);
        if let Answer::Batch { is_unnoted, .. } = &mut answer {
            *is_unnoted = !is_fading;
        }
        Step { answer, changed: is_fading }
    }

    fn end(&mut self, own: usize, client: &Client, presented: &Presented, at: &Moment<'_>) -> Step {
        if presented.seq == self.slots[own].seq {
            // What was not acknowledged is requeued: a token before the last one acknowledges nothing.
            self.slots[own].in_flight.clear();
        }
        self.requeue(own);
        let slot = &mut self.slots[own];
        *slot = Slot { epoch: slot.epoch + 1, ..Slot::default() };
        self.audit.entries.push(AuditEntry {
            at: at.now.as_unix_millis(),
            who: client.clone(),
            action: Action::End,
            verdict: Verdict::Done,
            thread: Some(presented.thread),
            messages: 0,
            unnoted: 0,
            reason: None,
            used: presented.hash,
            issued: None,
        });
        Step::changed(Answer::Ended)
    }

    /// Whether an end with this token was carried out, and is still on its way to the audit.
    pub(in super::super) fn tells_of_end(&self, presented: &Presented) -> bool {
        let is_it = |entry: &AuditEntry| {
            entry.action == Action::End
                && entry.thread == Some(presented.thread)
                && entry.used.is_some()
                && entry.used == presented.hash
        };
        self.audit.entries.iter().any(is_it)
    }

    /// The slot of a token, if the token may still use it.
    fn checked(&self, presented: &Presented, at: &Moment<'_>) -> Result<usize, Refusal> {
        let own = usize::from(presented.thread);
        let slot = self.slots.get(own).ok_or(Refusal::Expired)?;
        if slot.epoch != presented.epoch || slot.seq == 0 {
            return Err(Refusal::Expired);
        }
        if presented.seq > slot.seq {
            return Err(Refusal::Ahead);
        }
        if presented.seq < slot.since {
            return Err(Refusal::OutOfOrder);
        }
        let is_last = presented.seq == slot.seq;
        let is_issued = presented.hash.zip(slot.token_hash).is_some_and(|(a, b)| a.is(&b));
        if is_last && !is_issued {
            return Err(Refusal::Tampered);
        }
        // A lease that ended may be taken up again, unless others have taken all there are.
        if !slot.is_live(at.now) && self.live_readers(at.now) >= at.rules.max_readers {
            return Err(Refusal::Expired);
        }
        Ok(own)
    }

    /// A slot that is free, or else the one whose reader has been gone for longest.
    fn free_slot(&self, at: &Moment<'_>) -> Option<usize> {
        if self.live_readers(at.now) >= at.rules.max_readers.min(MAX_READERS) {
            return None;
        }
        let rests = |own: &usize| self.slots.get(*own).is_none_or(|slot| !slot.is_live(at.now));
        let since = |own: &usize| self.slots.get(*own).map_or(0, |slot| slot.lease_until);
        (0..MAX_READERS).filter(rests).min_by_key(since)
    }

    fn next_free(&self, now: Timestamp) -> Duration {
        let live = self.slots.iter().filter(|slot| slot.is_live(now));
        let first = live.map(|slot| slot.lease_until).min().unwrap_or_default();
        now.until(Timestamp::from_unix_millis(first))
    }

    /// Ends what is left of a reader that has gone.
    fn release(&mut self, own: usize, at: &Moment<'_>) {
        let slot = &self.slots[own];
        if slot.seq == 0 {
            return;
        }
        self.audit.entries.push(AuditEntry {
            at: at.now.as_unix_millis(),
            who: slot.client.clone(),
            action: Action::Expire,
            verdict: Verdict::Done,
            thread: Some(own as u8),
            messages: messages_in(&slot.in_flight) as u64,
            unnoted: 0,
            reason: None,
            used: slot.token_hash,
            issued: None,
        });
        self.requeue(own);
        let slot = &mut self.slots[own];
        *slot = Slot { epoch: slot.epoch + 1, ..Slot::default() };
    }

    fn requeue(&mut self, own: usize) {
        let spans = std::mem::take(&mut self.slots[own].in_flight);
        self.requeued.splice(0..0, spans);
    }

    /// Makes a claim true: what it took is the caller's.
    fn settle(&mut self, claim: Claim, at: &Moment<'_>) -> Vec<Span> {
        for ended in claim.ended {
            self.release(ended, at);
        }
        self.requeued = claim.requeued;
        self.head = claim.head;
        self.tail_hint = self.tail_hint.max(at.supply.end);
        claim.spans
    }

    /// Puts the messages in flight and issues the token that will acknowledge them.
    fn issue(&mut self, own: usize, spans: Vec<Span>, reader: &Reader, at: &Moment<'_>) -> String {
        let slot = &mut self.slots[own];
        slot.in_flight = spans;
        slot.form = reader.form;
        slot.client = reader.client.clone();
        slot.seq += 1;
        slot.lease_until = later(at.now, at.rules.lease);
        self.sign(own, at)
    }

    /// Signs the last token of a slot anew.
    fn sign(&mut self, own: usize, at: &Moment<'_>) -> String {
        let slot = &mut self.slots[own];
        slot.issued_at = at.now.as_unix_millis();
        slot.expires_at = later(at.now, at.rules.token);
        slot.kid = at.issuer.keys.current().kid().to_owned();
        let token = self.token(own, at);
        self.slots[own].token_hash = Some(TokenHash::of(&token));
        token
    }

    /// The last token of a slot, the same each time.
    fn token(&self, own: usize, at: &Moment<'_>) -> String {
        let slot = &self.slots[own];
        let first = slot.in_flight.first();
        let row = first.map_or(0, |span| span.row);
        let claims = Claims {
            ispb: at.issuer.ispb,
            thread: own as u8,
            cursor_seq: slot.seq,
            cursor_offset: first
                .map_or_else(|| "-".into(), |span| format!("{}.{}", span.row, span.index)),
            shard: format!("{}:{}", at.issuer.region, range_of_row(row)),
            epoch: slot.epoch,
            exp: slot.expires_at.div_ceil(1_000),
            issued_at: slot.issued_at / 1_000,
        };
        let key = at.issuer.keys.by_kid(&slot.kid).unwrap_or(at.issuer.keys.current());
        token::issue(key, &claims)
    }

    /// Whether less than half of the lease is left, or the key of the last token is gone.
    fn is_fading(&self, own: usize, at: &Moment<'_>) -> bool {
        let slot = &self.slots[own];
        let left = at.now.until(Timestamp::from_unix_millis(slot.lease_until));
        left < at.rules.lease / 2 || at.issuer.keys.by_kid(&slot.kid).is_none()
    }

    fn answer(&self, own: usize, presented: Presented, token: String, at: &Moment<'_>) -> Answer {
        let slot = &self.slots[own];
        let held = Held { presented, form: slot.form, token, lease_until: slot.lease_until };
        if !slot.in_flight.is_empty() {
            return Answer::Batch { held, spans: slot.in_flight.clone(), is_unnoted: false };
        }
        let others = self.slots.iter().enumerate().filter(|(index, _)| *index != own);
        let is_busy = |slot: &Slot| !slot.in_flight.is_empty() && slot.is_live(at.now);
        let busy = others.filter(|(_, slot)| is_busy(slot));
        let at_once = at.supply.is_cut.then(|| at.now.as_unix_millis());
        let look_at = busy.map(|(_, slot)| slot.lease_until).chain(at_once).min();
        Answer::Empty { held, look_at, head_row: self.head.row }
    }

    fn verdict(&self, own: usize) -> Verdict {
        if self.slots[own].in_flight.is_empty() { Verdict::Empty } else { Verdict::Delivered }
    }

    /// Lets an entry ride along: a token was used, and another one issued.
    fn note(&mut self, own: usize, used: Use<'_>, at: &Moment<'_>) {
        let slot = &self.slots[own];
        self.audit.entries.push(AuditEntry {
            at: at.now.as_unix_millis(),
            who: used.client.clone(),
            action: used.action,
            verdict: used.verdict,
            thread: Some(used.presented.thread),
            messages: messages_in(&slot.in_flight) as u64,
            unnoted: 0,
            reason: None,
            used: used.presented.hash,
            issued: slot.token_hash,
        });
    }
}

/// The use of a token, for the audit.
#[derive(Debug, Clone, Copy)]
struct Use<'a> {
    action: Action,
    verdict: Verdict,
    client: &'a Client,
    presented: &'a Presented,
}

fn later(now: Timestamp, by: Duration) -> u64 {
    now.as_unix_millis().saturating_add(by.as_millis() as u64)
}
