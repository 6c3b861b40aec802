//! The sequencer: numbers for the events of one partition's log, each used once.
//!
//! A transaction is `start`, any number of `next`, an append of the event to the caller's own log
//! at the offset that `start` gave, and then `flush` if the append was acknowledged, `actualize` if
//! it failed or nobody knows. Numbers count per workspace and sequence.
//!
//! Along the log the numbers of each sequence strictly grow, so none stands there twice: whatever
//! crashes, and however many sequencers believe that the partition is theirs. Numbers that were
//! drawn for an event that did not get into the log may be drawn again. A number is used when its
//! event stands in the log, not before.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use wane::clock::SystemClock;
//! use wane::services::ClusterAppId;
//! use wane::services::sequencer::*;
//! use wane::store::{BoxError, MemoryStore};
//!
//! /// The caller's log. A real one is a table or a file whose appends refuse a taken offset.
//! #[derive(Debug, Default)]
//! struct Log(Mutex<Vec<Event>>);
//!
//! impl EventLog for Log {
//!     async fn events_from(&self, from: Offset, limit: usize) -> Result<Vec<Event>, BoxError> {
//!         let events = self.0.lock().unwrap();
//!         Ok(events.iter().filter(|event| event.offset >= from).take(limit).cloned().collect())
//!     }
//! }
//!
//! impl Log {
//!     fn append(&self, event: Event) -> bool {
//!         let mut events = self.0.lock().unwrap();
//!         let free = event.offset == Offset(events.len() as u64 + 1);
//!         if free {
//!             events.push(event);
//!         }
//!         free
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const ORDERS: SequenceId = SequenceId(1);
//! let shop = (WorkspaceKind(1), Sequences::from([(ORDERS, 1_000)]));
//! let settings = SequencerSettings::new(ClusterAppId(7), 0, [shop]);
//!
//! let clock = SystemClock::shared();
//! let (store, log) = (MemoryStore::new(clock.clone())?, Arc::new(Log::default()));
//! let mut sequencer = Sequencer::new(store, log.clone(), clock, settings)?;
//!
//! sequencer.ready().await?;
//! let workspace = WorkspaceId(42);
//! if let Start::Started { offset } = sequencer.start(WorkspaceKind(1), workspace)? {
//!     let number = sequencer.next(ORDERS).await?;
//!     assert_eq!((offset, number), (Offset(1), 1_000));
//!     if log.append(Event { offset, workspace, numbers: vec![(ORDERS, number)] }) {
//!         sequencer.flush()?;
//!     } else {
//!         sequencer.actualize()?;
//!     }
//! }
//! assert_eq!(sequencer.close(std::time::Duration::from_secs(5)).await, Closed::Flushed);
//! # Ok(())
//! # }
//! ```
//!
//! # Why no number is used twice
//!
//! It is assumed that the log keeps what `event_log` asks of it; that the caller calls `flush` only
//! for an event that stands in the log at the offset of its `start`; that a workspace belongs to one
//! partition; and that the store keeps what it acknowledged and is read uncached.
//!
//! *The stored offset tells the truth*: every number of every event below it is stored. Two steps
//! raise it. Recovery starts from a stored offset, takes all events of the log after it, writes
//! their numbers, and then the offset after them. A flush writes an offset only after the numbers of
//! all events that this sequencer wrote since its recovery, and those before are stored since then.
//! Both wait for every number to be acknowledged before they send the offset. Stored numbers never
//! fall, so that what was true when an offset was decided is true whenever it arrives: a sequencer
//! that slept and wakes can only repeat what is so.
//!
//! *A sequencer at offset n knows every number below n*: after recovery all of them are stored, and
//! later ones are its own, which stay pending until they are stored, and are found there when the
//! cache has lost them. So every number that it draws for n is higher than all of its counter below.
//!
//! *Only one event gets offset n*: where two sequencers drew the same number for it, the log refuses
//! one of them, and that one has to recover. So by induction along the log, numbers only grow.
//!
//! Flow: `ledger` is the state in memory, `keeper` the task that stores it by `flush` and rebuilds it
//! by `recovery`; `records` are keys, values and their growth. Not here: the log, and whoever decides
//! which process runs a partition. Elections may decide that, and nothing here depends on it.

mod backoff;
mod cache;
mod error;
mod event_log;
mod flush;
mod keeper;
mod ledger;
mod records;
mod recovery;
mod settings;

pub use error::{Fault, SequencerError};
pub use event_log::{Event, EventLog, Offset};
pub use ledger::{Phase, Status};
pub use records::{SequenceId, WorkspaceId, WorkspaceKind};
pub use settings::{MAX_SEQUENCES, SequencerSettings, Sequences};

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use self::cache::NumberCache;
use self::keeper::Keeper;
use self::ledger::{Draw, Ledger};
use self::records::{Counter, stored};
use crate::clock::SharedClock;
use crate::store::Store;

/// Whether a transaction began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a sequencer that is busy has not started"]
pub enum Start {
    /// It began.
    Started {
        /// Where its event belongs in the log.
        offset: Offset,
    },
    /// It did not. Try again later, or wait with [`Sequencer::ready`].
    Busy(Busy),
}

/// Why a transaction cannot start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The sequencer still learns which numbers were used.
    Recovering,
    /// Too many numbers wait for the store.
    Unflushed {
        /// So many.
        numbers: usize,
    },
}

/// How a sequencer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what was not flushed makes the next recovery longer"]
pub enum Closed {
    /// Everything is in the store.
    Flushed,
    /// Something is not. Nothing is lost: the next recovery finds it in the log.
    Unflushed {
        /// Sequences whose numbers waited for the store.
        numbers: usize,
    },
}

/// Gives out numbers for one partition, to one caller. Dropping it ends its background task.
#[derive(Debug)]
pub struct Sequencer<S> {
    store: Arc<S>,
    clock: SharedClock,
    settings: Arc<SequencerSettings>,
    ledger: Arc<Ledger>,
    cache: NumberCache,
    open: Option<Open>,
    /// The numbers of the open transaction, one entry per sequence. Its memory is used again.
    draws: Vec<Draw>,
    task: JoinSet<()>,
}

/// The open transaction.
#[derive(Debug, Clone, Copy)]
struct Open {
    offset: Offset,
    kind: WorkspaceKind,
    workspace: WorkspaceId,
}

/// Shows how a sequencer is doing while its caller uses it. A clone shows the same one.
#[derive(Debug, Clone)]
pub struct Monitor(Arc<Ledger>);

impl Monitor {
    /// How the sequencer is doing.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

impl<S: Store> Sequencer<S> {
    /// A sequencer that begins to recover at once, in a task of the tokio runtime that it is made
    /// in. `store` must not answer from a cache.
    pub fn new(
        store: S,
        log: impl EventLog,
        clock: SharedClock,
        settings: SequencerSettings,
    ) -> Result<Self, SequencerError> {
        settings.check()?;
        let (store, settings) = (Arc::new(store), Arc::new(settings));
        let ledger = Arc::new(Ledger::new(settings.first_offset, settings.max_unflushed));
        let keeper = Keeper {
            store: Arc::clone(&store),
            log,
            clock: Arc::clone(&clock),
            settings: Arc::clone(&settings),
            ledger: Arc::clone(&ledger),
        };
        let mut task = JoinSet::new();
        task.spawn(keeper.run());
        let cache = NumberCache::new(settings.cache_size, clock.random_u64());
        Ok(Self { store, clock, settings, ledger, cache, open: None, draws: Vec::new(), task })
    }

    /// Begins the transaction of the event at the next offset.
    pub fn start(
        &mut self,
        kind: WorkspaceKind,
        workspace: WorkspaceId,
    ) -> Result<Start, SequencerError> {
        if let Some(open) = self.open {
            return Err(SequencerError::AlreadyStarted { offset: open.offset });
        }
        if !self.settings.kinds.contains_key(&kind) {
            return Err(SequencerError::UnknownKind { kind });
        }
        let start = self.ledger.start()?;
        if let Start::Started { offset } = start {
            self.open = Some(Open { offset, kind, workspace });
        }
        Ok(start)
    }

    /// Draws the next number of a sequence for the workspace of the transaction.
    ///
    /// Waits for the store only where the last number is not in memory.
    pub async fn next(&mut self, sequence: SequenceId) -> Result<u64, SequencerError> {
        let open = self.open.ok_or(SequencerError::NotStarted { call: "next" })?;
        let counter = Counter { workspace: open.workspace, sequence };
        if let Some(draw) = self.draws.iter_mut().find(|draw| draw.sequence == sequence) {
            draw.last = following(counter, draw.last)?;
            return Ok(draw.last);
        }
        let initial = self.initial(open.kind, sequence)?;
        let before = match self.remembered(counter) {
            Some(last) => Some(last),
            None => stored(&*self.store, &counter.key(self.settings.app)?).await?,
        };
        let last = match before {
            Some(before) => following(counter, before)?.max(initial),
            None => initial,
        };
        self.draws.push(Draw { sequence, before, last });
        Ok(last)
    }

    /// Says that the event stands in the log: its numbers are used, and the next offset follows.
    ///
    /// They are written to the store in the background.
    pub fn flush(&mut self) -> Result<(), SequencerError> {
        let open = self.open.take().ok_or(SequencerError::NotStarted { call: "flush" })?;
        let committed = self.ledger.commit(open.workspace, &self.draws);
        for Draw { sequence, last, .. } in self.draws.drain(..) {
            self.cache.remember(Counter { workspace: open.workspace, sequence }, last);
        }
        committed
    }

    /// Says that the event does not stand in the log, or that nobody knows: drops what is in memory
    /// and recovers in the background.
    pub fn actualize(&mut self) -> Result<(), SequencerError> {
        self.open.take().ok_or(SequencerError::NotStarted { call: "actualize" })?;
        self.draws.clear();
        self.cache.clear();
        self.ledger.forget()
    }

    /// Waits until `start` would not answer busy: for as long as store and log fail. See
    /// [`status`](Sequencer::status) for what they say.
    pub async fn ready(&mut self) -> Result<(), SequencerError> {
        while let Start::Busy(_) = self.ledger.start()? {
            self.ledger.progressed().await;
        }
        Ok(())
    }

    /// How the sequencer is doing.
    pub fn status(&self) -> Status {
        self.ledger.status()
    }

    /// Shows from elsewhere how the sequencer is doing.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.ledger))
    }

    /// Stores what waits for the store, for up to `within`, and ends. An open transaction is
    /// dropped; if its event stands in the log, the next recovery finds it.
    pub async fn close(mut self, within: Duration) -> Closed {
        self.ledger.close();
        let ended = tokio::select! {
            biased;
            ended = self.task.join_next() => ended,
            () = self.clock.sleep(within) => None,
        };
        self.task.shutdown().await;
        match ended {
            Some(Ok(())) => Closed::Flushed,
            Some(Err(_)) | None => Closed::Unflushed { numbers: self.status().unflushed },
        }
    }

    /// The first number of a sequence.
    fn initial(&self, kind: WorkspaceKind, sequence: SequenceId) -> Result<u64, SequencerError> {
        let sequences = self.settings.kinds.get(&kind);
        let initial = sequences.and_then(|sequences| sequences.get(&sequence));
        initial.copied().ok_or(SequencerError::UnknownSequence { kind, sequence })
    }

    /// The last number of a counter, if it is in memory.
    fn remembered(&self, counter: Counter) -> Option<u64> {
        self.cache.last(counter).or_else(|| self.ledger.pending(counter))
    }
}

fn following(counter: Counter, number: u64) -> Result<u64, SequencerError> {
    let Counter { workspace, sequence } = counter;
    number.checked_add(1).ok_or(SequencerError::NumbersExhausted { workspace, sequence })
}
