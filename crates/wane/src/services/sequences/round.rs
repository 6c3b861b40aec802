//! Rounds: callers that share one swap, and how it is carried out.
//!
//! A round is planned against what stands in the store and written over exactly that. Refused, it is
//! planned anew against what stands there instead, which the refusal brings. Where the store does
//! not know, the record is read: under our nonce it is done, else it goes on from there. A caller
//! whose key the record remembers is given that block, in every plan, so that it gets one block
//! whatever became of earlier swaps.
//!
//! Invariant: blocks are given to callers only once the swap that took them stands in the store.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::SequencesError;
use super::record::{Block, IdempotencyKey, REMEMBERED, Stored};
use crate::clock::SharedClock;
use crate::services::names::{Names, Room};
use crate::store::{Fence, Key, Outcome, Record, Store, StoreError};

/// How often a round is tried when other nodes are faster. Of ten nodes that never rest, one comes
/// first within so many rounds all but once in a thousand times.
const ATTEMPTS: usize = 64;

/// A caller that waits for numbers.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) count: u64,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) fence: Fence,
    pub(super) answer: oneshot::Sender<Result<Block, SequencesError>>,
}

impl Waiting {
    /// Whether nobody waits for the answer any more.
    pub(super) fn has_left(&self) -> bool {
        self.answer.is_closed()
    }

    /// Whether it may share a swap with others that have no fence.
    fn is_combined(&self) -> bool {
        self.fence == Fence::NONE
    }
}

/// The callers of one swap, in the order in which they came, and what each is given once it stands.
#[derive(Debug, Default)]
pub(super) struct Round {
    callers: Vec<Waiting>,
    planned: Vec<Result<Block, SequencesError>>,
}

impl Round {
    /// Takes from the line those who can share the next swap; none where nobody is left.
    ///
    /// No more than [`REMEMBERED`] of them have a key: a swap must not push out its own keys.
    pub(super) fn fill(&mut self, line: &mut VecDeque<Waiting>) {
        debug_assert!(self.callers.is_empty(), "everyone was answered");
        let mut keyed = 0;
        while let Some(caller) = line.pop_front_if(|caller| {
            let fits = caller.is_combined() && (keyed < REMEMBERED || caller.key.is_none());
            let joins = self.callers.first().is_none_or(|first| first.is_combined() && fits);
            joins || caller.has_left()
        }) {
            if !caller.has_left() {
                keyed += usize::from(caller.key.is_some());
                self.callers.push(caller);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.callers.len()
    }

    fn fence(&self) -> Fence {
        self.callers.first().map_or(Fence::NONE, |caller| caller.fence)
    }

    /// What to write over `stored`; `None` where the plan needs no write.
    fn plan(&mut self, stored: &Stored, clock: &SharedClock) -> Option<Stored> {
        let mut next = stored.successor(&**clock);
        self.planned.clear();
        for caller in &self.callers {
            let given = |key| stored.block_of(key).or_else(|| next.block_of(key));
            let planned = match caller.key.as_ref().and_then(given) {
                Some(block) if block.count == caller.count => Ok(block),
                Some(block) => Err(SequencesError::KeyReused { count: block.count }),
                None => {
                    let exhausted = SequencesError::Exhausted { count: caller.count };
                    next.take(caller.count, caller.key).ok_or(exhausted)
                }
            };
            self.planned.push(planned);
        }
        (next.next() > stored.next()).then_some(next)
    }

    /// Gives everyone what was planned.
    fn grant(&mut self) {
        for (caller, planned) in self.callers.drain(..).zip(self.planned.drain(..)) {
            // Whoever has left has no use for it.
            drop(caller.answer.send(planned));
        }
    }

    /// Tells everyone the same error.
    fn fail(&mut self, error: &SequencesError) {
        for caller in self.callers.drain(..) {
            drop(caller.answer.send(Err(error.again())));
        }
    }
}

/// Where a sequence stands in the store.
#[derive(Debug)]
struct Standing {
    /// `None` where nobody has taken from it.
    record: Option<Record>,
    stored: Stored,
}

impl Standing {
    fn of(key: &Key, record: Option<Record>) -> Result<Self, StoreError> {
        let stored = match &record {
            Some(record) => Stored::read(key, &record.value)?,
            None => Stored::untouched(),
        };
        Ok(Self { record, stored })
    }

    fn fence(&self) -> Fence {
        self.record.as_ref().map_or(Fence::NONE, |record| record.fence)
    }

    fn checked_fence(&self, fence: Fence) -> Result<(), SequencesError> {
        let newer = self.fence();
        if fence == Fence::NONE || newer <= fence {
            return Ok(());
        }
        Err(SequencesError::Fenced { fence, newer })
    }
}

/// What became of one try.
enum Tried {
    Settled,
    /// Somebody else was faster, or may have been.
    Overtaken,
    /// It may have been written and lost since, or may yet be written.
    Unclear(StoreError),
}

/// One sequence, and where it stood when it was last seen.
#[derive(Debug)]
pub(super) struct Sequence<'a, S> {
    store: &'a S,
    clock: &'a SharedClock,
    names: &'a Names,
    key: &'a Key,
    /// `None` where it must be read first. It may be stale: then the swap is refused.
    seen: Option<Standing>,
    /// Whether that was since the round began, so that it may be answered from without a swap.
    is_fresh: bool,
}

impl<'a, S: Store> Sequence<'a, S> {
    pub(super) fn new(
        store: &'a S,
        clock: &'a SharedClock,
        names: &'a Names,
        key: &'a Key,
    ) -> Self {
        Self { store, clock, names, key, seen: None, is_fresh: false }
    }

    /// Answers every caller of the round.
    pub(super) async fn serve(&mut self, round: &mut Round) {
        match self.settle(round).await {
            Ok(()) => round.grant(),
            Err(error) => round.fail(&error),
        }
    }

    /// Tries until what is planned stands in the store.
    async fn settle(&mut self, round: &mut Round) -> Result<(), SequencesError> {
        let mut unclear = None;
        self.is_fresh = false;
        for _ in 0..ATTEMPTS {
            match self.attempt(round).await {
                Ok(Tried::Settled) => return Ok(()),
                Ok(Tried::Overtaken) => {}
                Ok(Tried::Unclear(error)) => unclear = Some(error),
                // It says that nothing was written, which an earlier try may yet have been.
                Err(error @ SequencesError::Store(StoreError::Unavailable { .. })) => {
                    return Err(unclear.map_or(error, SequencesError::Store));
                }
                Err(error) => return Err(error),
            }
        }
        Err(unclear.map_or(SequencesError::Contended, SequencesError::Store))
    }

    async fn attempt(&mut self, round: &mut Round) -> Result<Tried, SequencesError> {
        let standing = match self.seen.take() {
            Some(standing) => standing,
            None => {
                self.is_fresh = true;
                self.read().await?
            }
        };
        let fence = round.fence();
        standing.checked_fence(fence)?;
        let Some(next) = round.plan(&standing.stored, self.clock) else {
            self.seen = Some(standing).filter(|_| self.is_fresh);
            return Ok(if self.is_fresh { Tried::Settled } else { Tried::Overtaken });
        };
        if standing.record.is_none() {
            self.add_name().await?;
        }
        let write = next.write()?.fenced(fence);
        let value = write.value.clone();
        let outcome = match &standing.record {
            None => self.store.insert_if_not_exists(self.key, write).await,
            Some(record) => self.store.compare_and_swap(self.key, &record.value, write).await,
        };
        match outcome {
            Ok(Outcome::Applied { expires_at }) => {
                let record = Record { value, expires_at, fence: fence.max(standing.fence()) };
                self.seen = Some(Standing { record: Some(record), stored: next });
                Ok(Tried::Settled)
            }
            Ok(Outcome::Refused { current }) => {
                self.note(Standing::of(self.key, current)?);
                Ok(Tried::Overtaken)
            }
            Err(unknown @ StoreError::Unknown { .. }) => self.look(&next, unknown).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn add_name(&self) -> Result<(), SequencesError> {
        match self.names.add(self.key, self.store, self.clock).await? {
            Room::Left => Ok(()),
            Room::None => Err(SequencesError::TooMany),
        }
    }

    /// Looks for a write that nobody confirmed.
    async fn look(
        &mut self,
        written: &Stored,
        unknown: StoreError,
    ) -> Result<Tried, SequencesError> {
        let Ok(standing) = self.read().await else { return Err(unknown.into()) };
        let is_ours = standing.stored.is_write(written);
        self.note(standing);
        Ok(if is_ours { Tried::Settled } else { Tried::Unclear(unknown) })
    }

    fn note(&mut self, standing: Standing) {
        self.seen = Some(standing);
        self.is_fresh = true;
    }

    async fn read(&self) -> Result<Standing, StoreError> {
        Standing::of(self.key, self.store.get(self.key).await?)
    }
}
