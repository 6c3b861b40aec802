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
//! A row that cannot be read is held like others, as whoever asked for the hold may have the means to
//! mend it. The hold counts it, and the audit is told.
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
    /// [`PullStream::holds`]. The audit is told before anything is written: no hold is without its
    /// entry.
    pub async fn hold(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        reason: &str,
        who: &Client,
    ) -> Result<Hold, PullStreamError> {
        let (id, clock) = (HoldId::draw(ispb, &*self.core.clock), &*self.core.clock);
        let (from, to) = (times.start.as_unix_millis(), times.end.as_unix_millis());
        let asked = (Action::Hold, who, format!("{id}, {from}..{to}: {}", shortened(reason)));
        let checked = self.check_hold(ispb, &times, reason).await;
        self.noting(ispb, &asked, checked).await?;
        let hold = Hold {
            id,
            from,
            to,
            reason: reason.to_owned(),
            who: who.clone(),
            placed_at: clock.now().as_unix_millis(),
            rows: 0,
            damaged: 0,
            first_damaged: None,
            next_row: 0,
            released_at: None,
            state: HoldState::Placing,
        };
        let begun = Standing::begin(&self.core.store, self.core.place(ispb), hold).await;
        let placed = match begun {
            Ok(standing) => placing::place(&self.core, standing).await,
            Err(error) => Err(error),
        };
        if let Ok(hold) = &placed {
            self.tell_damaged(hold, 0).await;
        }
        self.noting_failure(ispb, &asked, placed).await
    }

    /// Tells the audit of rows under a hold that cannot be read, if there are more than were known.
    async fn tell_damaged(&self, hold: &Hold, known: u64) {
        let Some(first) = hold.first_damaged.filter(|_| hold.damaged > known) else { return };
        let entry = self.entry(Action::Hold, Verdict::Damaged, &hold.who, None);
        let (id, count) = (&hold.id, hold.damaged);
        let about = format!("{id}: {count} rows cannot be read and are held, the first is {first}");
        self.remark_or_count(id.ispb(), AuditEntry { reason: Some(about), ..entry }).await;
    }

    async fn check_hold(
        &self,
        ispb: Ispb,
        times: &Range<Timestamp>,
        reason: &str,
    ) -> Result<(), PullStreamError> {
        checked(times, reason)?;
        if holds_in(&self.core.store, self.core.place(ispb)).await?.len() >= MOST_HOLDS {
            let reason = format!("it is under {MOST_HOLDS} holds; release some first");
            return Err(PullStreamError::Invalid { field: "ispb", reason });
        }
        Ok(())
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
        let ispb = id.ispb();
        let asked = (Action::Release, who, id.to_string());
        let found = self.noting(ispb, &asked, self.standing_hold(id).await).await?;
        self.noting_failure(ispb, &asked, placing::release(&self.core, found).await).await
    }

    async fn standing_hold(&self, id: &HoldId) -> Result<Standing, PullStreamError> {
        let place = self.core.place(id.ispb());
        let found = Standing::of(&self.core.store, place, id).await?;
        let found = found.filter(|standing| standing.hold.state != HoldState::Released);
        found.ok_or(PullStreamError::Absent { what: "there is no such hold" })
    }

    /// Goes on with every hold that is not settled: those that somebody began to place or to
    /// release, and those that reach into the future. Says how many there were, or what was wrong
    /// with the first one that could not be gone on with, after all others.
    pub async fn keep_holds(&self) -> Result<usize, PullStreamError> {
        let (mut open, mut wrong) = (0, None);
        for standing in all_of(&self.core.store, &self.core.settings.home).await? {
            let kept = match standing {
                Ok(standing) => self.keep_hold(standing).await,
                Err(error) => Err(error.into()),
            };
            match kept {
                Ok(is_open) => open += usize::from(is_open),
                // Somebody has released it meanwhile.
                Err(PullStreamError::Absent { .. }) => {}
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(open), Err)
    }

    /// Whether it was not settled.
    async fn keep_hold(&self, standing: Standing) -> Result<bool, PullStreamError> {
        match standing.hold.state {
            HoldState::Placed => return Ok(false),
            HoldState::Placing => {
                let known = standing.hold.damaged;
                self.tell_damaged(&placing::place(&self.core, standing).await?, known).await;
            }
            HoldState::Releasing => placing::release(&self.core, standing).await?,
            HoldState::Released => placing::forget(&self.core, standing).await?,
        }
        Ok(true)
    }

    /// Tells the audit what is about to be done, or why it is not.
    async fn noting<T>(
        &self,
        ispb: Ispb,
        (action, who, about): &(Action, &Client, String),
        asked: Result<T, PullStreamError>,
    ) -> Result<T, PullStreamError> {
        let verdict = asked.as_ref().err().map_or(Verdict::Done, PullStreamError::verdict);
        let entry = self.entry(*action, verdict, who, None);
        let noted = self.remark(ispb, AuditEntry { reason: Some(about.clone()), ..entry }).await;
        let asked = asked?;
        noted?;
        Ok(asked)
    }

    /// Tells the audit that what it was told of has failed, and may yet be completed.
    async fn noting_failure<T>(
        &self,
        ispb: Ispb,
        (action, who, about): &(Action, &Client, String),
        done: Result<T, PullStreamError>,
    ) -> Result<T, PullStreamError> {
        if done.is_err() {
            let entry = self.entry(*action, Verdict::Failed, who, None);
            let entry = AuditEntry { reason: Some(about.clone()), ..entry };
            self.remark_or_count(ispb, entry).await;
        }
        done
    }
}

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
