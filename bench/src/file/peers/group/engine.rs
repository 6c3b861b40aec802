//! redb behind two verbs: apply a group, show a snapshot.
//!
//! Three tables change together in one transaction: `records` by key, `due` by expiry, and one row
//! of `state`. The expiry index is lazy: a renewal leaves the entry of the first write alone, and
//! when that falls due, the sweep files the record anew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use ::redb::backends::FileBackend;
use ::redb::{
    Database, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, Table,
    TableDefinition, WriteTransaction,
};
use ::wane::store::{Current, Outcome, Record, Step, StoreError, Timestamp};

use super::bytes::{Entry, corrupt, decode_due, encode_due, failed};
use super::queue::KeyedChange;
use super::values::{Gathered, LARGE, ValuesFile};
use crate::BoxError;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const DUE: TableDefinition<'_, &[u8], ()> = TableDefinition::new("due");
const STATE: TableDefinition<'_, (), StateRow> = TableDefinition::new("state");
const LARGE_VALUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("large");

/// Time, commit, bytes.
type StateRow = (u64, u64, u64);

/// What is kept of the file in memory, at most: as much as the store keeps on a large machine.
const CACHE_BYTES: usize = 1 << 30;

/// A redb database holding records.
#[derive(Debug)]
pub(super) struct Engine {
    database: Database,
    state: State,
    values: Arc<ValuesFile>,
    gathered: Gathered,
}

/// The row that is rewritten with every commit.
#[derive(Debug, Clone, Copy)]
struct State {
    /// The latest time at which anything was decided.
    time: Timestamp,
    commit: u64,
    /// Keys and records, in bytes as stored.
    bytes: u64,
}

/// What a transaction left behind.
#[derive(Debug)]
pub(super) struct Applied {
    /// By position in the group.
    pub(super) outcomes: Vec<Outcome>,
    /// The first entry left in the expiry index.
    pub(super) next_due: Option<Timestamp>,
}

impl Engine {
    /// Opens the database in the directory, or creates it.
    pub(super) fn open<S: StorageBackend>(
        directory: &Path,
        disk: impl Fn(FileBackend) -> S,
    ) -> Result<Self, BoxError> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = FileBackend::new(file.open(directory.join("records.redb"))?)?;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create_with_backend(disk(file))?;
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(DUE)?;
        let row = transaction.open_table(STATE)?.get(())?.map(|row| row.value());
        transaction.commit()?;
        let (time, commit, bytes) = row.unwrap_or_default();
        let state = State { time: Timestamp::from_unix_millis(time), commit, bytes };
        let values = Arc::new(ValuesFile::open(&directory.join("values"), disk)?);
        let gathered = Gathered::at(values.end()?);
        Ok(Self { database, state, values, gathered })
    }

    /// Decides and stores a group in order, removes up to `sweep` records that are due, and syncs.
    pub(super) fn apply(
        &mut self,
        group: Vec<KeyedChange>,
        sweep: usize,
        now: Timestamp,
    ) -> Result<Applied, BoxError> {
        let transaction = self.database.begin_write()?;
        let mut tables = Tables::open(&transaction, self.state, &self.values, &mut self.gathered)?;
        let mut outcomes = Vec::with_capacity(group.len());
        for keyed in group {
            outcomes.push(tables.change(keyed, now)?);
        }
        tables.sweep(sweep, now)?;
        let next_due = match tables.due.first()? {
            Some((entry, _)) => Some(decode_due(entry.value())?.0),
            None => None,
        };
        let state = tables.close(now)?;
        transaction.commit()?;
        self.state = state;
        Ok(Applied { outcomes, next_due })
    }

    /// The store as of the last commit.
    pub(super) fn snapshot(&self) -> Result<Snapshot, BoxError> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        Ok(Snapshot { records, values: Arc::clone(&self.values) })
    }
}

/// The tables of one write transaction.
struct Tables<'txn> {
    transaction: &'txn WriteTransaction,
    records: Table<'txn, &'static [u8], &'static [u8]>,
    due: Table<'txn, &'static [u8], ()>,
    state_row: Table<'txn, (), StateRow>,
    state: State,
    values: &'txn ValuesFile,
    gathered: &'txn mut Gathered,
    encoded: Vec<u8>,
}

impl<'txn> Tables<'txn> {
    fn open(
        transaction: &'txn WriteTransaction,
        state: State,
        values: &'txn ValuesFile,
        gathered: &'txn mut Gathered,
    ) -> Result<Self, BoxError> {
        Ok(Self {
            transaction,
            records: transaction.open_table(RECORDS)?,
            due: transaction.open_table(DUE)?,
            state_row: transaction.open_table(STATE)?,
            state,
            values,
            gathered,
            encoded: Vec::new(),
        })
    }

    fn change(&mut self, keyed: KeyedChange, now: Timestamp) -> Result<Outcome, BoxError> {
        let KeyedChange { key, change } = keyed;
        let entry = self.entry(&key)?;
        let live = entry.as_ref().filter(|entry| entry.record.is_live(now));
        let mut live = live.map(|entry| (entry.record.clone(), entry.place));
        if let Some((record, Some(place))) = &mut live {
            self.gathered.flush(self.values)?;
            record.value = self.values.read(&key, *place)?;
        }
        let live = live.map(|(record, _)| record);
        let step = change.decide(live.as_ref().map(Current::from), now);
        let outcome = step.outcome(|| live);
        match step {
            Step::Store(record) => self.store(&key, record, entry.as_ref())?,
            Step::Remove(_) => self.remove(&key, entry.as_ref())?,
            Step::Refuse => {}
        }
        Ok(outcome)
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, BoxError> {
        let found = self.records.get(key)?;
        Ok(found.map(|bytes| Entry::decode(key, bytes.value())).transpose()?)
    }

    /// Stores a record in the place of `old`.
    fn store(&mut self, key: &[u8], record: Record, old: Option<&Entry>) -> Result<(), BoxError> {
        let filed = old.and_then(|old| old.filed);
        let keeps_entry = filed.is_some() && filed <= record.expires_at;
        if !keeps_entry {
            if let Some(instant) = filed {
                self.due.remove(&*encode_due(instant, key))?;
            }
            if let Some(instant) = record.expires_at {
                self.due.insert(&*encode_due(instant, key), ())?;
            }
        }
        let filed = if keeps_entry { filed } else { record.expires_at };
        let place = if record.value.len() < LARGE {
            None
        } else {
            let place = self.gathered.put(self.values, key, &record.value)?;
            self.transaction.open_table(LARGE_VALUES)?.insert(place.offset, key)?;
            Some(place)
        };
        self.put(key, &Entry { record, filed, place })
    }

    fn put(&mut self, key: &[u8], entry: &Entry) -> Result<(), BoxError> {
        entry.encode(key, &mut self.encoded);
        let size = key.len() + self.encoded.len();
        let replaced = self.records.insert(key, &*self.encoded)?;
        let freed = replaced.map_or(0, |bytes| key.len() + bytes.value().len());
        self.state.bytes = (self.state.bytes + size as u64).saturating_sub(freed as u64);
        Ok(())
    }

    /// Removes the record that `entry` holds.
    fn remove(&mut self, key: &[u8], entry: Option<&Entry>) -> Result<(), BoxError> {
        if let Some(instant) = entry.and_then(|entry| entry.filed) {
            self.due.remove(&*encode_due(instant, key))?;
        }
        let removed = self.records.remove(key)?;
        let freed = removed.map_or(0, |bytes| key.len() + bytes.value().len());
        self.state.bytes = self.state.bytes.saturating_sub(freed as u64);
        Ok(())
    }

    /// Takes up to `limit` due entries off the expiry index, with the records that have expired.
    fn sweep(&mut self, limit: usize, now: Timestamp) -> Result<(), BoxError> {
        if limit == 0 {
            return Ok(());
        }
        // Entries of this very millisecond are due as well.
        let end = (now.as_unix_millis() + 1).to_be_bytes();
        let entries = self.due.extract_from_if::<&[u8], _>(..&end[..], |_, ()| true)?.take(limit);
        let entries = entries.map(|entry| entry.map(|(key, _)| key.value().to_vec()));
        for due in entries.collect::<Result<Vec<_>, _>>()? {
            let (instant, key) = decode_due(&due)?;
            let Some(mut entry) = self.entry(key)? else { continue };
            if entry.filed != Some(instant) {
                continue;
            }
            // Its entry of the index is gone.
            entry.filed = None;
            if !entry.record.is_live(now) {
                self.remove(key, Some(&entry))?;
                continue;
            }
            entry.filed = entry.record.expires_at;
            if let Some(instant) = entry.filed {
                self.due.insert(&*encode_due(instant, key), ())?;
            }
            self.put(key, &entry)?;
        }
        Ok(())
    }

    /// Writes the state row, closes the tables, and makes the large values durable.
    fn close(mut self, now: Timestamp) -> Result<State, BoxError> {
        self.state.time = self.state.time.max(now);
        self.state.commit += 1;
        let State { time, commit, bytes } = self.state;
        self.state_row.insert((), (time.as_unix_millis(), commit, bytes))?;
        self.gathered.sync(self.values)?;
        Ok(self.state)
    }
}

/// The records as of one commit.
#[derive(Debug)]
pub(super) struct Snapshot {
    records: ReadOnlyTable<&'static [u8], &'static [u8]>,
    values: Arc<ValuesFile>,
}

impl Snapshot {
    /// The record stored under `key`, expired or not.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        shielded(|| {
            let found = self.records.get(key)?;
            found.map(|bytes| self.record(key, bytes.value())).transpose()
        })
    }

    /// Hands the records from `start` on to `visit`, in key order, until it returns `false`.
    pub(super) fn walk(
        &self,
        start: &[u8],
        mut visit: impl FnMut(&[u8], Record) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        shielded(|| {
            for row in self.records.range::<&[u8]>(start..)? {
                let (key, bytes) = row?;
                let record = self.record(key.value(), bytes.value())?;
                if !visit(key.value(), record)? {
                    break;
                }
            }
            Ok(())
        })
    }

    fn record(&self, key: &[u8], bytes: &[u8]) -> Result<Record, ReadError> {
        let Entry { record, place, .. } =
            Entry::decode(key, bytes).map_err(|damaged| corrupt(key, damaged))?;
        let Some(place) = place else { return Ok(record) };
        let value = self.values.read(key, place).map_err(ReadError::Engine)?;
        Ok(Record { value, ..record })
    }
}

/// Why a snapshot could not be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// One record is unreadable.
    Record(StoreError),
    /// The file is.
    Engine(BoxError),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Record(error)
    }
}

impl From<::redb::StorageError> for ReadError {
    fn from(error: ::redb::StorageError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Record(error) => error,
            ReadError::Engine(error) => failed(error),
        }
    }
}

/// Runs a read. redb can panic on a page that rotted after it was verified.
fn shielded<T>(read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ReadError::Engine("a page of the file is damaged".into())))
}
