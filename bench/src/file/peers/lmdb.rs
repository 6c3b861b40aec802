//! LMDB used plainly: one write transaction, and so one sync, for each write.

use std::ops::Range;
use std::path::Path;

use ::lmdb::{
    Cursor, Database, DatabaseFlags, Environment, Error, RwTransaction, Transaction, WriteFlags,
};

use super::{LOAD_BATCH, Records, index_entry, partition_end};
use crate::BoxError;
use crate::file::contest::{BlockingStore, RANGE_ROWS};
use crate::workload::flat_key;

/// Address space for the map, not memory: the file grows as needed.
const MAP_BYTES: usize = 64 << 30;

/// An LMDB environment with default flags: a commit syncs.
#[derive(Debug)]
pub(crate) struct Lmdb {
    environment: Environment,
    table: Database,
    expiries: Database,
    records: Records,
}

impl Lmdb {
    /// Creates an environment in the directory.
    pub(crate) fn create(directory: &Path) -> Result<Self, BoxError> {
        let path = directory.join("lmdb");
        std::fs::create_dir_all(&path)?;
        let mut builder = Environment::new();
        let environment =
            builder.set_max_dbs(2).set_max_readers(512).set_map_size(MAP_BYTES).open(&path)?;
        let table = environment.create_db(Some("records"), DatabaseFlags::empty())?;
        let expiries = environment.create_db(Some("expiries"), DatabaseFlags::empty())?;
        Ok(Self { environment, table, expiries, records: Records::new() })
    }

    fn put(&self, transaction: &mut RwTransaction<'_>, index: u64) -> Result<(), Error> {
        let fresh = self.records.fresh();
        transaction.put(self.table, &flat_key(index), &fresh, WriteFlags::empty())?;
        transaction.put(self.expiries, &index_entry(&fresh, index), &[], WriteFlags::empty())
    }

    /// Writes record `index` if `condition` holds of what is there.
    fn write(
        &self,
        index: u64,
        condition: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<bool, BoxError> {
        let mut transaction = self.environment.begin_rw_txn()?;
        let current = found(transaction.get(self.table, &flat_key(index)))?.map(<[u8]>::to_vec);
        if !condition(current.as_deref()) {
            return Ok(false);
        }
        if let Some(current) = current {
            transaction.del(self.expiries, &index_entry(&current, index), None)?;
        }
        self.put(&mut transaction, index)?;
        transaction.commit()?;
        Ok(true)
    }
}

fn found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

impl BlockingStore for Lmdb {
    fn insert(&self, index: u64) -> Result<bool, BoxError> {
        self.write(index, |current| current.is_none_or(|record| !self.records.is_live(record)))
    }

    fn renew(&self, index: u64) -> Result<bool, BoxError> {
        self.write(index, |current| current.is_some_and(|record| self.records.matches(record)))
    }

    fn get(&self, index: u64) -> Result<bool, BoxError> {
        let transaction = self.environment.begin_ro_txn()?;
        let record = found(transaction.get(self.table, &flat_key(index)))?.map(<[u8]>::to_vec);
        Ok(std::hint::black_box(record).is_some_and(|record| self.records.is_live(&record)))
    }

    fn range(&self, index: u64) -> Result<usize, BoxError> {
        let end = partition_end(index);
        let transaction = self.environment.begin_ro_txn()?;
        let mut cursor = transaction.open_ro_cursor(self.table)?;
        let mut rows = Vec::with_capacity(RANGE_ROWS);
        for row in cursor.iter_from(flat_key(index)) {
            let (key, record) = row?;
            if key >= &end[..] || rows.len() == RANGE_ROWS {
                break;
            }
            if self.records.is_live(record) {
                rows.push((key.to_vec(), record.to_vec()));
            }
        }
        Ok(std::hint::black_box(rows).len())
    }

    fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
        for first in records.clone().step_by(LOAD_BATCH as usize) {
            let mut transaction = self.environment.begin_rw_txn()?;
            for index in first..(first + LOAD_BATCH).min(records.end) {
                self.put(&mut transaction, index)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }
}
