//! Where the bytes of a backup come from: a store, a file, a connection.

use std::io::Read;

use bytes::Bytes;

use super::{Backup, BackupError};
use crate::store::Store;

/// The bytes of a backup, a chunk at a time.
pub trait Chunks: Send {
    /// The next chunk, or `None` at the end. After an error there are no more.
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, BackupError>>> + Send;
}

impl<S: Store> Chunks for Backup<S> {
    async fn next(&mut self) -> Option<Result<Bytes, BackupError>> {
        Backup::next(self).await
    }
}

/// Bytes read from a file or pipe. Reading blocks the thread.
#[derive(Debug)]
pub struct ReadChunks<R> {
    reader: R,
    offset: u64,
}

impl<R: Read> ReadChunks<R> {
    /// Reads from where `reader` stands, which is the beginning of a backup.
    pub fn new(reader: R) -> Self {
        Self { reader, offset: 0 }
    }

    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        /// Frames are about as long.
        const CHUNK: usize = 64 << 10;
        let mut bytes = Vec::with_capacity(CHUNK);
        (&mut self.reader).take(CHUNK as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl<R: Read + Send> Chunks for ReadChunks<R> {
    async fn next(&mut self) -> Option<Result<Bytes, BackupError>> {
        match self.read() {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => {
                self.offset += bytes.len() as u64;
                Some(Ok(bytes.into()))
            }
            Err(error) => {
                Some(Err(BackupError::Read { offset: self.offset, source: error.into() }))
            }
        }
    }
}
