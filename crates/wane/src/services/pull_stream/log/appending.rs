//! Appending: what comes in is sealed into rows and inserted after the last one.
//!
//! One task per busy institution and node. Who comes while a row is being inserted shares the next
//! one; under such load a row that is not full waits for the `linger` of the settings, while a lone
//! message is inserted at once.
//!
//! The task knows the end of the log from its last insert, and finds it again from the tail and
//! `head` when that is not recent: rows of other nodes may have expired since, and an insert at one
//! of their sequences would succeed where no reader looks any more. That takes as long as rows live
//! at least. An insert that took so long is looked at again: where `head` has passed it and nobody
//! holds it, it was read, or lies where nobody will, and the caller is told that this is not known.
//! Nothing is inserted a second time: a message would be delivered twice.
//!
//! Invariant: the next sequence is tried only once the one before is known to be used. Where the
//! store does not know, the row is looked for by its write id and inserted again at the same place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::row::{self, SealedRow, WriteId};
use super::{Place, ROWS_PER_RANGE, Tail, end, times};
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::budget::Share;
use crate::services::pull_stream::core::Core;
use crate::services::pull_stream::lines::Attended;
use crate::services::pull_stream::message::{MAX_BATCH, Message};
use crate::services::pull_stream::policy::SHORT_RETENTION;
use crate::services::pull_stream::record::State;
use crate::services::pull_stream::resource_id::ResourceId;
use crate::store::{Life, Outcome, Store, StoreError, Timestamp, Ttl, Write};

/// How often the tail is raised, and how long the task rests before it ends.
const RAISE_EVERY: Duration = Duration::from_secs(1);

/// How long the end of the log is known.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// Up to when no row of another node can have come and expired since the end was learned.
const NONE_EXPIRES_FOR: Duration = Duration::from_secs(30);

/// How long a row waits to be inserted before it is sealed anew: it is found by its time.
const SEALED_FOR: Duration = Duration::from_secs(5);

/// How often a row is inserted again at a place where it may stand already.
const ATTEMPTS: usize = 4;

/// How often other nodes may be faster before a call is told so.
const MOST_OVERTAKEN: usize = 10_000;

/// A producer that waits.
#[derive(Debug)]
pub(in super::super) struct Ingest {
    pub(in super::super) messages: Vec<(ResourceId, Message)>,
    /// Of what may wait, held until the messages are written.
    #[expect(dead_code, reason = "it counts as long as it is held")]
    pub(in super::super) share: Share,
    pub(in super::super) answer: oneshot::Sender<Result<(), PullStreamError>>,
}

impl Ingest {
    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.messages.iter().map(|(_, message)| message.as_bytes().len())
    }
}

/// Serves a line of producers until it rests.
pub(in super::super) async fn attend<S: Store>(core: Arc<Core<S>>, mut line: Attended<Ingest>) {
    let place = core.place(line.ispb);
    let mut log = Log { core: &core, place, end: None, raised: None };
    let mut came_together = false;
    loop {
        if came_together {
            log.linger(&line).await;
        }
        let producers = line.look(take_row).unwrap_or_default();
        if !producers.is_empty() {
            came_together = producers.len() > 1;
            let done = log.append_all(&producers).await;
            let messages: usize = producers.iter().map(|producer| producer.messages.len()).sum();
            let next_row = log.end.map(|end| end.next);
            core.parking.wake(line.ispb, messages.div_ceil(MAX_BATCH), next_row);
            answer(producers, &done);
            log.raise_if_due().await;
            continue;
        }
        came_together = false;
        if line.rests(&core.clock, RAISE_EVERY).await {
            log.raise().await;
            if line.end_if_empty() {
                return;
            }
        }
    }
}

/// Takes those from the line who fit into one row; one alone where it needs several.
fn take_row(waiting: &mut VecDeque<Ingest>) -> Vec<Ingest> {
    let mut taken: Vec<Ingest> = Vec::new();
    while let Some(next) = waiting.pop_front_if(|next| {
        let lengths = taken.iter().flat_map(Ingest::lengths);
        taken.is_empty() || row::fits(lengths.chain(next.lengths()))
    }) {
        taken.push(next);
    }
    taken
}

fn answer(producers: Vec<Ingest>, done: &Result<(), PullStreamError>) {
    for producer in producers {
        let answer = match done {
            Ok(()) => Ok(()),
            Err(PullStreamError::Store(error)) => Err(PullStreamError::Store(error.again())),
            Err(PullStreamError::Elsewhere { region }) => {
                Err(PullStreamError::Elsewhere { region: region.clone() })
            }
            Err(_) => Err(PullStreamError::Contended),
        };
        // Whoever has left does not hear of it; its messages stand.
        drop(producer.answer.send(answer));
    }
}

/// The error of a call of which something stands in the log, whatever stopped it: no error that says
/// that nothing was written.
fn half_done(error: PullStreamError) -> PullStreamError {
    if matches!(error, PullStreamError::Store(StoreError::Unknown { .. })) {
        return error;
    }
    let source = format!("some of the messages stand in the log, then: {error}").into();
    StoreError::Unknown { backend: "pull_stream", source }.into()
}

/// The end of the log, and when it was learned: the sequence had not been used by then.
#[derive(Debug, Clone, Copy)]
struct End {
    next: u64,
    /// Of the monotonic clock.
    learned_at: Duration,
}

/// What became of one insert.
enum Inserted {
    Done,
    /// The sequence is used.
    Taken,
}

/// The log of one institution, as its appender knows it.
struct Log<'a, S> {
    core: &'a Core<S>,
    place: Place<'a>,
    end: Option<End>,
    /// When the tail was raised last, and how far.
    raised: Option<(Duration, u64)>,
}

impl<S: Store> Log<'_, S> {
    /// Waits for others to fill the row.
    async fn linger(&self, line: &Attended<Ingest>) {
        let until = self.core.clock.monotonic() + self.core.settings.linger;
        loop {
            let is_full = line.look(|waiting| {
                let messages = waiting.iter().flat_map(Ingest::lengths).take(MAX_BATCH);
                waiting.is_empty() || !row::fits(messages.chain([1]))
            });
            let left = until.saturating_sub(self.core.clock.monotonic());
            if is_full.unwrap_or(true) || left.is_zero() {
                return;
            }
            line.wait(&self.core.clock, left).await;
        }
    }

    /// Appends the messages of all, in as many rows as they need.
    async fn append_all(&mut self, producers: &[Ingest]) -> Result<(), PullStreamError> {
        let policy = self.core.policy(self.place.ispb).await?;
        // What is let in although another region has just taken over lies in the same log, and is
        // delivered there.
        self.core.check_owner(self.place.ispb).await?;
        let messages: Vec<_> = producers.iter().flat_map(|p| p.messages.clone()).collect();
        let (mut rest, mut has_begun) = (&messages[..], false);
        while !rest.is_empty() {
            let fitting = |count: &usize| {
                row::fits(rest[..*count].iter().map(|(_, message)| message.as_bytes().len()))
            };
            let count = (1..=rest.len()).rev().find(fitting).unwrap_or(1);
            let done = self.append(&rest[..count], policy.retention).await;
            done.map_err(|error| if has_begun { half_done(error) } else { error })?;
            has_begun = true;
            rest = &rest[count..];
        }
        Ok(())
    }

    async fn append(
        &mut self,
        messages: &[(ResourceId, Message)],
        retention: Ttl,
    ) -> Result<(), PullStreamError> {
        let mut write = WriteId::default();
        self.core.clock.fill_random(&mut write);
        let gzip = self.core.settings.gzip.as_deref();
        let seal = || SealedRow::seal(self.core.clock.now(), write, messages, gzip);
        let (mut row, mut sealed_at) = (seal(), self.core.clock.monotonic());
        let life = retention.as_duration();
        let is_short = life < SHORT_RETENTION;
        for tried in 0..MOST_OVERTAKEN {
            let end = self.end(is_short).await?;
            let asked_at = self.core.clock.monotonic();
            if asked_at.saturating_sub(sealed_at) > SEALED_FOR {
                (row, sealed_at) = (seal(), asked_at);
            }
            match self.insert(end.next, &row, &write, retention).await? {
                Inserted::Done => {
                    self.end = Some(End { next: end.next + 1, learned_at: asked_at });
                    let took = self.core.clock.monotonic().saturating_sub(end.learned_at);
                    if is_short {
                        self.raise().await;
                    }
                    if end.next.is_multiple_of(ROWS_PER_RANGE) {
                        self.note_time(end.next, row.at()).await;
                    }
                    self.core.institutions.note(&self.core.store, self.place).await;
                    if took > NONE_EXPIRES_FOR.min(life / 2) {
                        self.check_reach(end.next).await.map_err(|e| half_done(e.into()))?;
                    }
                    return Ok(());
                }
                Inserted::Taken if tried < 2 => self.end = Some(End { next: end.next + 1, ..end }),
                Inserted::Taken => {
                    let next =
                        end::first_free_after(&self.core.store, self.place, end.next).await?;
                    self.end = Some(End { next, ..end });
                }
            }
        }
        Err(PullStreamError::Contended)
    }

    /// Notes when a range began. Failing is no harm: rows are looked for from further back.
    async fn note_time(&self, row: u64, at: Timestamp) {
        drop(times::note(&self.core.store, self.place, row, at).await);
    }

    /// Inserts the row at this place, or finds it used.
    async fn insert(
        &self,
        at: u64,
        row: &SealedRow,
        write: &WriteId,
        retention: Ttl,
    ) -> Result<Inserted, StoreError> {
        let key = self.place.row_key(at)?;
        let whose = |found: SealedRow| {
            if found.is_write(write) { Inserted::Done } else { Inserted::Taken }
        };
        let mut unclear = None;
        for _ in 0..ATTEMPTS {
            let write = Write::new(row.value()?, Life::For(retention));
            match self.core.store.insert_if_not_exists(&key, write).await {
                Ok(Outcome::Applied { .. }) => return Ok(Inserted::Done),
                Ok(Outcome::Refused { current: Some(record) }) => {
                    return Ok(whose(SealedRow::read(&key, record.value)?));
                }
                // It expired while it stood in the way.
                Ok(Outcome::Refused { current: None }) => return Ok(Inserted::Taken),
                Err(unknown @ StoreError::Unknown { .. }) => {
                    if let Ok(Some(record)) = self.core.store.get(&key).await {
                        return Ok(whose(SealedRow::read(&key, record.value)?));
                    }
                    unclear = Some(unknown);
                }
                // It says that nothing was written, which an earlier try may yet have been.
                Err(error) => return Err(unclear.unwrap_or(error)),
            }
        }
        Err(unclear.unwrap_or_else(|| StoreError::invalid("row", "it was never tried")))
    }

    /// The sequence to try next, looked for where rows live so short that it may be known no more.
    async fn end(&mut self, is_short: bool) -> Result<End, StoreError> {
        let now = self.core.clock.monotonic();
        if let Some(end) = self.end.filter(|end| !is_short && now < end.learned_at + KNOWN_FOR) {
            return Ok(end);
        }
        let noted = end::known_end(&self.core.store, self.place).await?;
        let next = self.end.map_or(noted, |end| end.next.max(noted));
        let end = End { next, learned_at: now };
        self.end = Some(end);
        Ok(end)
    }

    /// [`StoreError::Unknown`] where readers have passed the row: they have read it, or will never
    /// come to it.
    async fn check_reach(&self, row: u64) -> Result<(), StoreError> {
        let key = self.place.state_key("state")?;
        let Some(record) = self.core.store.get(&key).await? else { return Ok(()) };
        let state = State::read(&key, &record.value)?;
        if row >= state.first_unclaimed_row() || state.holds(row) {
            return Ok(());
        }
        let source = "it took so long that its place may have been used and passed before".into();
        Err(StoreError::Unknown { backend: "pull_stream", source })
    }

    async fn raise_if_due(&mut self) {
        let now = self.core.clock.monotonic();
        match self.raised {
            None => self.raised = Some((now, 0)),
            Some((at, _)) if now >= at + RAISE_EVERY => self.raise().await,
            Some(_) => {}
        }
    }

    /// Raises the tail, unless it is as high as we know. Failing is no harm: it is raised again.
    async fn raise(&mut self) {
        let Some(end) = self.end else { return };
        let now = self.core.clock.monotonic();
        if self.raised.is_some_and(|(_, tail)| tail >= end.next) {
            return;
        }
        if Tail(end.next).raise(&self.core.store, self.place).await.is_ok() {
            self.raised = Some((now, end.next));
        }
    }
}
