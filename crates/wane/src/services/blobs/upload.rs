//! Uploads in one go: bytes in pieces of any size, and a BLOB once the last one is there.
//!
//! Chunks are written as they fill up, the state last, by one conditional write: until then nobody
//! can read anything. An upload that fails, is aborted or is dropped has its chunks removed; where
//! its commit was already sent, a tombstone is put first, which the commit cannot pass.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::chunks::ChunkWriter;
use super::place::Place;
use super::quota::Reservation;
use super::record::Stored;
use super::removal::{Leftovers, State};
use super::{AppBlobs, BlobLimits, BlobsError, DeleteSecret, NewBlob, Sha256Sum, Suuid, settling};
use crate::services::sequencer::WorkspaceId;
use crate::store::{Life, Store, Timestamp, Value, Write};

/// A BLOB that was uploaded.
#[derive(Debug, Clone)]
pub struct Uploaded {
    /// Its id.
    pub id: Suuid,
    /// What removes it without the owner's credential.
    pub delete_secret: DeleteSecret,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Its bytes.
    pub size: u64,
    /// Their sum.
    pub sha256: Sha256Sum,
}

/// A BLOB on its way in. Dropped before it is finished, it is removed.
pub struct Upload<S: Store> {
    /// `None` once it has ended.
    writer: Option<ChunkWriter<S>>,
    reservation: Option<Reservation>,
    runtime: Handle,
    limits: BlobLimits,
    delete_secret: DeleteSecret,
    stored: Stored,
    length: Option<u64>,
    expected: Option<Sha256Sum>,
    size: u64,
    /// Set while a piece is taken: found set, the taking of one was cut short.
    is_taking: bool,
    stage: Stage,
}

/// What an upload may have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Chunks.
    Chunks,
    /// And its row of the index.
    Index,
    /// And its state.
    State,
}

impl<S: Store> AppBlobs<S> {
    /// Begins an upload. What is announced is checked here: too large, or too much for the
    /// application, is said before the first byte. Needs a tokio runtime, as everything here does.
    pub async fn begin(
        &self,
        workspace: WorkspaceId,
        blob: NewBlob,
    ) -> Result<Upload<S>, BlobsError> {
        self.limits.check(&blob)?;
        let reservation = self.reserve(blob.length.unwrap_or(0)).await?;
        let clock = &*self.shared.clock;
        let delete_secret = DeleteSecret::draw(clock);
        let stored = Stored::begun(&blob, &delete_secret, clock.now(), clock.random_u64());
        let place = Place { app: self.app, workspace, id: Suuid::draw(clock) };
        let writer = ChunkWriter::new(Arc::clone(&self.shared), place, stored.expires_at());
        let writer = writer.summing();
        Ok(Upload {
            writer: Some(writer),
            reservation: Some(reservation),
            runtime: Handle::current(),
            limits: self.limits,
            delete_secret,
            stored,
            length: blob.length,
            expected: blob.sha256,
            size: 0,
            is_taking: false,
            stage: Stage::Chunks,
        })
    }

    /// Sets a BLOB of so many bytes aside, if the application may hold it.
    pub(super) async fn reserve(&self, bytes: u64) -> Result<Reservation, BlobsError> {
        let shared = &*self.shared;
        let ledger = shared.ledgers.of(self.app);
        ledger.count(&shared.store, &shared.clock, self.app, shared.settings.recount).await?;
        ledger.reserve(&self.limits, bytes, shared.clock.now())
    }
}

impl<S: Store> Upload<S> {
    /// Takes the next bytes, a piece of any size.
    ///
    /// After an error the upload has ended, and what was written of it is being removed. The same
    /// goes for a call whose future was dropped: nobody knows how much of the piece was taken.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), BlobsError> {
        let taken = self.take(piece).await;
        if taken.is_err() {
            drop(self.abandon());
        }
        taken
    }

    async fn take(&mut self, piece: &[u8]) -> Result<(), BlobsError> {
        let writer = self.writer.as_mut().filter(|_| !self.is_taking).ok_or(BlobsError::Ended)?;
        let size = self.size.saturating_add(piece.len() as u64);
        self.limits.check_size(size)?;
        if let Some(expected) = self.length.filter(|length| size > *length) {
            return Err(BlobsError::LengthMismatch { expected, got: size });
        }
        let now = writer.shared.clock.now();
        if now >= self.stored.expires_at() {
            return Err(BlobsError::Expired);
        }
        if let Some(reservation) = &mut self.reservation {
            reservation.grow_to(size, now)?;
        }
        self.is_taking = true;
        self.size = size;
        writer.write(piece).await?;
        self.is_taking = false;
        Ok(())
    }

    /// Bytes that were taken.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When the BLOB expires, and the upload with it.
    pub fn expires_at(&self) -> Timestamp {
        self.stored.expires_at()
    }

    /// Makes a BLOB of what was written. After an error there is none.
    ///
    /// After [`Unknown`](crate::store::StoreError::Unknown) there is none either, unless the store
    /// stays out of reach: then there may be one, whole, until its expiry, whose id nobody knows.
    pub async fn finish(mut self) -> Result<Uploaded, BlobsError> {
        let writer = self.writer.as_mut().filter(|_| !self.is_taking).ok_or(BlobsError::Ended)?;
        let (size, shared) = (self.size, Arc::clone(&writer.shared));
        if let Some(expected) = self.length.filter(|length| size != *length) {
            return Err(BlobsError::LengthMismatch { expected, got: size });
        }
        writer.flush().await?;
        let sums = writer.summing.take().ok_or(BlobsError::Ended)?.finish().await?;
        let sha256 = sums.sha256;
        if self.expected.is_some_and(|expected| expected != sha256) {
            return Err(BlobsError::DigestMismatch { got: sha256 });
        }
        let (place, expires_at) = (writer.place, self.stored.expires_at());
        if shared.clock.now() >= expires_at {
            return Err(BlobsError::Expired);
        }
        let mut stored = self.stored.clone().completed(size, sums);
        self.stage = Stage::Index;
        settling::put(&shared.store, &place.index_row()?, &index_write(size, expires_at)?).await?;
        self.stage = Stage::State;
        settling::create(&shared.store, &place.state()?, &mut stored).await?;
        self.writer = None;
        if let Some(reservation) = self.reservation.take() {
            reservation.book(place.id, size, expires_at);
        }
        let delete_secret = self.delete_secret.clone();
        Ok(Uploaded { id: place.id, delete_secret, expires_at, size, sha256 })
    }

    /// Ends the upload and waits until what was written of it is removed.
    pub async fn abort(mut self) {
        if let Some(removed) = self.abandon() {
            // An error is a runtime that shut down: the rest goes by its expiry.
            drop(removed.await);
        }
    }

    fn abandon(&mut self) -> Option<oneshot::Receiver<()>> {
        let mut writer = self.writer.take()?;
        let tomb = || Some(State::Bury(self.stored.clone().tombstone().write().ok()?));
        let state = if self.stage == Stage::State { tomb()? } else { State::Leave };
        let leftovers = Leftovers {
            place: writer.place,
            state,
            chunks: 0..writer.reached(),
            fence: writer.fence,
            writes: writer.give_up(),
            is_whole: self.stage >= Stage::Index,
        };
        self.reservation = None;
        Some(writer.shared.remove(leftovers, &self.runtime))
    }
}

impl<S: Store> fmt::Debug for Upload<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Upload");
        shown.field("writer", &self.writer).field("size", &self.size).finish_non_exhaustive()
    }
}

impl<S: Store> Drop for Upload<S> {
    fn drop(&mut self) {
        drop(self.abandon());
    }
}

/// The row of the index for a BLOB of this size.
pub(super) fn index_write(size: u64, expires_at: Timestamp) -> Result<Write, BlobsError> {
    let value = Value::copy_from_slice(&size.to_be_bytes())?;
    Ok(Write::new(value, Life::Until(expires_at)))
}
