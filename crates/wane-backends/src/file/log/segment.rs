//! One file of the log: a header, then frames.
//!
//! The file has its full size, filled with zeros or with the frames of the segment that it was
//! before: writing over blocks that exist needs no room and syncs in half the time of appending.

use std::io;

use redb::StorageBackend;

use super::frame::BLOCK;
use super::header::{Header, LOG_VERSION};
use super::shelf::{Shelf, draft_name, segment_name};
use crate::file::disk::Storage;
use crate::file::lent_storage::is_lack_of_room;

/// Where the first frame begins.
pub(super) const FIRST_FRAME: u64 = BLOCK as u64;

/// What is written at a time while a file is filled.
const PIECE: usize = 1 << 20;

/// A segment that frames are written to.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) size: u64,
    storage: Storage,
    /// Where the next frame begins.
    end: u64,
}

/// Why a frame was not logged.
#[derive(Debug)]
pub(in crate::file) enum Unlogged {
    /// There is no room on the disk, and the frame will not turn up.
    NoRoom,
    /// Nobody knows whether it is there.
    InDoubt(io::Error),
}

impl Segment {
    /// Makes a segment out of nothing, or out of the file `recycled`, which has its size.
    pub(super) fn prepare(
        shelf: &dyn Shelf,
        identity: u64,
        number: u64,
        size: u64,
        recycled: Option<&str>,
    ) -> io::Result<Self> {
        let draft = draft_name(number);
        if let Some(recycled) = recycled {
            shelf.rename(recycled, &draft)?;
            // Under its old name it must not turn up with another's header.
            shelf.sync()?;
        }
        let storage = shelf.open(&draft)?;
        if recycled.is_none()
            && let Err(error) = fill(&*storage, size)
        {
            // Others may have what was not enough. Where it cannot be removed, it is filled anew.
            drop(storage.set_len(0).and_then(|()| shelf.remove(&draft)));
            return Err(error);
        }
        let header = Header { version: LOG_VERSION, identity, number, size };
        storage.write(0, &header.encode())?;
        storage.sync_data()?;
        shelf.rename(&draft, &segment_name(number))?;
        shelf.sync()?;
        Ok(Self { number, size, storage, end: FIRST_FRAME })
    }

    /// Whether a frame of so many bytes fits.
    pub(super) fn fits(&self, frame: usize) -> bool {
        self.end + frame as u64 <= self.size
    }

    /// Bytes that are written.
    pub(super) fn written(&self) -> u64 {
        self.end
    }

    /// Writes a frame and makes it durable. Where that fails, nothing more may be written here.
    pub(super) fn append(&mut self, frame: &[u8]) -> Result<(), Unlogged> {
        self.storage.write(self.end, frame).map_err(|error| {
            if is_lack_of_room(&error) {
                return Unlogged::NoRoom;
            }
            Unlogged::InDoubt(error)
        })?;
        // A sync that fails for want of room is as bad as any: what the system could not write it
        // may have dropped.
        self.storage.sync_data().map_err(Unlogged::InDoubt)?;
        self.end += frame.len() as u64;
        Ok(())
    }
}

/// Gives a file its size, in blocks that are really there.
fn fill(storage: &dyn StorageBackend, size: u64) -> io::Result<()> {
    // A draft that was left behind may hold anything.
    storage.set_len(0)?;
    storage.set_len(size)?;
    let zeros = vec![0; PIECE.min(size as usize)];
    (0..size).step_by(PIECE).try_for_each(|offset| {
        let piece = zeros.len().min((size - offset) as usize);
        storage.write(offset, &zeros[..piece])
    })
}
