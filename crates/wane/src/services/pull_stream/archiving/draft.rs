//! A draft: the rows of the next segment, as they are read.
//!
//! Rows of another time that lie between wanted ones are taken along, as what is archived is a range
//! of rows; those before and behind are left.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::services::pull_stream::archive::{ArchiveError, SegmentName};
use crate::services::pull_stream::log::{MARGIN, Place, SpanRow};
use crate::services::pull_stream::segment::{MOST_HELD, SegmentWriter};
use crate::store::Timestamp;

/// Which rows are to be archived.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    /// Those that came in at a time.
    Of(Range<Timestamp>),
    /// Those whose end is near.
    Due(Due),
}

/// Rows whose end is near.
#[derive(Debug, Clone)]
pub(super) struct Due {
    /// Due are those that came in before.
    pub(super) before: Timestamp,
    /// Once one is due, those are taken with it that came in before this: fewer, longer segments.
    pub(super) with: Timestamp,
    /// Due are also those that expire by then, as when retention was shorter.
    pub(super) expiring_by: Timestamp,
    /// Whether one was due.
    pub(super) has_begun: bool,
}

/// What is done about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Take,
    /// It is of another time; those after it may be wanted.
    Pass,
    /// Neither it nor any after it is wanted.
    Stop,
}

impl Wanted {
    pub(super) fn fate(&mut self, row: &SpanRow) -> Fate {
        let at = row.sealed.at();
        match self {
            Self::Of(times) if times.contains(&at) => Fate::Take,
            Self::Of(times) if times.end.until(at) > MARGIN => Fate::Stop,
            Self::Of(_) => Fate::Pass,
            Self::Due(due) => {
                let is_near = row.record.expires_at.is_some_and(|end| end <= due.expiring_by);
                let before = if due.has_begun { due.with } else { due.before };
                if !is_near && at >= before {
                    return Fate::Stop;
                }
                due.has_begun = true;
                Fate::Take
            }
        }
    }
}

/// What a draft became.
#[derive(Debug)]
pub(super) struct Finished {
    /// The rows that are archived by it.
    pub(super) rows: Range<u64>,
    pub(super) segment: SegmentName,
    pub(super) bytes: Bytes,
    pub(super) messages: u64,
}

impl Finished {
    /// How many of the rows are gone.
    pub(super) fn gone(&self) -> u64 {
        self.rows.end - self.rows.start - self.segment.count
    }
}

/// The rows of the next segment.
#[derive(Debug)]
pub(super) struct Draft {
    /// From where on all rows are in it or gone.
    start: u64,
    /// Behind the last one that is in it.
    end: u64,
    writer: SegmentWriter,
    messages: u64,
    /// Rows of another time after those in it.
    held: Vec<SpanRow>,
    held_bytes: usize,
}

impl Draft {
    /// An empty one, from a row on, that is full once its rows have so many bytes.
    pub(super) fn new(place: Place<'_>, start: u64, most_bytes: usize) -> Self {
        let writer = SegmentWriter::new(place, most_bytes);
        Self { start, end: start, writer, messages: 0, held: Vec::new(), held_bytes: 0 }
    }

    pub(super) fn take(&mut self, row: &SpanRow) -> Result<(), ArchiveError> {
        for held in std::mem::take(&mut self.held) {
            self.push(&held)?;
        }
        self.held_bytes = 0;
        self.push(row)
    }

    fn push(&mut self, row: &SpanRow) -> Result<(), ArchiveError> {
        self.writer.push(row.row, row.sealed.at(), &row.record.value)?;
        self.messages += u64::from(row.sealed.count());
        self.end = row.row + 1;
        Ok(())
    }

    /// Passes by a row, unless wanted ones follow it.
    pub(super) fn pass(&mut self, row: SpanRow) -> Result<(), ArchiveError> {
        if self.writer.is_empty() {
            self.start = row.row + 1;
            return Ok(());
        }
        self.held_bytes += row.record.value.len();
        if self.held_bytes > MOST_HELD {
            return self.take(&row);
        }
        self.held.push(row);
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// The segment, if there is a row. Up to `end`, what was not seen is gone, if that is known.
    pub(super) fn finish(self, end: Option<u64>) -> Result<Option<Finished>, ArchiveError> {
        let end = end.filter(|_| self.held.is_empty()).unwrap_or(self.end);
        let (rows, messages) = (self.start..end.max(self.end), self.messages);
        let finished = self.writer.finish()?;
        Ok(finished.map(|(segment, bytes)| Finished { rows, segment, bytes, messages }))
    }
}

/// How long reading so much takes at a rate.
pub(super) fn time_for(bytes: usize, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}
