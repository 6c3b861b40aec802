//! Remarks: entries of calls that change no state, appended to a chain of their own.
//!
//! One task per institution and node gathers those that come together into one row. The end of the
//! chain is noted now and then, and found from there by steps that double: no row is ever missing
//! before another one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::AuditEntry;
use super::chain::{Chain, ChainRow, RowHash, row_key};
use super::verifying::Ending;
use crate::services::pull_stream::core::Core;
use crate::services::pull_stream::lines::Attended;
use crate::services::pull_stream::log::Place;
use crate::store::{Fence, Life, Outcome, Remaining, Store, StoreError, Value, Write};

/// The most entries of one row.
const MOST_ENTRIES: usize = 256;

/// How long the task rests before it ends.
const RESTS: Duration = Duration::from_millis(500);

/// How often other nodes may be faster.
const ATTEMPTS: usize = 64;

/// How often they are before their rows are looked for ahead.
const STEPS: usize = 2;

/// After so many rows, or so much time, the end of the chain is noted.
const NOTED_ROWS: u64 = 64;
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// An entry, and who waits for it to be written.
#[derive(Debug)]
pub(in super::super) struct Remark {
    pub(in super::super) entry: AuditEntry,
    pub(in super::super) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// The next row of the chain, and the hash before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct End {
    row: u64,
    prev: RowHash,
}

/// Serves a line of remarks until it rests.
pub(in super::super) async fn attend<S: Store>(core: Arc<Core<S>>, mut line: Attended<Remark>) {
    let place = core.place(line.ispb);
    let (mut end, mut noted) = (None, None);
    loop {
        let take = |waiting: &mut VecDeque<Remark>| {
            let count = waiting.len().min(MOST_ENTRIES);
            waiting.drain(..count).collect::<Vec<_>>()
        };
        let remarks = line.look(take).unwrap_or_default();
        if remarks.is_empty() {
            if line.rests(&core.clock, RESTS).await {
                note_end(&core.store, place, end).await;
                noted = end.map(|end| (end.row, core.clock.monotonic()));
                if line.end_if_empty() {
                    return;
                }
            }
            continue;
        }
        let entries = remarks.iter().map(|remark| remark.entry.clone()).collect();
        let done = append(&core, place, &mut end, entries).await;
        for remark in remarks {
            let answer = done.as_ref().map_err(StoreError::again).copied();
            // Whoever has left does not hear of it; its entry stands.
            drop(remark.answer.send(answer));
        }
        if let Some(End { row, .. }) = end {
            let now = core.clock.monotonic();
            let (last, at) = *noted.get_or_insert((row, now));
            if row >= last + NOTED_ROWS || now >= at + NOTED_EVERY {
                note_end(&core.store, place, end).await;
                noted = Some((row, now));
            }
        }
    }
}

async fn append<S: Store>(
    core: &Core<S>,
    place: Place<'_>,
    end: &mut Option<End>,
    entries: Vec<AuditEntry>,
) -> Result<(), StoreError> {
    let nonce = core.clock.random_u64();
    let mut at = match end.take() {
        Some(end) => end,
        None => end_after(&core.store, place, hint(&core.store, place).await?).await?,
    };
    let mut unclear = None;
    for tried in 0..ATTEMPTS {
        let key = row_key(place, Chain::Remarks, at.row)?;
        let entries = entries.clone();
        let row = ChainRow { row: at.row, prev: at.prev, nonce, entries };
        let (write, hash) = row.write(&key)?;
        let standing = match core.store.insert_if_not_exists(&key, write).await {
            Ok(Outcome::Applied { .. }) => {
                *end = Some(End { row: at.row + 1, prev: hash });
                return Ok(());
            }
            Ok(Outcome::Refused { current }) => current,
            Err(error @ StoreError::Unknown { .. }) => {
                let Ok(standing) = core.store.get(&key).await else { return Err(error) };
                unclear = Some(error);
                standing
            }
            Err(error) => return Err(unclear.unwrap_or(error)),
        };
        // Where there is none yet, ours may still come: it is inserted again at the same place.
        if let Some(record) = standing {
            let (standing, hash) = ChainRow::read(&key, &record.value)?;
            at = End { row: at.row + 1, prev: hash };
            if standing.nonce == nonce {
                *end = Some(at);
                return Ok(());
            }
            if tried >= STEPS {
                let found = end_after(&core.store, place, at).await;
                at = found.map_err(|error| unclear.take().unwrap_or(error))?;
            }
        }
    }
    Err(unclear.unwrap_or_else(|| StoreError::Unavailable {
        backend: "audit",
        source: "other nodes kept being faster; try again".into(),
    }))
}

/// Where the chain has ended at least.
pub(in super::super) async fn hinted_end<S: Store>(
    store: &S,
    place: Place<'_>,
) -> Result<Ending, StoreError> {
    hint(store, place).await.map(|End { row, prev }| Ending::new(row, prev))
}

async fn hint<S: Store>(store: &S, place: Place<'_>) -> Result<End, StoreError> {
    let key = place.state_key("remarks")?;
    let Some(record) = store.get(&key).await? else { return Ok(End::default()) };
    serde_json::from_slice(&record.value).map_err(|error| StoreError::Corrupt {
        key,
        reason: format!("it is not the end of a chain: {error}"),
    })
}

/// Where the chain ends, if it ends at `known` or later.
async fn end_after<S: Store>(store: &S, place: Place<'_>, known: End) -> Result<End, StoreError> {
    let is_there = async |row: u64| -> Result<bool, StoreError> {
        let left = store.query_ttl(&row_key(place, Chain::Remarks, row)?).await?;
        Ok(left != Remaining::Absent)
    };
    if !is_there(known.row).await? {
        return Ok(known);
    }
    let (mut last, mut step) = (known.row, 1);
    while is_there(last + step).await? {
        last += step;
        step *= 2;
    }
    let mut free = last + step;
    while free - last > 1 {
        let middle = last + (free - last) / 2;
        if is_there(middle).await? {
            last = middle;
        } else {
            free = middle;
        }
    }
    let key = row_key(place, Chain::Remarks, last)?;
    let Some(record) = store.get(&key).await? else {
        return Err(StoreError::Corrupt { key, reason: "it was taken out of its chain".into() });
    };
    let (_, prev) = ChainRow::read(&key, &record.value)?;
    Ok(End { row: last + 1, prev })
}

/// Notes the end as a hint, unless a later one is noted. Failing is no harm.
async fn note_end<S: Store>(store: &S, place: Place<'_>, end: Option<End>) {
    let Some(end) = end.filter(|end| end.row > 0) else { return };
    let note = async || -> Result<(), StoreError> {
        let json = serde_json::to_vec(&end)
            .map_err(|error| StoreError::invalid("audit", error.to_string()))?;
        let write = Write::new(Value::new(json)?, Life::Permanent).fenced(Fence(end.row));
        store.put(&place.state_key("remarks")?, write).await.map(drop)
    };
    // The next one goes up from an earlier hint instead.
    drop(note().await);
}
