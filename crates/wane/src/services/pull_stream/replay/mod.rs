//! Compliance replays: what came in between two moments, read once more, and nothing else touched.
//!
//! An operator asks for a replay and says why. The institution reads it in batches, like its stream,
//! with tokens of their own kind. Everything about a replay is one record in a partition of its own,
//! advanced by conditional writes; it lives as long as the replay does.
//!
//! ```text
//! replay(times, reason) -> token 1        replay_next(1) -> batch, token 2
//!   record: times, position, tokens       replay_next(1) -> the same again, until token 2 is used
//!                                         replay_next(2) -> nothing, and token 2: the end
//! ```
//!
//! Invariants:
//! - **Production is not touched.** No slot, lease, head or requeued message is read here, let
//!   alone written.
//! - **Each message once, in order**, under the id and with the bytes that it has in the stream, and
//!   of what was in the log when the replay was asked for. What retention takes in the meantime is
//!   left out, unless the archive has it.
//! - **A row that cannot be read and is not archived is not passed over.** The replay ends before it
//!   with [`StoreError::Corrupt`]; another one begins behind it.
//! - **One reader.** Of two calls with one token one goes on, and both get the same answer.
//! - **A retry gets the same bytes**, or [`PullStreamError::Absent`] where retention has taken them
//!   since: never others. The reader can go on with the token it was given, if it has it.
//! - **Nothing is delivered that the audit does not tell of.**
//! - **Where the stream is.** Another region than the one that serves the institution answers
//!   [`PullStreamError::Elsewhere`].
//!
//! Flow: `gathering` finds messages in the log and, by `restored`, in the archive; `record` says what
//! a token asks for and what comes of it.

mod gathering;
mod record;
mod restored;
#[cfg(test)]
mod tests;

pub(super) use restored::Restored;

use std::ops::Range;
use std::sync::atomic::Ordering;

use self::gathering::{Gathered, Sources};
use self::record::{Asked, Named, Portion, Replay, ReplayClaims, ReplayId};
use super::audit::{Action, AuditEntry, Verdict};
use super::body::Delivery;
use super::holds::{checked, shortened};
use super::log::{self, Span as TimeSpan};
use super::reader::{Client, Reader};
use super::record::Position;
use super::token::{self, TokenHash};
use super::{Ispb, PullStream, PullStreamError, Pulled, pulling};
use crate::store::{Key, Outcome, Record, Store, StoreError, Timestamp};

/// How often a record is written again that may stand already, or that others keep changing.
const ATTEMPTS: usize = 8;

/// A replay that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayStarted {
    /// What its first batch is asked for with.
    pub token: String,
    /// Until when it can be read.
    pub expires_at: Timestamp,
}

/// An answer to a reader, and what the audit is to tell of it.
struct Answered {
    pulled: Pulled,
    verdict: Verdict,
    issued: Option<TokenHash>,
}

/// A replay that was made, and what the audit is to tell of it.
struct Made {
    started: ReplayStarted,
    issued: Option<TokenHash>,
    rows: Range<u64>,
    /// Rows near it that cannot be read, and are taken for rows of another time.
    passed: Vec<u64>,
}

impl<S: Store> PullStream<S> {
    /// Makes what came in between two moments readable once more, by one reader.
    ///
    /// [`PullStreamError::Absent`] where nothing did, [`PullStreamError::Invalid`] where the first
    /// moment is not before the second one or no reason is given. Each is in the audit, with the
    /// reason. [`StoreError::Unknown`] of `audit` where the audit could not be told: nobody has the
    /// token then, and the replay ends by itself.
    pub async fn replay(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        reason: &str,
        who: &Client,
    ) -> Result<ReplayStarted, PullStreamError> {
        let made = match checked(&times, reason) {
            Ok(()) => self.made(ispb, &times).await,
            Err(error) => Err(error),
        };
        let verdict = made.as_ref().map_or_else(verdict_of, |_| Some(Verdict::Done));
        let Some(verdict) = verdict else { return made.map(|made| made.started) };
        let entry = AuditEntry {
            reason: Some(told(reason, &times, &made)),
            issued: made.as_ref().ok().and_then(|made| made.issued),
            ..self.entry(Action::Replay, verdict, who, None)
        };
        match (self.remark(ispb, entry).await, made) {
            (Ok(()), made) => made.map(|made| made.started),
            (Err(error), Ok(_)) => {
                let source = format!("the audit could not be told of the replay: {error}");
                Err(StoreError::Unknown { backend: "audit", source: source.into() }.into())
            }
            (Err(_), Err(refused)) => {
                self.core.remarks_lost.fetch_add(1, Ordering::Relaxed);
                Err(refused)
            }
        }
    }

    /// Delivers what comes next of a replay. Without a batch it has ended, and the same token is
    /// given again. The same token again is answered the same, until the next one is used.
    pub async fn replay_next(
        &self,
        ispb: Ispb,
        token: &str,
        reader: &Reader,
    ) -> Result<Pulled, PullStreamError> {
        let used = TokenHash::of(token);
        let entry = |verdict| self.entry(Action::Replay, verdict, &reader.client, Some(used));
        match self.replayed(ispb, token, used, reader).await {
            Ok(Answered { pulled, verdict, issued }) => {
                let messages = pulled.batch.as_ref().map_or(0, |batch| batch.messages().len());
                let messages = messages as u64;
                self.remark(ispb, AuditEntry { messages, issued, ..entry(verdict) }).await?;
                Ok(pulled)
            }
            Err(error) => {
                if let Some(verdict) = verdict_of(&error) {
                    let reason = if let PullStreamError::Store(StoreError::Corrupt {
                        reason, ..
                    }) = &error
                    {
                        Some(reason.clone())
                    } else {
                        None
                    };
                    self.remark_or_count(ispb, AuditEntry { reason, ..entry(verdict) }).await;
                }
                Err(error)
            }
        }
    }

    /// Finds where a replay begins, and writes its record.
    async fn made(&self, ispb: Ispb, times: &Range<Timestamp>) -> Result<Made, PullStreamError> {
        let core = &*self.core;
        core.check_owner(ispb).await?;
        let place = core.place(ispb);
        let end = log::log_end(&core.store, place).await?;
        let span = TimeSpan::of(&core.store, place, times.clone(), end).await?;
        let from = Position { row: span.next_row(), index: 0 };
        let sources = Sources { core, place, times: times.clone() };
        let Gathered { spans, passed, .. } = sources.gather(from, end, 1, 1).await?;
        let Some(first) = spans.first() else {
            return Err(PullStreamError::Absent { what: "no message came in in that time" });
        };
        let named = Named { ispb, id: ReplayId::draw(&*core.clock) };
        let (keys, now, life) = (core.keys.keys(), core.clock.now(), core.settings.replay_life);
        let rows = first.row..end;
        let (replay, token) = Replay::new(named, times, rows.clone(), life, (&keys, now));
        self.insert(&place.replay_key(&named.id.0)?, &replay).await?;
        let started = ReplayStarted { token, expires_at: replay.expires_at() };
        Ok(Made { started, issued: replay.issued(), rows, passed })
    }

    /// Writes a record that is not there yet.
    async fn insert(&self, key: &Key, replay: &Replay) -> Result<(), PullStreamError> {
        let write = replay.insertion(self.core.settings.replay_life)?;
        let mut unclear = None;
        for _ in 0..ATTEMPTS {
            match self.core.store.insert_if_not_exists(key, write.clone()).await {
                Ok(Outcome::Applied { .. }) => return Ok(()),
                // Its name was drawn for it: whatever stands there was written by an earlier try.
                Ok(Outcome::Refused { current: Some(_) }) => return Ok(()),
                Ok(Outcome::Refused { current: None }) => {}
                Err(error @ StoreError::Unknown { .. }) => unclear = Some(error),
                Err(error) => return Err(unclear.unwrap_or(error).into()),
            }
        }
        Err(unclear.map_or(PullStreamError::Contended, PullStreamError::Store))
    }

    /// What a token is answered, once that stands in the store.
    async fn replayed(
        &self,
        ispb: Ispb,
        token: &str,
        used: TokenHash,
        reader: &Reader,
    ) -> Result<Answered, PullStreamError> {
        let keys = self.core.keys.keys();
        let claims = token::verify::<ReplayClaims>(&keys, ispb, self.core.clock.now(), token);
        let claims = claims.map_err(PullStreamError::Refused)?;
        self.core.check_owner(ispb).await?;
        let call = Call { named: Named { ispb, id: claims.replay }, token, reader };
        let key = self.core.place(ispb).replay_key(&claims.replay.0)?;
        let mut seen = self.core.store.get(&key).await?;
        let mut unclear = None;
        for _ in 0..ATTEMPTS {
            let record = seen.ok_or(PullStreamError::Refused(super::Refusal::Expired))?;
            let replay = Replay::read(&key, &record.value)?;
            let asked = replay.asked(claims.seq, used).map_err(PullStreamError::Refused)?;
            let tried = match asked {
                Asked::Again => return self.again(call, &replay).await,
                Asked::More => self.go_on(call, &key, &record, &replay).await,
            };
            seen = match tried {
                Ok(Tried::Done(answered)) => return Ok(answered),
                Ok(Tried::Overtaken(current)) => current,
                Err(PullStreamError::Store(error @ StoreError::Unknown { .. })) => {
                    let Ok(standing) = self.core.store.get(&key).await else {
                        return Err(error.into());
                    };
                    unclear = Some(error);
                    standing
                }
                Err(error) => return Err(unclear.map_or(error, PullStreamError::Store)),
            };
        }
        Err(unclear.map_or(PullStreamError::Contended, PullStreamError::Store))
    }

    /// Takes what comes next, and writes that over the record as it was seen.
    async fn go_on(
        &self,
        Call { named, token, reader }: Call<'_>,
        key: &Key,
        seen: &Record,
        replay: &Replay,
    ) -> Result<Tried, PullStreamError> {
        let core = &*self.core;
        let gathered = self.next_of(named.ispb, replay, reader.form.capacity()).await?;
        if gathered.spans.is_empty() {
            self.exhaust(key, seen, replay).await;
            let pulled = Pulled { batch: None, next: token.to_owned() };
            let issued = replay.issued();
            return Ok(Tried::Done(Answered { pulled, verdict: Verdict::Empty, issued }));
        }
        let batch = Delivery::of(reader.form, &gathered.spans, &gathered.rows);
        let portion = Portion { spans: gathered.spans, next: gathered.next, form: reader.form };
        let (next, token) = replay.advanced(named, portion, &core.keys.keys(), core.clock.now());
        match core.store.compare_and_swap(key, &seen.value, next.replacement()?).await? {
            Outcome::Applied { .. } => {
                let pulled = Pulled { batch, next: token };
                let (verdict, issued) = (Verdict::Delivered, next.issued());
                Ok(Tried::Done(Answered { pulled, verdict, issued }))
            }
            Outcome::Refused { current } => Ok(Tried::Overtaken(current)),
        }
    }

    async fn next_of(
        &self,
        ispb: Ispb,
        replay: &Replay,
        most: usize,
    ) -> Result<Gathered, PullStreamError> {
        let sources = self.sources(ispb, replay);
        // As many rows as the last batch was of, and one where that began within a row.
        let rows = replay.delivered.len() + usize::from(replay.position.index > 0);
        sources.gather(replay.position, replay.end, most, rows).await
    }

    fn sources<'a>(&'a self, ispb: Ispb, replay: &Replay) -> Sources<'a, S> {
        let core = &*self.core;
        Sources { core, place: core.place(ispb), times: replay.times() }
    }

    /// Notes that nothing comes any more, so that it is not looked for again. Failing is no harm.
    async fn exhaust(&self, key: &Key, seen: &Record, replay: &Replay) {
        let Some(ended) = replay.exhausted() else { return };
        if let Ok(write) = ended.replacement() {
            drop(self.core.store.compare_and_swap(key, &seen.value, write).await);
        }
    }

    /// The answer to the token before the last one, once more.
    async fn again(
        &self,
        Call { named, .. }: Call<'_>,
        replay: &Replay,
    ) -> Result<Answered, PullStreamError> {
        let rows = self.sources(named.ispb, replay).rows_of(&replay.delivered).await?;
        let batch = Delivery::of(replay.form, &replay.delivered, &rows);
        let batch = batch.ok_or(PullStreamError::Absent {
            what: "messages of the batch are past their retention and not in the archive; go on \
                   with the token that came with them, or ask for a new replay",
        })?;
        let next = replay.token(named, &self.core.keys.keys()).ok_or_else(pulling::key_unknown)?;
        let pulled = Pulled { batch: Some(batch), next };
        Ok(Answered { pulled, verdict: Verdict::Replayed, issued: replay.issued() })
    }
}

/// A reader's call.
#[derive(Debug, Clone, Copy)]
struct Call<'a> {
    named: Named,
    token: &'a str,
    reader: &'a Reader,
}

/// What became of an attempt.
enum Tried {
    Done(Answered),
    /// Another call was faster, and this stands there.
    Overtaken(Option<Record>),
}

/// What the audit keeps of a replay that was asked for: why, and of what.
fn told(reason: &str, times: &Range<Timestamp>, made: &Result<Made, PullStreamError>) -> String {
    let short = shortened(reason);
    let (from, to) = (times.start.as_unix_millis(), times.end.as_unix_millis());
    match made {
        Ok(Made { rows: Range { start, end }, passed, .. }) => match passed.first() {
            None => format!("{short} [{from} to {to}, rows {start} to {end}]"),
            Some(row) => format!(
                "{short} [{from} to {to}, rows {start} to {end}, beside {} that cannot be read, \
                 the first is {row}]",
                passed.len()
            ),
        },
        Err(PullStreamError::Store(StoreError::Corrupt { reason, .. })) => {
            format!("{short} [{from} to {to}: {reason}]")
        }
        Err(_) => format!("{short} [{from} to {to}]"),
    }
}

/// What the audit is told of a failure; `None` where the store failed, which has the audit too.
fn verdict_of(error: &PullStreamError) -> Option<Verdict> {
    match error {
        PullStreamError::Refused(_)
        | PullStreamError::Invalid { .. }
        | PullStreamError::Absent { .. }
        | PullStreamError::Elsewhere { .. }
        | PullStreamError::Archive(_)
        | PullStreamError::Store(StoreError::Corrupt { .. }) => Some(error.verdict()),
        PullStreamError::Store(_)
        | PullStreamError::Busy
        | PullStreamError::Contended
        | PullStreamError::BrokenChain { .. } => None,
    }
}
