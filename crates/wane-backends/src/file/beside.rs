//! Large values within a transaction: where each lies, and what becomes free.
//!
//! A table lists them by their place, with their keys, in the same transaction as the records that
//! refer to them: so the list and the records never differ. What is written is synced before the
//! transaction is committed; what is freed stays as it is until no snapshot shows it.

use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use wane::store::{BoxError, Value};

use super::engine::Snapshot;
use super::format::{FormatError, LARGE, Place, checksum, decode_large, encode_large};
use super::lent_storage::LentValues;
use super::space::{Extent, Space};

const LARGE_VALUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("large");

/// The large values, as one write transaction changes them.
pub(super) struct Beside<'txn> {
    transaction: &'txn WriteTransaction,
    pub(super) values: &'txn LentValues,
    pub(super) space: &'txn mut Space<Snapshot>,
    /// Opened where it is needed: most transactions meet no large value.
    list: Option<LargeTable<'txn>>,
    freed: Vec<Extent>,
    has_written: bool,
}

type LargeTable<'txn> = Table<'txn, u64, &'static [u8]>;

impl<'txn> Beside<'txn> {
    pub(super) fn new(
        transaction: &'txn WriteTransaction,
        values: &'txn LentValues,
        space: &'txn mut Space<Snapshot>,
    ) -> Self {
        let freed = Vec::new();
        Self { transaction, values, space, list: None, freed, has_written: false }
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
        &self,
        key: &[u8],
        place: Option<Place>,
    ) -> Result<Option<Result<Value, FormatError>>, BoxError> {
        Ok(place.map(|place| self.values.read(key, place)).transpose()?)
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
        self.values.write(offset, value)?;
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

    /// Makes durable what was written. Returns what was freed.
    pub(super) fn close(self) -> Result<Vec<Extent>, BoxError> {
        if self.has_written {
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
