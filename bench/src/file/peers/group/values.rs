//! Large values: a file beside the tree, synced before the commit that refers to it.
//!
//! Values are gathered and written in large pieces. The file only grows: room that expired values
//! leave is not used again, as no benchmark lives to see it.

use std::fs::{File, OpenOptions};
use std::path::Path;

use ::redb::StorageBackend;
use ::redb::backends::FileBackend;
use ::wane::store::Value;
use bytes::Bytes;

use super::bytes::{Damaged, Place, checksum};
use crate::BoxError;

/// Values of this size and more lie beside the tree.
pub(super) const LARGE: usize = 80 * 1_024;

/// Values begin at multiples of this.
const BLOCK: usize = 4_096;

/// Values are gathered up to this many bytes.
const GATHERED: usize = 1 << 20;

/// The file of large values, on the same disk as the tree.
#[derive(Debug)]
pub(super) struct ValuesFile {
    storage: Box<dyn StorageBackend>,
}

impl ValuesFile {
    /// Opens the file, or creates it.
    pub(super) fn open<S: StorageBackend>(
        path: &Path,
        disk: impl FnOnce(FileBackend) -> S,
    ) -> Result<Self, BoxError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(Self { storage: Box::new(disk(FileBackend::new(file)?)) })
    }

    /// Where the next value would begin.
    pub(super) fn end(&self) -> std::io::Result<u64> {
        Ok(self.storage.len()?.next_multiple_of(BLOCK as u64))
    }

    /// Reads the value of `key`.
    pub(super) fn read(&self, key: &[u8], place: Place) -> Result<Value, BoxError> {
        let mut bytes = vec![0; place.len as usize];
        self.storage.read(place.offset, &mut bytes)?;
        if checksum(key, &bytes) != place.crc {
            return Err(Damaged.into());
        }
        Ok(Value::new(Bytes::from(bytes))?)
    }
}

/// Values on their way into the file. Kept between transactions for its memory.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Where the first of them will lie.
    offset: u64,
    bytes: Vec<u8>,
    has_written: bool,
}

impl Gathered {
    /// Nothing yet; the first value will begin at `offset`.
    pub(super) fn at(offset: u64) -> Self {
        Self { offset, bytes: Vec::new(), has_written: false }
    }

    /// Takes a value and says where it will lie.
    pub(super) fn put(
        &mut self,
        file: &ValuesFile,
        key: &[u8],
        value: &[u8],
    ) -> Result<Place, BoxError> {
        if self.bytes.len() + value.len() > GATHERED {
            self.flush(file)?;
        }
        let offset = self.offset + self.bytes.len() as u64;
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        self.has_written = true;
        Ok(Place { offset, len: value.len() as u32, crc: checksum(key, value) })
    }

    /// Makes all of it readable.
    pub(super) fn flush(&mut self, file: &ValuesFile) -> Result<(), BoxError> {
        if !self.bytes.is_empty() {
            file.storage.write(self.offset, &self.bytes)?;
            self.offset += self.bytes.len() as u64;
            self.bytes.clear();
        }
        Ok(())
    }

    /// Makes all of it durable.
    pub(super) fn sync(&mut self, file: &ValuesFile) -> Result<(), BoxError> {
        if std::mem::take(&mut self.has_written) {
            self.flush(file)?;
            file.storage.sync_data()?;
        }
        Ok(())
    }
}
