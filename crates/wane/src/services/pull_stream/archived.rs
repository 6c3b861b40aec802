//! What is archived, read back: for replays, and to see that it is all there.
//!
//! Segments may overlap where a node was slow while rows expired: the rows of one are then among
//! those of the other, and are the same. Where they are not, or where the log does not know of having
//! archived them, nothing is handed out: a log that was restored from a backup uses numbers again
//! that the archive has other rows under.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::archive::{Archive, ArchiveError, SegmentName};
use super::archiving::check_own;
use super::body::Delivered;
use super::log::{Place, SealedRow};
use super::segment::{self, LONGEST_REACH};
use super::{Ispb, PullStream, PullStreamError};
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

/// Names that are asked for at a time.
const NAMES: usize = 1_000;

/// The segments of an institution that may have a row or later ones, by their first rows, read page
/// by page.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    archive: &'a dyn Archive,
    place: Place<'a>,
    names: VecDeque<SegmentName>,
    /// The first row of the next page; `None` after the last one.
    next: Option<u64>,
}

impl<'a> Listing<'a> {
    pub(super) fn over(archive: &'a dyn Archive, place: Place<'a>, row: u64) -> Self {
        Self::beginning(archive, place, row.saturating_sub(LONGEST_REACH))
    }

    /// Those that begin at a row or behind it.
    fn beginning(archive: &'a dyn Archive, place: Place<'a>, row: u64) -> Self {
        Self { archive, place, names: VecDeque::new(), next: Some(row) }
    }

    /// The next one, which is left there.
    async fn peek(&mut self) -> Result<Option<&SegmentName>, ArchiveError> {
        while self.names.is_empty()
            && let Some(from) = self.next
        {
            self.read_on(from).await?;
        }
        Ok(self.names.front())
    }

    pub(super) async fn next(&mut self) -> Result<Option<SegmentName>, ArchiveError> {
        self.peek().await?;
        Ok(self.names.pop_front())
    }

    async fn read_on(&mut self, from: u64) -> Result<(), ArchiveError> {
        let Place { region, ispb } = self.place;
        let names = self.archive.list(region, ispb, from, NAMES).await?;
        self.next = match names.last() {
            Some(last) if names.len() >= NAMES => Some(last.rows.start),
            Some(_) | None => None,
        };
        let is_new = |name: &SegmentName| Some(name.rows.start) != self.next;
        let (whole, rest): (Vec<_>, Vec<_>) = names.into_iter().partition(is_new);
        if whole.is_empty() {
            // More begin at one row than a page has: no log makes them.
            self.next = self.next.map(|row| row + 1);
            self.names.extend(rest);
        } else {
            // Those that begin where the page ends come with the next one, and their like with them.
            self.names.extend(whole);
        }
        Ok(())
    }
}

/// The next archived rows of a time, from a row on, in their order: as many as one segment has.
/// None at the end.
pub(super) async fn archived_rows(
    archive: &dyn Archive,
    flights: &Flights,
    place: Place<'_>,
    times: Range<Timestamp>,
    from_row: u64,
) -> Result<Vec<(u64, Arc<SealedRow>)>, ArchiveError> {
    let mut listing = Listing::over(archive, place, from_row);
    // Those that reach behind the last one that was asked for.
    let mut open: Vec<SegmentName> = Vec::new();
    let mut from_row = from_row;
    loop {
        open.retain(|name| name.rows.end > from_row);
        while open.is_empty() {
            let Some(name) = listing.next().await? else { return Ok(Vec::new()) };
            open.extend(Some(name).filter(|n| n.rows.end > from_row && n.is_within(&times)));
        }
        let end = open[0].rows.end;
        while listing.peek().await?.is_some_and(|name| name.rows.start < end) {
            let name = listing.next().await?;
            open.extend(name.filter(|n| n.rows.end > from_row && n.is_within(&times)));
        }
        let mut rows = BTreeMap::new();
        for name in &open {
            let found = flights.fetch(archive, name).await?;
            for (row, sealed) in &found.rows {
                if !(from_row..end).contains(row) || !times.contains(&sealed.at()) {
                    continue;
                }
                match rows.entry(*row) {
                    Entry::Vacant(place) => {
                        place.insert(Arc::clone(sealed));
                    }
                    Entry::Occupied(there) if there.get().is_same(sealed) => {}
                    Entry::Occupied(_) => {
                        return Err(ArchiveError::Foreign { ispb: place.ispb, row: *row });
                    }
                }
            }
        }
        if !rows.is_empty() {
            return Ok(rows.into_iter().collect());
        }
        from_row = end;
    }
}

/// A segment that was read.
#[derive(Debug)]
pub(super) struct Fetched {
    rows: Vec<(u64, Arc<SealedRow>)>,
    /// How many bytes it has in the archive.
    bytes: u64,
}

/// Segments that are being fetched: many who ask for one at once are given the same.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<SegmentName, Weak<OnceCell<Arc<Fetched>>>>>);

impl Flights {
    /// The rows of a segment that is listed. Where fetching it fails, the next one who waits tries.
    async fn fetch(
        &self,
        archive: &dyn Archive,
        name: &SegmentName,
    ) -> Result<Arc<Fetched>, ArchiveError> {
        let flight = self.of(name);
        let fetched = flight.get_or_try_init(async || fetch(archive, name).await.map(Arc::new));
        fetched.await.cloned()
    }

    /// The flight that is under way, or a new one. It ends with the last one who waits for it.
    fn of(&self, name: &SegmentName) -> Arc<OnceCell<Arc<Fetched>>> {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.get(name).and_then(Weak::upgrade) {
            return flight;
        }
        flights.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::default();
        flights.insert(name.clone(), Arc::downgrade(&flight));
        flight
    }
}

async fn fetch(archive: &dyn Archive, name: &SegmentName) -> Result<Fetched, ArchiveError> {
    let bytes = archive.get(name).await?.ok_or_else(|| ArchiveError::Damaged {
        segment: name.clone(),
        reason: "it is listed and cannot be found".into(),
    })?;
    let length = bytes.len() as u64;
    let rows = segment::decode_aside(name, bytes).await?;
    let rows = rows.into_iter().map(|(row, sealed)| (row, Arc::new(sealed))).collect();
    Ok(Fetched { rows, bytes: length })
}

impl<S: Store> PullStream<S> {
    /// The segments of an institution that begin at a row or behind it, by their first rows: the
    /// first `most` of them.
    pub async fn segments(
        &self,
        ispb: Ispb,
        from_row: u64,
        most: usize,
    ) -> Result<Vec<SegmentName>, PullStreamError> {
        let (archive, place) = (self.core.archive()?, self.core.place(ispb));
        let mut listing = Listing::beginning(archive, place, from_row);
        let mut segments = Vec::new();
        while segments.len() < most
            && let Some(name) = listing.next().await?
        {
            segments.push(name);
        }
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
        let (archive, place) = (self.core.archive()?, self.core.place(ispb));
        let flights = &self.core.restored.flights;
        let rows = archived_rows(archive, flights, place, times, from_row).await?;
        check_own(&self.core.store, place, rows.iter().map(|(row, _)| *row)).await?;
        let archived = |(row, sealed): (u64, Arc<SealedRow>)| {
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
        let (archive, place) = (self.core.archive()?, self.core.place(ispb));
        let mut check = ArchiveCheck::default();
        let mut listing = Listing::beginning(archive, place, from_row);
        let mut last = None;
        while let Some(name) = listing.next().await? {
            let start = name.rows.start;
            // Those that begin at one row are checked together, so that it can be gone on from.
            if check.segments >= most_segments as u64 && last != Some(start) {
                check.next_row = Some(start);
                break;
            }
            let Fetched { rows, bytes } = fetch(archive, &name).await?;
            check_own(&self.core.store, place, rows.iter().map(|(row, _)| *row)).await?;
            check.segments += 1;
            check.rows += rows.len() as u64;
            check.bytes += bytes;
            last = Some(start);
        }
        Ok(check)
    }
}
