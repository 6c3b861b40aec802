//! Batches: keys of one partition travel together, partitions side by side.
//!
//! A partition decides one conditional statement at a time, so its rows share one where they can:
//! reads by `IN`, puts by a conditional batch, which is applied whole or not at all. What does not
//! fit such a batch (a fence, a stamp in the way, a large value) is put on its own.
//!
//! Invariant: of two puts to one key the later one is sent after the earlier one was answered.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::stream;
use scylla::statement::batch::{Batch, BatchType};
use wane::store::{Change, Effect, Fence, Key, Outcome, Record, Step, StoreError, Write};

use super::CassandraStore;
use super::row::{Cells, Seen};
use super::writing::Verdict;
use crate::certainty::least_certain;

/// Partitions under way at once.
const SIDE_BY_SIDE: usize = 32;

/// Keys that one read asks for.
const READ_TOGETHER: usize = 32;

/// Rows that one statement puts, and their bytes: Cassandra refuses batches above 50 KiB.
const PUT_TOGETHER: usize = 64;
const PUT_BYTES: usize = 32 * 1024;

/// A put on its way, and its place among the answers.
struct Put {
    at: usize,
    key: Key,
    change: Change<'static>,
}

impl Put {
    fn size(&self) -> usize {
        self.key.size() + self.write().map_or(0, |write| write.value.len())
    }

    fn write(&self) -> Option<&Write> {
        match self.change.effect() {
            Effect::Write(write) => Some(write),
            Effect::Delete(_) => None,
        }
    }

    fn is_fenced(&self) -> bool {
        self.write().is_none_or(|write| write.fence != Fence::NONE)
    }
}

/// What became of the puts of a partition: answers by place, and what ended it early.
#[derive(Default)]
struct Progress {
    done: Vec<(usize, Outcome)>,
    error: Option<StoreError>,
}

impl CassandraStore {
    pub(super) async fn points(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let mut wanted: HashMap<&Key, Vec<usize>> = HashMap::new();
        let mut partitions: HashMap<&[u8], Vec<Key>> = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            let places = wanted.entry(key).or_default();
            if places.is_empty() {
                partitions.entry(key.partition()).or_default().push(key.clone());
            }
            places.push(at);
        }
        let chunks = partitions.values().flat_map(|rows| rows.chunks(READ_TOGETHER));
        let chunks: Vec<Vec<Key>> = chunks.map(<[Key]>::to_vec).collect();
        let mut answers =
            stream::iter(chunks).map(|chunk| self.rows_at(chunk)).buffer_unordered(SIDE_BY_SIDE);
        let mut records = vec![None; keys.len()];
        while let Some(found) = answers.next().await {
            for (key, record) in found? {
                for at in wanted.get(&key).into_iter().flatten() {
                    records[*at] = Some(record.clone());
                }
            }
        }
        Ok(records)
    }

    /// The live records at these keys, which share a partition.
    async fn rows_at(&self, keys: Vec<Key>) -> Result<Vec<(Key, Record)>, StoreError> {
        let Some(partition) = keys.first().map(Key::partition) else { return Ok(Vec::new()) };
        let turn = self.inner.turns.together(partition).await;
        let _turn = turn.map_err(|error| self.unavailable(error))?;
        let clusterings: Vec<&[u8]> = keys.iter().map(Key::clustering).collect();
        let statement = &self.inner.statements.of(partition).get_some;
        // Before the look: a record that another process renews meanwhile is live all the time.
        let now = self.now();
        let rows = self.serial_rows(statement, (partition, clusterings)).await?;
        let mut records = Vec::with_capacity(rows.rows_num());
        for columns in self.columns(&rows)? {
            let columns = columns?;
            let key = Key::stored(partition, columns.c)?;
            if let Some(record) = Seen::decode(&key, &columns)?.into_live(now) {
                records.push((key, record));
            }
        }
        Ok(records)
    }

    pub(super) async fn put_all(
        &self,
        writes: Vec<(Key, Write)>,
    ) -> Result<Vec<Outcome>, StoreError> {
        let total = writes.len();
        let mut partitions: HashMap<Vec<u8>, Vec<Put>> = HashMap::new();
        for (at, (key, write)) in writes.into_iter().enumerate() {
            let change = Change::put(write, || self.now())?;
            let puts = partitions.entry(key.partition().to_vec()).or_default();
            puts.push(Put { at, key, change });
        }
        let failed = AtomicBool::new(false);
        let mut running = stream::iter(partitions.into_values())
            .map(|puts| self.put_rows(puts, &failed))
            .buffer_unordered(SIDE_BY_SIDE);
        let mut all = Progress::default();
        while let Some(progress) = running.next().await {
            all.done.extend(progress.done);
            all.error = least_certain(all.error, progress.error);
        }
        if let Some(error) = all.error {
            return Err(self.partial(error, &all.done));
        }
        let mut outcomes = vec![Outcome::Refused { current: None }; total];
        for (at, outcome) in all.done {
            outcomes[at] = outcome;
        }
        Ok(outcomes)
    }

    /// A batch of which something was applied has no certain outcome as a whole.
    fn partial(&self, error: StoreError, done: &[(usize, Outcome)]) -> StoreError {
        let begun = done.iter().any(|(_, outcome)| outcome.is_applied());
        if begun && matches!(error, StoreError::Unavailable { .. }) {
            return self.unknown(format!("a part of the batch was applied, then: {error}"));
        }
        error
    }

    /// Puts the rows of a partition in order, until one fails here or in another partition.
    async fn put_rows(&self, puts: Vec<Put>, failed: &AtomicBool) -> Progress {
        let mut progress = Progress::default();
        let mut left = puts;
        while !left.is_empty() && !failed.load(Ordering::Relaxed) {
            let others = left.split_off(fitting(&left));
            let Progress { done, error } = self.put_together(left).await;
            left = others;
            progress.done.extend(done);
            if error.is_some() {
                failed.store(true, Ordering::Relaxed);
                progress.error = error;
            }
        }
        progress
    }

    /// Puts rows of a partition by one statement if they agree to it, otherwise one by one.
    async fn put_together(&self, puts: Vec<Put>) -> Progress {
        let mut progress = Progress::default();
        let Some(first) = puts.first() else { return progress };
        let turn = match self.inner.turns.alone(first.key.partition()).await {
            Ok(turn) => turn,
            Err(error) => {
                progress.error = Some(self.unavailable(error));
                return progress;
            }
        };
        let store = self.clone();
        let put = tokio::spawn(async move {
            progress.error = store.put_in_turn(&puts, &mut progress.done).await.err();
            drop(turn);
            progress
        });
        put.await.unwrap_or_else(|ended| {
            let error = Some(self.unknown(ended));
            Progress { done: Vec::new(), error }
        })
    }

    async fn put_in_turn(
        &self,
        puts: &[Put],
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<(), StoreError> {
        if puts.len() > 1 && self.put_at_once(puts, done).await? {
            return Ok(());
        }
        for put in puts {
            let outcome = self.change_in_turn(&put.key, put.change.clone()).await?;
            done.push((put.at, outcome));
        }
        Ok(())
    }

    /// Puts rows without fences by one conditional batch; `false` if any row has a stamp.
    async fn put_at_once(
        &self,
        puts: &[Put],
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<bool, StoreError> {
        let (now, op) = (self.now(), self.next_operation());
        let decided = puts.iter().map(|put| match put.change.clone().decide(None, now) {
            Step::Store(record) => Some((put, record)),
            Step::Remove(_) | Step::Refuse => None,
        });
        let Some(records) = decided.collect::<Option<Vec<_>>>() else { return Ok(false) };
        let statement = &self.inner.statements.of(puts[0].key.partition()).put;
        let mut batch = Batch::new(BatchType::Unlogged);
        let mut values = Vec::with_capacity(records.len());
        for (put, record) in &records {
            batch.append_statement(statement.clone());
            let Cells { ttl, v, exp, fence, op } = Cells::of(record, false, now, op);
            values.push((ttl, v, exp, fence, op, put.key.partition(), put.key.clustering(), op));
        }
        let answer = self.inner.session.batch(&batch, values).await;
        // One id stands for all rows, as they are written all or none.
        match self.verdict(&puts[0].key, op, answer).await? {
            Verdict::Refused(_) => Ok(false),
            Verdict::Applied => {
                let outcome = |(put, record): &(&Put, Record)| {
                    (put.at, Outcome::Applied { expires_at: record.expires_at })
                };
                done.extend(records.iter().map(outcome));
                Ok(true)
            }
        }
    }
}

/// How many of these puts one statement takes: no key twice, no fence, few bytes. At least one.
fn fitting(puts: &[Put]) -> usize {
    let mut keys = HashSet::new();
    let mut bytes = 0;
    for put in puts.iter().take(PUT_TOGETHER) {
        bytes += put.size();
        if put.is_fenced() || bytes > PUT_BYTES || !keys.insert(&put.key) {
            break;
        }
    }
    // One that fits no statement with others has one of its own.
    keys.len().max(1)
}
