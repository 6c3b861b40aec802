//! Large values within a transaction of the tree: where each lies, and what becomes free.
//!
//! A table lists them by their place, with their keys, in the same transaction as the records that
//! refer to them: so the list and the records never differ. Their bytes were written and synced
//! before; only those that are moved are written here. What is freed stays as it is until no
//! snapshot shows it.

use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction,
};
use wane::store::{BoxError, Value};

use super::format::{FormatError, Place, checksum, decode_large, encode_large};
use super::lent_storage::LentValues;
use super::space::Extent;
use super::view::SharedSpace;

const LARGE_VALUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("large");

/// The large values, as one write transaction changes them.
pub(super) struct Beside<'txn> {
    transaction: &'txn WriteTransaction,
    values: &'txn LentValues,
    space: SharedSpace,
    /// Opened where it is needed: most transactions meet no large value.
    list: Option<LargeTable<'txn>>,
    moved: &'txn mut Moved,
}

/// What a transaction does to the room in the file of large values.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// In use no longer, once it is committed.
    pub(super) freed: Vec<Extent>,
    /// In use only if it is.
    pub(super) taken: Vec<Extent>,
}

type LargeTable<'txn> = Table<'txn, u64, &'static [u8]>;

impl<'txn> Beside<'txn> {
    pub(super) fn new(
        transaction: &'txn WriteTransaction,
        values: &'txn LentValues,
        space: SharedSpace,
        moved: &'txn mut Moved,
    ) -> Self {
        Self { transaction, values, space, list: None, moved }
    }

    fn list(&mut self) -> Result<&mut LargeTable<'txn>, redb::TableError> {
        let list = match self.list.take() {
            Some(list) => list,
            None => self.transaction.open_table(LARGE_VALUES)?,
        };
        Ok(self.list.insert(list))
    }

    /// Reads the value at `place`. An inner error is the value's alone.
    pub(super) fn value(
        &self,
        key: &[u8],
        place: Place,
    ) -> Result<Result<Value, FormatError>, BoxError> {
        Ok(self.values.read(key, place)?)
    }

    /// Lists a value that lies at `place`.
    pub(super) fn list_at(&mut self, key: &[u8], place: Place) -> Result<(), BoxError> {
        self.list()?.insert(place.offset, &*encode_large(key, place))?;
        Ok(())
    }

    /// Writes a value anew before the place where it lies, if there is room.
    pub(super) fn move_forward(
        &mut self,
        key: &[u8],
        value: &[u8],
        from: Place,
    ) -> Result<Option<Place>, BoxError> {
        let to = self.space.lock().take_before(from.offset, from.len);
        let Some(to) = to else { return Ok(None) };
        self.moved.taken.push(to);
        let place = Place { offset: to.offset, len: from.len, crc: checksum(key, value) };
        self.values.write(to.offset, value)?;
        self.list_at(key, place)?;
        self.free(Some(from))?;
        Ok(Some(place))
    }

    pub(super) fn free(&mut self, place: Option<Place>) -> Result<(), BoxError> {
        if let Some(place) = place {
            self.list()?.remove(place.offset)?;
            self.moved.freed.push(Extent::around(place.offset, place.len));
        }
        Ok(())
    }

    /// The last value of the file, and its key.
    pub(super) fn last_that_can_move(&mut self) -> Result<Option<(Place, Vec<u8>)>, BoxError> {
        let Some((offset, bytes)) = self.list()?.last()? else { return Ok(None) };
        let (place, key) = decode_large(offset.value(), bytes.value())?;
        Ok(Some((place, key.to_vec())))
    }

    /// Makes durable what was written.
    pub(super) fn close(self) -> Result<(), BoxError> {
        if !self.moved.taken.is_empty() {
            self.values.sync()?;
        }
        Ok(())
    }
}

/// The list of large values, as one read transaction shows it.
pub(super) struct LargeList {
    /// None where there was never one.
    table: Option<ReadOnlyTable<u64, &'static [u8]>>,
}

impl LargeList {
    pub(super) fn open(transaction: &ReadTransaction) -> Result<Self, redb::Error> {
        match transaction.open_table(LARGE_VALUES) {
            Ok(table) => Ok(Self { table: Some(table) }),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(Self { table: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands the place and the stored key of each value to `visit`, in the order of the file.
    pub(super) fn each(
        &self,
        mut visit: impl FnMut(Place, &[u8]) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let Some(table) = &self.table else { return Ok(()) };
        for row in table.iter()? {
            let (offset, bytes) = row?;
            let (place, key) = decode_large(offset.value(), bytes.value())
                .map_err(|error| redb::Error::Corrupted(error.to_string()))?;
            visit(place, key)?;
        }
        Ok(())
    }

    /// Whether the value of a stored key is listed at `place`.
    pub(super) fn has(&self, key: &[u8], place: Place) -> Result<bool, redb::Error> {
        let Some(table) = &self.table else { return Ok(false) };
        let listed = table.get(place.offset)?;
        Ok(listed.is_some_and(|bytes| bytes.value() == encode_large(key, place)))
    }
}
