//! The window: rows of the log from `head` on that are read already, and those that were requeued.
//!
//! Rows never change, so what was read once stays true; the window follows `head` and lets go of
//! what lies behind it. A page is read for several rounds to come, up to a megabyte of it.
//!
//! Invariant: a row counts as gone only if something beyond it was seen first, another row or a
//! tail, and it is missing when it is looked for after that. A page of rows alone would not tell:
//! on some backends a row may be inserted behind a page that is being read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Place, ROWS_PER_RANGE, SealedRow, range_of_row};
use crate::services::pull_stream::message::MAX_BATCH;
use crate::services::pull_stream::record::{COUNT_LIMIT, Position, State, Supply};
use crate::store::{
    ClusteringRange, Key, Page, PageLimit, Partition, Store, StoreError, Timestamp,
};

/// The fewest and the most rows that are read at a time.
const FEWEST_ROWS: usize = 8;
const MOST_ROWS: usize = 64;

/// Rounds that a page is read for: those after the first one find their rows at hand.
const ROUNDS_AHEAD: usize = 4;

/// Pages without a row that are gone beyond at a time: ranges that retention has emptied.
const MOST_EMPTY: usize = 64;

/// Rows that have been read.
#[derive(Debug, Default)]
pub(in super::super) struct Window {
    /// From `head` on; what is missing below `end` is gone.
    rows: BTreeMap<u64, Arc<SealedRow>>,
    end: u64,
    /// The `head` that it begins at.
    from: u64,
    /// Rows before `head` that a claim may take from again, and those of them that are gone.
    earlier: BTreeMap<u64, Arc<SealedRow>>,
    gone: BTreeSet<u64>,
    /// Whether it ends where too many rows were gone, and not where the log does.
    is_cut: bool,
}

/// What a window is to hold.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Demand<'a> {
    pub(in super::super) state: &'a State,
    pub(in super::super) now: Timestamp,
    /// Messages that would be taken if they are there.
    pub(in super::super) messages: usize,
    /// Where the log ended at least, known from before.
    pub(in super::super) tail: u64,
    /// Whether nobody will ask again: nothing is read ahead.
    pub(in super::super) is_one_off: bool,
}

impl Window {
    /// Reads what is missing, until there are enough messages, the log ends, or so much of it is gone
    /// that whoever reads should take note of it first.
    pub(in super::super) async fn fill<S: Store>(
        &mut self,
        store: &S,
        place: Place<'_>,
        demand: Demand<'_>,
    ) -> Result<(), StoreError> {
        let head = demand.state.head;
        // Behind where it begins only after a backup was restored under this process.
        if self.end < head.row || head.row < self.from {
            self.rows.clear();
            self.end = head.row;
        }
        self.from = head.row;
        self.rows = self.rows.split_off(&head.row);
        self.fill_earlier(store, place, demand).await?;
        self.is_cut = false;
        let mut empty = 0;
        while self.messages_from(head) < demand.messages {
            let known = self.rows.len();
            if !self.read_on(store, place, demand).await? {
                return Ok(());
            }
            empty += usize::from(self.rows.len() == known);
            if empty >= MOST_EMPTY {
                self.is_cut = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// What a claim may take from.
    pub(in super::super) fn supply(&self) -> Supply {
        let rows = self.rows.iter().chain(&self.earlier);
        let rows = rows.map(|(row, sealed)| (*row, sealed.count())).collect();
        Supply { rows, gone: self.gone.clone(), end: self.end, is_cut: self.is_cut }
    }

    /// When the first message from `head` on came in.
    pub(in super::super) fn first_from(&self, head: Position) -> Option<Timestamp> {
        self.rows.range(head.row..).next().map(|(_, row)| row.at())
    }

    /// A row that was read.
    pub(in super::super) fn row(&self, row: u64) -> Option<Arc<SealedRow>> {
        self.rows.get(&row).or_else(|| self.earlier.get(&row)).cloned()
    }

    fn messages_from(&self, head: Position) -> usize {
        let rows = self.rows.range(head.row..);
        let all: usize = rows.map(|(_, row)| usize::from(row.count())).sum();
        let taken = if self.rows.contains_key(&head.row) { usize::from(head.index) } else { 0 };
        all.saturating_sub(taken)
    }

    /// Looks for the rows of requeued messages.
    async fn fill_earlier<S: Store>(
        &mut self,
        store: &S,
        place: Place<'_>,
        demand: Demand<'_>,
    ) -> Result<(), StoreError> {
        let wanted: Vec<u64> = demand.state.rows_to_look_for(demand.now).collect();
        self.earlier.retain(|row, _| wanted.contains(row));
        let is_known = |row: &u64| self.rows.contains_key(row) || self.earlier.contains_key(row);
        let mut missing: Vec<u64> = wanted.into_iter().filter(|row| !is_known(row)).collect();
        missing.sort_unstable();
        missing.dedup();
        let found = read_rows(store, place, &missing).await?;
        self.gone = missing.into_iter().collect();
        for (row, sealed) in found {
            self.gone.remove(&row);
            self.earlier.insert(row, sealed);
        }
        Ok(())
    }

    /// Reads on from the end; false where the log ends.
    async fn read_on<S: Store>(
        &mut self,
        store: &S,
        place: Place<'_>,
        demand: Demand<'_>,
    ) -> Result<bool, StoreError> {
        let range = range_of_row(self.end);
        let from = ClusteringRange::new(self.end.to_be_bytes().to_vec(), Vec::new())?;
        let partition = place.log_partition(range)?;
        let page = first_rows(store, &partition, from, self.page_limit(demand)?).await?;
        let is_last = page.rest.is_none();
        for row in page.rows {
            let number = sequence(&row.key)?;
            self.look_before(store, place, number, demand.tail).await?;
            let sealed = SealedRow::read(&row.key, row.record.value)?;
            self.rows.insert(number, Arc::new(sealed));
            self.end = number + 1;
        }
        let is_next_range = range_of_row(self.end) > range;
        if !is_last || is_next_range {
            return Ok(true);
        }
        // Rows below a tail that was known before the page was read, and not on it, are gone.
        let gone_to = ((range + 1) * ROWS_PER_RANGE).min(demand.tail);
        let goes_on = self.end < gone_to;
        self.end = self.end.max(gone_to);
        Ok(goes_on)
    }

    /// Looks once more for rows before one that was seen: it shows that they had been there.
    async fn look_before<S: Store>(
        &mut self,
        store: &S,
        place: Place<'_>,
        seen: u64,
        tail: u64,
    ) -> Result<(), StoreError> {
        let missing: Vec<u64> = (self.end.max(tail)..seen).collect();
        for (row, sealed) in read_rows(store, place, &missing).await? {
            self.rows.insert(row, sealed);
        }
        Ok(())
    }

    /// As many rows as the messages of several rounds will be in, by what the rows so far had.
    fn page_limit(&self, demand: Demand<'_>) -> Result<PageLimit, StoreError> {
        let per_row =
            self.rows.values().next_back().map_or(MAX_BATCH, |row| usize::from(row.count()));
        let rows = demand.messages.div_ceil(per_row.max(1)) * ROUNDS_AHEAD;
        PageLimit::new(if demand.is_one_off { 1 } else { rows.clamp(FEWEST_ROWS, MOST_ROWS) })
    }
}

/// The first page of a range that has rows, or the last one: a page may be empty before either.
pub(in super::super) async fn first_rows<S: Store>(
    store: &S,
    partition: &Partition,
    mut range: ClusteringRange,
    limit: PageLimit,
) -> Result<Page, StoreError> {
    loop {
        let page = store.read(partition, &range, limit).await?;
        match page.rest {
            Some(rest) if page.rows.is_empty() => range = rest,
            Some(_) | None => return Ok(page),
        }
    }
}

/// Those of the rows that are there.
pub(in super::super) async fn read_rows<S: Store>(
    store: &S,
    place: Place<'_>,
    rows: &[u64],
) -> Result<Vec<(u64, Arc<SealedRow>)>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = rows.iter().map(|row| place.row_key(*row)).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for ((row, key), record) in rows.iter().zip(&keys).zip(store.get_batch(&keys).await?) {
        if let Some(record) = record {
            found.push((*row, Arc::new(SealedRow::read(key, record.value)?)));
        }
    }
    Ok(found)
}

/// The number of a row.
pub(super) fn sequence(key: &Key) -> Result<u64, StoreError> {
    let number = key.clustering().try_into().map(u64::from_be_bytes);
    number.ok().filter(|number| *number < COUNT_LIMIT).ok_or_else(|| StoreError::Corrupt {
        key: key.clone(),
        reason: "its clustering is not a sequence".into(),
    })
}
