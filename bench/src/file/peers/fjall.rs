//! fjall, a log-structured store, in two ways that keep conditional writes one step.
//!
//! `fjall persist`: a single-writer transaction, then `persist(SyncAll)`, as its README shows.
//! `fjall optimistic`: concurrent transactions that sync on commit and try again on a conflict,
//! which its documentation names for many writers.

use std::ops::Range;
use std::path::Path;

use ::fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
    SingleWriterTxDatabase, SingleWriterTxKeyspace,
};

use super::{LOAD_BATCH, Records, index_entry, partition_end};
use crate::BoxError;
use crate::file::contest::{BlockingStore, RANGE_ROWS};
use crate::workload::flat_key;

/// Single-writer transactions with a sync after each.
pub(crate) struct FjallPersist {
    database: SingleWriterTxDatabase,
    table: SingleWriterTxKeyspace,
    expiries: SingleWriterTxKeyspace,
    records: Records,
}

/// Optimistic transactions that sync on commit.
pub(crate) struct FjallOptimistic {
    database: OptimisticTxDatabase,
    table: OptimisticTxKeyspace,
    expiries: OptimisticTxKeyspace,
    records: Records,
}

/// What both kinds have: how they open, write one record, and load. Their types share no trait.
macro_rules! store {
    ($store:ident, $database:ident, $folder:literal) => {
        impl $store {
            /// Creates a database in the directory.
            pub(crate) fn create(directory: &Path) -> Result<Self, BoxError> {
                let database = $database::builder(directory.join($folder)).open()?;
                let table = database.keyspace("records", KeyspaceCreateOptions::default)?;
                let expiries = database.keyspace("expiries", KeyspaceCreateOptions::default)?;
                Ok(Self { database, table, expiries, records: Records::new() })
            }
        }

        impl BlockingStore for $store {
            fn insert(&self, index: u64) -> Result<bool, BoxError> {
                self.write(index, |current| {
                    current.is_none_or(|record| !self.records.is_live(record))
                })
            }

            fn renew(&self, index: u64) -> Result<bool, BoxError> {
                self.write(index, |current| {
                    current.is_some_and(|record| self.records.matches(record))
                })
            }

            fn get(&self, index: u64) -> Result<bool, BoxError> {
                let record = self.table.get(flat_key(index))?.map(|record| record.to_vec());
                Ok(std::hint::black_box(record).is_some_and(|record| self.records.is_live(&record)))
            }

            fn range(&self, index: u64) -> Result<usize, BoxError> {
                let (start, end) = (flat_key(index).to_vec(), partition_end(index).to_vec());
                let mut rows = Vec::with_capacity(RANGE_ROWS);
                for row in self.database.read_tx().range(&self.table, start..end) {
                    let (key, record) = row.into_inner()?;
                    if self.records.is_live(&record) {
                        rows.push((key.to_vec(), record.to_vec()));
                    }
                    if rows.len() == RANGE_ROWS {
                        break;
                    }
                }
                Ok(std::hint::black_box(rows).len())
            }

            fn load(&self, records: Range<u64>) -> Result<(), BoxError> {
                for first in records.clone().step_by(LOAD_BATCH as usize) {
                    let mut batch = self.database.inner().batch();
                    for index in first..(first + LOAD_BATCH).min(records.end) {
                        let fresh = self.records.fresh();
                        batch.insert(self.table.inner(), flat_key(index), fresh);
                        batch.insert(self.expiries.inner(), index_entry(&fresh, index), []);
                    }
                    batch.commit()?;
                }
                Ok(self.database.persist(PersistMode::SyncAll)?)
            }
        }
    };
}

store!(FjallPersist, SingleWriterTxDatabase, "fjall-persist");
store!(FjallOptimistic, OptimisticTxDatabase, "fjall-optimistic");

impl FjallPersist {
    fn write(
        &self,
        index: u64,
        condition: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<bool, BoxError> {
        let (key, fresh) = (flat_key(index), self.records.fresh());
        let mut transaction = self.database.write_tx();
        let current = transaction.get(&self.table, key)?;
        if !condition(current.as_deref()) {
            return Ok(false);
        }
        if let Some(current) = current {
            transaction.remove(&self.expiries, index_entry(&current, index));
        }
        transaction.insert(&self.table, key, fresh);
        transaction.insert(&self.expiries, index_entry(&fresh, index), []);
        transaction.commit()?;
        self.database.persist(PersistMode::SyncAll)?;
        Ok(true)
    }
}

impl FjallOptimistic {
    fn write(
        &self,
        index: u64,
        condition: impl Fn(Option<&[u8]>) -> bool,
    ) -> Result<bool, BoxError> {
        let (key, fresh) = (flat_key(index), self.records.fresh());
        loop {
            let transaction = self.database.write_tx()?;
            let mut transaction = transaction.durability(Some(PersistMode::SyncAll));
            let current = transaction.get(&self.table, key)?;
            if !condition(current.as_deref()) {
                return Ok(false);
            }
            if let Some(current) = current {
                transaction.remove(&self.expiries, index_entry(&current, index));
            }
            transaction.insert(&self.table, key, fresh);
            transaction.insert(&self.expiries, index_entry(&fresh, index), []);
            if transaction.commit()?.is_ok() {
                return Ok(true);
            }
        }
    }
}
