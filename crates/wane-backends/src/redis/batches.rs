//! Batches: the rows of each partition in chunks, partitions side by side.
//!
//! Chunks are bounded in rows and bytes, so that no script holds up the server. Those of one
//! partition go one after the other: of two writes to one key the last one stands.

use std::collections::HashMap;

use futures_util::stream::{StreamExt, iter};
use redis::{Cmd, Value as Reply};
use wane::store::{Key, Outcome, PAGE_BYTES, Record, StoreError, Write};

use super::link::Fault;
use super::record::{OperationId, decode, life_argument, outcome};
use super::reply::{STRANGE, array, bytes_or_none};
use super::{Inner, scripts};
use crate::certainty::least_certain;

/// Rows of one chunk.
const CHUNK_ROWS: usize = 64;

/// Bytes of keys and values in one chunk of writes, unless a single row has more.
const CHUNK_BYTES: usize = PAGE_BYTES / 4;

/// Partitions that are under way at once.
const SIDE_BY_SIDE: usize = 16;

/// A write of a batch, and which one it is.
struct Queued {
    position: usize,
    key: Key,
    write: Write,
    operation: OperationId,
}

impl Queued {
    fn size(&self) -> usize {
        self.key.clustering().len() + self.write.value.len()
    }
}

/// The positions of keys, by partition.
fn by_partition<'k>(keys: impl Iterator<Item = &'k Key>) -> Vec<Vec<usize>> {
    let mut found: HashMap<&[u8], usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (position, key) in keys.enumerate() {
        let group = *found.entry(key.partition()).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(position);
    }
    groups
}

impl Inner {
    pub(super) async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let groups = by_partition(keys.iter());
        let reading = groups.into_iter().map(|positions| self.get_group(keys, positions));
        let mut reading = iter(reading).buffer_unordered(SIDE_BY_SIDE);
        let mut records = vec![None; keys.len()];
        while let Some(group) = reading.next().await {
            for (position, record) in group? {
                records[position] = record;
            }
        }
        Ok(records)
    }

    /// The records at some positions, all of one partition.
    async fn get_group(
        &self,
        keys: &[Key],
        positions: Vec<usize>,
    ) -> Result<Vec<(usize, Option<Record>)>, StoreError> {
        let mut found = Vec::with_capacity(positions.len());
        let Some(first) = positions.first() else { return Ok(found) };
        let partition = keys[*first].partition();
        let place = self.layout.place(partition);
        while found.len() < positions.len() {
            let left = &positions[found.len()..];
            let asked = &left[..left.len().min(CHUNK_ROWS)];
            let reply = self.run(&scripts::GET, &place, 3, |call| {
                call.arg(PAGE_BYTES);
                for position in asked {
                    call.arg(keys[*position].clustering());
                }
            });
            let reply = reply.await.map_err(|fault| self.unread(fault, partition))?;
            let records = array(reply).ok_or_else(|| self.unreadable())?;
            if records.is_empty() || records.len() > asked.len() {
                return Err(self.unreadable());
            }
            for (position, record) in asked.iter().zip(records) {
                let stored = bytes_or_none(record).ok_or_else(|| self.unreadable())?;
                let record = stored.map(|stored| decode(&keys[*position], stored));
                found.push((*position, record.transpose()?));
            }
        }
        Ok(found)
    }

    pub(super) async fn put_batch(
        &self,
        writes: Vec<(Key, Write)>,
    ) -> Result<Vec<Outcome>, StoreError> {
        let count = writes.len();
        let groups = by_partition(writes.iter().map(|(key, _)| key));
        let mut queued: Vec<Option<Queued>> = writes
            .into_iter()
            .enumerate()
            .map(|(position, (key, write))| {
                Some(Queued { position, key, write, operation: self.new_operation() })
            })
            .collect();
        let groups: Vec<Vec<Queued>> = groups
            .into_iter()
            .map(|group| group.into_iter().filter_map(|at| queued[at].take()).collect())
            .collect();
        let writing = groups.into_iter().map(|group| self.put_group(group));
        let mut writing = iter(writing).buffer_unordered(SIDE_BY_SIDE);
        let mut outcomes: Vec<Option<Outcome>> = vec![None; count];
        let mut failure = None;
        while let Some((answers, failed)) = writing.next().await {
            for (position, outcome) in answers {
                outcomes[position] = Some(outcome);
            }
            failure = least_certain(failure, failed);
        }
        let some_applied = outcomes.iter().flatten().any(Outcome::is_applied);
        match failure {
            // That nothing was applied is true only of the rows that failed.
            Some(StoreError::Unavailable { source, .. }) if some_applied => {
                Err(StoreError::Unknown { backend: "redis", source })
            }
            Some(error) => Err(error),
            None => outcomes.into_iter().map(|o| o.ok_or_else(|| self.unreadable())).collect(),
        }
    }

    /// Writes rows of one partition in order, up to the first chunk that fails.
    async fn put_group(&self, group: Vec<Queued>) -> (Vec<(usize, Outcome)>, Option<StoreError>) {
        let mut answers = Vec::with_capacity(group.len());
        let mut left = &group[..];
        while !left.is_empty() {
            let (chunk, rest) = left.split_at(chunk_len(left));
            if let Err(error) = self.put_chunk(chunk, &mut answers).await {
                return (answers, Some(error));
            }
            left = rest;
        }
        (answers, None)
    }

    async fn put_chunk(
        &self,
        chunk: &[Queued],
        answers: &mut Vec<(usize, Outcome)>,
    ) -> Result<(), StoreError> {
        let Some(Queued { key, .. }) = chunk.first() else { return Ok(()) };
        let place = self.layout.place(key.partition());
        let arguments = |call: &mut Cmd| {
            call.arg(key.partition());
            for row in chunk {
                call.arg(row.key.clustering()).arg(&row.operation);
                call.arg(life_argument(row.write.life)).arg(&row.write.fence.0.to_be_bytes());
                call.arg(&row.write.value[..]);
            }
        };
        let source = match self.run(&scripts::PUT, &place, 4, arguments).await {
            Ok(Reply::Array(replies)) if replies.len() == chunk.len() => {
                for (row, reply) in chunk.iter().zip(replies) {
                    let outcome = outcome(&row.key, reply);
                    let outcome = outcome.unwrap_or_else(|| Err(self.unknown(STRANGE.into())))?;
                    answers.push((row.position, outcome));
                }
                return Ok(());
            }
            Ok(_) => STRANGE.into(),
            Err(Fault::Unclear(error)) => error.into(),
            Err(fault) => return Err(self.unwritten(fault, key)),
        };
        let rows: Vec<_> = chunk.iter().map(|row| (row.key.clustering(), row.operation)).collect();
        let found = self.read_back(&place, &rows).await.unwrap_or_default();
        let applied: Vec<_> = found.into_iter().flatten().collect();
        if applied.len() != chunk.len() {
            return Err(self.unknown(source));
        }
        for (row, expires_at) in chunk.iter().zip(applied) {
            answers.push((row.position, Outcome::Applied { expires_at }));
        }
        Ok(())
    }
}

/// How many of the rows go into the next chunk.
fn chunk_len(rows: &[Queued]) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(CHUNK_ROWS).take_while(|row| {
        let fits = bytes == 0 || bytes + row.size() <= CHUNK_BYTES;
        bytes += row.size().max(1);
        fits
    });
    fitting.count()
}
