//! Temporary BLOBs: files that disappear on time, and come back byte for byte until then.
//!
//! A BLOB is chunks of exactly 100 KiB (the last one shorter) and a state record, all with one
//! absolute expiry that is fixed when the upload begins. The chunks are written first, the state
//! last and by one conditional write, so that a BLOB is there as a whole or not at all. Absent,
//! expired, of another workspace and of another application are one answer.
//!
//! Invariant: the state never outlives a chunk, and is gone before any chunk is removed. So whoever
//! finds a state finds its chunks, or hears an error; nobody gets fewer bytes without being told.
//!
//! ```
//! use wane::clock::SystemClock;
//! use wane::services::ClusterAppId;
//! use wane::services::blobs::{BlobLimits, Blobs, NewBlob};
//! use wane::services::sequencer::WorkspaceId;
//! use wane::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = SystemClock::shared();
//! let blobs = Blobs::new(MemoryStore::new(clock.clone())?, clock);
//! let (blobs, workspace) = (blobs.of(ClusterAppId(1), BlobLimits::default()), WorkspaceId(7));
//!
//! let blob = NewBlob { name: "notes.txt".into(), ttl: "6h".parse()?, ..NewBlob::default() };
//! let mut upload = blobs.begin(workspace, blob).await?;
//! upload.write(b"buy ").await?;
//! upload.write(b"milk").await?;
//! let uploaded = upload.finish().await?;
//!
//! let blob = blobs.open(workspace, uploaded.id).await?.expect("it has six hours");
//! let mut reading = blob.read(4..8)?;
//! assert_eq!(reading.next().await?.as_deref(), Some(&b"milk"[..]));
//! assert_eq!(reading.next().await?, None);
//! # Ok(())
//! # }
//! ```
//!
//! Flow: `upload` takes bytes in one go and `resumable` in several, both through the writer in
//! `chunks`; `download` reads them back; `removal` takes away what must go; `place` says where
//! everything lies and `record` what a state says; `sums` tells bytes apart; `quota` counts; `settling` repeats what the
//! store did not confirm.
//! Not here: HTTP, and the tus protocol over it.

mod buffers;
mod chunks;
mod download;
mod limits;
mod place;
mod quota;
mod record;
mod removal;
mod resumable;
mod settling;
mod sums;
mod suuid;
mod upload;

pub use chunks::CHUNK;
pub use download::{Blob, BlobInfo, FoundBlob, Reading};
pub use limits::{BlobLimits, BlobTtl, MAX_CONTENT_TYPE, MAX_NAME, MAX_NOTE, NewBlob};
pub use quota::Usage;
pub use resumable::{Append, Created, Keeping, Untold, UploadProgress};
pub use suuid::{DeleteSecret, Sha256Sum, Suuid};
pub use upload::{Upload, Uploaded};

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use self::buffers::Buffers;
use self::chunks::Writes;
use self::download::Transfers;
use self::place::Place;
use self::quota::Ledgers;
use self::record::{Status, Stored};
use self::removal::{Leftovers, Removals, State, Underway};
use self::settling::Settled;
use super::ClusterAppId;
use super::sequencer::WorkspaceId;
use crate::clock::SharedClock;
use crate::store::{Fence, Store, StoreError, Value};

/// How often a removal tries again when the BLOB changed under it.
const ATTEMPTS: usize = 64;

/// Why a call failed. An upload that failed leaves nothing, a download that failed is not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum BlobsError {
    /// A field breaks a rule. Nothing was touched.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// The BLOB has more bytes than the application may upload in one.
    #[error("the BLOB has more than {limit} bytes, the limit of the application; send fewer")]
    TooLarge { limit: u64 },

    /// The application holds as much as it may. Delete some, or wait until some expire.
    #[error(
        "the application may hold {limit} {what} of BLOBs and holds {held}; delete some or wait"
    )]
    OverQuota { what: &'static str, held: u64, limit: u64 },

    /// Other bytes came than were announced.
    #[error("{expected} bytes were announced and {got} came; send the BLOB anew")]
    LengthMismatch { expected: u64, got: u64 },

    /// The bytes do not have the sum that was announced.
    #[error("the bytes have the SHA-256 {got}, another one was announced; send the BLOB anew")]
    DigestMismatch { got: Sha256Sum },

    /// An append begins where the upload does not stand.
    #[error("the upload stands at {offset}; go on from there")]
    OffsetMismatch { offset: u64 },

    /// Another append, or a removal, has taken the upload from this one. Ask where it stands.
    #[error("the upload was taken over or removed; ask where it stands")]
    Overtaken,

    /// The life of the BLOB ended during the transfer.
    #[error("the BLOB has expired during the transfer")]
    Expired,

    /// What is stored is not what was uploaded. The BLOB cannot be had.
    #[error("the BLOB is broken: {reason}")]
    Broken { reason: String },

    /// The transfer failed before, or a call of it was cut short.
    #[error("the transfer has ended; begin another one")]
    Ended,

    /// Others kept changing the BLOB. Nothing was changed; try again.
    #[error("the BLOB kept changing under the call; try again")]
    Contended,

    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for BlobsError {
    /// A key has the id in it, and errors are logged: they do not name it.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt { reason, .. } => Self::Broken { reason },
            error @ (StoreError::Invalid { .. }
            | StoreError::Unavailable { .. }
            | StoreError::Unknown { .. }) => Self::Store(error),
        }
    }
}

/// How the service works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobsSettings {
    /// How often what an application holds is counted anew: for a store that others write to as
    /// well. `None` for one that this process has to itself.
    pub recount: Option<Duration>,
    /// Chunks that an upload writes at once; 0 is taken as 1. More keep a slow store busy, and each
    /// takes 100 KiB of memory.
    pub write_ahead: usize,
    /// Chunks that all uploads together write at once beyond that, whoever comes first. They let an
    /// upload that is alone fill large commits: for a store on this machine.
    pub shared_ahead: usize,
    /// Chunks that a download reads at once; 0 is taken as 1.
    pub read_ahead: usize,
}

impl Default for BlobsSettings {
    fn default() -> Self {
        Self { recount: None, write_ahead: 4, shared_ahead: 0, read_ahead: 4 }
    }
}

/// The BLOBs of all applications. A clone is a second handle.
#[derive(Debug)]
pub struct Blobs<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    store: S,
    clock: SharedClock,
    settings: BlobsSettings,
    /// What is left of `shared_ahead`.
    ahead: Arc<Semaphore>,
    buffers: Arc<Buffers>,
    ledgers: Ledgers,
    transfers: Transfers,
    removals: Removals,
}

impl<S> Clone for Blobs<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> Blobs<S> {
    /// BLOBs in a store that no other process writes to. `clock` must be the one it expires by.
    pub fn new(store: S, clock: SharedClock) -> Self {
        Self::with_settings(store, clock, BlobsSettings::default())
    }

    /// The same, with other settings.
    pub fn with_settings(store: S, clock: SharedClock, settings: BlobsSettings) -> Self {
        let (ledgers, transfers) = (Ledgers::default(), Transfers::default());
        let removals = Removals::default();
        let ahead = settings.shared_ahead.min(Semaphore::MAX_PERMITS);
        let ahead = Arc::new(Semaphore::new(ahead));
        let buffers = Arc::default();
        let shared =
            Shared { store, clock, settings, ahead, buffers, ledgers, transfers, removals };
        Self { shared: Arc::new(shared) }
    }

    /// The BLOBs of one application, held to its limits.
    pub fn of(&self, app: ClusterAppId, limits: BlobLimits) -> AppBlobs<S> {
        AppBlobs { shared: Arc::clone(&self.shared), app, limits }
    }

    /// Waits until everything that is being removed has gone: before the process ends, say.
    pub async fn settle(&self) {
        self.shared.removals.settle().await;
    }

    /// Removals that failed since the start: what they left goes by its expiry.
    pub fn left_to_expiry(&self) -> u64 {
        self.shared.removals.failed()
    }
}

/// The BLOBs of one application.
#[derive(Debug)]
pub struct AppBlobs<S> {
    shared: Arc<Shared<S>>,
    app: ClusterAppId,
    limits: BlobLimits,
}

impl<S> Clone for AppBlobs<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<S: Store> AppBlobs<S> {
    /// Removes a BLOB; says whether there was one.
    pub async fn delete(&self, workspace: WorkspaceId, id: Suuid) -> Result<bool, BlobsError> {
        self.remove(self.place(workspace, id), Meant::Blob).await
    }

    /// Removes a BLOB for whoever knows its delete secret. With another secret it looks absent.
    pub async fn delete_with(
        &self,
        workspace: WorkspaceId,
        id: Suuid,
        secret: &DeleteSecret,
    ) -> Result<bool, BlobsError> {
        self.remove(self.place(workspace, id), Meant::BlobWith(secret.clone())).await
    }

    /// What the application holds, uploads under way included and expired BLOBs left out.
    pub async fn usage(&self) -> Result<Usage, BlobsError> {
        let shared = &*self.shared;
        let ledger = shared.ledgers.of(self.app);
        ledger.count(&shared.store, &shared.clock, self.app, shared.settings.recount).await?;
        Ok(ledger.usage(shared.clock.now()))
    }

    fn place(&self, workspace: WorkspaceId, id: Suuid) -> Place {
        Place { app: self.app, workspace, id }
    }

    /// The live state record, and what it says.
    async fn stored(&self, place: Place) -> Result<Option<(Value, Stored)>, BlobsError> {
        let Some(record) = self.shared.store.get(&place.state()?).await? else { return Ok(None) };
        let stored = Stored::read(&record.value)?;
        Ok(Some((record.value, stored)))
    }

    /// Removes what is meant, in a task: once begun, it goes on when nobody waits for it any more.
    async fn remove(&self, place: Place, meant: Meant) -> Result<bool, BlobsError> {
        let (blobs, underway) = (self.clone(), Underway::begin(&self.shared));
        let task = tokio::spawn(async move {
            let removed = blobs.remove_found(place, &meant).await;
            drop(underway);
            removed
        });
        task.await.unwrap_or_else(|error| Err(unfinished(error)))
    }

    /// Removes the state in one step, then the rest.
    async fn remove_found(&self, place: Place, meant: &Meant) -> Result<bool, BlobsError> {
        let (key, store) = (place.state()?, &self.shared.store);
        let mut found = self.stored(place).await?;
        for _ in 0..ATTEMPTS {
            let Some((value, stored)) = found.filter(|(_, stored)| meant.is(stored)) else {
                return Ok(false);
            };
            let removed = if stored.lingers {
                let tombstone = stored.clone().tombstone().write()?;
                settling::swap(store, &key, Some(&value), &tombstone).await?
            } else {
                settling::delete(store, &key, &value).await?
            };
            match removed {
                Settled::Done { .. } => {
                    self.remove_rest(place, chunks::count(stored.size)).await;
                    return Ok(true);
                }
                Settled::Refused(None) => return Ok(false),
                Settled::Refused(Some(record)) => {
                    let stored = Stored::read(&record.value)?;
                    found = Some((record.value, stored));
                }
            }
        }
        Err(BlobsError::Contended)
    }

    async fn remove_rest(&self, place: Place, chunks: u32) {
        let leftovers = Leftovers {
            place,
            state: State::Leave,
            chunks: 0..chunks,
            fence: Fence::NONE,
            writes: Writes::new(),
            is_whole: true,
        };
        // An error is a runtime that shut down: the rest goes by its expiry.
        drop(self.shared.remove(leftovers, &Handle::current()).await);
    }
}

/// What is told of a task that did not end: its runtime did.
fn unfinished(error: JoinError) -> BlobsError {
    StoreError::Unknown { backend: "blobs", source: error.into() }.into()
}

/// What a removal is for.
#[derive(Debug)]
enum Meant {
    Blob,
    BlobWith(DeleteSecret),
    Upload,
    BlobOrUpload,
}

impl Meant {
    fn is(&self, stored: &Stored) -> bool {
        let is_blob = stored.status == Status::Complete;
        let is_upload = stored.status == Status::Uploading;
        match self {
            Self::Blob => is_blob,
            Self::BlobWith(secret) => stored.has_secret(secret) && is_blob,
            Self::Upload => is_upload,
            Self::BlobOrUpload => is_blob || is_upload,
        }
    }
}
