//! Writes that are repeated where the store does not know what became of them.
//!
//! That is safe for what is written here: a chunk is the same bytes at the same key whoever sends
//! them again, and a state record is unlike every other, so that finding it is having written it.
//! Nothing else is repeated, and nothing more often than [`ATTEMPTS`] times. After the last one the
//! store is asked what it holds.

use super::BlobsError;
use super::record::Stored;
use crate::store::{Fence, Key, Outcome, Record, Store, StoreError, Value, Write};

/// How often a write is sent whose outcome stays unknown.
const ATTEMPTS: usize = 4;

/// What became of a conditional write.
#[derive(Debug)]
pub(super) enum Settled {
    /// It stands, or stood, in the store.
    Done {
        /// Whether it was sent more than once, so that it may yet arrive again.
        lingers: bool,
    },
    /// Something else stands there, or nothing does.
    Refused(Option<Record>),
}

/// Puts `next` in the place of `current`, or where nothing is.
///
/// After [`StoreError::Unknown`] it may yet arrive.
pub(super) async fn swap<S: Store>(
    store: &S,
    key: &Key,
    current: Option<&Value>,
    next: &Write,
) -> Result<Settled, StoreError> {
    let mut unclear = None;
    for _ in 0..ATTEMPTS {
        let outcome = match current {
            None => store.insert_if_not_exists(key, next.clone()).await,
            Some(current) => store.compare_and_swap(key, current, next.clone()).await,
        };
        match outcome {
            Ok(Outcome::Applied { .. }) => return Ok(done(&unclear)),
            Ok(Outcome::Refused { current: Some(found) }) if found.value == next.value => {
                return Ok(done(&unclear));
            }
            Ok(Outcome::Refused { current }) => return Ok(Settled::Refused(current)),
            Err(error) => again_if_unknown(&mut unclear, error)?,
        }
    }
    if stands(store, key, &next.value).await {
        return Ok(done(&unclear));
    }
    Err(unclear.unwrap_or_else(unsettled))
}

/// Writes a state where none is.
///
/// A write that was sent twice may arrive again once the record is gone, and bring it back. So a
/// record that may is marked, in one more step, and whoever removes it leaves a tombstone.
pub(super) async fn create<S: Store>(
    store: &S,
    key: &Key,
    stored: &mut Stored,
) -> Result<Value, BlobsError> {
    let write = stored.write()?;
    match swap(store, key, None, &write).await? {
        Settled::Done { lingers: false } => Ok(write.value),
        Settled::Done { lingers: true } => {
            stored.lingers = true;
            let marked = stored.write()?;
            match swap(store, key, Some(&write.value), &marked).await? {
                Settled::Done { .. } => Ok(marked.value),
                Settled::Refused(_) => Err(BlobsError::Overtaken),
            }
        }
        Settled::Refused(_) => Err(BlobsError::Broken { reason: "its id is in use".into() }),
    }
}

/// Removes `current`. `Refused` with nothing is a removal too: ours, or somebody else's.
pub(super) async fn delete<S: Store>(
    store: &S,
    key: &Key,
    current: &Value,
) -> Result<Settled, StoreError> {
    let mut unclear = None;
    for _ in 0..ATTEMPTS {
        match store.compare_and_delete(key, current, Fence::NONE).await {
            Ok(Outcome::Applied { .. }) => return Ok(done(&unclear)),
            // Sent before, and gone since.
            Ok(Outcome::Refused { current: None }) if unclear.is_some() => {
                return Ok(done(&unclear));
            }
            Ok(Outcome::Refused { current }) => return Ok(Settled::Refused(current)),
            Err(error) => again_if_unknown(&mut unclear, error)?,
        }
    }
    if matches!(store.get(key).await, Ok(None)) {
        return Ok(done(&unclear));
    }
    Err(unclear.unwrap_or_else(unsettled))
}

/// Writes over whatever is there; `false` where a higher fence has refused it.
///
/// As a batch of one row: a store that is too busy for a row of a batch waits and sends it again,
/// where it would only say so of a single write. Chunks are what stores become too busy for.
pub(super) async fn put<S: Store>(store: &S, key: &Key, write: &Write) -> Result<bool, StoreError> {
    let mut unclear = None;
    for _ in 0..ATTEMPTS {
        match store.put_batch(vec![(key.clone(), write.clone())]).await {
            Ok(outcomes) => return Ok(outcomes.iter().all(Outcome::is_applied)),
            Err(error) => again_if_unknown(&mut unclear, error)?,
        }
    }
    if stands(store, key, &write.value).await {
        return Ok(true);
    }
    Err(unclear.unwrap_or_else(unsettled))
}

/// The same for many rows, whose order does not matter.
pub(super) async fn put_all<S: Store>(
    store: &S,
    writes: &[(Key, Write)],
) -> Result<(), StoreError> {
    let mut unclear = None;
    for _ in 0..ATTEMPTS {
        match store.put_batch(writes.to_vec()).await {
            Ok(_) => return Ok(()),
            Err(error) => again_if_unknown(&mut unclear, error)?,
        }
    }
    Err(unclear.unwrap_or_else(unsettled))
}

/// Whether the store shows the value at the key. A store that does not answer shows nothing.
async fn stands<S: Store>(store: &S, key: &Key, value: &Value) -> bool {
    matches!(store.get(key).await, Ok(Some(found)) if found.value == *value)
}

fn done(unclear: &Option<StoreError>) -> Settled {
    Settled::Done { lingers: unclear.is_some() }
}

/// Notes an unknown outcome, to send again. Any other error is the answer, unless something sent
/// before may yet arrive: then that is.
fn again_if_unknown(unclear: &mut Option<StoreError>, error: StoreError) -> Result<(), StoreError> {
    if matches!(error, StoreError::Unknown { .. }) {
        *unclear = Some(error);
        return Ok(());
    }
    Err(unclear.take().unwrap_or(error))
}

fn unsettled() -> StoreError {
    StoreError::Unknown { backend: "blobs", source: "nothing was sent".into() }
}
