//! Named sequences: numbers that only grow, given out in blocks, none of them twice.
//!
//! One permanent record per sequence holds the next number, and the last idempotency keys with what
//! they were given. A block is taken by one conditional swap of that record. Concurrent callers of
//! one process are combined: one task per busy sequence takes for all who wait by one swap, and
//! ends when nobody waits.
//!
//! Invariant: every swap raises the next number and is unlike every other, so that a number leaves
//! the record once, whoever asks, and whatever becomes of answers. What is left of a swap that
//! nobody confirmed is at worst a gap.
//!
//! ```
//! use wane::clock::SystemClock;
//! use wane::services::ClusterAppId;
//! use wane::services::sequences::Sequences;
//! use wane::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = SystemClock::shared();
//! let sequences = Sequences::new(MemoryStore::new(clock.clone())?, clock).of(ClusterAppId(1));
//!
//! let block = sequences.next("orders", 100, None).await?;
//! assert_eq!(block.numbers(), 1..101);
//!
//! // A caller that may have to ask again gives a key, and gets the same block again.
//! let key = "order-import-7".parse()?;
//! let block = sequences.next("orders", 5, Some(key)).await?;
//! assert_eq!(sequences.next("orders", 5, Some(key)).await?, block);
//! assert_eq!(sequences.show("orders").await?, Some(106));
//! # Ok(())
//! # }
//! ```
//!
//! Flow: `combining` lets callers wait in line, `round` answers those who share a swap, `record` is
//! what stands in the store.
//! Not here: whether a token is the newest of its election, which elections say. Here a write that
//! carries one is refused where a newer one has written.

mod combining;
mod record;
mod round;

pub use super::names::MAX_NAME;
pub use combining::MAX_WAITING;
pub use record::{Block, IdempotencyKey, LIMIT, MAX_COUNT, REMEMBERED};

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use self::combining::Lines;
use self::record::{Stored, checked_count, checked_name};
use self::round::Waiting;
use super::{ClusterAppId, MAX_NAMES};
use crate::clock::SharedClock;
use crate::store::{Fence, Key, Keyspace, Store, StoreError};

/// Why a call of a sequence failed: no block was given out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum SequencesError {
    /// A field breaks a rule. Nothing was touched.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// The idempotency key was used before, for a block of another size. Use a new key.
    #[error("the idempotency key was used for a count of {count}; use another key")]
    KeyReused { count: u64 },

    /// A later leader has taken numbers. Stop acting as the leader.
    #[error("fence {} is behind {} on the sequence; stop, a later leader has used it", fence.0, newer.0)]
    Fenced { fence: Fence, newer: Fence },

    /// The application has as many sequences as it may. Nothing was changed; use one that is there.
    #[error("the application has {MAX_NAMES} sequences already; use one of them")]
    TooMany,

    /// So many numbers are not left.
    #[error("the sequence has no {count} numbers left below 2^53; use another name")]
    Exhausted { count: u64 },

    /// Too many callers wait for the sequence already. Nothing was taken; try again after a pause.
    #[error("{MAX_WAITING} callers wait for the sequence already; try again after a pause")]
    Busy,

    /// Other nodes kept taking from the sequence. Nothing was taken; try again.
    #[error("the sequence kept changing under the call; try again")]
    Contended,

    /// The store failed. After [`StoreError::Unknown`] numbers may have been taken and are lost,
    /// unless a key was given: the same call then gives the same block.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SequencesError {
    /// The same error for another caller of the same round.
    fn again(&self) -> Self {
        match self {
            Self::Invalid { field, reason } => Self::Invalid { field, reason: reason.clone() },
            Self::KeyReused { count } => Self::KeyReused { count: *count },
            Self::Fenced { fence, newer } => Self::Fenced { fence: *fence, newer: *newer },
            Self::Exhausted { count } => Self::Exhausted { count: *count },
            Self::Busy => Self::Busy,
            Self::TooMany => Self::TooMany,
            Self::Contended => Self::Contended,
            Self::Store(error) => Self::Store(error.again()),
        }
    }
}

/// The sequences of all applications. A clone is a second handle; with the last one of them, and of
/// [`AppSequences`], the tasks end.
#[derive(Debug)]
pub struct Sequences<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    lines: Arc<Lines<S>>,
    /// Dropped with the last handle, which ends the tasks.
    open: watch::Sender<()>,
}

impl<S> Clone for Sequences<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> Sequences<S> {
    /// Sequences in a store.
    pub fn new(store: S, clock: SharedClock) -> Self {
        let lines = Arc::new(Lines::new(store, clock));
        Self { shared: Arc::new(Shared { lines, open: watch::Sender::new(()) }) }
    }

    /// The sequences of one application.
    pub fn of(&self, app: ClusterAppId) -> AppSequences<S> {
        AppSequences { shared: Arc::clone(&self.shared), app }
    }

    /// How many sequences have a task that serves callers. Others take no memory.
    pub fn at_work(&self) -> usize {
        self.shared.lines.at_work()
    }
}

/// The sequences of one application.
#[derive(Debug)]
pub struct AppSequences<S> {
    shared: Arc<Shared<S>>,
    app: ClusterAppId,
}

impl<S> Clone for AppSequences<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), app: self.app }
    }
}

impl<S: Store> AppSequences<S> {
    /// Takes the next `count` numbers: more than any that were given out before this call. With a
    /// key that the sequence remembers, the block that it was given.
    ///
    /// Combined with other calls of this process; dropping the future does not harm them. Needs a
    /// tokio runtime, on which a task serves whoever waits for the sequence.
    pub async fn next(
        &self,
        name: &str,
        count: u64,
        key: Option<IdempotencyKey>,
    ) -> Result<Block, SequencesError> {
        self.next_fenced(name, count, key, Fence::NONE).await
    }

    /// The same for the leader that `fence` belongs to: the write carries it and is combined with no
    /// other. [`SequencesError::Fenced`] where a higher one has written, whatever else is wrong.
    /// [`Fence::NONE`] is a call without a guard.
    pub async fn next_fenced(
        &self,
        name: &str,
        count: u64,
        key: Option<IdempotencyKey>,
        fence: Fence,
    ) -> Result<Block, SequencesError> {
        let record = self.key(name)?;
        let count = checked_count(count)?;
        let (answer, answered) = oneshot::channel();
        let caller = Waiting { count, key, fence, answer };
        self.shared.lines.join(record, caller, &self.shared.open)?;
        answered.await.unwrap_or_else(|_| Err(unserved().into()))
    }

    /// The next number of the sequence; `None` where none was ever taken.
    pub async fn show(&self, name: &str) -> Result<Option<u64>, SequencesError> {
        let key = self.key(name)?;
        let Some(record) = self.shared.lines.store.get(&key).await? else { return Ok(None) };
        Ok(Some(Stored::read(&key, &record.value)?.next()))
    }

    fn key(&self, name: &str) -> Result<Key, SequencesError> {
        checked_name(name)?;
        Ok(Key::new(&self.app.partition(Keyspace::Sequences), name.as_bytes())?)
    }
}

/// The runtime that served the sequence was shut down under it.
fn unserved() -> StoreError {
    let source = "the task that served the sequence was ended".into();
    StoreError::Unknown { backend: "sequences", source }
}
