//! Chunks: a BLOB in pieces of 100 KiB, written ahead and read ahead.
//!
//! Whatever pieces a caller hands in, every chunk but the last has exactly [`CHUNK`] bytes. Each is
//! one record, written by a task of its own, a few of them at once, so that a slow store does not
//! make the caller wait for each in turn. Beyond those few an upload takes what is left of a number
//! that all share, so that one alone fills the commits of a store and many are bounded. Reading
//! keeps a few under way and hands them out in order. So a transfer takes the memory of a few
//! chunks, and all together that of the shared ones, however long a BLOB is.
//!
//! Invariant: one writer writes each of its chunks with one content only. What arrives twice or
//! late therefore changes nothing, and what an earlier writer of the same upload sends late is
//! refused by the fence of the later one.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::place::Place;
use super::sums::SummingTask;
use super::{BlobsError, Shared, settling};
use crate::store::{Fence, Life, Store, StoreError, Timestamp, Value, Write};

/// Bytes of every chunk but the last.
pub const CHUNK: usize = 102_400;

/// Chunks of a bucket, which is a partition of the store.
pub(super) const BUCKET: u32 = 100;

/// The largest BLOB that the numbers of chunks allow.
pub(super) const MAX_SIZE: u64 = u32::MAX as u64 * CHUNK as u64;

/// Chunks of a BLOB of so many bytes.
pub(super) fn count(size: u64) -> u32 {
    // Up to MAX_SIZE it fits.
    u32::try_from(size.div_ceil(CHUNK as u64)).unwrap_or(u32::MAX)
}

/// Bytes of one chunk of such a BLOB.
pub(super) fn length(size: u64, number: u32) -> usize {
    let before = u64::from(number) * CHUNK as u64;
    usize::try_from(size.saturating_sub(before)).unwrap_or(CHUNK).min(CHUNK)
}

/// The writes of chunks under way.
pub(super) type Writes = JoinSet<Result<(), BlobsError>>;

/// Cuts what comes into chunks and writes them ahead.
pub(super) struct ChunkWriter<S> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) place: Place,
    expires_at: Timestamp,
    pub(super) fence: Fence,
    /// What has come of the next chunk.
    buffer: Vec<u8>,
    /// The number of the next chunk.
    next: u32,
    writes: Writes,
    /// Where every chunk is summed, if any of them is.
    pub(super) summing: Option<SummingTask>,
}

impl<S: Store> ChunkWriter<S> {
    pub(super) fn new(shared: Arc<Shared<S>>, place: Place, expires_at: Timestamp) -> Self {
        let (buffer, writes) = (Vec::new(), JoinSet::new());
        let (fence, summing) = (Fence::NONE, None);
        Self { shared, place, expires_at, fence, buffer, next: 0, writes, summing }
    }

    /// The same, summing what it writes.
    pub(super) fn summing(self) -> Self {
        Self { summing: Some(SummingTask::begin()), ..self }
    }

    /// The same from a chunk on that begins with `tail`, with a fence on every write.
    pub(super) fn going_on(mut self, next: u32, tail: &[u8], fence: Fence) -> Self {
        self.next = next;
        self.fence = fence;
        self.push(tail);
        self
    }

    /// Takes a piece of any size. Waits while as many chunks are under way as may be.
    ///
    /// Dropped before it is done, it has taken some of the piece and nobody knows how much.
    pub(super) async fn write(&mut self, mut piece: &[u8]) -> Result<(), BlobsError> {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(CHUNK - self.buffer.len()));
            self.push(now);
            piece = later;
            if self.buffer.len() == CHUNK {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Writes what is left as the last chunk and waits for all that are under way.
    pub(super) async fn flush(&mut self) -> Result<(), BlobsError> {
        if !self.buffer.is_empty() {
            self.send().await?;
        }
        self.drain().await
    }

    /// Waits for all that are under way.
    pub(super) async fn drain(&mut self) -> Result<(), BlobsError> {
        while let Some(written) = self.writes.join_next().await {
            joined(written)?;
        }
        Ok(())
    }

    /// Chunks that may have been written: all below this number.
    pub(super) fn reached(&self) -> u32 {
        self.next
    }

    /// Bytes that stand in whole chunks once all that are under way have arrived.
    pub(super) fn in_whole_chunks(&self) -> u64 {
        u64::from(self.next) * CHUNK as u64
    }

    /// Gives up writing: what is under way, for whoever removes it.
    pub(super) fn give_up(&mut self) -> Writes {
        std::mem::take(&mut self.writes)
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.buffer.capacity() == 0 {
            self.buffer = self.shared.buffers.take();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Waits until one more chunk may be under way; beyond an upload's own it takes a shared one.
    async fn turn(&mut self) -> Result<Option<OwnedSemaphorePermit>, BlobsError> {
        loop {
            while let Some(written) = self.writes.try_join_next() {
                joined(written)?;
            }
            if self.writes.len() < self.shared.settings.write_ahead.max(1) {
                return Ok(None);
            }
            if let Ok(shared) = Arc::clone(&self.shared.ahead).try_acquire_owned() {
                return Ok(Some(shared));
            }
            if let Some(written) = self.writes.join_next().await {
                joined(written)?;
            }
        }
    }

    async fn send(&mut self) -> Result<(), BlobsError> {
        let turn = self.turn().await?;
        let key = self.place.chunk(self.next)?;
        let life = Life::Until(self.expires_at);
        let chunk = self.take();
        if let Some(summing) = &self.summing {
            summing.update(chunk.clone()).await?;
        }
        let write = Write::new(Value::new(chunk)?, life).fenced(self.fence);
        self.next += 1;
        let shared = Arc::clone(&self.shared);
        self.writes.spawn(async move {
            let written = settling::put(&shared.store, &key, &write).await;
            drop(turn);
            if written? { Ok(()) } else { Err(BlobsError::Overtaken) }
        });
        Ok(())
    }

    /// The buffered bytes, in no more memory than they need.
    fn take(&mut self) -> Bytes {
        if self.buffer.len() == CHUNK {
            return self.shared.buffers.lend(std::mem::take(&mut self.buffer));
        }
        let bytes = Bytes::copy_from_slice(&self.buffer);
        self.buffer.clear();
        bytes
    }
}

impl<S> fmt::Debug for ChunkWriter<S> {
    /// Without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ChunkWriter");
        shown.field("place", &self.place).field("next", &self.next).finish_non_exhaustive()
    }
}

fn joined(written: Result<Result<(), BlobsError>, JoinError>) -> Result<(), BlobsError> {
    written.unwrap_or_else(|error| {
        Err(StoreError::Unknown { backend: "blobs", source: error.into() }.into())
    })
}

/// Reads chunks ahead and hands them out in order.
pub(super) struct ChunkReader<S> {
    shared: Arc<Shared<S>>,
    place: Place,
    /// Of the whole BLOB: it says how long each chunk is.
    size: u64,
    /// Those that are not asked for yet.
    left: Range<u32>,
    ahead: VecDeque<JoinHandle<Result<Bytes, BlobsError>>>,
}

impl<S: Store> ChunkReader<S> {
    pub(super) fn new(shared: Arc<Shared<S>>, place: Place, size: u64, left: Range<u32>) -> Self {
        Self { shared, place, size, left, ahead: VecDeque::new() }
    }

    /// The next chunk, of exactly the length that it must have; `None` after the last. Dropped
    /// before it is done, it has taken nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BlobsError> {
        while self.ahead.len() < self.shared.settings.read_ahead.max(1) {
            let Some(number) = self.left.next() else { break };
            let (shared, place) = (Arc::clone(&self.shared), self.place);
            let expected = length(self.size, number);
            self.ahead.push_back(tokio::spawn(async move {
                fetch(&shared.store, place, number, expected).await
            }));
        }
        let Some(first) = self.ahead.front_mut() else { return Ok(None) };
        let fetched = first.await;
        self.ahead.pop_front();
        let unavailable =
            |error: JoinError| StoreError::Unavailable { backend: "blobs", source: error.into() };
        fetched.map_err(unavailable)?.map(Some)
    }
}

impl<S> Drop for ChunkReader<S> {
    fn drop(&mut self) {
        self.ahead.iter().for_each(JoinHandle::abort);
    }
}

async fn fetch<S: Store>(
    store: &S,
    place: Place,
    number: u32,
    expected: usize,
) -> Result<Bytes, BlobsError> {
    let found = store.get(&place.chunk(number)?).await?;
    let Some(record) = found else {
        return Err(BlobsError::Broken { reason: format!("chunk {number} is missing") });
    };
    let bytes = record.value.into_bytes();
    if bytes.len() == expected {
        return Ok(bytes);
    }
    let reason = format!("chunk {number} has {} bytes instead of {expected}", bytes.len());
    Err(BlobsError::Broken { reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_add_up_at_every_border() {
        const WHOLE: u64 = CHUNK as u64;
        for (size, chunks, last) in [
            (1, 1, 1),
            (WHOLE - 1, 1, CHUNK - 1),
            (WHOLE, 1, CHUNK),
            (WHOLE + 1, 2, 1),
            (WHOLE * 100, 100, CHUNK),
            (MAX_SIZE, u32::MAX, CHUNK),
        ] {
            assert_eq!(count(size), chunks, "{size}");
            assert_eq!(length(size, chunks - 1), last, "{size}");
            assert_eq!(length(size, chunks), 0, "{size}");
        }
        assert_eq!(count(0), 0);
    }
}
