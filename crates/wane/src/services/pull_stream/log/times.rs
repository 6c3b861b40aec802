//! Times of the log: when the rows of each range began to come in.
//!
//! One small record per range, before its rows, written with the first one and kept for a year. By it a row is
//! found by its time without reading others, also where retention has emptied the ranges between. A record may be missing, where its writer ended too soon: then the range before
//! it counts for both.
//!
//! Rows lie in the order in which they came in, by the clocks of several nodes: whoever looks for a
//! time looks `MARGIN` around it, and goes by what each row says itself.

use std::time::Duration;

use super::{Place, range_of_row};
use crate::store::{Key, Life, Store, StoreError, Timestamp, Ttl, Value, Write};

/// How far the clocks of nodes may be apart, and more.
pub(in super::super) const MARGIN: Duration = Duration::from_secs(60);

/// How many ranges are asked for at a time where records are missing.
const TOGETHER: u64 = 16;

/// Before all rows of the range: no reader of rows comes upon it.
fn key(place: Place<'_>, range: u64) -> Result<Key, StoreError> {
    Key::new(place.log_partition(range)?.as_bytes(), b"")
}

/// Notes when a range began, unless that is noted.
pub(super) async fn note<S: Store>(
    store: &S,
    place: Place<'_>,
    row: u64,
    at: Timestamp,
) -> Result<(), StoreError> {
    let value = Value::copy_from_slice(&at.as_unix_millis().to_be_bytes())?;
    // Rows that are held live longer, and are looked for from further back.
    let write = Write::new(value, Life::For(Ttl::MAX));
    // Refused, another node has noted it.
    store.insert_if_not_exists(&key(place, range_of_row(row))?, write).await.map(drop)
}

/// The first range that rows of a time or later can be in, of those below `end`.
pub(super) async fn first_range<S: Store>(
    store: &S,
    place: Place<'_>,
    from: Timestamp,
    end: u64,
) -> Result<u64, StoreError> {
    let wanted = from.as_unix_millis().saturating_sub(MARGIN.as_millis() as u64);
    // Ranges below `low` began before it; those from `high` on did not.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        match began(store, place, middle, high).await? {
            Some((range, began)) if began < wanted => low = range + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low.saturating_sub(1))
}

/// When the first of these ranges began of which that is noted.
async fn began<S: Store>(
    store: &S,
    place: Place<'_>,
    from: u64,
    end: u64,
) -> Result<Option<(u64, u64)>, StoreError> {
    let mut range = from;
    while range < end {
        let ranges: Vec<u64> = (range..end.min(range + TOGETHER)).collect();
        let keys: Vec<Key> =
            ranges.iter().map(|range| key(place, *range)).collect::<Result<_, _>>()?;
        let records = store.get_batch(&keys).await?;
        for ((range, key), record) in ranges.iter().zip(&keys).zip(records) {
            if let Some(record) = record {
                return Ok(Some((*range, read(key, &record.value)?)));
            }
        }
        range += TOGETHER;
    }
    Ok(None)
}

fn read(key: &Key, value: &[u8]) -> Result<u64, StoreError> {
    let bytes = <[u8; 8]>::try_from(value).map_err(|_| StoreError::Corrupt {
        key: key.clone(),
        reason: "it is not a time: it does not have eight bytes".into(),
    })?;
    Ok(u64::from_be_bytes(bytes))
}
