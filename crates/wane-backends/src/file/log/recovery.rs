//! Reading a log back: what was logged since the tree was last brought up to date.
//!
//! Frames are numbered without gaps, and each is durable before the next is written. So the first
//! frame that cannot be read is the end of the log, if it was being written when everything stopped:
//! nothing of the log lies behind it. Where something does, it had been durable and was damaged since,
//! and the store refuses to open. After an end like that the log goes on in another segment, whose
//! first frame has the number that is missing.

use std::io;
use std::path::PathBuf;

use wane::store::Timestamp;

use super::frame::{self, BLOCK, HEAD, Head, Logged, TAIL};
use super::header::{Header, LOG_VERSION};
use super::segment::FIRST_FRAME;
use super::shelf::{Named, Shelf, named, segment_name};
use crate::file::disk::Storage;
use crate::file::format::FormatError;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::file) enum Unread {
    /// It is not as it was written.
    #[error("{path}: {reason}", path = .path.display())]
    Damaged { path: PathBuf, reason: String },
    /// It was written by a later version.
    #[error("{path} has log format {found}", path = .path.display())]
    Newer { path: PathBuf, found: u64 },
    /// The system says so.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A segment that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::file) struct Found {
    pub(in crate::file) number: u64,
    pub(in crate::file) size: u64,
    /// Its last frame that the tree does not have, if there is one.
    pub(in crate::file) last: Option<u64>,
}

/// What was read back.
#[derive(Debug)]
pub(in crate::file) struct Recovered {
    /// In the order of numbers.
    pub(in crate::file) segments: Vec<Found>,
    /// The last frame, of those in the tree if there is none in the log.
    pub(in crate::file) last: u64,
    /// The latest time that anything in it was decided at.
    pub(in crate::file) time: Option<Timestamp>,
    /// Where the last frame lies, unless the tree has it.
    pub(in crate::file) end: Option<FrameAt>,
}

/// Where a frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::file) struct FrameAt {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) size: usize,
}

/// Hands every change behind the frame `checkpointed` to `visit`, with the segment that it is in, in
/// the order in which they happened.
pub(in crate::file) fn recover(
    shelf: &dyn Shelf,
    identity: u64,
    checkpointed: u64,
    mut visit: impl FnMut(u64, Logged<'_>) -> Result<(), FormatError>,
) -> Result<Recovered, Unread> {
    let mut numbers: Vec<_> = shelf.names()?.iter().filter_map(|name| segment(name)).collect();
    numbers.sort_unstable();
    let mut recovery = Recovery { checkpointed, next: None, time: None, end: None };
    let mut segments = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut reader = Reader::open(shelf, identity, number)?;
        let last = recovery.read(&mut reader, &mut visit)?;
        segments.push(Found { number, size: reader.size, last });
    }
    let last = recovery.next.map_or(checkpointed, |next| checkpointed.max(next - 1));
    Ok(Recovered { segments, last, time: recovery.time, end: recovery.end })
}

fn segment(name: &str) -> Option<u64> {
    match named(name) {
        Named::Segment(number) => Some(number),
        Named::Draft | Named::Other => None,
    }
}

struct Recovery {
    checkpointed: u64,
    /// The frame that must come next, once one was seen.
    next: Option<u64>,
    time: Option<Timestamp>,
    end: Option<FrameAt>,
}

impl Recovery {
    /// Reads one segment to its end, and says which of its frames is the last that counts.
    fn read(
        &mut self,
        reader: &mut Reader,
        visit: &mut impl FnMut(u64, Logged<'_>) -> Result<(), FormatError>,
    ) -> Result<Option<u64>, Unread> {
        let mut last = None;
        while let Some(head) = reader.frame()? {
            self.check_order(reader, &head)?;
            self.next = Some(head.sequence + 1);
            self.time = self.time.max(Some(head.decided));
            if head.sequence > self.checkpointed {
                last = Some(head.sequence);
                let (segment, size) = (head.segment, head.size());
                self.end = Some(FrameAt { segment, offset: reader.at - size as u64, size });
                frame::each_change(&head, reader.changes(), |logged| visit(head.segment, logged))
                    .map_err(|error| reader.damaged(&format!("frame {}: {error}", head.sequence)))?;
            }
        }
        reader.check_end()?;
        Ok(last)
    }

    fn check_order(&self, reader: &Reader, head: &Head) -> Result<(), Unread> {
        // What the tree has may have gone with segments that it made superfluous, here and there.
        let needed = self.next.map_or(0, |next| next.max(self.checkpointed + 1));
        let follows = if head.sequence <= self.checkpointed {
            self.next.is_none_or(|next| head.sequence >= next)
        } else {
            head.sequence == needed.max(self.checkpointed + 1)
        };
        if follows {
            return Ok(());
        }
        let expected = needed.max(self.checkpointed + 1);
        Err(reader.damaged(&format!(
            "it goes on with frame {}, and frame {expected} is missing: a segment before it was \
             removed or damaged",
            head.sequence
        )))
    }
}

/// A segment that is being read.
struct Reader {
    path: PathBuf,
    storage: Storage,
    identity: u64,
    number: u64,
    size: u64,
    at: u64,
    /// The changes of the frame that was read last.
    buffer: Vec<u8>,
}

impl Reader {
    fn open(shelf: &dyn Shelf, identity: u64, number: u64) -> Result<Self, Unread> {
        let name = segment_name(number);
        let (path, storage) = (shelf.path(&name), shelf.open(&name)?);
        let damaged = |reason: String| Unread::Damaged { path: path.clone(), reason };
        let len = storage.len()?;
        if len < FIRST_FRAME {
            return Err(damaged(format!("it has {len} bytes, which is less than its header")));
        }
        let mut block = [0; BLOCK];
        storage.read(0, &mut block)?;
        let header = Header::decode(&block)
            .map_err(|error| damaged(format!("its header cannot be read: {error}")))?;
        if header.version > LOG_VERSION {
            return Err(Unread::Newer { path, found: u64::from(header.version) });
        }
        if header.identity != identity {
            return Err(damaged("it belongs to another store".to_owned()));
        }
        if header.number != number {
            return Err(damaged(format!("it is segment {} under another name", header.number)));
        }
        if header.size != len {
            return Err(damaged(format!("it has {len} of {} bytes", header.size)));
        }
        let size = header.size;
        let (at, buffer) = (FIRST_FRAME, Vec::new());
        Ok(Self { path, storage, identity, number, size, at, buffer })
    }

    fn damaged(&self, reason: &str) -> Unread {
        Unread::Damaged { path: self.path.clone(), reason: reason.to_owned() }
    }

    /// The next frame, or `None` where there is none that can be read.
    fn frame(&mut self) -> Result<Option<Head>, Unread> {
        let Some(head) = self.head_at(self.at)? else { return Ok(None) };
        if self.at + head.size() as u64 > self.size {
            return Ok(None);
        }
        let end = self.at + head.size() as u64;
        let mut tail = [0; TAIL];
        self.storage.read(end - TAIL as u64, &mut tail)?;
        if !head.is_ended_by(&tail) {
            return Ok(None);
        }
        self.buffer.resize(head.len as usize, 0);
        self.storage.read(self.at + HEAD as u64, &mut self.buffer)?;
        if frame::each_change(&head, &self.buffer, |_| Ok::<_, FormatError>(())).is_err() {
            return Ok(None);
        }
        self.at = end;
        Ok(Some(head))
    }

    fn changes(&self) -> &[u8] {
        &self.buffer
    }

    /// The head of this segment's frame at `offset`, if there is one.
    fn head_at(&self, offset: u64) -> Result<Option<Head>, Unread> {
        if offset + BLOCK as u64 > self.size {
            return Ok(None);
        }
        let mut bytes = [0; HEAD];
        self.storage.read(offset, &mut bytes)?;
        Ok(Head::decode(self.identity, &bytes).ok().filter(|head| head.segment == self.number))
    }

    /// Makes sure that nothing of the log lies behind the frame that could not be read.
    fn check_end(&self) -> Result<(), Unread> {
        let mut offset = self.at + BLOCK as u64;
        while offset < self.size {
            if let Some(behind) = self.head_at(offset)? {
                return Err(self.damaged(&format!(
                    "the frame at {} is damaged: frame {} was written after it",
                    self.at, behind.sequence
                )));
            }
            offset += BLOCK as u64;
        }
        Ok(())
    }
}
