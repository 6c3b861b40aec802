//! Bytes to a store: an empty one, in bounded groups, each as durable as the backend promises.
//!
//! Elections are restored with tokens far above those in the backup, since more may have been given
//! out after it was made.
//!
//! Invariant: of several states of one record the last one in the backup stands in the end, also
//! where that has expired by now, or carries a lower fence than an earlier one.

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::time::Duration;

use super::decoder::{Decoder, Part};
use super::verifying::verify;
use super::{BackupError, Chunks, Progress, ReadChunks};
use crate::clock::Clock;
use crate::services::elections;
use crate::store::{
    Key, Life, Outcome, PageLimit, Record, Row, Store, StoreError, Timestamp, Ttl, Write,
};

/// A group is written once it holds this many records, or this many bytes.
pub(super) const GROUP_RECORDS: usize = 8_192;
const GROUP_BYTES: usize = 4 << 20;

/// How far the clock may be behind the backup and is lifted. Beyond, somebody has to set it.
const LIFTED: Duration = Duration::from_secs(300);

/// What became of the records of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Records written.
    pub records: u64,
    /// Those of them that never expire.
    pub permanent: u64,
    /// Records that had expired and were left out.
    pub expired: u64,
    /// The length of the backup in bytes.
    pub bytes: u64,
}

/// Restores a backup into an empty store, after reading all of it once and finding it sound: from
/// a bad file nothing is written.
///
/// Where the store fails half way, it holds a part, and the error says so. `listen` is told of the
/// progress now and then, first of the reading, then of the writing.
pub async fn restore<S: Store>(
    store: &S,
    clock: &dyn Clock,
    file: &mut (impl Read + Seek + Send),
    mut listen: impl FnMut(Progress) + Send,
) -> Result<Restored, BackupError> {
    check_empty(store).await?;
    rewind(file)?;
    let summary = verify(&mut ReadChunks::new(&mut *file), clock.now(), &mut listen).await?;
    follow(clock, summary.created_at)?;
    rewind(file)?;
    write_all(Restoration::new(store, clock), &mut ReadChunks::new(file), listen).await
}

/// Restores a backup that can be read only once into an empty store.
///
/// A fault of the backup shows when it is met. By then the store may hold a part: use this where a
/// store that was not finished is thrown away.
pub async fn restore_stream<S: Store>(
    store: &S,
    clock: &dyn Clock,
    chunks: &mut impl Chunks,
    listen: impl FnMut(Progress) + Send,
) -> Result<Restored, BackupError> {
    check_empty(store).await?;
    write_all(Restoration::new(store, clock), chunks, listen).await
}

async fn write_all<S: Store>(
    mut restoration: Restoration<'_, S>,
    chunks: &mut impl Chunks,
    mut listen: impl FnMut(Progress) + Send,
) -> Result<Restored, BackupError> {
    let mut decoder = Decoder::new();
    while let Some(chunk) = chunks.next().await {
        decoder.push(&chunk?);
        while let Some(part) = decoder.next()? {
            match part {
                Part::Header(header) => follow(restoration.clock, header.created_at)?,
                Part::Records(rows) => restoration.add(rows).await?,
            }
        }
        listen(decoder.progress());
    }
    decoder.finish()?;
    restoration.flush().await?;
    Ok(Restored { bytes: decoder.progress().bytes, ..restoration.restored })
}

fn rewind(file: &mut impl Seek) -> Result<(), BackupError> {
    file.rewind().map_err(|error| BackupError::Read { offset: 0, source: error.into() })
}

/// Lifts the clock to the time of the backup, or refuses where it is far behind.
fn follow(clock: &dyn Clock, created_at: Timestamp) -> Result<(), BackupError> {
    let now = clock.now();
    if now.until(created_at) > LIFTED {
        return Err(BackupError::ClockBehind { created_at, now });
    }
    clock.never_before(created_at);
    Ok(())
}

async fn check_empty<S: Store>(store: &S) -> Result<(), BackupError> {
    let failed = |source| BackupError::Interrupted { restored: 0, source };
    let mut cursor = None;
    loop {
        let page = store.scan(cursor, PageLimit::new(1).map_err(failed)?).await.map_err(failed)?;
        if let Some(row) = page.rows.into_iter().next() {
            return Err(BackupError::NotEmpty { key: row.key });
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
        }
    }
}

/// A restoration under way.
#[derive(Debug)]
struct Restoration<'a, S> {
    store: &'a S,
    clock: &'a dyn Clock,
    /// The last state of each key of the group; `None` where it has expired.
    group: HashMap<Key, Option<Write>>,
    bytes: usize,
    restored: Restored,
}

impl<'a, S: Store> Restoration<'a, S> {
    fn new(store: &'a S, clock: &'a dyn Clock) -> Self {
        let (group, restored) = (HashMap::new(), Restored::default());
        Self { store, clock, group, bytes: 0, restored }
    }

    async fn add(&mut self, rows: Vec<Row>) -> Result<(), BackupError> {
        let now = self.clock.now();
        for Row { key, record } in rows {
            self.bytes += key.size() + record.value.len();
            let write =
                record.is_live(now).then(|| write_of(elections::restored(&key, record), now));
            self.group.insert(key, write);
        }
        if self.group.len() < GROUP_RECORDS && self.bytes < GROUP_BYTES {
            return Ok(());
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), BackupError> {
        self.bytes = 0;
        let (mut writes, mut expired) = (Vec::new(), Vec::new());
        for (key, write) in self.group.drain() {
            match write {
                Some(write) => writes.push((key, write)),
                None => expired.push(key),
            }
        }
        self.put(writes).await?;
        self.leave_out(&expired).await
    }

    async fn put(&mut self, writes: Vec<(Key, Write)>) -> Result<(), BackupError> {
        let outcomes = self.store.put_batch(writes.clone()).await;
        let outcomes = outcomes.map_err(|source| self.failed(source))?;
        for ((key, write), outcome) in writes.into_iter().zip(outcomes) {
            self.restored.records += 1;
            self.restored.permanent += u64::from(write.life == Life::Permanent);
            if let Outcome::Refused { current } = outcome {
                self.replace(&key, current, write).await?;
            }
        }
        Ok(())
    }

    /// Writes over an earlier state of the record whose fence is higher: it was deleted and written
    /// anew while the backup was made.
    async fn replace(
        &mut self,
        key: &Key,
        current: Option<Record>,
        write: Write,
    ) -> Result<(), BackupError> {
        if let Some(current) = current {
            self.remove(key, &current).await?;
        }
        let put = self.store.put(key, write).await.map_err(|source| self.failed(source))?;
        if put.is_applied() { Ok(()) } else { Err(BackupError::Contended { key: key.clone() }) }
    }

    /// Leaves out records that have expired, and takes back what an earlier group wrote of them.
    async fn leave_out(&mut self, expired: &[Key]) -> Result<(), BackupError> {
        self.restored.expired += expired.len() as u64;
        let found = self.store.get_batch(expired).await.map_err(|source| self.failed(source))?;
        for (key, record) in expired.iter().zip(found) {
            if let Some(record) = record {
                self.remove(key, &record).await?;
            }
        }
        Ok(())
    }

    /// Removes an earlier state of a record.
    async fn remove(&mut self, key: &Key, record: &Record) -> Result<(), BackupError> {
        let removed = self.store.compare_and_delete(key, &record.value, record.fence).await;
        match removed.map_err(|source| self.failed(source))? {
            // Refused without a record: it has just expired.
            Outcome::Applied { .. } | Outcome::Refused { current: None } => Ok(()),
            Outcome::Refused { current: Some(_) } => {
                Err(BackupError::Contended { key: key.clone() })
            }
        }
    }

    fn failed(&self, source: StoreError) -> BackupError {
        BackupError::Interrupted { restored: self.restored.records, source }
    }
}

/// The write that brings a record back with its expiry and its fence.
fn write_of(record: Record, now: Timestamp) -> Write {
    // A clock a little behind the one that granted 365 days grants them from its own time.
    let until = |expiry: Timestamp| Life::Until(expiry.min(now.after(Ttl::MAX)));
    let life = record.expires_at.map_or(Life::Permanent, until);
    Write::new(record.value, life).fenced(record.fence)
}
