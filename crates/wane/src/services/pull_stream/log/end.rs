//! Where the log ends: found from the tail and `head`, and by looking for rows beyond them.

use super::{Place, Tail, tail_key};
use crate::services::pull_stream::record::State;
use crate::store::{Remaining, Store, StoreError};

/// The first place without a row, as far as can be seen now.
pub(in super::super) async fn log_end<S: Store>(
    store: &S,
    place: Place<'_>,
) -> Result<u64, StoreError> {
    let known = known_end(store, place).await?;
    if is_used(store, place, known).await? {
        return first_free_after(store, place, known).await;
    }
    Ok(known)
}

/// Where the log ended at least, by what was noted of it.
pub(super) async fn known_end<S: Store>(store: &S, place: Place<'_>) -> Result<u64, StoreError> {
    let keys = [tail_key(place)?, place.state_key("state")?];
    let records = store.get_batch(&keys).await?;
    let mut end = 0;
    if let Some(Some(record)) = records.first() {
        end = Tail::read(&keys[0], &record.value)?.0;
    }
    if let Some(Some(record)) = records.get(1) {
        end = end.max(State::read(&keys[1], &record.value)?.first_unclaimed_row());
    }
    Ok(end)
}

/// A free place after one that is used: others have appended much. Their rows are not read.
pub(super) async fn first_free_after<S: Store>(
    store: &S,
    place: Place<'_>,
    used: u64,
) -> Result<u64, StoreError> {
    let (mut used, mut step) = (used, 1);
    while is_used(store, place, used + step).await? {
        used += step;
        step *= 2;
    }
    let mut free = used + step;
    while free - used > 1 {
        let middle = used + (free - used) / 2;
        if is_used(store, place, middle).await? {
            used = middle;
        } else {
            free = middle;
        }
    }
    Ok(free)
}

async fn is_used<S: Store>(store: &S, place: Place<'_>, row: u64) -> Result<bool, StoreError> {
    let left = store.query_ttl(&place.row_key(row)?).await?;
    Ok(left != Remaining::Absent)
}
