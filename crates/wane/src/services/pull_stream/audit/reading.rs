//! Reading rows of a chain, whatever became of them: what cannot be read is told by its row.

use super::AuditEntry;
use super::chain::{Chain, ChainRow, ROWS_PER_RANGE, RowHash, hash_of, row_key};
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::log::{Place, first_rows};
use crate::store::{ClusteringRange, PageLimit, Row, Store};

/// Rows that are read at a time.
const ROWS_AT_ONCE: usize = 128;

/// Entries of a chain, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// The row to go on with, or `None` at the end.
    pub next: Option<u64>,
}

/// A record of a chain.
#[derive(Debug)]
pub(super) struct Found {
    /// The row that it should be, by its place.
    pub(super) number: u64,
    pub(super) hash: RowHash,
    /// What it says, unless that is nothing that a row says.
    pub(super) row: Option<ChainRow>,
}

impl Found {
    fn of(chain: Chain, from: u64, row: &Row) -> Result<Self, PullStreamError> {
        let number = row.key.clustering().try_into().map(u64::from_be_bytes);
        let number = number.map_err(|_| broken(chain, from, "something else lies behind it"))?;
        let hash = hash_of(&row.key, &row.record.value);
        Ok(Self { number, hash, row: serde_json::from_slice(&row.record.value).ok() })
    }

    /// What it says, if it is the row that it should be.
    pub(super) fn standing(self, chain: Chain) -> Result<ChainRow, PullStreamError> {
        let row = self.row.ok_or_else(|| broken(chain, self.number, UNREADABLE))?;
        if row.row == self.number { Ok(row) } else { Err(broken(chain, self.number, MISPLACED)) }
    }
}

pub(super) const UNREADABLE: &str = "it cannot be read";
pub(super) const MISPLACED: &str = "another row stands in its place";

pub(super) fn broken(chain: Chain, row: u64, reason: &str) -> PullStreamError {
    PullStreamError::BrokenChain { chain, row, reason: reason.into() }
}

/// Rows from one on; none where nothing is left of its range.
pub(super) async fn rows<S: Store>(
    store: &S,
    place: Place<'_>,
    chain: Chain,
    from: u64,
) -> Result<Vec<Found>, PullStreamError> {
    let key = row_key(place, chain, from)?;
    let partition = place.audit_partition(chain.letter(), from / ROWS_PER_RANGE)?;
    let range = ClusteringRange::new(key.clustering().to_vec(), Vec::new())?;
    let page = first_rows(store, &partition, range, PageLimit::new(ROWS_AT_ONCE)?).await?;
    page.rows.iter().map(|row| Found::of(chain, from, row)).collect()
}

/// Entries from a row on: those of one page of rows.
pub(in super::super) async fn entries<S: Store>(
    store: &S,
    place: Place<'_>,
    chain: Chain,
    from: u64,
) -> Result<AuditPage, PullStreamError> {
    let rows = rows(store, place, chain, from).await?;
    let next = rows.last().map(|found| found.number + 1);
    let mut entries = Vec::new();
    for found in rows {
        entries.extend(found.standing(chain)?.entries);
    }
    Ok(AuditPage { entries, next })
}
