//! A draft: the rows of the next segment, as they are read.
//!
//! Rows of another time that lie between wanted ones are taken along, as what is archived is a range
//! of rows; those before and behind are left. Rows that cannot be read are in no segment: between
//! wanted ones they are counted.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::services::pull_stream::archive::{ArchiveError, SegmentName};
use crate::services::pull_stream::log::{DamagedRow, MARGIN, Place, SpanRow};
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
    /// Whether a row that cannot be read is let go if no wanted one follows.
    pub(super) fn is_due(&self, row: &DamagedRow) -> bool {
        match self {
            Self::Of(_) => false,
            Self::Due(due) => row.expires_at.is_some_and(|end| end <= due.expiring_by),
        }
    }

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

/// Rows that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Damaged {
    pub(super) count: u64,
    pub(super) first: Option<u64>,
}

impl Damaged {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.or(other.first);
    }
}

/// What a draft became.
#[derive(Debug)]
pub(super) struct Finished {
    /// The rows that are archived by it.
    pub(super) rows: Range<u64>,
    /// Those of them that cannot be read.
    pub(super) damaged: Damaged,
    pub(super) segment: SegmentName,
    pub(super) bytes: Bytes,
    pub(super) messages: u64,
}

impl Finished {
    /// How many of the rows are gone.
    pub(super) fn gone(&self) -> u64 {
        self.rows.end - self.rows.start - self.segment.count - self.damaged.count
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
    damaged: Damaged,
    /// Damaged rows after those in it.
    doubtful: Damaged,
    /// Whether one of these has yet to live.
    is_early: bool,
}

impl Draft {
    /// An empty one, from a row on, that is full once its rows have so many bytes.
    pub(super) fn new(place: Place<'_>, start: u64, most_bytes: usize) -> Self {
        let writer = SegmentWriter::new(place, most_bytes);
        Self {
            start,
            end: start,
            writer,
            messages: 0,
            held: Vec::new(),
            held_bytes: 0,
            damaged: Damaged::default(),
            doubtful: Damaged::default(),
            is_early: false,
        }
    }

    pub(super) fn take(&mut self, row: &SpanRow) -> Result<(), ArchiveError> {
        for held in std::mem::take(&mut self.held) {
            self.push(&held)?;
        }
        self.held_bytes = 0;
        self.damaged.add(std::mem::take(&mut self.doubtful));
        self.push(row)
    }

    /// Notes a row that cannot be read, which counts once a wanted one follows, or it is due.
    pub(super) fn note_damaged(&mut self, row: &DamagedRow, is_due: bool) {
        self.doubtful.add(Damaged { count: 1, first: Some(row.row) });
        self.is_early |= !is_due;
    }

    /// All rows so far that cannot be read.
    pub(super) fn all_damaged(&self) -> Damaged {
        let mut all = self.damaged;
        all.add(self.doubtful);
        all
    }

    /// Whether a row that cannot be read may yet be followed by wanted ones.
    pub(super) fn is_early(&self) -> bool {
        self.is_early
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
            (self.doubtful, self.is_early) = (Damaged::default(), false);
            return Ok(());
        }
        self.held_bytes += row.record.value.len();
        if self.held_bytes > MOST_HELD {
            return self.take(&row);
        }
        self.held.push(row);
        Ok(())
    }

    /// Whether a row can be in it.
    pub(super) fn reaches(&self, row: &SpanRow) -> bool {
        self.writer.reaches(row.row)
    }

    pub(super) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// The segment, if there is a row. Up to `end`, what was not seen is gone, if that is known.
    pub(super) fn finish(self, end: Option<u64>) -> Result<Option<Finished>, ArchiveError> {
        let is_clear = self.held.is_empty() && self.doubtful.count == 0;
        let end = end.filter(|_| is_clear).unwrap_or(self.end);
        let (rows, messages, damaged) =
            (self.start..end.max(self.end), self.messages, self.damaged);
        let finished = self.writer.finish()?;
        Ok(finished.map(|(segment, bytes)| Finished { rows, damaged, segment, bytes, messages }))
    }
}

/// How long reading so much takes at a rate.
pub(super) fn time_for(bytes: usize, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}
