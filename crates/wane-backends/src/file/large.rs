//! Large values on their way into the store: written beside the tree before they are logged.
//!
//! The log says where such a value lies, and the tree takes that over: its bytes are written once.
//! Values that lie side by side are gathered and written in one piece: a file system takes one large
//! piece in half the time of many.

use std::io;
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
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<Option<Place>> {
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
        self.gathered.bytes.clear();
        let given_up = self.taken.drain(..).chain(self.dropped.drain(..));
        self.space.lock().give_up(given_up);
    }

    /// Writes what was gathered.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.gathered.bytes.is_empty() {
            self.values.write(self.gathered.offset, &self.gathered.bytes)?;
            self.gathered.bytes.clear();
        }
        Ok(())
    }
}

/// Values that are about to be written. Kept from group to group for its memory.
#[derive(Debug, Default)]
struct Gathered {
    offset: u64,
    bytes: Vec<u8>,
}

impl Gathered {
    /// Adds a value that begins in the block after the last one; says whether it does, and fits.
    fn takes(&mut self, offset: u64, value: &[u8]) -> bool {
        let end = self.bytes.len().next_multiple_of(BLOCK as usize);
        let fits = end + value.len() <= GATHERED;
        if self.bytes.is_empty() {
            self.offset = offset;
        } else if !fits || self.offset + end as u64 != offset {
            return false;
        }
        self.bytes.resize(end, 0);
        self.bytes.extend_from_slice(value);
        true
    }
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
        let place = large.put(b"key", &vec![1; LARGE]).unwrap().unwrap();
        large.give_up(place);
        assert_eq!(space.lock().used(), Extent::around(0, place.len).len, "it is not free yet");
        large.flush().unwrap();
        large.sync().unwrap();
        large.keep();
        assert_eq!((space.lock().used(), large.gathered.bytes.len()), (0, 0));
    }

    #[test]
    fn values_side_by_side_are_gathered_and_others_are_not() {
        let mut gathered = Gathered::default();
        assert!(gathered.takes(2 * BLOCK, &[1; 5]));
        assert!(!gathered.takes(2 * BLOCK, &[2; 5]), "the same place again");
        assert!(!gathered.takes(4 * BLOCK, &[2; 5]), "a block between");
        assert!(gathered.takes(3 * BLOCK, &[2; 5]));
        assert_eq!(gathered.offset, 2 * BLOCK);
        assert_eq!(gathered.bytes.len(), BLOCK as usize + 5);
        assert_eq!(gathered.bytes[..6], [1, 1, 1, 1, 1, 0]);
        assert_eq!(gathered.bytes[BLOCK as usize..], [2; 5]);
        assert!(!gathered.takes(4 * BLOCK, &[3; GATHERED]), "too many");
        gathered.bytes.clear();
        assert!(gathered.takes(9 * BLOCK, &[3; GATHERED]), "one alone");
    }
}
