//! Draining: carries entries from the state record to their chain, each once.
//!
//! The record names the row that its entries go to, and forgets those that stand there with the
//! next write. A row that stands there already holds the first of the entries, from another node or
//! before a crash: those have arrived, and the rest goes to the row after it.

use super::AuditEntry;
use super::chain::{Chain, ChainRow, RowHash, row_key};
use crate::services::pull_stream::log::Place;
use crate::services::pull_stream::record::Riding;
use crate::store::{Outcome, Store, StoreError};

/// How often a row is inserted again at a place where it may stand already.
const ATTEMPTS: usize = 4;

/// What arrived: rows as they stand in the chain, and their hashes.
///
/// A row may hold more than was carried there: another node knew of later entries, and came first.
#[derive(Debug, Default)]
pub(in super::super) struct Drained(Vec<(ChainRow, RowHash)>);

impl Drained {
    /// Adds what arrived after it.
    pub(in super::super) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// How many entries arrived.
    pub(in super::super) fn entries(&self) -> usize {
        self.0.iter().map(|(row, _)| row.entries.len()).sum()
    }

    /// Drops what a record that stands in the store has forgotten.
    pub(in super::super) fn trim(&mut self, standing: &Riding) {
        self.0.retain(|(row, _)| row.row >= standing.row);
    }

    /// Lets the record forget what arrived, unless it has done so already.
    pub(in super::super) fn forget_in(&self, riding: &mut Riding) {
        for (row, hash) in &self.0 {
            if riding.row == row.row {
                riding.arrived(shared(&row.entries, &riding.entries), *hash);
            }
        }
    }
}

/// How many entries both begin with.
fn shared(there: &[AuditEntry], ours: &[AuditEntry]) -> usize {
    there.iter().zip(ours).take_while(|(there, ours)| there == ours).count()
}

/// Carries all entries to the chain. What failed is tried again with the next ones.
pub(in super::super) async fn drain<S: Store>(
    store: &S,
    place: Place<'_>,
    mut riding: Riding,
) -> Drained {
    let mut drained = Drained::default();
    while !riding.entries.is_empty() {
        let Ok((row, hash)) = insert(store, place, &riding).await else { break };
        riding.arrived(shared(&row.entries, &riding.entries), hash);
        drained.0.push((row, hash));
    }
    drained
}

/// Inserts the entries as the next row: what stands there then, and its hash.
async fn insert<S: Store>(
    store: &S,
    place: Place<'_>,
    riding: &Riding,
) -> Result<(ChainRow, RowHash), StoreError> {
    let key = row_key(place, Chain::Transitions, riding.row)?;
    let Riding { row, prev, entries } = riding.clone();
    let row = ChainRow { row, prev, nonce: 0, entries };
    let (write, hash) = row.write(&key)?;
    let mut unclear = None;
    for _ in 0..ATTEMPTS {
        let standing = match store.insert_if_not_exists(&key, write.clone()).await {
            Ok(Outcome::Applied { .. }) => return Ok((row, hash)),
            Ok(Outcome::Refused { current }) => current,
            Err(error @ StoreError::Unknown { .. }) => {
                unclear = Some(error);
                store.get(&key).await?
            }
            Err(error) => return Err(error),
        };
        if let Some(record) = standing {
            return ChainRow::read(&key, &record.value);
        }
    }
    Err(unclear.unwrap_or_else(|| StoreError::invalid("audit", "the row kept vanishing")))
}
