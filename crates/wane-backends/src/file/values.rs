//! Large values: a file beside the tree.
//!
//! ```text
//! DIR/values    values of 80 KiB and more, each at a multiple of 4 KiB
//! ```
//!
//! A tree that holds large values writes each several times over and keeps it in its cache. So the
//! tree holds where such a value lies and its checksum, and the bytes are written once, where
//! nothing else is in use, and synced before the commit that refers to them. What a crash leaves
//! without a commit is free room. Readers need no cache but the system's.
//!
//! The file appears with the first such value. The checksum covers the key as well as the bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wane::store::Value;

use super::disk::{Disk, ValueStorage};
use super::format::{FormatError, Place, checksum};

/// The file of large values, there or not yet.
pub(super) struct ValuesFile {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    storage: OnceLock<Arc<dyn ValueStorage>>,
}

impl std::fmt::Debug for ValuesFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValuesFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ValuesFile {
    /// The file at `path`, which need not exist.
    pub(super) fn open(path: PathBuf, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let values = Self { path, disk, storage: OnceLock::new() };
        match OpenOptions::new().read(true).write(true).open(&values.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => {
                // Whoever made it may have been killed before its name was durable.
                values.sync_name()?;
                values.keep(opened?)?;
            }
        }
        Ok(values)
    }

    /// Makes the name of the file durable.
    fn sync_name(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// The bytes of the file; none where it is not there yet.
    pub(super) fn len(&self) -> io::Result<u64> {
        self.storage.get().map_or(Ok(0), |storage| storage.len())
    }

    /// Reads the value of `key`. An inner error is the value's alone.
    pub(super) fn read(&self, key: &[u8], place: Place) -> io::Result<Result<Value, FormatError>> {
        let Some(storage) = self.storage.get() else { return Ok(Err(FormatError::Short)) };
        let mut bytes = vec![0; place.len as usize];
        match storage.read(place.offset, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Err(FormatError::Short));
            }
            read => read?,
        }
        if checksum(key, &bytes) != place.crc {
            return Ok(Err(FormatError::Checksum));
        }
        Ok(Value::new(Bytes::from(bytes)).map_err(|_| FormatError::Impossible("length")))
    }

    /// Writes a value that has another place already.
    pub(super) fn write(&self, offset: u64, value: &[u8]) -> io::Result<()> {
        self.storage()?.write(offset, value)
    }

    /// Writes values side by side, and the file itself where it is not there yet. Only the writer
    /// calls this.
    pub(super) fn write_pieces(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        if self.storage.get().is_none() {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false);
            let file = file.open(&self.path)?;
            // A sync that failed leaves a doubt, whatever it failed for.
            self.sync_name().map_err(io::Error::other)?;
            self.keep(file)?;
        }
        self.storage()?.write_pieces(offset, pieces)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.storage()?.sync_data()
    }

    /// Cuts the file off where nothing beyond is in use.
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage()?.set_len(len)
    }

    fn storage(&self) -> io::Result<&Arc<dyn ValueStorage>> {
        self.storage.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn keep(&self, file: File) -> io::Result<()> {
        // Nobody else has set it: there is one opener, and then one writer.
        drop(self.storage.set(self.disk.values(file)?));
        Ok(())
    }
}
