//! Resumable uploads: bytes that come in several appends, over crashes and lost connections.
//!
//! The state record says from the beginning how many bytes are kept. An append takes the upload by
//! one swap, which counts its epoch, writes chunks that carry the epoch as their fence, and moves
//! the offset by another swap once they are there. So of two appends the later one has the upload:
//! the chunks and the swap of the earlier one are refused from then on, however late they come.
//! What the earlier one wrote beyond the offset is written over.
//!
//! A chunk may be left short where an append ends; the next append begins with its bytes and writes
//! it anew. The sum is taken from the stored chunks when all bytes are there, which also proves
//! that they are; then one swap makes the upload a BLOB. Where that fails, [`AppBlobs::resume`]
//! does it.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::chunks::{self, CHUNK, ChunkReader, ChunkWriter, Writes};
use super::place::Place;
use super::quota::Reservation;
use super::record::{Progress, Status, Stored};
use super::removal::{Leftovers, State, Underway};
use super::settling::{self, Settled};
use super::sums::Summing;
use super::upload::index_write;
use super::{AppBlobs, BlobsError, DeleteSecret, Meant, NewBlob, Suuid, unfinished};
use crate::services::sequencer::WorkspaceId;
use crate::store::{Fence, Store, Timestamp, Value};

/// An append keeps what has come whenever so many more chunks are there: 5 MB.
const CHECKPOINT: u32 = 50;

/// A resumable upload that was created.
#[derive(Debug, Clone)]
pub struct Created {
    /// The id of the upload, and of the BLOB that it becomes.
    pub id: Suuid,
    /// What removes it without the owner's credential.
    pub delete_secret: DeleteSecret,
    /// When it expires, complete or not.
    pub expires_at: Timestamp,
}

/// How far a resumable upload has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadProgress {
    /// Bytes that are kept: where the next append begins.
    pub offset: u64,
    /// Bytes that it will have.
    pub length: u64,
    /// When it expires, complete or not.
    pub expires_at: Timestamp,
    /// Whether it is a BLOB.
    pub is_complete: bool,
    /// What the uploader wanted kept with it.
    pub note: String,
}

/// What is kept of an append that ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Whatever has come, from time to time.
    AsItComes,
    /// Nothing: for bytes that are only good together, because they have a checksum.
    AllOrNothing,
}

impl<S: Store> AppBlobs<S> {
    /// Creates an upload of `blob.length` bytes that can be resumed. It has its place in the
    /// application's quota from the start. Where nobody waits for the end of this call any more,
    /// the upload is removed.
    pub async fn create(
        &self,
        workspace: WorkspaceId,
        blob: NewBlob,
    ) -> Result<Created, BlobsError> {
        let (created, untold) = self.create_untold(workspace, blob).await?;
        untold.told();
        Ok(created)
    }

    /// The same for whoever has still to tell its user of the upload.
    pub async fn create_untold(
        &self,
        workspace: WorkspaceId,
        blob: NewBlob,
    ) -> Result<(Created, Untold<S>), BlobsError> {
        self.limits.check(&blob)?;
        let Some(length) = blob.length else {
            let reason = "say how many bytes will come".into();
            return Err(BlobsError::Invalid { field: "length", reason });
        };
        let reservation = self.reserve(length).await?;
        let (blobs, underway) = (self.clone(), Underway::begin(&self.shared));
        // Once begun it goes on; then what it has made is known, and goes where nobody wants it.
        let task = tokio::spawn(async move {
            let created = blobs.create_reserved(workspace, &blob, length, reservation).await?;
            let untold = Untold { place: blobs.place(workspace, created.id), blobs: Some(blobs) };
            drop(underway);
            Ok((created, untold))
        });
        task.await.unwrap_or_else(|error| Err(unfinished(error)))
    }

    async fn create_reserved(
        &self,
        workspace: WorkspaceId,
        blob: &NewBlob,
        length: u64,
        reservation: Reservation,
    ) -> Result<Created, BlobsError> {
        let clock = &*self.shared.clock;
        let delete_secret = DeleteSecret::draw(clock);
        let place = self.place(workspace, Suuid::draw(clock));
        let mut stored = Stored::begun(blob, &delete_secret, clock.now(), clock.random_u64());
        stored.upload = Some(Progress { offset: 0, epoch: 0, expected_sha256: blob.sha256 });
        let expires_at = stored.expires_at();
        let value = match self.write_begun(place, &mut stored).await {
            Ok(value) => value,
            Err(error) => {
                self.bury(place, stored)?;
                return Err(error);
            }
        };
        reservation.book(place.id, length, expires_at);
        if length == 0 {
            self.complete(place, &value, stored).await?;
        }
        Ok(Created { id: place.id, delete_secret, expires_at })
    }

    /// Writes the upload's row of the index, then its state.
    async fn write_begun(&self, place: Place, stored: &mut Stored) -> Result<Value, BlobsError> {
        let store = &self.shared.store;
        let row = index_write(stored.size, stored.expires_at())?;
        settling::put(store, &place.index_row()?, &row).await?;
        settling::create(store, &place.state()?, stored).await
    }

    /// How far the upload has come; `None` where this workspace has no such upload. One whose bytes
    /// are all there becomes a BLOB here, if that had failed before.
    pub async fn resume(
        &self,
        workspace: WorkspaceId,
        id: Suuid,
    ) -> Result<Option<UploadProgress>, BlobsError> {
        let place = self.place(workspace, id);
        let Some((value, stored)) = self.stored(place).await? else { return Ok(None) };
        let (length, expires_at) = (stored.size, stored.expires_at());
        let note = stored.note.clone();
        let progress = |offset| {
            let is_complete = offset == length;
            Some(UploadProgress { offset, length, expires_at, is_complete, note })
        };
        if stored.info(id).is_some() {
            return Ok(progress(length));
        }
        let Some(offset) = stored.progress().map(|progress| progress.offset) else {
            return Ok(None);
        };
        if offset == length {
            self.complete(place, &value, stored).await?;
        }
        Ok(progress(offset))
    }

    /// Goes on with an upload at `offset`, which must be where it stands. Takes it from whoever was
    /// appending. `None` where this workspace has no such upload, or it is complete.
    pub async fn append(
        &self,
        workspace: WorkspaceId,
        id: Suuid,
        offset: u64,
        keeping: Keeping,
    ) -> Result<Option<Append<S>>, BlobsError> {
        let place = self.place(workspace, id);
        let Some((value, stored)) = self.stored(place).await? else { return Ok(None) };
        let Some(progress) = stored.progress() else { return Ok(None) };
        if progress.offset != offset {
            return Err(BlobsError::OffsetMismatch { offset: progress.offset });
        }
        let taken = stored.taken(progress, self.shared.clock.random_u64());
        let write = taken.write()?;
        let (store, key) = (&self.shared.store, place.state()?);
        let swapped = settling::swap(store, &key, Some(&value), &write).await?;
        if matches!(swapped, Settled::Refused(_)) {
            return Err(BlobsError::Overtaken);
        }
        let fence = Fence(progress.epoch + 1);
        let first = (offset / CHUNK as u64) as u32;
        let tail = self.tail(place, first, (offset % CHUNK as u64) as usize).await?;
        let shared = Arc::clone(&self.shared);
        let writer =
            ChunkWriter::new(shared, place, taken.expires_at()).going_on(first, &tail, fence);
        Ok(Some(Append {
            blobs: self.clone(),
            writer: Some(writer),
            runtime: Handle::current(),
            value: write.value,
            stored: taken,
            kept: offset,
            may_be_kept: offset,
            sent: offset,
            keeping,
            is_removed: false,
            is_taking: false,
        }))
    }

    /// Removes an upload, or the BLOB that it became; says whether there was one.
    pub async fn terminate(&self, workspace: WorkspaceId, id: Suuid) -> Result<bool, BlobsError> {
        self.remove(self.place(workspace, id), Meant::BlobOrUpload).await
    }

    /// Has an upload removed whose creation may yet arrive.
    fn bury(&self, place: Place, stored: Stored) -> Result<(), BlobsError> {
        let leftovers = Leftovers {
            place,
            state: State::Bury(stored.tombstone().write()?),
            chunks: 0..0,
            fence: Fence::NONE,
            writes: Writes::new(),
            is_whole: true,
        };
        drop(self.shared.remove(leftovers, &Handle::current()));
        Ok(())
    }

    /// The first `len` bytes of a chunk that an earlier append left short.
    async fn tail(&self, place: Place, number: u32, len: usize) -> Result<Vec<u8>, BlobsError> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let found = self.shared.store.get(&place.chunk(number)?).await?;
        // An append that was overtaken may have written more, after the same bytes.
        let tail = found.as_ref().and_then(|record| record.value.get(..len));
        tail.map(<[u8]>::to_vec).ok_or_else(|| BlobsError::Broken {
            reason: format!("chunk {number} is shorter than what was kept of it"),
        })
    }

    /// Makes a BLOB of an upload whose bytes are all there.
    async fn complete(
        &self,
        place: Place,
        value: &Value,
        stored: Stored,
    ) -> Result<(), BlobsError> {
        let (shared, size) = (&self.shared, stored.size);
        let all = 0..chunks::count(size);
        let mut reader = ChunkReader::new(Arc::clone(shared), place, size, all);
        let mut summing = Summing::default();
        while let Some(chunk) = reader.next().await? {
            summing.update(&chunk);
        }
        let sums = summing.finish();
        let sha256 = sums.sha256;
        let expected = stored.progress().and_then(|progress| progress.expected_sha256);
        if expected.is_some_and(|expected| expected != sha256) {
            self.remove(place, Meant::Upload).await?;
            return Err(BlobsError::DigestMismatch { got: sha256 });
        }
        let write = stored.completed(size, sums).write()?;
        match settling::swap(&shared.store, &place.state()?, Some(value), &write).await? {
            Settled::Done { .. } => Ok(()),
            Settled::Refused(None) => Err(BlobsError::Overtaken),
            Settled::Refused(Some(other)) => match Stored::read(&other.value)?.status {
                // Somebody else has done it, and downloads may have begun.
                Status::Complete | Status::Spent => Ok(()),
                Status::Uploading | Status::Removed => Err(BlobsError::Overtaken),
            },
        }
    }
}

/// An upload that nobody was told of. Dropped before it was, it is removed: nobody could go on.
pub struct Untold<S: Store> {
    place: Place,
    /// `None` once it was told.
    blobs: Option<AppBlobs<S>>,
}

impl<S: Store> Untold<S> {
    /// It was told: the upload is its user's.
    pub fn told(mut self) {
        self.blobs = None;
    }
}

impl<S: Store> Drop for Untold<S> {
    fn drop(&mut self) {
        let Some(blobs) = self.blobs.take() else { return };
        let (place, underway) = (self.place, Underway::begin(&blobs.shared));
        // Without a runtime there is nothing that could remove it before its expiry.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            // An error was counted where it came up: the rest goes by its expiry.
            drop(blobs.remove_found(place, &Meant::BlobOrUpload).await);
            drop(underway);
        });
    }
}

impl<S: Store> fmt::Debug for Untold<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Untold").field("told", &self.blobs.is_none()).finish_non_exhaustive()
    }
}

/// An upload that goes on. Dropped, what was not kept of it is removed.
pub struct Append<S: Store> {
    blobs: AppBlobs<S>,
    /// `None` once it has ended.
    writer: Option<ChunkWriter<S>>,
    runtime: Handle,
    /// The state record as this append last wrote it.
    value: Value,
    stored: Stored,
    /// Bytes that the record says are kept.
    kept: u64,
    /// Bytes that it may yet say are kept: a swap that moves the offset was sent.
    may_be_kept: u64,
    /// Bytes that came, with those kept before.
    sent: u64,
    keeping: Keeping,
    /// Whether the upload was found removed.
    is_removed: bool,
    /// Set while a piece is taken: found set, the taking of one was cut short.
    is_taking: bool,
}

impl<S: Store> Append<S> {
    /// Takes the next bytes, a piece of any size. After an error the append has ended; what was
    /// kept of it before stays.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), BlobsError> {
        let taken = self.take(piece).await;
        if taken.is_err() {
            self.abandon();
        }
        taken
    }

    async fn take(&mut self, piece: &[u8]) -> Result<(), BlobsError> {
        let writer = self.writer.as_mut().filter(|_| !self.is_taking).ok_or(BlobsError::Ended)?;
        let (sent, expected) = (self.sent.saturating_add(piece.len() as u64), self.stored.size);
        if sent > expected {
            return Err(BlobsError::LengthMismatch { expected, got: sent });
        }
        if writer.shared.clock.now() >= self.stored.expires_at() {
            return Err(BlobsError::Expired);
        }
        self.is_taking = true;
        self.sent = sent;
        writer.write(piece).await?;
        let whole = writer.in_whole_chunks();
        let is_due = whole >= self.kept + u64::from(CHECKPOINT) * CHUNK as u64;
        if is_due && self.keeping == Keeping::AsItComes {
            writer.drain().await?;
            self.keep_to(whole).await?;
        }
        self.is_taking = false;
        Ok(())
    }

    /// Keeps what has come; the upload is a BLOB once all of it has.
    ///
    /// After an error ask [`AppBlobs::resume`] what was kept.
    pub async fn keep(mut self) -> Result<UploadProgress, BlobsError> {
        let writer = self.writer.as_mut().filter(|_| !self.is_taking).ok_or(BlobsError::Ended)?;
        let (place, _underway) = (writer.place, Underway::begin(&writer.shared));
        writer.flush().await?;
        self.keep_to(self.sent).await?;
        self.writer = None;
        let (offset, length) = (self.kept, self.stored.size);
        let is_complete = offset == length;
        if is_complete {
            self.blobs.complete(place, &self.value, self.stored.clone()).await?;
        }
        let (expires_at, note) = (self.stored.expires_at(), self.stored.note.clone());
        Ok(UploadProgress { offset, length, expires_at, is_complete, note })
    }

    /// Bytes that came, with those kept before.
    pub fn offset(&self) -> u64 {
        self.sent
    }

    async fn keep_to(&mut self, offset: u64) -> Result<(), BlobsError> {
        let progress = self.stored.progress().ok_or(BlobsError::Ended)?;
        let next = self.stored.kept(progress, offset);
        let (write, shared) = (next.write()?, &self.blobs.shared);
        let place = self.writer.as_ref().ok_or(BlobsError::Ended)?.place;
        self.may_be_kept = offset;
        let key = place.state()?;
        let swapped = settling::swap(&shared.store, &key, Some(&self.value), &write).await?;
        match swapped {
            Settled::Refused(current) => {
                let status = |value: &Value| Stored::read(value).map(|stored| stored.status);
                self.is_removed = match current {
                    None => true,
                    Some(record) => matches!(status(&record.value), Ok(Status::Removed)),
                };
                Err(BlobsError::Overtaken)
            }
            Settled::Done { .. } => {
                (self.value, self.stored, self.kept) = (write.value, next, offset);
                Ok(())
            }
        }
    }

    fn abandon(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        // The chunk in which the kept bytes end stays, unless nothing was to stay.
        let first = match self.is_removed {
            true => (self.kept / CHUNK as u64) as u32,
            false => chunks::count(self.may_be_kept),
        };
        let leftovers = Leftovers {
            place: writer.place,
            state: State::Leave,
            chunks: first..writer.reached(),
            fence: writer.fence,
            writes: writer.give_up(),
            is_whole: false,
        };
        drop(writer.shared.remove(leftovers, &self.runtime));
    }
}

impl<S: Store> fmt::Debug for Append<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Append");
        shown.field("writer", &self.writer).field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl<S: Store> Drop for Append<S> {
    fn drop(&mut self) {
        self.abandon();
    }
}
