//! Gathering: the next messages of a replay, from the log and from the archive, each once.
//!
//! The log is read on from where the replay stands. Where a row is missing there, the archive is
//! asked for it. A row that both have is taken from the log. What neither has is gone, and passed by:
//! all rows of a replay were there when it was asked for.
//!
//! A row of the log that cannot be read is taken from the archive. Where that has it not, the replay
//! ends before it with [`StoreError::Corrupt`], as the stream does: nothing is left out unseen. What
//! lies behind it is read by a replay that begins there: by the rows around it, it is of no time from
//! when the next one came in on.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::restored::Rows;
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::archiving::check_own;
use crate::services::pull_stream::core::Core;
use crate::services::pull_stream::log::{self, Found, MARGIN, Place, SealedRow, Span as TimeSpan};
use crate::services::pull_stream::record::{Position, Span, messages_in};
use crate::store::{PageLimit, Store, StoreError, Timestamp};

/// The most rows that are read at a time, where rows of another time are passed.
const MOST_ROWS: usize = 64;

/// Where the messages of a replay are.
#[derive(Debug)]
pub(super) struct Sources<'a, S> {
    pub(super) core: &'a Core<S>,
    pub(super) place: Place<'a>,
    pub(super) times: Range<Timestamp>,
}

/// Messages that follow a position, and their rows.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) spans: Vec<Span>,
    pub(super) rows: Rows,
    /// The message after them.
    pub(super) next: Position,
    /// Rows that cannot be read and are not archived, and by the rows around them not of the time.
    pub(super) passed: Vec<u64>,
    most: usize,
}

impl Gathered {
    fn room(&self) -> usize {
        self.most.saturating_sub(messages_in(&self.spans))
    }

    fn take(&mut self, row: u64, sealed: Arc<SealedRow>) {
        let index = if row == self.next.row { self.next.index } else { 0 };
        // At most ten.
        let count = sealed.count().saturating_sub(index).min(self.room() as u8);
        let is_whole = index + count >= sealed.count();
        self.next = if is_whole {
            Position { row: row + 1, index: 0 }
        } else {
            Position { row, index: index + count }
        };
        if count > 0 {
            self.spans.push(Span { row, index, count });
            self.rows.push((row, sealed));
        }
    }
}

/// The archive, as far as it was read.
#[derive(Debug, Default)]
struct Ahead {
    rows: VecDeque<(u64, Arc<SealedRow>)>,
    /// Whether it has no more than these.
    is_dry: bool,
}

impl<S: Store> Sources<'_, S> {
    /// Up to `most` messages from a position on, of rows below `end`. `rows` is about how many rows
    /// they will be of.
    pub(super) async fn gather(
        &self,
        from: Position,
        end: u64,
        most: usize,
        rows: usize,
    ) -> Result<Gathered, PullStreamError> {
        let (spans, rows_of, passed) = (Vec::new(), Vec::new(), Vec::new());
        let mut gathered = Gathered { spans, rows: rows_of, next: from, passed, most };
        let mut ahead = Ahead::default();
        let mut span = TimeSpan::whole(from.row..end);
        let mut limit = rows.clamp(1, MOST_ROWS);
        // The first row of which it is not known where it is, and when the one before came in.
        let (mut unknown, mut before) = (from.row, None);
        while gathered.room() > 0 {
            let page = span.page(&self.core.store, self.place, PageLimit::new(limit)?).await?;
            let Some(page) = page else { break };
            for found in page {
                let row = found.row();
                self.restore(&mut gathered, &mut ahead, unknown..row).await?;
                if gathered.room() == 0 {
                    return Ok(gathered);
                }
                unknown = row + 1;
                let Found::Row(found) = found else {
                    if self.ends_at(&mut gathered, &mut ahead, row, (before, end)).await? {
                        return Ok(gathered);
                    }
                    continue;
                };
                before = Some(found.sealed.at());
                // No row after such a one is of the time.
                if self.times.end.until(found.sealed.at()) > MARGIN {
                    return Ok(gathered);
                }
                if self.times.contains(&found.sealed.at()) {
                    gathered.take(found.row, Arc::new(found.sealed));
                }
            }
            let known_to = span.next_row().min(end);
            if gathered.room() > 0 && unknown < known_to {
                self.restore(&mut gathered, &mut ahead, unknown..known_to).await?;
                unknown = known_to;
            }
            limit = (limit * 2).min(MOST_ROWS);
        }
        Ok(gathered)
    }

    /// Takes a row that cannot be read from the archive. True where the replay has to end before it,
    /// and an error where it has to begin with it.
    async fn ends_at(
        &self,
        gathered: &mut Gathered,
        ahead: &mut Ahead,
        row: u64,
        (before, end): (Option<Timestamp>, u64),
    ) -> Result<bool, PullStreamError> {
        self.restore(gathered, ahead, row..row + 1).await?;
        if gathered.rows.last().is_some_and(|(last, _)| *last == row) {
            return Ok(false);
        }
        let behind = self.readable_behind(row, end).await?;
        let is_after = before.is_some_and(|before| before >= self.times.end);
        let is_before = behind.is_some_and(|behind| behind <= self.times.start);
        if is_after || is_before {
            let is_near = behind.is_none_or(|at| at.until(self.times.start) <= MARGIN);
            gathered.passed.extend(is_near.then_some(row));
            return Ok(false);
        }
        if !gathered.spans.is_empty() {
            return Ok(true);
        }
        let further = behind.map_or_else(
            || "nothing behind it can be read".into(),
            |at| format!("a replay from {} on reads what is behind it", at.as_unix_millis()),
        );
        let reason = format!("row {row} of the log cannot be read and is not archived; {further}");
        Err(StoreError::Corrupt { key: self.place.row_key(row)?, reason }.into())
    }

    /// When the next row came in that can be read.
    async fn readable_behind(&self, row: u64, end: u64) -> Result<Option<Timestamp>, StoreError> {
        let mut span = TimeSpan::whole(row + 1..end);
        let limit = PageLimit::new(MOST_ROWS)?;
        while let Some(page) = span.page(&self.core.store, self.place, limit).await? {
            if let Some(found) = page.iter().find_map(Found::readable) {
                return Ok(Some(found.sealed.at()));
            }
        }
        Ok(None)
    }

    /// Takes what the archive has of rows that the log has not, as far as there is room.
    async fn restore(
        &self,
        gathered: &mut Gathered,
        ahead: &mut Ahead,
        missing: Range<u64>,
    ) -> Result<(), PullStreamError> {
        let mut from = missing.start;
        while from < missing.end && gathered.room() > 0 {
            match ahead.rows.pop_front_if(|(row, _)| *row < missing.end) {
                Some((row, sealed)) if row >= from => {
                    gathered.take(row, sealed);
                    from = row + 1;
                }
                // The log had it.
                Some(_) => {}
                None if ahead.is_dry || !ahead.rows.is_empty() => return Ok(()),
                None => {
                    let rows = self.archived_from(from).await?;
                    ahead.is_dry = rows.is_empty();
                    ahead.rows.extend(rows);
                }
            }
        }
        Ok(())
    }

    /// The next rows that the archive has of the log, from one on.
    async fn archived_from(&self, row: u64) -> Result<Rows, PullStreamError> {
        let rows = self.core.restored.rows_from(self.place, &self.times, row).await?;
        if !rows.is_empty() {
            let numbers = rows.iter().map(|(row, _)| *row);
            check_own(&self.core.store, self.place, numbers).await?;
        }
        Ok(rows)
    }

    /// The rows of messages that were delivered before; those that are gone are missing.
    pub(super) async fn rows_of(&self, spans: &[Span]) -> Result<Rows, PullStreamError> {
        let mut wanted: Vec<u64> = spans.iter().map(|span| span.row).collect();
        wanted.dedup();
        let mut rows = log::read_rows(&self.core.store, self.place, &wanted).await?;
        wanted.retain(|row| rows.iter().all(|(known, _)| known != row));
        while let Some(missing) = wanted.first().copied() {
            let found = self.archived_from(missing).await?;
            // Without an answer there is none of them, and no row follows.
            wanted.retain(|row| found.last().is_some_and(|(last, _)| row > last));
            rows.extend(found);
        }
        Ok(rows)
    }
}
