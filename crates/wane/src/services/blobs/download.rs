//! Downloads: the bytes that went in, in order, or an error; never fewer, never others.
//!
//! The length of every chunk is known from the size, so that one that is missing, short or long is
//! noticed where it is read. A download of the whole is summed up as it goes, and its last chunk is
//! handed out only where the sum is right. After an error a reading never says that it is done.
//!
//! A BLOB with a number of downloads is claimed by one swap before the first byte: of racing claims
//! on the last download one wins, and a transfer that breaks is spent. The last one has the BLOB
//! removed once it ends, and once earlier ones of this process have ended too; those of other
//! nodes that are still under way then break.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::chunks::{self, CHUNK, ChunkReader, Writes};
use super::place::Place;
use super::record::{Status, Stored};
use super::removal::{Leftovers, State};
use super::settling::{self, Settled};
use super::sums::Comparing;
use super::{AppBlobs, BlobsError, Sha256Sum, Shared, Suuid, unfinished};
use crate::services::sequencer::WorkspaceId;
use crate::store::{Fence, Record, Store, Timestamp};

/// How often a claim tries again when another one was faster.
const ATTEMPTS: usize = 64;

/// What a BLOB is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its id.
    pub id: Suuid,
    /// Its name.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    pub size: u64,
    /// Their sum.
    pub sha256: Sha256Sum,
    /// When its upload began.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// How often it can still be downloaded; `None` for any number of times.
    pub downloads_left: Option<u32>,
}

/// A BLOB that was found, as it was then.
#[derive(Debug, Clone)]
pub struct FoundBlob {
    place: Place,
    info: BlobInfo,
    /// What a download is compared with.
    crc32: Option<u32>,
    record: Record,
}

impl FoundBlob {
    /// What it is.
    pub fn info(&self) -> &BlobInfo {
        &self.info
    }
}

impl<S: Store> AppBlobs<S> {
    /// What the BLOB is; `None` where this workspace has no such BLOB. Takes no download.
    pub async fn info(
        &self,
        workspace: WorkspaceId,
        id: Suuid,
    ) -> Result<Option<BlobInfo>, BlobsError> {
        Ok(self.find(workspace, id).await?.map(|found| found.info))
    }

    /// What the BLOB is, to look at before it is [opened](Self::open_found); `None` where this
    /// workspace has no such BLOB. Takes no download.
    pub async fn find(
        &self,
        workspace: WorkspaceId,
        id: Suuid,
    ) -> Result<Option<FoundBlob>, BlobsError> {
        let place = self.place(workspace, id);
        let found = self.shared.store.get(&place.state()?).await?;
        let Some(record) = found else { return Ok(None) };
        let stored = Stored::read(&record.value)?;
        let info = stored.info(id).filter(|info| self.shared.clock.now() < info.expires_at);
        Ok(info.map(|info| FoundBlob { place, info, crc32: stored.crc32, record }))
    }

    /// Begins a download, and takes one where they are numbered; `None` where this workspace has no
    /// such BLOB, or no download is left.
    ///
    /// After an error a download may have been taken.
    pub async fn open(
        &self,
        workspace: WorkspaceId,
        id: Suuid,
    ) -> Result<Option<Blob<S>>, BlobsError> {
        match self.find(workspace, id).await? {
            Some(found) => self.open_found(found).await,
            None => Ok(None),
        }
    }

    /// [Opens](Self::open) what was found a moment ago, without asking for it again. What was
    /// removed since is `None` where downloads are numbered, and otherwise breaks off.
    pub async fn open_found(&self, found: FoundBlob) -> Result<Option<Blob<S>>, BlobsError> {
        let FoundBlob { place, info, crc32, record } = found;
        if place.app != self.app {
            return Ok(None);
        }
        if info.downloads_left.is_none() {
            let shared = Arc::clone(&self.shared);
            return Ok(Some(Blob { shared, place, info, crc32, claim: None }));
        }
        // Where the bytes cannot be had at all, no download is taken for them.
        let first = 0..chunks::count(info.size).min(1);
        let first =
            ChunkReader::new(Arc::clone(&self.shared), place, info.size, first).next().await;
        if let Err(error) = first {
            // Whoever took the last download may have removed it meanwhile.
            let is_there = self.info(place.workspace, place.id).await?.is_some();
            return if is_there { Err(error) } else { Ok(None) };
        }
        // Once begun it goes on, and ends as a transfer of which nobody took a byte.
        let blobs = self.clone();
        let task = tokio::spawn(async move { blobs.claim(place, record).await });
        task.await.unwrap_or_else(|error| Err(unfinished(error)))
    }

    /// Takes one of a number of downloads, by a swap of the `record` that was found.
    async fn claim(&self, place: Place, record: Record) -> Result<Option<Blob<S>>, BlobsError> {
        let (shared, key) = (&self.shared, place.state()?);
        let mut found = Some(record);
        for _ in 0..ATTEMPTS {
            let Some(record) = found else { return Ok(None) };
            let stored = Stored::read(&record.value)?;
            let info = stored.info(place.id).filter(|info| shared.clock.now() < info.expires_at);
            let Some(mut info) = info else { return Ok(None) };
            let Some(claimed) = stored.claimed(shared.clock.random_u64()) else {
                let (shared, crc32) = (Arc::clone(shared), stored.crc32);
                return Ok(Some(Blob { shared, place, info, crc32, claim: None }));
            };
            info.downloads_left = claimed.downloads_left;
            // Entered before the swap: another transfer that ends meanwhile must know of it.
            let claim = Claim::enter(shared, place);
            let write = claimed.write()?;
            let swapped = settling::swap(&shared.store, &key, Some(&record.value), &write).await;
            let is_ours = match &swapped {
                Ok(settled) => matches!(settled, Settled::Done { .. }),
                // It may have been taken all the same, and then nobody else removes the BLOB.
                Err(_) => {
                    let now = shared.store.get(&key).await;
                    now.is_ok_and(|now| now.is_some_and(|now| now.value == write.value))
                }
            };
            if is_ours && claimed.status == Status::Spent {
                claim.spend(chunks::count(info.size), claimed.lingers);
            }
            match swapped? {
                Settled::Done { .. } => {
                    let (shared, claim) = (Arc::clone(shared), Some(claim));
                    let crc32 = claimed.crc32;
                    return Ok(Some(Blob { shared, place, info, crc32, claim }));
                }
                Settled::Refused(current) => found = current,
            }
        }
        Err(BlobsError::Contended)
    }
}

/// The transfers of BLOBs with a number of downloads, in this process.
#[derive(Debug, Default)]
pub(super) struct Transfers(Mutex<HashMap<Suuid, Underway>>);

#[derive(Debug, Default)]
struct Underway {
    transfers: usize,
    /// What to remove after the last transfer, once the last download was taken.
    spent: Option<Spent>,
}

#[derive(Debug, Clone, Copy)]
struct Spent {
    chunks: u32,
    /// Whether the state stays until its expiry, as a tombstone.
    lingers: bool,
}

/// One transfer of a BLOB with a number of downloads. Dropped, it has ended.
struct Claim<S: Store> {
    shared: Arc<Shared<S>>,
    place: Place,
    runtime: Handle,
}

impl<S: Store> Claim<S> {
    fn enter(shared: &Arc<Shared<S>>, place: Place) -> Self {
        shared.transfers.0.lock().entry(place.id).or_default().transfers += 1;
        Self { shared: Arc::clone(shared), place, runtime: Handle::current() }
    }

    /// Notes that no download is left.
    fn spend(&self, chunks: u32, lingers: bool) {
        let mut transfers = self.shared.transfers.0.lock();
        transfers.entry(self.place.id).or_default().spent = Some(Spent { chunks, lingers });
    }

    /// Ends the transfer; what to remove, where it was the last one.
    fn leave(&self) -> Option<Spent> {
        let mut transfers = self.shared.transfers.0.lock();
        let underway = transfers.get_mut(&self.place.id)?;
        underway.transfers -= 1;
        if underway.transfers > 0 {
            return None;
        }
        transfers.remove(&self.place.id)?.spent
    }
}

impl<S: Store> Drop for Claim<S> {
    fn drop(&mut self) {
        if let Some(spent) = self.leave() {
            let leftovers = Leftovers {
                place: self.place,
                state: if spent.lingers { State::Leave } else { State::Forget },
                chunks: 0..spent.chunks,
                fence: Fence::NONE,
                writes: Writes::new(),
                is_whole: true,
            };
            drop(self.shared.remove(leftovers, &self.runtime));
        }
    }
}

/// A BLOB that is about to be read.
pub struct Blob<S: Store> {
    shared: Arc<Shared<S>>,
    place: Place,
    info: BlobInfo,
    crc32: Option<u32>,
    claim: Option<Claim<S>>,
}

impl<S: Store> fmt::Debug for Blob<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blob").field("info", &self.info).finish_non_exhaustive()
    }
}

impl<S: Store> Blob<S> {
    /// What it is. The number of downloads left is that after this one.
    pub fn info(&self) -> &BlobInfo {
        &self.info
    }

    /// All of its bytes, checked against their sum.
    pub fn read_all(self) -> Reading<S> {
        let all = 0..self.info.size;
        self.reading(all)
    }

    /// The bytes of a range, which must lie within the BLOB.
    pub fn read(self, range: Range<u64>) -> Result<Reading<S>, BlobsError> {
        let size = self.info.size;
        if range.start > range.end || range.end > size {
            let reason = format!("give a range within the {size} bytes of the BLOB");
            return Err(BlobsError::Invalid { field: "range", reason });
        }
        Ok(self.reading(range))
    }

    fn reading(self, range: Range<u64>) -> Reading<S> {
        let size = self.info.size;
        let first = (range.start / CHUNK as u64) as u32;
        let numbers = if range.is_empty() { 0..0 } else { first..chunks::count(range.end) };
        let is_whole = range == (0..size);
        Reading {
            chunks: ChunkReader::new(Arc::clone(&self.shared), self.place, size, numbers),
            shared: self.shared,
            expires_at: self.info.expires_at,
            comparing: is_whole.then(|| Comparing::with(self.info.sha256, self.crc32)),
            position: u64::from(first) * CHUNK as u64,
            range,
            is_done: false,
            has_failed: false,
            claim: self.claim,
        }
    }
}

/// Bytes of a BLOB on their way out, chunk by chunk.
pub struct Reading<S: Store> {
    shared: Arc<Shared<S>>,
    chunks: ChunkReader<S>,
    expires_at: Timestamp,
    /// `None` where only a part is read.
    comparing: Option<Comparing>,
    /// Where the next chunk begins.
    position: u64,
    range: Range<u64>,
    /// Whether all bytes were handed out.
    is_done: bool,
    has_failed: bool,
    claim: Option<Claim<S>>,
}

impl<S: Store> fmt::Debug for Reading<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Reading");
        shown.field("range", &self.range).field("position", &self.position).finish_non_exhaustive()
    }
}

impl<S: Store> Reading<S> {
    /// The next bytes; `None` once all were handed out. Dropped before it is done, nothing is lost.
    ///
    /// After an error the bytes handed out are not all, and every further call says so.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BlobsError> {
        if self.has_failed {
            return Err(BlobsError::Ended);
        }
        let next = self.advance().await;
        self.has_failed = next.is_err();
        if !matches!(next, Ok(Some(_))) {
            self.claim = None;
        }
        next
    }

    async fn advance(&mut self) -> Result<Option<Bytes>, BlobsError> {
        if self.is_done {
            return Ok(None);
        }
        self.check_life()?;
        let chunk = match self.chunks.next().await {
            Ok(chunk) => chunk,
            // Whatever expired meanwhile looks broken.
            Err(error) => return self.check_life().and(Err(error)),
        };
        self.check_life()?;
        let Some(chunk) = chunk else {
            self.check_sum()?;
            return Ok(None);
        };
        if let Some(comparing) = &mut self.comparing {
            comparing.update(&chunk);
        }
        let (begin, end) = (self.position, self.position + chunk.len() as u64);
        self.position = end;
        self.is_done = end >= self.range.end;
        if self.is_done {
            self.check_sum()?;
        }
        let from = self.range.start.saturating_sub(begin) as usize;
        let to = (self.range.end.min(end) - begin) as usize;
        Ok(Some(chunk.slice(from..to)))
    }

    fn check_life(&self) -> Result<(), BlobsError> {
        if self.shared.clock.now() < self.expires_at { Ok(()) } else { Err(BlobsError::Expired) }
    }

    /// Compares the sum once all bytes are there.
    fn check_sum(&mut self) -> Result<(), BlobsError> {
        match self.comparing.take().map(Comparing::finish) {
            Some(false) => {
                let reason = "its bytes do not have the sum that they were stored with".into();
                Err(BlobsError::Broken { reason })
            }
            Some(true) | None => Ok(()),
        }
    }
}
