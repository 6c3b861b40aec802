//! Gathering: the next messages of a replay, from the log and from the archive, each once.
//!
//! The log is read on from where the replay stands. Where a row is missing there, the archive is
//! asked for it. A row that both have is taken from the log. What neither has is gone, and passed by:
//! all rows of a replay were there when it was asked for.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::restored::Rows;
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::core::Core;
use crate::services::pull_stream::log::{self, MARGIN, Place, SealedRow, Span as TimeSpan};
use crate::services::pull_stream::record::{Position, Span, messages_in};
use crate::store::{PageLimit, Store, Timestamp};

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
        let mut gathered = Gathered { spans: Vec::new(), rows: Vec::new(), next: from, most };
        let mut ahead = Ahead::default();
        let mut span = TimeSpan::whole(from.row..end);
        let mut limit = rows.clamp(1, MOST_ROWS);
        // The first row of which it is not known where it is.
        let mut unknown = from.row;
        while gathered.room() > 0 {
            let page = span.page(&self.core.store, self.place, PageLimit::new(limit)?).await?;
            let Some(page) = page else { break };
            for found in page {
                self.restore(&mut gathered, &mut ahead, unknown..found.row).await?;
                if gathered.room() == 0 {
                    return Ok(gathered);
                }
                // No row after such a one is of the time.
                if self.times.end.until(found.sealed.at()) > MARGIN {
                    return Ok(gathered);
                }
                if self.times.contains(&found.sealed.at()) {
                    gathered.take(found.row, Arc::new(found.sealed));
                }
                unknown = found.row + 1;
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
                    let restored = &self.core.restored;
                    let rows = restored.rows_from(self.place, &self.times, from).await?;
                    ahead.is_dry = rows.is_empty();
                    ahead.rows.extend(rows);
                }
            }
        }
        Ok(())
    }

    /// The rows of messages that were delivered before; those that are gone are missing.
    pub(super) async fn rows_of(&self, spans: &[Span]) -> Result<Rows, PullStreamError> {
        let mut wanted: Vec<u64> = spans.iter().map(|span| span.row).collect();
        wanted.dedup();
        let mut rows = log::read_rows(&self.core.store, self.place, &wanted).await?;
        wanted.retain(|row| rows.iter().all(|(known, _)| known != row));
        while let Some(missing) = wanted.first().copied() {
            let found = self.core.restored.rows_from(self.place, &self.times, missing).await?;
            // Without an answer there is none of them, and no row follows.
            wanted.retain(|row| found.last().is_some_and(|(last, _)| row > last));
            rows.extend(found);
        }
        Ok(rows)
    }
}
