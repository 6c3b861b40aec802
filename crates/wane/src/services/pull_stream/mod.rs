//! The pull stream: Pix messages to their institutions, never lost, never on two leases at once.
//!
//! An institution's messages lie in a log of immutable rows. Up to six readers pull them in batches;
//! asking for the next batch acknowledges the last one. Where each reader stands is one record per
//! institution, and every step of any reader is one conditional write of that record. So a claim,
//! its lease and the acknowledgement before it are one step, on any number of nodes, and no node
//! holds anything that another cannot take over.
//!
//! ```text
//! ingest -> log (rows, immutable)      start -> batch, token 1
//!              |                        next(1) -> batch, token 2     acknowledges the first batch
//!              v                        next(1) -> the same again     until token 2 is used
//!          state record: head, six slots, requeued, audit             end(2) -> the slot is free
//! ```
//!
//! Invariants:
//! - **Nothing is lost.** A message leaves the stream only when its batch is acknowledged, or with
//!   its retention. A batch whose reader is gone is requeued when its lease has ended.
//! - **Nothing is on two live leases.** A message is in one place of the record: see `record`.
//! - **A retry is given the same bytes**, for the batch, its form and its token follow from the
//!   record and from rows that never change.
//! - **Six readers.** A seventh start is refused and changes nothing.
//! - **Tokens cannot be made or changed**, and are checked without I/O: see `token`.
//!
//! ```
//! use std::sync::Arc;
//! use wane::clock::SystemClock;
//! use wane::services::pull_stream::*;
//! use wane::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = SystemClock::shared();
//! let store = MemoryStore::new(clock.clone())?;
//! let keys = TokenKeys::new(TokenKey::new("2026-10", &[7; 64])?, None)?;
//! let settings = PullStreamSettings::default();
//! let streams = PullStream::new(store, clock, Arc::new(StaticKeys::new(keys)), settings)?;
//! let ispb = "00000208".parse()?;
//!
//! let messages = vec![Message::new("<Envelope/>")?, Message::new("<Envelope> </Envelope>")?];
//! let ids = streams.ingest(ispb, Batch::new(messages)?).await?;
//!
//! let reader = Reader { form: Form::MULTIPART, ..Reader::default() };
//! let first = streams.start(ispb, &reader).await?;
//! let batch = first.batch.expect("two messages are there");
//! assert_eq!(batch.messages()[1].id, ids[1]);
//!
//! streams.end(ispb, &first.next, &reader.client).await?;
//! assert_eq!(streams.status(ispb).await?.live_readers, 0);
//! # Ok(())
//! # }
//! ```
//!
//! Flow: `ingest` seals messages into the `log`; `pulling` checks a token, lets the call wait in
//! `lines` for a round, and parks it in `parking` where there is nothing; `rounds` commits what
//! `record` makes of gathered calls; `audit` keeps what happened. `body` is what readers are sent;
//! `holds` keeps messages beyond their retention, `replay` reads what came in before once more, beside
//! all of that, and `regions` says whose nodes may do it. Not here: HTTP, certificates, where keys
//! come from.

mod advance_lock;
mod archive;
mod archived;
mod archiving;
mod audit;
mod body;
mod budget;
mod core;
mod holds;
mod institutions;
mod ispb;
mod key_ring;
mod keys;
mod lines;
mod log;
mod message;
mod parking;
mod policy;
mod pulling;
mod reader;
mod record;
mod regions;
mod replay;
mod resource_id;
mod rounds;
mod segment;
mod settings;
mod status;
mod stored_keys;
mod strangers;
mod token;
mod token_view;
mod wrapped_keys;

pub use advance_lock::{AdvanceGuard, AdvanceLock, LockFuture};
pub use archive::{Archive, ArchiveError, ArchiveFuture, NoSegmentName, SegmentName};
pub use archived::{ArchiveCheck, ArchivedRow};
pub use archiving::{ArchiveReport, ArchiveStatus};
pub use audit::{
    Action, AuditCheck, AuditChecked, AuditEntry, AuditListing, AuditPage, AuditQuery, Chain,
    ListedEntry, MAX_LISTED, Verdict,
};
pub use body::{Body, Delivered, Delivery, Gzip, XML};
pub use holds::{Hold, HoldId, HoldState};
pub use ispb::Ispb;
pub use key_ring::REFRESH_EVERY;
pub use keys::{KeySource, StaticKeys, TokenKey, TokenKeys};
pub use message::{Batch, MAX_BATCH, MAX_MESSAGE, Message};
pub use policy::Policy;
pub use reader::{Client, Form, Reader};
pub use record::MAX_READERS;
pub use regions::{Failover, RegionMap, home_region};
pub use replay::ReplayStarted;
pub use resource_id::ResourceId;
pub use segment::LONGEST_SEGMENT;
pub use settings::PullStreamSettings;
pub use status::StreamStatus;
pub use stored_keys::StoredKeys;
pub use token_view::{SlotView, TokenView, token_hash};
pub use wrapped_keys::{
    KeyService, KeyWrap, WrapError, WrapFuture, WrappedKeys, WrappedKeysError, WrappedSecret,
};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use self::core::Core;
use self::log::Ingest;
use crate::clock::SharedClock;
use crate::store::{Store, StoreError};

/// Why a reader is not given what it asks for. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum Refusal {
    /// The token is not one of ours, whatever is wrong with it.
    #[error("the token is not valid; start again at stream/start")]
    Tampered,

    /// The token is too old, or its slot has been given to another reader.
    #[error("the token has expired; start again at stream/start")]
    Expired,

    /// The token is another institution's.
    #[error("the token belongs to another institution")]
    Foreign,

    /// A later token of the slot has been used. Go on with that one.
    #[error("the token is out of order: a later one has been used")]
    OutOfOrder,

    /// No such token has been issued yet, though it is signed. An operator should look.
    #[error("the token is out of order: it is ahead of the stream")]
    Ahead,

    /// All slots are taken. Try again when a lease may have ended.
    #[error("all readers' slots are taken; try again in {} s", retry_after.as_millis().div_ceil(1_000))]
    TooManyReaders { retry_after: Duration },

    /// The slot has been given back, or to another reader.
    #[error("the stream has ended; start again at stream/start")]
    Gone,
}

impl Refusal {
    fn verdict(self) -> Verdict {
        match self {
            Self::Tampered => Verdict::Tampered,
            Self::Expired => Verdict::Expired,
            Self::Foreign => Verdict::Foreign,
            Self::OutOfOrder => Verdict::OutOfOrder,
            Self::Ahead => Verdict::Ahead,
            Self::TooManyReaders { .. } => Verdict::TooManyReaders,
            Self::Gone => Verdict::Gone,
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum PullStreamError {
    /// A field breaks a rule. Nothing was touched.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// The reader may not have what it asks for. Nothing was changed.
    #[error(transparent)]
    Refused(Refusal),

    /// Too many callers, or too many bytes, wait already. Nothing was done; try again.
    #[error("too many callers or messages wait already; try again after a pause")]
    Busy,

    /// Other nodes kept changing the stream. Nothing was done; try again.
    #[error("the stream kept changing under the call; try again")]
    Contended,

    /// The audit is not as it was written. An operator must look.
    #[error("audit, row {row} of the {chain}: {reason}")]
    BrokenChain { chain: Chain, row: u64, reason: String },

    /// There is no such thing. Nothing was changed.
    #[error("{what}")]
    Absent { what: &'static str },

    /// Another region serves the institution. Nothing was done; ask there.
    #[error("the institution is served in the region {region}; ask there")]
    Elsewhere { region: String },

    /// The archive failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),

    /// The store failed. After [`StoreError::Unknown`] a reader asks again with the same token and is
    /// told what became of it; a producer's messages may be in the log, all or the first of them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PullStreamError {
    /// What the audit calls it.
    fn verdict(&self) -> Verdict {
        match self {
            Self::Refused(refusal) => refusal.verdict(),
            Self::Invalid { .. } => Verdict::Invalid,
            Self::Absent { .. } => Verdict::Absent,
            Self::Elsewhere { .. } => Verdict::Elsewhere,
            Self::Busy
            | Self::Contended
            | Self::BrokenChain { .. }
            | Self::Archive(_)
            | Self::Store(_) => Verdict::Failed,
        }
    }
}

/// What a reader is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The messages; `None` where none came while the call was held.
    pub batch: Option<Delivery>,
    /// The token that acknowledges them and asks for more.
    pub next: String,
}

/// The streams of all institutions. A clone is a second handle; with the last one the tasks end.
#[derive(Debug)]
pub struct PullStream<S> {
    core: Arc<Core<S>>,
    /// Dropped with the last handle, which ends the tasks.
    open: Arc<watch::Sender<()>>,
}

impl<S> Clone for PullStream<S> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), open: Arc::clone(&self.open) }
    }
}

impl<S: Store> PullStream<S> {
    /// Streams in a store, which must not be cached. Says which setting breaks a rule.
    pub fn new(
        store: S,
        clock: SharedClock,
        keys: Arc<dyn KeySource>,
        settings: PullStreamSettings,
    ) -> Result<Self, PullStreamError> {
        let core = Arc::new(Core::new(store, clock, keys, settings.checked()?));
        Ok(Self { core, open: Arc::new(watch::Sender::new(())) })
    }

    /// Takes messages in for an institution, in this order, and returns once they are durable.
    ///
    /// Combined with other calls of this process. After [`StoreError::Unknown`] some may be in.
    /// [`PullStreamError::Busy`] where 32 MiB wait for the institution, or 256 MiB on this node.
    pub async fn ingest(
        &self,
        ispb: Ispb,
        batch: Batch,
    ) -> Result<Vec<ResourceId>, PullStreamError> {
        let clock = &*self.core.clock;
        let messages = batch.into_messages().into_iter();
        let messages: Vec<_> = messages.map(|message| (ResourceId::draw(clock), message)).collect();
        let ids = messages.iter().map(|(id, _)| *id).collect();
        let bytes = messages.iter().map(|(_, message)| message.as_bytes().len()).sum();
        let share = self.core.budget.take(ispb, bytes).ok_or(PullStreamError::Busy)?;
        let (answer, answered) = oneshot::channel();
        if let Some(line) = self.core.producers.join(ispb, Ingest { messages, share, answer })? {
            self.serve(log::attend(Arc::clone(&self.core), line));
        }
        answered.await.unwrap_or_else(|_| Err(pulling::unserved().into()))?;
        Ok(ids)
    }

    /// Runs a task until it ends, or the last handle is gone.
    fn serve(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut open = self.open.subscribe();
        // A task that holds another one in itself has room for it twice.
        let task = Box::pin(task);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // Nothing is ever sent: it ends with its sender.
                _ = open.changed() => {}
                () = task => {}
            }
        });
    }
}
