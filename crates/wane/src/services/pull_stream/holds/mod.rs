//! Legal holds: messages that stay, whatever their retention says, until the hold is released.
//!
//! A hold names an institution and a time; every row of the log that came in then is rewritten
//! without an expiry, the same bytes. What it would have lived for is kept beside it, in a mark that
//! also names the holds that the row is under: several may overlap, and the row has its old end back
//! when the last of them is released.
//!
//! Invariants:
//! - **A row under a hold has no expiry**, from when the hold counts it on, on every backend.
//! - **Marks decide.** Placing and releasing first change the mark, each time with a higher version,
//!   and then the row, with that version as its fence. So of two operators who place and release at
//!   once, the row ends up as the later mark says, however late a write arrives.
//! - **Nothing is half done for good.** The hold's own record is written first and removed last, and
//!   says how far it is; [`PullStream::keep_holds`] takes up what somebody left.
//!
//! A hold may reach into the future: `keep_holds`, called every few seconds, puts what comes in
//! under it. Rows that come in with a retention shorter than that may go before.
//!
//! Flow: `hold` is the record, `mark` the mark of one row, `placing` walks over rows and changes both.

mod hold;
mod mark;
mod placing;

pub use hold::{Hold, HoldId, HoldState};

use std::ops::Range;

use self::hold::{MAX_REASON, Standing, all_of, holds_in};
use super::audit::{Action, AuditEntry, Verdict};
use super::reader::Client;
use super::{Ispb, PullStream, PullStreamError};
use crate::store::{Key, Outcome, Record, Store, StoreError, Timestamp};

/// Holds that an institution may be under at a time.
const MOST_HOLDS: usize = 1_000;

impl<S: Store> PullStream<S> {
    /// Puts the messages that came in between two moments under a hold, and says how many rows of
    /// the log that are so far.
    ///
    /// After an error the hold may stand, and [`PullStream::keep_holds`] completes it: see
    /// [`PullStream::holds`].
    pub async fn hold(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        reason: &str,
        who: &Client,
    ) -> Result<Hold, PullStreamError> {
        let held = self.hold_unnoted(ispb, times, reason, who).await;
        let (verdict, rows) = match &held {
            Ok(hold) => (Verdict::Done, hold.rows),
            Err(PullStreamError::Invalid { .. }) => (Verdict::Invalid, 0),
            Err(_) => (Verdict::Failed, 0),
        };
        let entry = self.entry(Action::Hold, verdict, who, None);
        let reason = Some(shortened(reason));
        self.told(ispb, AuditEntry { reason, messages: rows, ..entry }, held).await
    }

    async fn hold_unnoted(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        reason: &str,
        who: &Client,
    ) -> Result<Hold, PullStreamError> {
        checked(&times, reason)?;
        if holds_in(&self.core.store, self.core.place(ispb)).await?.len() >= MOST_HOLDS {
            let reason = format!("it is under {MOST_HOLDS} holds; release some first");
            return Err(PullStreamError::Invalid { field: "ispb", reason });
        }
        let clock = &*self.core.clock;
        let hold = Hold {
            id: HoldId::draw(ispb, clock),
            from: times.start.as_unix_millis(),
            to: times.end.as_unix_millis(),
            reason: reason.to_owned(),
            who: who.clone(),
            placed_at: clock.now().as_unix_millis(),
            rows: 0,
            next_row: 0,
            state: HoldState::Placing,
        };
        let standing = Standing::begin(&self.core.store, self.core.place(ispb), hold).await?;
        placing::place(&self.core, standing).await
    }

    /// The holds that an institution is under, in no order that means anything.
    pub async fn holds(&self, ispb: Ispb) -> Result<Vec<Hold>, PullStreamError> {
        let holds = holds_in(&self.core.store, self.core.place(ispb)).await?;
        Ok(holds.into_iter().map(|standing| standing.hold).collect())
    }

    /// Ends a hold. Its messages have what is left of their retention again, unless they are under
    /// another hold; those that would have gone by now are gone.
    ///
    /// [`PullStreamError::Absent`] where there is no such hold.
    pub async fn release(&self, id: &HoldId, who: &Client) -> Result<(), PullStreamError> {
        let released = self.release_unnoted(id).await;
        let verdict = match &released {
            Ok(()) => Verdict::Done,
            Err(PullStreamError::Absent { .. }) => Verdict::Absent,
            Err(_) => Verdict::Failed,
        };
        let entry = self.entry(Action::Release, verdict, who, None);
        let reason = Some(format!("hold {id}"));
        self.told(id.ispb(), AuditEntry { reason, ..entry }, released).await
    }

    async fn release_unnoted(&self, id: &HoldId) -> Result<(), PullStreamError> {
        let place = self.core.place(id.ispb());
        let found = Standing::of(&self.core.store, place, id).await?;
        let standing = found.ok_or(PullStreamError::Absent { what: "there is no such hold" })?;
        placing::release(&self.core, standing).await
    }

    /// Goes on with every hold that is not settled: those that somebody began to place or to
    /// release, and those that reach into the future. Says how many there were.
    pub async fn keep_holds(&self) -> Result<usize, PullStreamError> {
        let mut open = 0;
        for standing in all_of(&self.core.store, &self.core.settings.home).await? {
            match standing.hold.state {
                HoldState::Placed => {}
                HoldState::Placing => {
                    open += 1;
                    placing::place(&self.core, standing).await?;
                }
                HoldState::Releasing => {
                    open += 1;
                    placing::release(&self.core, standing).await?;
                }
            }
        }
        Ok(open)
    }

    /// Tells the audit, and answers as if that were a part of the call.
    async fn told<T>(
        &self,
        ispb: Ispb,
        entry: AuditEntry,
        done: Result<T, PullStreamError>,
    ) -> Result<T, PullStreamError> {
        let noted = self.remark(ispb, entry).await;
        let done = done?;
        noted.map_err(|error| {
            let source = format!("it was done, and the audit does not tell of it: {error}");
            StoreError::Unknown { backend: "audit", source: source.into() }
        })?;
        Ok(done)
    }
}

/// Says what is wrong with a time or a reason that an operator gave.
pub(super) fn checked(times: &Range<Timestamp>, reason: &str) -> Result<(), PullStreamError> {
    let invalid = |field, reason: String| Err(PullStreamError::Invalid { field, reason });
    if times.is_empty() {
        return invalid("to", "give a moment after `from`, in Unix milliseconds".into());
    }
    let is_legal = !reason.trim().is_empty() && reason.len() <= MAX_REASON;
    if !is_legal || reason.chars().any(char::is_control) {
        return invalid(
            "reason",
            format!("say why, in 1 to {MAX_REASON} bytes without control characters"),
        );
    }
    Ok(())
}

/// A reason of a length that the audit takes, whatever was sent.
pub(super) fn shortened(reason: &str) -> String {
    let plain: String = reason.chars().filter(|c| !c.is_control()).collect();
    let end = (0..=MAX_REASON.min(plain.len())).rev().find(|at| plain.is_char_boundary(*at));
    plain[..end.unwrap_or_default()].to_owned()
}

/// What an unclear write came to: read again.
async fn settled<S: Store>(
    store: &S,
    key: &Key,
    outcome: Result<Outcome, StoreError>,
    wanted: impl Fn(Option<&Record>) -> bool,
) -> Result<bool, StoreError> {
    match outcome {
        Ok(outcome) => Ok(outcome.is_applied()),
        Err(unknown @ StoreError::Unknown { .. }) => match store.get(key).await {
            Ok(record) if wanted(record.as_ref()) => Ok(true),
            Ok(_) | Err(_) => Err(unknown),
        },
        Err(error) => Err(error),
    }
}
