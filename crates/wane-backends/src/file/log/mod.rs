//! The log in front of the tree: one sequential, synced write for each group of changes.
//!
//! ```text
//! DIR/log/0000000000000007.log    a segment: a header, then frames, each synced on its own
//! DIR/log/0000000000000008.draft  the next one, while it is prepared
//! ```
//!
//! Segments have their full size from the beginning, so that logging needs no room and changes
//! nothing of the file but bytes. They begin small and grow with what is written. The next one is
//! prepared beside the writer, out of one that the tree has made superfluous where there is one.
//!
//! | file | what |
//! |---|---|
//! | `frame` | the bytes that one sync makes durable |
//! | `header` | what one file begins with |
//! | `segment` | one file: preparing it, appending to it |
//! | `shelf` | the folder of segments |
//! | `recovery` | reading a log back |

pub mod frame;
pub mod header;
mod recovery;
mod segment;
mod shelf;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use wane::store::Timestamp;

use self::frame::{BLOCK, Draft, Position};
pub(super) use self::recovery::{Found, Recovered, Unread, recover};
pub(super) use self::segment::Unlogged;
use self::segment::{FIRST_FRAME, Segment};
pub(super) use self::shelf::{Folder, Shelf};
use self::shelf::{Named, named, segment_name};
use super::lent_storage::is_lack_of_room;

/// The size of a store's first segment, and of those that it comes to have.
const FIRST_SIZE: u64 = 1 << 20;
const FULL_SIZE: u64 = 64 << 20;

/// The part of what young records may take that one segment takes at most: one of this many.
const SEGMENTS: u64 = 4;

/// The part of what is free on a disk that one segment takes at most: one of this many.
const SHARE: u64 = 8;

/// The log, in the hands of its one writer.
#[derive(Debug)]
pub(super) struct Log {
    segments: Arc<Segments>,
    /// None only where there was no room for one yet.
    active: Option<Segment>,
    /// The number of the segment before the next one.
    number: u64,
    /// The segment after it, once it is being prepared.
    next: Option<JoinHandle<io::Result<Segment>>>,
    /// The last frame.
    sequence: u64,
    /// Nothing may be written to the active segment any more.
    torn: bool,
    /// The size that segments come to have.
    full_size: u64,
}

/// The segments of a log, which its writer adds to and whoever brings the tree up to date takes
/// from.
#[derive(Debug)]
pub(super) struct Segments {
    shelf: Arc<dyn Shelf>,
    identity: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// What the tree does not have yet, in the order of numbers, the active one included.
    needed: VecDeque<Sized>,
    /// What may be written over.
    superfluous: Vec<Sized>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sized {
    number: u64,
    size: u64,
}

impl Segments {
    /// The segments that were found on `shelf`.
    pub(super) fn new(shelf: Arc<dyn Shelf>, identity: u64, found: &[Found]) -> Arc<Self> {
        let mut kept = Kept::default();
        // A segment without frames may hold one that was torn: it is not written to as it is.
        for Found { number, size, last } in found {
            let segment = Sized { number: *number, size: *size };
            if last.is_some() {
                kept.needed.push_back(segment);
            } else {
                kept.superfluous.push(segment);
            }
        }
        Arc::new(Self { shelf, identity, kept: Mutex::new(kept) })
    }

    /// Gives up those before `number`: the tree has all that is in them.
    pub(super) fn give_up_before(&self, number: u64) {
        let mut kept = self.kept.lock();
        while let Some(first) = kept.needed.front().copied().filter(|kept| kept.number < number) {
            kept.needed.pop_front();
            kept.superfluous.push(first);
        }
    }

    /// Removes what is superfluous.
    pub(super) fn remove_superfluous(&self) {
        let superfluous = std::mem::take(&mut self.kept.lock().superfluous);
        self.remove(superfluous);
    }

    /// Removes segments. One that cannot be removed is found superfluous at the next opening.
    fn remove(&self, segments: Vec<Sized>) {
        for segment in segments {
            if let Err(error) = self.shelf.remove(&segment_name(segment.number)) {
                tracing::warn!(backend = "file", %error, "a segment of the log cannot be removed");
            }
        }
    }

    /// Bytes of all segments.
    pub(super) fn size(&self) -> u64 {
        let kept = self.kept.lock();
        kept.needed.iter().chain(&kept.superfluous).map(|segment| segment.size).sum()
    }

    /// Bytes of those that the tree does not have yet.
    fn needed(&self) -> u64 {
        self.kept.lock().needed.iter().map(|segment| segment.size).sum()
    }

    /// Makes segment `number`, out of a superfluous one where that has its size.
    fn prepare(&self, number: u64, size: u64) -> io::Result<Segment> {
        let superfluous = std::mem::take(&mut self.kept.lock().superfluous);
        let (mut useful, useless): (Vec<_>, Vec<_>) =
            superfluous.into_iter().partition(|kept| kept.size == size);
        // The oldest first, so that what is left reads as one.
        let oldest = (0..useful.len()).min_by_key(|at| useful[*at].number);
        let recycled = oldest.map(|at| segment_name(useful.swap_remove(at).number));
        self.kept.lock().superfluous.extend(useful);
        // Of other sizes there will be no use, and what they take may be needed.
        self.remove(useless);
        Segment::prepare(&*self.shelf, self.identity, number, size, recycled.as_deref())
    }

    /// Makes the last frame durable that was found. Whoever wrote it may have been stopped before its
    /// sync, or have failed at that, after which a system may take pages for written that are not.
    pub(super) fn make_durable(&self, recovered: &Recovered) -> io::Result<()> {
        let Some(frame) = recovered.end else { return Ok(()) };
        let storage = self.shelf.open(&segment_name(frame.segment))?;
        let mut bytes = vec![0; frame.size];
        storage.read(frame.offset, &mut bytes)?;
        storage.write(frame.offset, &bytes)?;
        storage.sync_data()
    }

    fn add(&self, segment: &Segment) {
        let Segment { number, size, .. } = *segment;
        self.kept.lock().needed.push_back(Sized { number, size });
    }
}

impl Log {
    /// Goes on after what was recovered and is durable, in a segment of its own, where there is room
    /// for one. Its segments are for young records of so many bytes.
    pub(super) fn go_on(
        segments: Arc<Segments>,
        recovered: &Recovered,
        young_bytes: usize,
    ) -> io::Result<Self> {
        remove_drafts(&*segments.shelf)?;
        let number = recovered.segments.last().map_or(0, |found| found.number);
        let sequence = recovered.last;
        let full_size = FULL_SIZE.min(young_bytes as u64 / SEGMENTS);
        let (active, next, torn) = (None, None, false);
        let mut log = Self { segments, active, number, next, sequence, torn, full_size };
        match log.begin(FIRST_SIZE) {
            Err(error) if is_lack_of_room(&error) => {}
            begun => begun?,
        }
        Ok(log)
    }

    /// The segment that is being written, or comes next.
    pub(super) fn segment(&self) -> u64 {
        self.active.as_ref().map_or(self.number + 1, |active| active.number)
    }

    /// Bytes that were logged and that the tree does not have yet, roughly.
    pub(super) fn needed(&self) -> u64 {
        let unused = self.active.as_ref().map_or(0, |active| active.size - active.written());
        self.segments.needed().saturating_sub(unused)
    }

    /// Whether the frame can be logged without beginning another segment.
    pub(super) fn fits(&self, draft: &Draft) -> bool {
        !self.torn && self.active.as_ref().is_some_and(|active| active.fits(draft.size()))
    }

    /// Logs a frame, which must fit, and returns its number once it is durable.
    pub(super) fn append(
        &mut self,
        draft: &mut Draft,
        decided: Timestamp,
    ) -> Result<u64, Unlogged> {
        let Some(active) = &mut self.active else { return Err(Unlogged::NoRoom) };
        let sequence = self.sequence + 1;
        let at = Position { identity: self.segments.identity, segment: active.number, sequence };
        let appended = active.append(draft.finish(at, decided));
        let is_half_full = active.written() > active.size / 2;
        self.torn = appended.is_err();
        appended?;
        self.sequence = sequence;
        if self.next.is_none() && is_half_full {
            // Where no thread can be had now, it is tried again once the segment is full.
            drop(self.prepare_next());
        }
        Ok(sequence)
    }

    /// Begins another segment, with room for the frame.
    pub(super) fn rotate(&mut self, draft: &Draft) -> io::Result<()> {
        let needed = FIRST_FRAME + draft.size() as u64;
        let before = self.number;
        self.take_next()?;
        let has_room = self.active.as_ref().is_some_and(|active| active.size >= needed);
        if self.number > before && has_room {
            return Ok(());
        }
        // There is none, or it is smaller than this one frame and stays empty.
        match self.begin(self.next_size(needed)) {
            Err(error) if is_lack_of_room(&error) => self.begin(smallest(needed)),
            begun => begun,
        }
    }

    /// Whether it takes more than it does at first.
    pub(super) fn is_large(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.size > FIRST_SIZE)
    }

    /// Goes on in a segment of the first size.
    pub(super) fn shrink(&mut self) -> io::Result<()> {
        self.take_next()?;
        self.begin(FIRST_SIZE)
    }

    /// Goes on in the segment that is being prepared, if one is.
    fn take_next(&mut self) -> io::Result<()> {
        let Some(next) = self.next.take() else { return Ok(()) };
        let prepared = next.join();
        match prepared.map_err(|_| io::Error::other("preparing a segment panicked"))? {
            // There may be room by now.
            Err(error) if is_lack_of_room(&error) => {}
            prepared => self.go_to(prepared?),
        }
        Ok(())
    }

    /// Goes on in a segment of this size, which is prepared here and now.
    fn begin(&mut self, size: u64) -> io::Result<()> {
        let next = self.segments.prepare(self.number + 1, size)?;
        self.go_to(next);
        Ok(())
    }

    fn go_to(&mut self, next: Segment) {
        self.segments.add(&next);
        self.number = next.number;
        self.active = Some(next);
        self.torn = false;
    }

    /// The size of the segment after the active one, which is `needed` at least.
    fn next_size(&self, needed: u64) -> u64 {
        let before = self.active.as_ref().map_or(0, |active| active.size);
        // What is in it comes into the tree before it is free again, and must fit beside it.
        let free = self.segments.shelf.free().unwrap_or(u64::MAX);
        let most = (free / SHARE).min(self.full_size) & !(FIRST_SIZE - 1);
        (2 * before).min(most).max(smallest(needed))
    }

    /// Prepares the segment after the active one beside the writer.
    fn prepare_next(&mut self) -> io::Result<()> {
        let (segments, number) = (Arc::clone(&self.segments), self.number + 1);
        let size = self.next_size(0);
        let thread = std::thread::Builder::new().name("wane-file-segment".into());
        self.next = Some(thread.spawn(move || segments.prepare(number, size))?);
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Nothing may still be writing to the folder once the store is closed.
        let next = self.next.take().map(JoinHandle::join);
        if let Some(Ok(Ok(next))) = next {
            self.segments.add(&next);
        }
    }
}

/// The size of a segment for `needed` bytes.
fn smallest(needed: u64) -> u64 {
    FIRST_SIZE.max(needed.next_multiple_of(BLOCK as u64))
}

/// Removes what was being prepared when everything stopped.
fn remove_drafts(shelf: &dyn Shelf) -> io::Result<()> {
    let names = shelf.names()?;
    names.iter().filter(|name| named(name) == Named::Draft).try_for_each(|name| shelf.remove(name))
}
