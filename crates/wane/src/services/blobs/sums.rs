//! The sums of a BLOB: one for whoever has the bytes, one for whoever reads them back.
//!
//! SHA-256 names the bytes to clients, who compare it on their side. It takes longer than reading
//! and sending them, so a download is checked against a CRC-32 instead, ten times as fast: that is
//! for bytes that a store lost, cut or mixed up, not for a forger.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{BlobsError, Sha256Sum};
use crate::store::StoreError;

/// The sums of all bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) sha256: Sha256Sum,
    pub(super) crc32: u32,
}

/// The sums of the bytes so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Summing {
    sha256: Sha256,
    crc32: crc32fast::Hasher,
}

impl Summing {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.crc32.update(bytes);
    }

    pub(super) fn finish(self) -> Sums {
        Sums { sha256: Sha256Sum::finished(self.sha256), crc32: self.crc32.finalize() }
    }
}

/// Chunks that wait to be summed, at most. Their bytes are those that are being written.
const WAITING: usize = 4;

/// The sums of chunks that come one after the other, taken by a task of its own: whoever receives
/// them goes on meanwhile. Dropped, the task ends.
#[derive(Debug)]
pub(super) struct SummingTask {
    chunks: mpsc::Sender<Bytes>,
    sums: JoinHandle<Sums>,
}

impl SummingTask {
    /// Needs a tokio runtime.
    pub(super) fn begin() -> Self {
        let (chunks, mut coming) = mpsc::channel::<Bytes>(WAITING);
        let sums = tokio::spawn(async move {
            let mut summing = Summing::default();
            while let Some(chunk) = coming.recv().await {
                summing.update(&chunk);
            }
            summing.finish()
        });
        Self { chunks, sums }
    }

    pub(super) async fn update(&self, chunk: Bytes) -> Result<(), BlobsError> {
        self.chunks.send(chunk).await.map_err(unfinished)
    }

    /// The sums of all that came.
    pub(super) async fn finish(self) -> Result<Sums, BlobsError> {
        drop(self.chunks);
        self.sums.await.map_err(unfinished)
    }
}

/// The task is gone, as the runtime is about to be.
fn unfinished(error: impl std::error::Error + Send + Sync + 'static) -> BlobsError {
    StoreError::Unavailable { backend: "blobs", source: error.into() }.into()
}

/// What the bytes of a download are compared with.
#[derive(Debug, Clone)]
pub(super) enum Comparing {
    Crc32(crc32fast::Hasher, u32),
    /// For a BLOB that was stored without the other sum.
    Sha256(Box<Sha256>, Sha256Sum),
}

impl Comparing {
    pub(super) fn with(sha256: Sha256Sum, crc32: Option<u32>) -> Self {
        match crc32 {
            Some(crc32) => Self::Crc32(crc32fast::Hasher::new(), crc32),
            None => Self::Sha256(Box::default(), sha256),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hash, _) => hash.update(bytes),
            Self::Sha256(hash, _) => hash.update(bytes),
        }
    }

    /// Whether the bytes are those that were stored.
    pub(super) fn finish(self) -> bool {
        match self {
            Self::Crc32(hash, expected) => hash.finalize() == expected,
            Self::Sha256(hash, expected) => Sha256Sum::finished(*hash) == expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_noticed_by_either_sum() {
        let mut summing = Summing::default();
        summing.update(b"by");
        summing.update(b"tes");
        let sums = summing.finish();
        assert_eq!(sums.sha256, Sha256Sum::of(b"bytes"));
        for crc32 in [Some(sums.crc32), None] {
            for (bytes, is_same) in [(b"bytes", true), (b"bytse", false), (b"Bytes", false)] {
                let mut comparing = Comparing::with(sums.sha256, crc32);
                comparing.update(bytes);
                assert_eq!(comparing.finish(), is_same, "{crc32:?} {bytes:?}");
            }
        }
    }
}
