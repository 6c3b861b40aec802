//! Listing what happened to a stream between two times, from both chains.
//!
//! Each chain is read in its own order, from where the time begins to where it ends, and the two are
//! merged by time. Within a chain the order is that of what happened; times are those of the nodes
//! that it happened on, whose clocks differ a little, so that a chain is read a while before and
//! beyond the span that was asked for.
//!
//! Invariant: going on from the spot that a page ends with, no entry is left out and none comes
//! twice. Entries that ride in the record are listed once they stand in the chain.

use std::collections::VecDeque;

use super::AuditEntry;
use super::chain::{Chain, ChainRow, ROWS_PER_RANGE, RowHash, row_key};
use super::reading::{Found, rows};
use super::spot::{self, Spot};
use super::verifying::Ending;
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::log::Place;
use crate::store::{Store, Timestamp};

/// The most entries of a page.
pub const MAX_LISTED: usize = 1_000;

/// How far times of a chain may be out of order: ten minutes, in milliseconds. Nodes that serve a store
/// differ by seconds.
const DISORDER: u64 = 600_000;

/// Which entries are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    /// Those of this time or later.
    pub from: Option<Timestamp>,
    /// Those before this time.
    pub to: Option<Timestamp>,
    /// Those after what a page before ended with.
    pub after: Option<String>,
    /// Up to so many, 1 to [`MAX_LISTED`].
    pub limit: usize,
}

/// An entry and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// The entry.
    pub entry: AuditEntry,
    /// The chain that it is in.
    pub chain: Chain,
    /// The row that it is in.
    pub row: u64,
    /// The hash of that row, as the next row has it.
    pub row_hash: String,
}

/// Entries of both chains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditListing {
    /// The entries.
    pub entries: Vec<ListedEntry>,
    /// What to go on with, or `None` at the end.
    pub next: Option<String>,
}

/// Times in Unix milliseconds, the second one excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Span {
    fn of(query: &AuditQuery) -> Result<Self, PullStreamError> {
        let from = query.from.map_or(0, Timestamp::as_unix_millis);
        let to = query.to.map_or(u64::MAX, Timestamp::as_unix_millis);
        if from >= to {
            let reason = "it must be later than from".into();
            return Err(PullStreamError::Invalid { field: "to", reason });
        }
        Ok(Self { from, to })
    }

    fn contains(self, at: u64) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// Lists entries; `endings` is how far each chain is known to reach, transitions first.
pub(in super::super) async fn list<S: Store>(
    store: &S,
    place: Place<'_>,
    endings: [Ending; 2],
    query: &AuditQuery,
) -> Result<AuditListing, PullStreamError> {
    let span = Span::of(query)?;
    if !(1..=MAX_LISTED).contains(&query.limit) {
        let reason = format!("give 1 to {MAX_LISTED}");
        return Err(PullStreamError::Invalid { field: "limit", reason });
    }
    let given = query.after.as_deref().map(|text| spot::read(place, span, text)).transpose()?;
    let source = Source { store, place, span };
    let [transitions, remarks] = endings;
    let mut transitions = Strand::new(Chain::Transitions, transitions.rows);
    let mut remarks = Strand::new(Chain::Remarks, remarks.rows);
    match given {
        Some(spots) => [transitions.spot, remarks.spot] = spots,
        None => {
            transitions.seek(&source).await?;
            remarks.seek(&source).await?;
        }
    }
    let mut entries = Vec::new();
    let is_last = loop {
        let heads = (transitions.head(&source).await?, remarks.head(&source).await?);
        let is_transition = match heads {
            (None, None) => break true,
            (Some(transition), Some(remark)) => transition <= remark,
            (transition, None) => transition.is_some(),
            (None, Some(_)) => false,
        };
        if entries.len() == query.limit {
            break false;
        }
        entries.extend(if is_transition { transitions.take() } else { remarks.take() });
    };
    let next = (!is_last).then(|| spot::write(place, span, [transitions.spot, remarks.spot]));
    Ok(AuditListing { entries, next })
}

/// What is listed from.
struct Source<'a, S> {
    store: &'a S,
    place: Place<'a>,
    span: Span,
}

/// One chain as it is read.
struct Strand {
    chain: Chain,
    /// Rows that it has at least.
    rows: u64,
    /// The next entry.
    spot: Spot,
    read: VecDeque<Standing>,
    is_over: bool,
}

/// A row that was read, and its entries from some index on.
struct Standing {
    number: u64,
    hash: RowHash,
    entries: VecDeque<AuditEntry>,
}

impl Strand {
    fn new(chain: Chain, rows: u64) -> Self {
        Self { chain, rows, spot: Spot::default(), read: VecDeque::new(), is_over: false }
    }

    /// Goes to where the span begins, or before. Where rows on the way are missing or unreadable and none
    /// near them tells, the whole chain is read: nobody may hide entries by damaging others.
    async fn seek<S: Store>(&mut self, source: &Source<'_, S>) -> Result<(), PullStreamError> {
        let since = source.span.from.saturating_sub(DISORDER);
        let (mut low, mut high) = (0, if since == 0 { 0 } else { self.rows });
        while low < high {
            let middle = low + (high - low) / 2;
            match self.first_told(source, middle, high).await? {
                None => return Ok(()),
                Some((row, at)) if at < since => low = row + 1,
                Some(_) => high = middle,
            }
        }
        // The row before began earlier, and may have gone on for long.
        self.spot.row = low.saturating_sub(1);
        Ok(())
    }

    /// The first row from one on that says when it began, and when. Almost always that one.
    async fn first_told<S: Store>(
        &self,
        source: &Source<'_, S>,
        from: u64,
        to: u64,
    ) -> Result<Option<(u64, u64)>, PullStreamError> {
        let began = |row: &ChainRow| row.entries.first().map(|entry| entry.at);
        let key = row_key(source.place, self.chain, from)?;
        let record = source.store.get(&key).await?;
        let row = record.and_then(|record| ChainRow::read(&key, &record.value).ok());
        if let Some(at) = row.and_then(|(row, _)| began(&row)) {
            return Ok(Some((from, at)));
        }
        let near = rows(source.store, source.place, self.chain, from).await?;
        let told = near.iter().filter(|found| found.number < to);
        Ok(told.filter_map(|found| Some((found.number, began(found.row.as_ref()?)?))).next())
    }

    /// When the next entry in the span was; `None` where there is none. Passes over those before it.
    async fn head<S: Store>(
        &mut self,
        source: &Source<'_, S>,
    ) -> Result<Option<u64>, PullStreamError> {
        while !self.is_over {
            let Some(row) = self.read.front_mut() else {
                self.read_on(source).await?;
                continue;
            };
            match row.entries.front() {
                Some(entry) if source.span.contains(entry.at) => return Ok(Some(entry.at)),
                Some(entry) if entry.at >= source.span.to.saturating_add(DISORDER) => {
                    self.is_over = true;
                }
                Some(_) => {
                    row.entries.pop_front();
                    self.spot.index += 1;
                }
                None => {
                    let next = row.number + 1;
                    self.read.pop_front();
                    // Rows that are missing are passed over.
                    let row = self.read.front().map_or(next, |row| row.number);
                    self.spot = Spot { row, index: 0 };
                }
            }
        }
        Ok(None)
    }

    /// Takes the entry that `head` found.
    fn take(&mut self) -> Option<ListedEntry> {
        let row = self.read.front_mut()?;
        let entry = row.entries.pop_front()?;
        self.spot.index += 1;
        let row_hash = row.hash.into();
        Some(ListedEntry { entry, chain: self.chain, row: row.number, row_hash })
    }

    async fn read_on<S: Store>(&mut self, source: &Source<'_, S>) -> Result<(), PullStreamError> {
        let rows = rows(source.store, source.place, self.chain, self.spot.row).await?;
        if rows.is_empty() {
            // What is left of a range whose last rows are missing ends there; the chain does not.
            let range = (self.spot.row / ROWS_PER_RANGE + 1) * ROWS_PER_RANGE;
            self.is_over = range >= self.rows;
            self.spot = if self.is_over { self.spot } else { Spot { row: range, index: 0 } };
            return Ok(());
        }
        for found in rows {
            let Found { number, hash, .. } = found;
            let passed = if number == self.spot.row { self.spot.index } else { 0 };
            let entries = match found.standing(self.chain) {
                Ok(row) => row.entries,
                Err(error) if self.read.is_empty() => return Err(error),
                // It is told when the list gets there.
                Err(_) => break,
            };
            let entries = entries.into_iter().skip(usize::try_from(passed).unwrap_or(usize::MAX));
            self.read.push_back(Standing { number, hash, entries: entries.collect() });
        }
        if let Some(first) = self.read.front().filter(|first| first.number != self.spot.row) {
            self.spot = Spot { row: first.number, index: 0 };
        }
        Ok(())
    }
}
