//! Large values within a transaction: where each lies, and what becomes free.
//!
//! A table lists them by their place, with their keys, in the same transaction as the records that
//! refer to them: so the list and the records never differ. What is written is synced before the
//! transaction is committed; what is freed stays as it is until no snapshot shows it. Values that
//! lie side by side are gathered and written in one piece: a file system takes one large piece in
//! half the time of many.

use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use wane::store::{BoxError, Value};

use super::engine::Snapshot;
use super::format::{FormatError, LARGE, Place, checksum, decode_large, encode_large};
use super::lent_storage::LentValues;
use super::space::{BLOCK, Extent, Space};

/// Values are gathered up to this many bytes.
const GATHERED: usize = 1 << 20;

const LARGE_VALUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("large");

/// The large values, as one write transaction changes them.
pub(super) struct Beside<'txn> {
    transaction: &'txn WriteTransaction,
    values: &'txn LentValues,
    pub(super) space: &'txn mut Space<Snapshot>,
    /// Opened where it is needed: most transactions meet no large value.
    list: Option<LargeTable<'txn>>,
    freed: Vec<Extent>,
    gathered: &'txn mut Gathered,
    has_written: bool,
}

/// Values that are about to be written. Kept between transactions for its memory.
#[derive(Debug, Default)]
pub(super) struct Gathered {
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

type LargeTable<'txn> = Table<'txn, u64, &'static [u8]>;

impl<'txn> Beside<'txn> {
    pub(super) fn new(
        transaction: &'txn WriteTransaction,
        values: &'txn LentValues,
        space: &'txn mut Space<Snapshot>,
        gathered: &'txn mut Gathered,
    ) -> Self {
        // What a transaction left that failed.
        gathered.bytes.clear();
        let freed = Vec::new();
        Self { transaction, values, space, list: None, freed, gathered, has_written: false }
    }

    fn list(&mut self) -> Result<&mut LargeTable<'txn>, redb::TableError> {
        let list = match self.list.take() {
            Some(list) => list,
            None => self.transaction.open_table(LARGE_VALUES)?,
        };
        Ok(self.list.insert(list))
    }

    /// Reads the value at `place`, if that is one. An inner error is the value's alone.
    pub(super) fn value(
        &mut self,
        key: &[u8],
        place: Option<Place>,
    ) -> Result<Option<Result<Value, FormatError>>, BoxError> {
        let Some(place) = place else { return Ok(None) };
        self.flush()?;
        Ok(Some(self.values.read(key, place)?))
    }

    /// Writes a value, if it is large.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Place>, BoxError> {
        if value.len() < LARGE {
            return Ok(None);
        }
        let extent = self.space.take(value.len() as u32);
        self.put_at(key, value, extent).map(Some)
    }

    pub(super) fn put_at(
        &mut self,
        key: &[u8],
        value: &[u8],
        at: Extent,
    ) -> Result<Place, BoxError> {
        let (offset, len) = (at.offset, value.len() as u32);
        let place = Place { offset, len, crc: checksum(key, value) };
        if !self.gathered.takes(offset, value) {
            self.flush()?;
            self.gathered.takes(offset, value);
        }
        self.has_written = true;
        self.list()?.insert(offset, &*encode_large(key, place))?;
        Ok(place)
    }

    pub(super) fn free(&mut self, place: Option<Place>) -> Result<(), BoxError> {
        if let Some(place) = place {
            self.list()?.remove(place.offset)?;
            self.freed.push(Extent::around(place.offset, place.len));
        }
        Ok(())
    }

    /// The last value of the file, and its key.
    pub(super) fn last_that_can_move(&mut self) -> Result<Option<(Place, Vec<u8>)>, BoxError> {
        let Some((offset, bytes)) = self.list()?.last()? else { return Ok(None) };
        let (place, key) = decode_large(offset.value(), bytes.value())?;
        Ok(Some((place, key.to_vec())))
    }

    /// Writes what was gathered.
    fn flush(&mut self) -> Result<(), BoxError> {
        if !self.gathered.bytes.is_empty() {
            self.values.write(self.gathered.offset, &self.gathered.bytes)?;
            self.gathered.bytes.clear();
        }
        Ok(())
    }

    /// Makes durable what was written. Returns what was freed.
    pub(super) fn close(mut self) -> Result<Vec<Extent>, BoxError> {
        if self.has_written {
            self.flush()?;
            self.values.sync()?;
        }
        Ok(self.freed)
    }
}

/// Hands the place and the stored key of each large value to `visit`, in the order of the file.
pub(super) fn each_large(
    transaction: &ReadTransaction,
    mut visit: impl FnMut(Place, &[u8]) -> Result<(), redb::Error>,
) -> Result<(), redb::Error> {
    let list = match transaction.open_table(LARGE_VALUES) {
        Ok(list) => list,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for row in list.iter()? {
        let (offset, bytes) = row?;
        let (place, key) = decode_large(offset.value(), bytes.value())
            .map_err(|error| redb::Error::Corrupted(error.to_string()))?;
        visit(place, key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
