//! Large values on their way into the store: written beside the tree before they are logged.
//!
//! The log says where such a value lies, and the tree takes that over: its bytes are written once.
//! Values that lie side by side are gathered and written in one call: a file system takes them so in
//! two thirds of the time.

use std::io::{self, IoSlice};
use std::sync::Arc;

use wane::store::Value;

use super::format::{FormatError, LARGE, Place, checksum};
use super::space::{BLOCK, Extent};
use super::values::ValuesFile;
use super::view::SharedSpace;

/// Values are gathered up to this many bytes.
const GATHERED: usize = 1 << 20;

/// The large values of one group after another.
#[derive(Debug)]
pub(super) struct LargeValues {
    values: Arc<ValuesFile>,
    space: SharedSpace,
    gathered: Gathered,
    /// What the group has taken.
    taken: Vec<Extent>,
    /// What it has taken and needs no more. It is not free as long as something may be written there.
    dropped: Vec<Extent>,
}

impl LargeValues {
    pub(super) fn new(values: Arc<ValuesFile>, space: SharedSpace) -> Self {
        let (taken, dropped) = (Vec::new(), Vec::new());
        Self { values, space, gathered: Gathered::default(), taken, dropped }
    }

    /// Finds a place for a value and writes it there, if it is large.
    pub(super) fn put(&mut self, key: &[u8], value: &Value) -> io::Result<Option<Place>> {
        if value.len() < LARGE {
            return Ok(None);
        }
        let len = value.len() as u32;
        let at = self.space.lock().take(len);
        self.taken.push(at);
        if !self.gathered.takes(at.offset, value) {
            self.flush()?;
            self.gathered.takes(at.offset, value);
        }
        Ok(Some(Place { offset: at.offset, len, crc: checksum(key, value) }))
    }

    /// Reads the value at `place`. An inner error is the value's alone.
    pub(super) fn read(
        &mut self,
        key: &[u8],
        place: Place,
    ) -> io::Result<Result<Value, FormatError>> {
        self.flush()?;
        self.values.read(key, place)
    }

    /// Gives up what the group has taken for a value that it has replaced itself.
    pub(super) fn give_up(&mut self, place: Place) {
        let at = self.taken.iter().position(|taken| taken.offset == place.offset);
        self.dropped.extend(at.map(|at| self.taken.swap_remove(at)));
    }

    /// Makes the values of the group durable, after they were flushed.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.taken.is_empty() { Ok(()) } else { self.values.sync() }
    }

    /// The group was logged, or may have been: what it has taken is in use.
    pub(super) fn keep(&mut self) {
        self.taken.clear();
        self.abandon();
    }

    /// The group came to nothing: what it has taken is free, and nobody has seen it.
    pub(super) fn abandon(&mut self) {
        self.gathered.values.clear();
        let given_up = self.taken.drain(..).chain(self.dropped.drain(..));
        self.space.lock().give_up(given_up);
    }

    /// Writes what was gathered.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.gathered.values.is_empty() {
            self.values.write_pieces(self.gathered.offset, &mut self.gathered.pieces())?;
            self.gathered.values.clear();
        }
        Ok(())
    }
}

/// Values that are about to be written.
#[derive(Debug, Default)]
struct Gathered {
    offset: u64,
    values: Vec<Value>,
    /// Where the last of them ends, counted from the first.
    end: usize,
}

/// What lies between the end of a value and the block in which the next begins.
const GAP: [u8; BLOCK as usize] = [0; BLOCK as usize];

impl Gathered {
    /// Adds a value that begins in the block after the last one; says whether it does, and fits.
    fn takes(&mut self, offset: u64, value: &Value) -> bool {
        let begin = if self.values.is_empty() { 0 } else { next_block(self.end) };
        let fits = begin + value.len() <= GATHERED;
        if self.values.is_empty() {
            self.offset = offset;
        } else if !fits || self.offset + begin as u64 != offset {
            return false;
        }
        self.end = begin + value.len();
        self.values.push(value.clone());
        true
    }

    /// The values and what lies between them.
    fn pieces(&self) -> Vec<IoSlice<'_>> {
        let mut pieces = Vec::with_capacity(2 * self.values.len());
        for value in &self.values {
            pieces.push(IoSlice::new(value));
            let gap = next_block(value.len()) - value.len();
            if gap > 0 {
                pieces.push(IoSlice::new(&GAP[..gap]));
            }
        }
        // Behind the last of them nothing is written.
        if !self.end.is_multiple_of(BLOCK as usize) {
            pieces.pop();
        }
        pieces
    }
}

fn next_block(end: usize) -> usize {
    end.next_multiple_of(BLOCK as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::disk::FileSystem;
    use crate::file::space::Space;

    /// What was gathered for it must not be written over what another puts there.
    #[test]
    fn a_value_that_its_own_group_replaces_is_given_up_with_the_group() {
        let home = tempfile::tempdir().unwrap();
        let values = ValuesFile::open(home.path().join("values"), Arc::new(FileSystem)).unwrap();
        let space: SharedSpace = Arc::new(parking_lot::Mutex::new(Space::beside([])));
        let mut large = LargeValues::new(Arc::new(values), Arc::clone(&space));
        let value = Value::new(vec![1; LARGE]).unwrap();
        let place = large.put(b"key", &value).unwrap().unwrap();
        large.give_up(place);
        assert_eq!(space.lock().used(), Extent::around(0, place.len).len, "it is not free yet");
        large.flush().unwrap();
        large.sync().unwrap();
        large.keep();
        assert_eq!((space.lock().used(), large.gathered.values.len()), (0, 0));
    }

    #[test]
    fn values_side_by_side_are_gathered_and_others_are_not() {
        let value = |byte, len| Value::new(vec![byte; len]).unwrap();
        let mut gathered = Gathered::default();
        assert!(gathered.takes(2 * BLOCK, &value(1, 5)));
        assert!(!gathered.takes(2 * BLOCK, &value(2, 5)), "the same place again");
        assert!(!gathered.takes(4 * BLOCK, &value(2, 5)), "a block between");
        assert!(gathered.takes(3 * BLOCK, &value(2, BLOCK as usize)));
        assert!(gathered.takes(4 * BLOCK, &value(3, 7)));
        assert_eq!(gathered.offset, 2 * BLOCK);
        let bytes: Vec<u8> = gathered.pieces().iter().flat_map(|piece| piece.to_vec()).collect();
        let block = BLOCK as usize;
        assert_eq!(bytes.len(), 2 * block + 7);
        assert_eq!(bytes[..6], [1, 1, 1, 1, 1, 0]);
        assert_eq!(bytes[block..2 * block], [2; BLOCK as usize]);
        assert_eq!(bytes[2 * block..], [3; 7]);
        let long = value(4, 25 * block);
        let more = (0..20).take_while(|n| gathered.takes((5 + 25 * n) * BLOCK, &long)).count();
        assert_eq!(more, (GATHERED - 3 * block) / (25 * block), "no more than fit");
    }
}
