//! A store to bytes: the scan of a store, framed as it goes.

use std::vec;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::format::{FrameFill, FrameKind, Header, Trailer, encode_preamble};
use super::{BackupError, Progress};
use crate::clock::Clock;
use crate::store::{PageLimit, Row, ScanPage, Store};

/// A backup that is being made: a stream of chunks, each at most as long as the longest record.
///
/// It holds one page of the scan. While it lives, the store keeps what the scan shows: drop it when
/// whoever takes the chunks has gone. Without its last chunk it is refused by every reader.
#[derive(Debug)]
pub struct Backup<S: Store> {
    store: S,
    rows: vec::IntoIter<Row>,
    next_row: Option<Row>,
    cursor: Option<S::ScanCursor>,
    stage: Stage,
    digest: Sha256,
    progress: Progress,
}

#[derive(Debug)]
enum Stage {
    Beginning(Header),
    Records,
    Ended,
}

impl<S: Store> Backup<S> {
    /// Begins a backup of `store`, labelled with the name of its backend.
    ///
    /// The first page is read here, so that a store that does not answer is known before the first
    /// byte is sent. On memory and file this is the moment that the backup shows.
    pub async fn begin(store: S, clock: &dyn Clock, backend: &str) -> Result<Self, BackupError> {
        // Before the scan: a record that is not shown may have been written later, never earlier.
        let created_at = clock.now();
        let page = scan(&store, None).await?;
        Ok(Self {
            store,
            rows: page.rows.into_iter(),
            next_row: None,
            cursor: page.next,
            stage: Stage::Beginning(Header { created_at, backend: backend.to_owned() }),
            digest: Sha256::new(),
            progress: Progress::default(),
        })
    }

    /// What was yielded so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The next chunk, or `None` once the backup is complete or has failed.
    pub async fn next(&mut self) -> Option<Result<Bytes, BackupError>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        let chunk = match stage {
            Stage::Ended => return None,
            Stage::Beginning(header) => {
                self.stage = Stage::Records;
                self.beginning(&header)
            }
            Stage::Records => match self.records().await {
                Err(error) => return Some(Err(error)),
                Ok(Some(frame)) => {
                    self.stage = Stage::Records;
                    frame.seal(self.progress.bytes)
                }
                Ok(None) => self.trailer().seal(self.progress.bytes),
            },
        };
        self.digest.update(&chunk);
        self.progress.bytes += chunk.len() as u64;
        Some(Ok(chunk.into()))
    }

    fn beginning(&self, header: &Header) -> Vec<u8> {
        let preamble = encode_preamble();
        let frame = FrameFill::header(header).seal(preamble.len() as u64);
        [&preamble[..], &frame].concat()
    }

    /// The next frame of records, unless all of them were yielded.
    async fn records(&mut self) -> Result<Option<FrameFill>, BackupError> {
        let mut frame = FrameFill::new(FrameKind::Records);
        let before = self.progress.records;
        while let Some(row) = self.next_row().await? {
            if !frame.has_room(&row) {
                self.next_row = Some(row);
                break;
            }
            frame.push(&row);
            self.progress.records += 1;
        }
        Ok((self.progress.records > before).then_some(frame))
    }

    async fn next_row(&mut self) -> Result<Option<Row>, BackupError> {
        loop {
            if let Some(row) = self.next_row.take().or_else(|| self.rows.next()) {
                return Ok(Some(row));
            }
            let Some(cursor) = self.cursor.take() else { return Ok(None) };
            let page = scan(&self.store, Some(cursor)).await?;
            self.rows = page.rows.into_iter();
            self.cursor = page.next;
        }
    }

    fn trailer(&self) -> FrameFill {
        let digest = self.digest.clone().finalize().into();
        FrameFill::trailer(&Trailer { records: self.progress.records, digest })
    }
}

async fn scan<S: Store>(
    store: &S,
    after: Option<S::ScanCursor>,
) -> Result<ScanPage<S::ScanCursor>, BackupError> {
    store.scan(after, PageLimit::MAX).await.map_err(|source| BackupError::Store { source })
}
