//! The tables within one write transaction: storing, sweeping and packing.

use redb::{ReadableTable, Table, WriteTransaction};
use wane::store::{BoxError, StoreError, Timestamp};

use super::{DUE, RECORDS, STATE, Settled, State, StateRow, decode, first_due};
use crate::file::beside::Beside;
use crate::file::format::{Entry, INSTANT, LOG_FORMAT, StoredRecord, decode_due, encode_due};
use crate::file::young::{Held, StoredKey};

/// The tables of one write transaction.
pub(super) struct Tables<'txn> {
    records: Table<'txn, &'static [u8], &'static [u8]>,
    due: Table<'txn, &'static [u8], ()>,
    state_row: Table<'txn, (), StateRow>,
    state: State,
    beside: Beside<'txn>,
    /// Entries for the expiry index. They are added in order, as neighbours share their pages.
    filed: Vec<Vec<u8>>,
    /// The keys whose records were stored or removed.
    changed: Vec<StoredKey>,
    encoded: Vec<u8>,
}

impl<'txn> Tables<'txn> {
    pub(super) fn open(
        transaction: &'txn WriteTransaction,
        state: State,
        beside: Beside<'txn>,
    ) -> Result<Self, redb::TableError> {
        Ok(Self {
            records: transaction.open_table(RECORDS)?,
            due: transaction.open_table(DUE)?,
            state_row: transaction.open_table(STATE)?,
            state,
            beside,
            filed: Vec::new(),
            changed: Vec::new(),
            encoded: Vec::new(),
        })
    }

    /// Stores what a key has come to hold.
    pub(super) fn settle(&mut self, settled: Settled) -> Result<(), BoxError> {
        let Settled { key, held, has_older } = settled;
        self.changed.push(StoredKey::clone(&key));
        let key = &*key;
        if !has_older && self.store_new(key, held.as_ref())? {
            return Ok(());
        }
        let old = match self.entry(key)?.transpose() {
            Ok(old) => old,
            // A record that cannot be read stays, so that its reader learns of it.
            Err(_) => return Ok(()),
        };
        match held {
            Some(held) => self.store(key, held, old.as_ref()),
            None if old.is_some() => self.remove(key, old.as_ref()),
            None => Ok(()),
        }
    }

    /// Stores a small record under a key without looking what is there. Where there is something all
    /// the same, that stays, and `false` is returned.
    fn store_new(&mut self, key: &[u8], held: Option<&Held>) -> Result<bool, BoxError> {
        let Some(held) = held.filter(|held| held.place.is_none()) else { return Ok(false) };
        held.entry().encode(key, &mut self.encoded);
        let replaced = self.records.insert(key, &*self.encoded)?;
        let Some(replaced) = replaced.map(|bytes| bytes.value().to_vec()) else {
            self.state.bytes += (key.len() + self.encoded.len()) as u64;
            self.file(held.record.expires_at, key);
            return Ok(true);
        };
        self.records.insert(key, &*replaced)?;
        Ok(false)
    }

    /// Lists a key under its expiry, with all others.
    fn file(&mut self, expires_at: Option<Timestamp>, key: &[u8]) {
        self.filed.extend(expires_at.map(|instant| encode_due(instant, key)));
    }

    /// Adds what was to be listed to the expiry index.
    pub(super) fn file_all(&mut self) -> Result<(), BoxError> {
        self.filed.sort_unstable();
        for due in self.filed.drain(..) {
            self.due.insert(&*due, ())?;
        }
        Ok(())
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Result<Entry, StoreError>>, redb::StorageError> {
        let found = self.records.get(key)?;
        Ok(found.map(|bytes| decode(key, bytes.value())))
    }

    /// Stores a record in the place of `old`.
    fn store(&mut self, key: &[u8], held: Held, old: Option<&Entry>) -> Result<(), BoxError> {
        let Held { record, place } = held;
        let filed = old.and_then(|old| old.stored.filed);
        let keeps_entry = filed.is_some() && filed <= record.expires_at;
        if !keeps_entry {
            if let Some(instant) = filed {
                self.due.remove(&*encode_due(instant, key))?;
            }
            self.file(record.expires_at, key);
        }
        let filed = if keeps_entry { filed } else { record.expires_at };
        let old_place = old.and_then(|old| old.place);
        // What was stored before everything stopped may come again.
        if place != old_place {
            self.beside.free(old_place)?;
            if let Some(place) = place {
                self.beside.list_at(key, place)?;
            }
        }
        self.put(key, &Entry { stored: StoredRecord { record, filed }, place })
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
        if let Some(instant) = entry.and_then(|entry| entry.stored.filed) {
            self.due.remove(&*encode_due(instant, key))?;
        }
        self.beside.free(entry.and_then(|entry| entry.place))?;
        let removed = self.records.remove(key)?;
        let freed = removed.map_or(0, |bytes| key.len() + bytes.value().len());
        self.state.bytes = self.state.bytes.saturating_sub(freed as u64);
        Ok(())
    }

    /// Takes up to `limit` due entries off the expiry index, with the records that have expired.
    pub(super) fn sweep(&mut self, limit: usize, now: Timestamp) -> Result<(), BoxError> {
        if limit == 0 {
            return Ok(());
        }
        // Entries of this very millisecond are due as well.
        let end = (now.as_unix_millis() + 1).to_be_bytes();
        let entries = self.due.extract_from_if::<&[u8], _>(..&end[..], |_, ()| true)?.take(limit);
        let entries = entries.map(|entry| entry.map(|(key, _)| key.value().to_vec()));
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        // In the order of records, as neighbours share their pages.
        entries.sort_unstable_by(|one, other| one.get(INSTANT..).cmp(&other.get(INSTANT..)));
        for due in entries {
            let (instant, key) = decode_due(&due)?;
            match self.entry(key)? {
                // A record that cannot be read stays, so that its reader learns of it.
                None | Some(Err(_)) => {}
                Some(Ok(entry)) if entry.stored.filed != Some(instant) => {}
                Some(Ok(mut entry)) => {
                    // Its entry of the index is gone.
                    entry.stored.filed = None;
                    if entry.stored.record.is_live(now) {
                        self.file_anew(key, entry)?;
                    } else {
                        self.remove(key, Some(&entry))?;
                        self.changed.push(key.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Lists a record under its expiry; its value stays where it is.
    fn file_anew(&mut self, key: &[u8], mut entry: Entry) -> Result<(), BoxError> {
        entry.stored.filed = entry.stored.record.expires_at;
        self.file(entry.stored.filed, key);
        self.put(key, &entry)
    }

    /// Moves large values from the end of their file to where there is room before, until `enough`
    /// bytes were moved. Returns how many were.
    pub(super) fn pack(&mut self, enough: u64) -> Result<u64, BoxError> {
        let mut moved = 0;
        while moved < enough {
            let Some((from, key)) = self.beside.last_that_can_move()? else { break };
            let Some(Ok(mut entry)) = self.entry(&key)? else { break };
            let Ok(value) = self.beside.value(&key, from)? else { break };
            let Some(to) = self.beside.move_forward(&key, &value, from)? else { break };
            entry.place = Some(to);
            self.put(&key, &entry)?;
            moved += u64::from(from.len);
        }
        Ok(moved)
    }

    pub(super) fn next_due(&self) -> Result<Option<Timestamp>, BoxError> {
        first_due(&self.due)
    }

    /// Writes the state row, closes the tables, and makes the large values durable. Returns the keys
    /// whose records are others now.
    pub(super) fn close(mut self, now: Timestamp) -> Result<(State, Vec<StoredKey>), BoxError> {
        self.state.format = LOG_FORMAT;
        self.state.time = self.state.time.max(now);
        self.state.commit += 1;
        self.state_row.insert((), self.state.row())?;
        self.beside.close()?;
        Ok((self.state, self.changed))
    }
}
