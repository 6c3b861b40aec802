//! redb used plainly: one transaction, and so one sync, for each write.

use std::ops::Range;
use std::path::Path;

use ::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{LOAD_BATCH, Records, index_entry, partition_end};
use crate::BoxError;
use crate::file::contest::{BlockingStore, RANGE_ROWS};
use crate::workload::flat_key;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const EXPIRIES: TableDefinition<'_, &[u8], ()> = TableDefinition::new("expiries");

/// A redb database. Durability is left at its default, immediate.
#[derive(Debug)]
pub(crate) struct Redb {
    database: Database,
    records: Records,
}

impl Redb {
    /// Creates a database in the directory.
    pub(crate) fn create(directory: &Path) -> Result<Self, BoxError> {
        let database = Database::create(directory.join("redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(EXPIRIES)?;
        transaction.commit()?;
        Ok(Self { database, records: Records::new() })
    }

    /// Writes record `index` if `condition` holds of what is there.
    fn write(
        &self,
        index: u64,
        condition: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<bool, BoxError> {
        let (key, fresh) = (flat_key(index), self.records.fresh());
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let mut expiries = transaction.open_table(EXPIRIES)?;
            let current = records.get(key.as_slice())?.map(|record| record.value().to_vec());
            if !condition(current.as_deref()) {
                return Ok(false);
            }
            if let Some(current) = current {
                expiries.remove(index_entry(&current, index).as_slice())?;
            }
            records.insert(key.as_slice(), fresh.as_slice())?;
            expiries.insert(index_entry(&fresh, index).as_slice(), ())?;
        }
        transaction.commit()?;
        Ok(true)
    }
}

impl BlockingStore for Redb {
    fn insert(&self, index: u64) -> Result<bool, BoxError> {
        self.write(index, |current| current.is_none_or(|record| !self.records.is_live(record)))
    }

    fn renew(&self, index: u64) -> Result<bool, BoxError> {
        self.write(index, |current| current.is_some_and(|record| self.records.matches(record)))
    }

    fn get(&self, index: u64) -> Result<bool, BoxError> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let record = records.get(flat_key(index).as_slice())?.map(|record| record.value().to_vec());
        Ok(std::hint::black_box(record).is_some_and(|record| self.records.is_live(&record)))
    }

    fn range(&self, index: u64) -> Result<usize, BoxError> {
        let (start, end) = (flat_key(index), partition_end(index));
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let mut rows = Vec::with_capacity(RANGE_ROWS);
        for row in records.range::<&[u8]>(&start[..]..&end[..])? {
            let (key, record) = row?;
            if self.records.is_live(record.value()) {
                rows.push((key.value().to_vec(), record.value().to_vec()));
            }
            if rows.len() == RANGE_ROWS {
                break;
            }
        }
        Ok(std::hint::black_box(rows).len())
    }

    fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
        for first in records.clone().step_by(LOAD_BATCH as usize) {
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(RECORDS)?;
                let mut expiries = transaction.open_table(EXPIRIES)?;
                for index in first..(first + LOAD_BATCH).min(records.end) {
                    let fresh = self.records.fresh();
                    table.insert(flat_key(index).as_slice(), fresh.as_slice())?;
                    expiries.insert(index_entry(&fresh, index).as_slice(), ())?;
                }
            }
            transaction.commit()?;
        }
        Ok(())
    }
}
