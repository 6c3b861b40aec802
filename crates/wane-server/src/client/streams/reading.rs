//! A reader: the tokens of its slot, and what a call that failed means for it.
//!
//! Invariant: what was handed out is acknowledged by the next call and by nothing before. Whoever
//! asks again has kept it.
//!
//! Where a slot is lost, what it had not acknowledged comes again, to this reader or to another.
//! What this one had kept by then is not handed out to it twice.

use std::collections::VecDeque;
use std::time::Duration;

use wane::services::pull_stream::{Delivered, Reader, ResourceId};

use super::{PullStream, PullToken};
use crate::client::ClientError;

/// Ids of messages that may come again which are remembered: those of the last hundred slots.
const REMEMBERED: usize = 1_000;

/// How long a reader waits for a slot where the server does not say.
const FULL: Duration = Duration::from_secs(5);

/// A reader of one stream.
#[derive(Debug)]
pub struct Reading {
    stream: PullStream,
    reader: Reader,
    slot: Option<Slot>,
    /// What came last, and is acknowledged by the next call.
    unacknowledged: Vec<ResourceId>,
    /// What was kept and not acknowledged before a slot was lost.
    kept: VecDeque<ResourceId>,
}

#[derive(Debug)]
struct Slot {
    /// Acknowledges what came last.
    next: PullToken,
    /// What it was asked for with; none where it came with the slot.
    before: Option<PullToken>,
}

/// How a slot was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By this call, or there was none.
    Ended,
    /// It was gone before. Unless that was an earlier call of ours, what came last comes again.
    Gone,
    /// It is left to its lease: there is no token that would not acknowledge what came.
    Left,
}

/// What a reader does about a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Make the same call again, after a pause that is not shorter than this. It loses nothing.
    Again(Duration),
    /// The slot is lost: start anew.
    Anew,
    /// There is no slot to be had, or too much was asked: wait so long.
    Wait(Duration),
    /// No call mends it.
    Nothing,
}

impl Remedy {
    /// What to do about this.
    pub fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Unreachable { .. } | ClientError::UnknownOutcome { .. } => {
                Self::Again(Duration::ZERO)
            }
            ClientError::Problem { code, status, retry_after, .. } => match (&**code, status) {
                ("token_expired", _) | (_, 410) => Self::Anew,
                (_, 429) => Self::Wait(retry_after.unwrap_or(FULL)),
                (_, 500..) => Self::Again(retry_after.unwrap_or_default()),
                (_, _) => Self::Nothing,
            },
            ClientError::Refused { .. }
            | ClientError::Contested { .. }
            | ClientError::Absent
            | ClientError::Protocol { .. }
            | ClientError::Source { .. }
            | ClientError::DigestMismatch { .. }
            | ClientError::Spent { .. } => Self::Nothing,
        }
    }
}

impl PullStream {
    /// A reader of this stream. Nothing is asked yet.
    pub fn reading(&self, reader: Reader) -> Reading {
        let (unacknowledged, kept) = (Vec::new(), VecDeque::new());
        Reading { stream: self.clone(), reader, slot: None, unacknowledged, kept }
    }
}

impl Reading {
    /// Whether it has a slot. A call without one takes one, and should not be dropped.
    pub fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether something came last that is not acknowledged yet.
    pub fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// Acknowledges what came last, and waits for what comes next; none where none came while the
    /// call was held. Dropped or failed, it can be called again, and is answered the same.
    pub async fn ask(&mut self) -> Result<Vec<Delivered>, ClientError> {
        loop {
            let before = self.slot.as_ref().map(|slot| slot.next.clone());
            let pulled = match &before {
                Some(token) => self.stream.next(token, &self.reader).await?,
                None => self.stream.start(&self.reader).await?,
            };
            self.slot = Some(Slot { next: pulled.next, before });
            self.unacknowledged = pulled.messages.iter().map(|message| message.id).collect();
            let is_empty = pulled.messages.is_empty();
            let mut messages = pulled.messages;
            messages.retain(|message| !self.was_kept(message.id));
            if is_empty || !messages.is_empty() {
                return Ok(messages);
            }
        }
    }

    /// Forgets its slot, which is lost. What came last was kept.
    pub fn begin_anew(&mut self) {
        self.slot = None;
        self.kept.extend(self.unacknowledged.drain(..));
        let surplus = self.kept.len().saturating_sub(REMEMBERED);
        self.kept.drain(..surplus);
    }

    /// Acknowledges what came last, and gives the slot back.
    pub async fn end(&mut self) -> Result<Ending, ClientError> {
        let Some(slot) = &self.slot else { return Ok(Ending::Ended) };
        let token = slot.next.clone();
        self.end_by(&token).await
    }

    /// Gives the slot back without acknowledging what came last, so that others get it.
    pub async fn give_back(&mut self) -> Result<Ending, ClientError> {
        let Some(slot) = &self.slot else { return Ok(Ending::Ended) };
        let Some(token) = slot.before.clone() else { return Ok(Ending::Left) };
        self.end_by(&token).await
    }

    async fn end_by(&mut self, token: &PullToken) -> Result<Ending, ClientError> {
        let ending = match self.stream.end(token, &self.reader.client).await {
            Ok(()) => {
                self.unacknowledged.clear();
                Ending::Ended
            }
            Err(error) if Remedy::of(&error) == Remedy::Anew => Ending::Gone,
            Err(error) => return Err(error),
        };
        self.slot = None;
        Ok(ending)
    }

    /// Whether a message that came again was kept before; it is remembered until then.
    fn was_kept(&mut self, id: ResourceId) -> bool {
        let place = self.kept.iter().position(|kept| *kept == id);
        place.is_some_and(|place| self.kept.remove(place).is_some())
    }
}
