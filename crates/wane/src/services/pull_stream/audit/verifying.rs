//! Reading a chain, and checking that nothing of it was changed, taken out or cut off.

use serde::{Deserialize, Serialize};

use super::AuditEntry;
use super::chain::{ChainRow, ROWS_PER_RANGE, RowHash, row_key};
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::log::{Place, first_rows};
use crate::services::pull_stream::record::Riding;
use crate::store::{ClusteringRange, PageLimit, Store, StoreError};

/// Which of an institution's chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Chain {
    /// Changes of state: starts, tokens that were used and issued, ends.
    Transitions,
    /// Calls that changed nothing: rejections, and retries.
    Remarks,
}

impl Chain {
    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Transitions => b't',
            Self::Remarks => b'r',
        }
    }
}

/// What a check found: the chain is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditCheck {
    /// How many rows there are.
    pub rows: u64,
    /// How many entries they have.
    pub entries: u64,
}

/// Entries of a chain, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// The row to go on with, or `None` at the end.
    pub next: Option<u64>,
}

/// Where a chain must end at least: so many rows, and the hash of the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Ending {
    pub(super) rows: u64,
    pub(super) last: RowHash,
}

impl From<&Riding> for Ending {
    fn from(riding: &Riding) -> Self {
        Self { rows: riding.row, last: riding.prev }
    }
}

/// Reads a chain from its first row on.
pub(in super::super) async fn verify<S: Store>(
    store: &S,
    place: Place<'_>,
    chain: Chain,
    ending: Ending,
) -> Result<AuditCheck, PullStreamError> {
    let (mut prev, mut check) = (RowHash::default(), AuditCheck { rows: 0, entries: 0 });
    loop {
        let rows = page(store, place, chain, check.rows).await?;
        if rows.is_empty() {
            break;
        }
        for (row, hash) in rows {
            if row.row != check.rows {
                return broken(check.rows, "it is missing, or another one stands in its place");
            }
            if row.prev != prev {
                return broken(row.row, "it does not follow the row before it");
            }
            prev = hash;
            check.rows += 1;
            check.entries += row.entries.len() as u64;
            if ending.rows == check.rows && ending.last != prev {
                return broken(row.row, "another row is known to have stood in its place");
            }
        }
    }
    if check.rows < ending.rows {
        return broken(check.rows, "the chain is cut off here");
    }
    Ok(check)
}

fn broken(row: u64, reason: &str) -> Result<AuditCheck, PullStreamError> {
    Err(PullStreamError::BrokenChain { row, reason: reason.into() })
}

/// Entries from a row on: those of one page of rows.
pub(in super::super) async fn entries<S: Store>(
    store: &S,
    place: Place<'_>,
    chain: Chain,
    from: u64,
) -> Result<AuditPage, StoreError> {
    let rows = page(store, place, chain, from).await?;
    let next = rows.last().map(|(row, _)| row.row + 1);
    let entries = rows.into_iter().flat_map(|(row, _)| row.entries).collect();
    Ok(AuditPage { entries, next })
}

/// Rows from one on; none at the end.
async fn page<S: Store>(
    store: &S,
    place: Place<'_>,
    chain: Chain,
    from: u64,
) -> Result<Vec<(ChainRow, RowHash)>, StoreError> {
    let key = row_key(place, chain, from)?;
    let partition = place.audit_partition(chain.letter(), from / ROWS_PER_RANGE)?;
    let range = ClusteringRange::new(key.clustering().to_vec(), Vec::new())?;
    let page = first_rows(store, &partition, range, PageLimit::new(128)?).await?;
    page.rows.iter().map(|row| ChainRow::read(&row.key, &row.record.value)).collect()
}
