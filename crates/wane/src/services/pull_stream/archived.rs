//! What is archived, read back: for replays, and to see that it is all there.
//!
//! Segments may overlap where a node was slow while rows expired: the rows of one are then among
//! those of the other, and are the same. Where they are not, or where the log does not know of having
//! archived them, nothing is handed out: a log that was restored from a backup uses numbers again
//! that the archive has other rows under.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::archive::{Archive, ArchiveError, SegmentName};
use super::archiving::check_own;
use super::body::Delivered;
use super::log::SealedRow;
use super::{Ispb, PullStream, PullStreamError, segment};
use crate::store::{Store, Timestamp};

/// A row that was archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedRow {
    /// Its number in the log.
    pub row: u64,
    /// When it came in.
    pub at: Timestamp,
    /// Its messages.
    pub messages: Vec<Delivered>,
}

/// Segments that were read and are whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArchiveCheck {
    /// How many.
    pub segments: u64,
    /// Rows in them.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The row to go on with; `None` at the end.
    pub next_row: Option<u64>,
}

/// The next archived rows of a time, from a row on, in their order: as many as one segment has.
/// None at the end.
pub(super) async fn archived_rows(
    archive: &dyn Archive,
    region: &str,
    ispb: Ispb,
    times: Range<Timestamp>,
    from_row: u64,
) -> Result<Vec<(u64, SealedRow)>, ArchiveError> {
    let mut segments = archive.list(region, ispb).await?;
    segments.retain(|name| name.rows.end > from_row && name.is_within(&times));
    segments.sort_by_key(|name| (name.rows.start, name.rows.end));
    let mut from_row = from_row;
    while let Some(first) = segments.iter().find(|name| name.rows.end > from_row) {
        let end = first.rows.end;
        let mut rows = BTreeMap::new();
        for name in &segments {
            if name.rows.start >= end || name.rows.end <= from_row {
                continue;
            }
            for (row, sealed) in fetch(archive, name).await?.0 {
                if !(from_row..end).contains(&row) || !times.contains(&sealed.at()) {
                    continue;
                }
                match rows.entry(row) {
                    Entry::Vacant(place) => {
                        place.insert(sealed);
                    }
                    Entry::Occupied(there) if there.get().is_same(&sealed) => {}
                    Entry::Occupied(_) => return Err(ArchiveError::Foreign { ispb, row }),
                }
            }
        }
        if !rows.is_empty() {
            return Ok(rows.into_iter().collect());
        }
        from_row = end;
    }
    Ok(Vec::new())
}

/// The rows of a segment that is listed, and how many bytes it has.
async fn fetch(
    archive: &dyn Archive,
    name: &SegmentName,
) -> Result<(Vec<(u64, SealedRow)>, u64), ArchiveError> {
    let bytes = archive.get(name).await?.ok_or_else(|| ArchiveError::Damaged {
        segment: name.clone(),
        reason: "it is listed and cannot be found".into(),
    })?;
    let length = bytes.len() as u64;
    Ok((segment::decode_aside(name, bytes).await?, length))
}

impl<S: Store> PullStream<S> {
    /// The segments of an institution, by their first row.
    pub async fn segments(&self, ispb: Ispb) -> Result<Vec<SegmentName>, PullStreamError> {
        let mut segments = self.core.archive()?.list(&self.core.settings.home, ispb).await?;
        segments.sort_by_key(|name| (name.rows.start, name.rows.end));
        Ok(segments)
    }

    /// The next archived rows of a time, from a row on, in their order: as many as one segment has.
    /// None at the end.
    pub async fn archived(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        from_row: u64,
    ) -> Result<Vec<ArchivedRow>, PullStreamError> {
        let region = &self.core.settings.home;
        let rows = archived_rows(self.core.archive()?, region, ispb, times, from_row).await?;
        let numbers = rows.iter().map(|(row, _)| *row);
        check_own(&self.core.store, self.core.place(ispb), numbers).await?;
        let archived = |(row, sealed): (u64, SealedRow)| {
            let messages = (0..sealed.count()).filter_map(|index| sealed.message(index));
            let messages = messages.map(|(id, bytes)| Delivered { id, bytes }).collect();
            ArchivedRow { row, at: sealed.at(), messages }
        };
        Ok(rows.into_iter().map(archived).collect())
    }

    /// Reads segments from a row on, up to a number of them, and checks every byte:
    /// [`ArchiveError::Damaged`] names the first one that is not as it was written,
    /// [`ArchiveError::Foreign`] a row that the log did not archive.
    pub async fn check_archive(
        &self,
        ispb: Ispb,
        from_row: u64,
        most_segments: usize,
    ) -> Result<ArchiveCheck, PullStreamError> {
        let (archive, mut check) = (self.core.archive()?, ArchiveCheck::default());
        let mut segments = self.segments(ispb).await?;
        segments.retain(|name| name.rows.start >= from_row);
        let mut last = None;
        for name in &segments {
            let start = name.rows.start;
            // Those that begin at one row are checked together, so that it can be gone on from.
            if check.segments >= most_segments as u64 && last != Some(start) {
                check.next_row = Some(start);
                break;
            }
            let (rows, bytes) = fetch(archive, name).await?;
            let numbers = rows.iter().map(|(row, _)| *row);
            check_own(&self.core.store, self.core.place(ispb), numbers).await?;
            check.segments += 1;
            check.rows += rows.len() as u64;
            check.bytes += bytes;
            last = Some(start);
        }
        Ok(check)
    }
}
