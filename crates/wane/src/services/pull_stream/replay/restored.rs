//! Restored rows: those that the log has no more, and the archive still has.
//!
//! What the archive hands out is a segment or so, and a reader takes ten messages at a time. The rest
//! is kept for a while, up to a bound, so that a segment is not fetched for each batch.
//!
//! Invariant: rows never change, and of what is kept only rows that follow each other without a gap
//! are handed out. So it makes no difference but speed whether something is kept.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::services::pull_stream::archived::{Flights, archived_rows};
use crate::services::pull_stream::log::{Place, SealedRow};
use crate::services::pull_stream::{Archive, ArchiveError, ArchiveFuture, Ispb};
use crate::store::Timestamp;

/// The most that is kept, in bytes of messages.
const KEPT_BYTES: usize = 64 << 20;

/// The most answers of the archive that are kept.
const KEPT_ANSWERS: usize = 8;

/// Rows by their sequences.
pub(in super::super) type Rows = Vec<(u64, Arc<SealedRow>)>;

/// Where rows are found that the log has no more.
///
/// - **In order, without gaps.** The rows of a time from a sequence on, ascending: none is left out
///   below the last one that is handed out. None at all means that there are no more.
pub(in super::super) trait ArchivedRows:
    fmt::Debug + Send + Sync + 'static
{
    /// The next rows, as many as are at hand together.
    fn rows_from<'a>(
        &'a self,
        place: Place<'a>,
        times: Range<Timestamp>,
        from_row: u64,
    ) -> ArchiveFuture<'a, Rows>;
}

/// An archive, of which the segments are read.
#[derive(Debug)]
struct Segments {
    archive: Arc<dyn Archive>,
    flights: Arc<Flights>,
}

impl ArchivedRows for Segments {
    fn rows_from<'a>(
        &'a self,
        place: Place<'a>,
        times: Range<Timestamp>,
        from_row: u64,
    ) -> ArchiveFuture<'a, Rows> {
        Box::pin(archived_rows(&*self.archive, &self.flights, place, times, from_row))
    }
}

/// The archive as replays read it.
#[derive(Debug, Default)]
pub(in super::super) struct Restored {
    source: Option<Arc<dyn ArchivedRows>>,
    /// What is being fetched, for whoever reads the archive.
    pub(in super::super) flights: Arc<Flights>,
    kept: Mutex<VecDeque<Kept>>,
}

/// What the archive handed out once.
#[derive(Debug)]
struct Kept {
    region: String,
    ispb: Ispb,
    rows: Rows,
}

impl Kept {
    fn bytes(&self) -> usize {
        let of = |row: &SealedRow| row.body().len() + row.gzip().map_or(0, |gzip| gzip.len());
        self.rows.iter().map(|(_, row)| of(row)).sum()
    }

    /// The row and those that follow it without a gap.
    fn run_from(&self, from_row: u64) -> &[(u64, Arc<SealedRow>)] {
        let start = self.rows.partition_point(|(row, _)| *row < from_row);
        let rest = &self.rows[start..];
        let run = rest.iter().zip(from_row..).take_while(|((row, _), wanted)| row == wanted);
        &rest[..run.count()]
    }
}

impl Restored {
    /// From the archive, where there is one.
    pub(in super::super) fn of(archive: Option<&Arc<dyn Archive>>) -> Self {
        let flights = Arc::<Flights>::default();
        let segments = |archive: &Arc<dyn Archive>| {
            let (archive, flights) = (Arc::clone(archive), Arc::clone(&flights));
            Arc::new(Segments { archive, flights }) as _
        };
        Self { source: archive.map(segments), flights, kept: Mutex::default() }
    }

    /// From this source.
    #[cfg(test)]
    pub(in super::super) fn over(source: Arc<dyn ArchivedRows>) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    /// Lets go of what is kept.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.kept.lock().clear();
    }

    /// Rows of a time from a sequence on, in order; none where there are no more.
    pub(super) async fn rows_from(
        &self,
        place: Place<'_>,
        times: &Range<Timestamp>,
        from_row: u64,
    ) -> Result<Rows, ArchiveError> {
        let Some(source) = &self.source else { return Ok(Vec::new()) };
        if let Some(rows) = self.kept_from(place, times, from_row) {
            return Ok(rows);
        }
        let found = source.rows_from(place, times.clone(), from_row).await?;
        let rows: Rows = found.into_iter().filter(|(row, _)| *row >= from_row).collect();
        if !rows.is_empty() {
            let (region, ispb) = (place.region.to_owned(), place.ispb);
            self.keep(Kept { region, ispb, rows: rows.clone() });
        }
        Ok(rows)
    }

    fn kept_from(&self, place: Place<'_>, times: &Range<Timestamp>, from_row: u64) -> Option<Rows> {
        let kept = self.kept.lock();
        let theirs = kept.iter().filter(|kept| kept.ispb == place.ispb);
        let run = theirs
            .filter(|kept| kept.region == place.region)
            .map(|kept| kept.run_from(from_row))
            .find(|run| !run.is_empty())?;
        let is_wanted = |(_, row): &&(u64, Arc<SealedRow>)| times.contains(&row.at());
        let rows: Rows = run.iter().take_while(is_wanted).cloned().collect();
        (!rows.is_empty()).then_some(rows)
    }

    fn keep(&self, new: Kept) {
        let mut kept = self.kept.lock();
        kept.push_front(new);
        let mut bytes = 0;
        let room = kept.iter().take(KEPT_ANSWERS).take_while(|kept| {
            bytes += kept.bytes();
            bytes <= KEPT_BYTES
        });
        let room = room.count();
        kept.truncate(room);
    }
}
