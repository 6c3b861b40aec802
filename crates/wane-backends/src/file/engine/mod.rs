//! The engine behind the file backend: redb, reduced to "apply this batch" and "show a snapshot".
//!
//! Three tables change together in one transaction: `records` by key, `due` by expiry, and one row
//! of `state` with what must survive beside them. A batch of what keys have come to hold is stored in
//! one transaction, and what is due is swept in it. Large values lie in a file of their own, which is
//! synced before; a fourth table lists them by their place. A fifth has one row, which says how far
//! the log has reached the tree.
//!
//! The expiry index is lazy. A record is filed under the expiry of its first write, and a renewal
//! leaves that entry alone; when it falls due, the sweep files the record anew. Only an earlier
//! expiry, a delete or a change to permanent moves the entry at once.
//!
//! Whatever redb reports as failed ends the engine's life: another must be opened on the file.

mod row_cache;
mod tables;
mod tally;

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Database, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, TableDefinition, WriteTransaction,
};
use wane::store::{BoxError, Record, StoreError, Timestamp};

use self::row_cache::RowCache;
use self::tables::Tables;
use super::beside::{Beside, LargeList, Moved};
use super::cache_size;
use super::format::{self, Entry, LOG_FORMAT, decode_due};
use super::lent_storage::LentValues;
use super::space::Extent;
use super::values::ValuesFile;
use super::view::SharedSpace;
use super::young::{Held, StoredKey};

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const DUE: TableDefinition<'_, &[u8], ()> = TableDefinition::new("due");
const STATE: TableDefinition<'_, (), StateRow> = TableDefinition::new("state");

/// The last frame of the log that is in the tree.
const LOGGED: TableDefinition<'_, (), u64> = TableDefinition::new("logged");

/// Format version, identity, time, commit, bytes.
type StateRow = (u64, u64, u64, u64, u64);

/// What a key has come to hold.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) key: StoredKey,
    /// `None` where it holds nothing any more.
    pub(super) held: Option<Held>,
    /// Whether the tree may hold something under the key, as far as is known.
    pub(super) has_older: bool,
}

/// A batch of what keys have come to hold.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) settled: Vec<Settled>,
    /// The frame of the log up to which everything is in the tree with this batch, where that is
    /// more than before.
    pub(super) logged: Option<u64>,
}

/// What is done beside storing a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chores {
    /// Due records that are removed, at most.
    pub(super) sweep: usize,
    /// Bytes of large values that are moved towards the beginning of their file, at least, where
    /// so many can be.
    pub(super) pack: u64,
}

/// What a transaction left behind.
#[derive(Debug)]
pub(super) struct Applied {
    /// The first entry left in the expiry index.
    pub(super) next_due: Option<Timestamp>,
    /// The number of this commit; they count up without gaps over the life of the file.
    pub(super) commit: u64,
    /// Bytes of large values that were moved.
    pub(super) packed: u64,
}

/// Why a transaction failed.
#[derive(Debug)]
pub(super) struct Unapplied {
    pub(super) reason: String,
    /// What it leaves behind if it is in the file all the same. It may be, where it came to the
    /// commit.
    pub(super) staged: Option<Applied>,
}

impl From<BoxError> for Unapplied {
    fn from(error: BoxError) -> Self {
        Self { reason: error.to_string(), staged: None }
    }
}

/// A redb database holding records.
#[derive(Debug)]
pub(super) struct Engine {
    database: Database,
    state: State,
    values: LentValues,
    space: SharedSpace,
    moved: Moved,
    rows: Arc<RowCache>,
    /// Which engine on this file it is, counted by whoever opens it.
    generation: u64,
}

/// The row that is rewritten with every commit.
#[derive(Debug, Clone, Copy)]
struct State {
    format: u64,
    /// Drawn when the store was created.
    identity: u64,
    /// The latest time at which anything was decided.
    time: Timestamp,
    commit: u64,
    /// Keys and records, in bytes as stored.
    bytes: u64,
}

/// What opening found out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// The format version of the file.
    pub(super) format: u64,
    /// What tells this store from any other.
    pub(super) identity: u64,
    /// The latest time that was decided at.
    pub(super) time: Timestamp,
    /// The last commit.
    pub(super) commit: u64,
    /// The last frame of the log that is in the tree.
    pub(super) logged: u64,
    /// Whether every page was checked while opening.
    pub(super) verified: bool,
}

impl Engine {
    /// Writes an empty store to `storage`, which must be empty.
    pub(super) fn create(
        storage: impl StorageBackend,
        identity: u64,
        now: Timestamp,
    ) -> Result<(), BoxError> {
        let database = builder().create_with_backend(storage)?;
        let transaction = database.begin_write()?;
        {
            transaction.open_table(RECORDS)?;
            transaction.open_table(DUE)?;
            let state = State { format: LOG_FORMAT, identity, time: now, commit: 0, bytes: 0 };
            transaction.open_table(STATE)?.insert((), state.row())?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Opens the store in `storage`, which must not be empty.
    pub(super) fn open(
        storage: impl StorageBackend,
        values: LentValues,
        space: SharedSpace,
        generation: u64,
    ) -> Result<(Self, Found), redb::Error> {
        let repaired = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&repaired);
        let mut builder = builder();
        builder.set_repair_callback(move |_| seen.store(true, Ordering::Relaxed));
        let database = builder.create_with_backend(storage)?;
        let transaction = database.begin_read()?;
        let row = transaction.open_table(STATE)?.get(())?.map(|row| row.value());
        let state = State::from_row(row.unwrap_or_default());
        let logged = match transaction.open_table(LOGGED) {
            Ok(table) => table.get(())?.map_or(0, |row| row.value()),
            Err(redb::TableError::TableDoesNotExist(_)) => 0,
            Err(error) => return Err(error.into()),
        };
        drop(transaction);
        let verified = repaired.load(Ordering::Relaxed);
        let State { format, identity, time, commit, .. } = state;
        let found = Found { format, identity, time, commit, logged, verified };
        let moved = Moved::default();
        let rows = Arc::new(RowCache::new(cache_size::rows(), state.commit));
        Ok((Self { database, state, values, space, moved, rows, generation }, found))
    }

    /// What the tree lists in the file of large values, in the order of the file.
    pub(super) fn listed(&self) -> Result<Vec<Extent>, redb::Error> {
        let mut listed = Vec::new();
        LargeList::open(&self.database.begin_read()?)?.each(|place, _| {
            listed.push(Extent::around(place.offset, place.len));
            Ok(())
        })?;
        Ok(listed)
    }

    /// Checks every page of the file against its checksum. `false` means that it is damaged.
    pub(super) fn verify(&mut self) -> Result<bool, redb::Error> {
        Ok(self.database.check_integrity()?)
    }

    /// Checks every large value against its checksum. `false` means that one is damaged.
    pub(super) fn verify_values(&self) -> Result<bool, redb::Error> {
        let mut is_sound = true;
        LargeList::open(&self.database.begin_read()?)?.each(|place, key| {
            is_sound = is_sound && self.values.read(key, place)?.is_ok();
            Ok(())
        })?;
        Ok(is_sound)
    }

    /// Stores a batch, does the chores, and syncs.
    pub(super) fn apply(
        &mut self,
        batch: Batch,
        chores: Chores,
        now: Timestamp,
    ) -> Result<Applied, Unapplied> {
        self.space.lock().reclaim();
        let transaction = self.database.begin_write().map_err(BoxError::from)?;
        let (applied, state, changed) = self.stage(&transaction, batch, chores, now)?;
        if let Err(error) = transaction.commit() {
            return Err(Unapplied { reason: error.to_string(), staged: Some(applied) });
        }
        self.state = state;
        // Before anybody is shown the commit.
        self.rows.forget(&changed, state.commit);
        Ok(applied)
    }

    fn stage(
        &mut self,
        transaction: &WriteTransaction,
        batch: Batch,
        chores: Chores,
        now: Timestamp,
    ) -> Result<(Applied, State, Vec<StoredKey>), BoxError> {
        self.moved = Moved::default();
        let space = Arc::clone(&self.space);
        let beside = Beside::new(transaction, &self.values, space, &mut self.moved);
        let mut tables = Tables::open(transaction, self.state, beside)?;
        for settled in batch.settled {
            tables.settle(settled)?;
        }
        tables.sweep(chores.sweep, now)?;
        tables.file_all()?;
        let packed = tables.pack(chores.pack)?;
        let next_due = tables.next_due()?;
        let (state, changed) = tables.close(now)?;
        if let Some(logged) = batch.logged {
            transaction.open_table(LOGGED)?.insert((), logged)?;
        }
        Ok((Applied { next_due, commit: state.commit, packed }, state, changed))
    }

    /// What the last transaction did to the room in the file of large values.
    pub(super) fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }

    /// Ends the file of large values where the last one does.
    pub(super) fn trim_values(&mut self) -> std::io::Result<()> {
        // Held to the end: what is given out meanwhile lies before it, or is not written yet.
        let mut space = self.space.lock();
        space.reclaim();
        let end = space.trim();
        if self.values.len()? > end { self.values.set_len(end) } else { Ok(()) }
    }

    /// Bytes of large values, and where the last of them ends.
    pub(super) fn values_extent(&self) -> (u64, u64) {
        let space = self.space.lock();
        (space.used(), space.end())
    }

    /// The store as of the last commit.
    pub(super) fn snapshot(&self) -> Result<Snapshot, redb::Error> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        Ok(Snapshot {
            records,
            rows: Arc::clone(&self.rows),
            commit: self.state.commit,
            time: self.state.time,
            values: self.values.file(),
            generation: self.generation,
        })
    }

    /// The number of the last commit.
    pub(super) fn last_commit(&self) -> u64 {
        self.state.commit
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The first entry of the expiry index.
    pub(super) fn next_due(&self) -> Result<Option<Timestamp>, BoxError> {
        let due = self.database.begin_read()?.open_table(DUE)?;
        first_due(&due)
    }

    /// Keys and records, in bytes as stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.state.bytes
    }

    /// Gives free space back to the file system. Snapshots must be gone.
    pub(super) fn compact(&mut self) -> Result<(), redb::CompactionError> {
        self.database.compact().map(|_| ())
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(cache_size::pages());
    builder
}

impl State {
    fn from_row((format, identity, time, commit, bytes): StateRow) -> Self {
        Self { format, identity, time: Timestamp::from_unix_millis(time), commit, bytes }
    }

    fn row(self) -> StateRow {
        (self.format, self.identity, self.time.as_unix_millis(), self.commit, self.bytes)
    }
}

fn first_due(due: &impl ReadableTable<&'static [u8], ()>) -> Result<Option<Timestamp>, BoxError> {
    let Some((entry, _)) = due.first()? else { return Ok(None) };
    Ok(Some(decode_due(entry.value())?.0))
}

fn decode(key: &[u8], bytes: &[u8]) -> Result<Entry, StoreError> {
    Entry::decode(key, bytes).map_err(|error| format::corrupt(key, error))
}

/// The records as of one commit. It pins the pages it shows: keep it briefly.
#[derive(Debug)]
pub(super) struct Snapshot {
    records: ReadOnlyTable<&'static [u8], &'static [u8]>,
    rows: Arc<RowCache>,
    commit: u64,
    /// The latest time at which anything in it was decided, or removed.
    pub(super) time: Timestamp,
    values: Arc<ValuesFile>,
    /// The engine that it belongs to.
    pub(super) generation: u64,
}

/// What the tree stores, not yet read.
pub(super) struct Stored<'a> {
    key: &'a [u8],
    bytes: &'a [u8],
}

impl Stored<'_> {
    pub(super) fn held(&self) -> Result<Held, ReadError> {
        Ok(decode(self.key, self.bytes)?.into())
    }
}

/// What the visitor of a walk wants next.
pub(super) enum Walk {
    /// The next record.
    On,
    /// Nothing more.
    Stop,
}

impl Snapshot {
    /// What is stored under `key`, expired or not.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Held>, ReadError> {
        shielded(|| {
            let found = self.records.get(key)?;
            Ok(found.map(|bytes| decode(key, bytes.value())).transpose()?.map(Held::from))
        })
    }

    /// The same for whoever is likely to ask again: rows that are read so are kept in memory.
    pub(super) fn recall(&self, key: &[u8]) -> Result<Option<Held>, ReadError> {
        if let Some(kept) = self.rows.get(key, self.commit, |bytes| decode(key, bytes)) {
            return Ok(Some(kept?.into()));
        }
        shielded(|| {
            let Some(bytes) = self.records.get(key)? else { return Ok(None) };
            let entry = decode(key, bytes.value())?;
            // A large value may be moved by a commit that changes nothing else.
            if entry.place.is_none() {
                self.rows.keep(key, bytes.value(), self.commit);
            }
            Ok(Some(entry.into()))
        })
    }

    /// How many rows are kept in memory.
    #[cfg(feature = "testing")]
    pub(super) fn kept_rows(&self) -> usize {
        self.rows.len()
    }

    /// The whole record. While this snapshot lives, its large value is not written over.
    #[inline]
    pub(super) fn record(&self, key: &[u8], held: &Held) -> Result<Record, ReadError> {
        let Some(place) = held.place else { return Ok(held.record.clone()) };
        let read = self.values.read(key, place).map_err(|error| ReadError::Engine(error.into()))?;
        let value = read.map_err(|error| format::corrupt(key, error))?;
        Ok(Record { value, ..held.record.clone() })
    }

    /// Hands what is stored from `start` on to `visit`, expired or not, in key order. `visit` says
    /// whether it wants more.
    pub(super) fn walk(
        &self,
        start: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], Stored<'_>) -> Result<Walk, ReadError>,
    ) -> Result<(), ReadError> {
        shielded(|| {
            for row in self.records.range::<&[u8]>((start, Bound::Unbounded))? {
                let (key, bytes) = row?;
                let (key, bytes) = (key.value(), bytes.value());
                if matches!(visit(key, Stored { key, bytes })?, Walk::Stop) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// How many records there are, expired or not.
    pub(super) fn len(&self) -> Result<u64, ReadError> {
        shielded(|| Ok(self.records.len()?))
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

impl From<redb::StorageError> for ReadError {
    fn from(error: redb::StorageError) -> Self {
        Self::Engine(error.into())
    }
}

/// Runs a read. redb indexes into pages by what is written in them, so a page that rotted after it
/// was verified can make it panic: that is a damaged file, not a reason to end the process.
fn shielded<T>(read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ReadError::Engine("a page of the file is damaged".into())))
}
