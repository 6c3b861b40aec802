//! A span: the rows of the log that came in between two moments, read page by page.
//!
//! For holds, archives and replays. Readers of the stream have the `window` instead. Rows that are
//! gone are passed by; what is appended meanwhile is seen if its time is in the span.
//!
//! A row that is there and cannot be read is handed out as such, so that whoever walks goes on behind
//! it and tells of it. Nobody knows its time: it is of the span unless a row behind it came in before.

use std::ops::Range;

use super::times::{self, MARGIN};
use super::window::{first_rows, sequence};
use super::{Place, ROWS_PER_RANGE, SealedRow, range_of_row};
use crate::store::{ClusteringRange, PageLimit, Record, Store, StoreError, Timestamp};

/// What lies at a place of a span.
#[derive(Debug, Clone)]
pub(in super::super) enum Found {
    Row(SpanRow),
    Damaged(DamagedRow),
}

impl Found {
    /// Its place.
    pub(in super::super) fn row(&self) -> u64 {
        match self {
            Self::Row(found) => found.row,
            Self::Damaged(damaged) => damaged.row,
        }
    }

    /// The row, if it can be read.
    pub(in super::super) fn readable(&self) -> Option<&SpanRow> {
        match self {
            Self::Row(found) => Some(found),
            Self::Damaged(_) => None,
        }
    }
}

/// A row that is there and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct DamagedRow {
    pub(in super::super) row: u64,
    pub(in super::super) expires_at: Option<Timestamp>,
}

/// A row of a span.
#[derive(Debug, Clone)]
pub(in super::super) struct SpanRow {
    pub(in super::super) row: u64,
    pub(in super::super) sealed: SealedRow,
    /// As it stands in the store.
    pub(in super::super) record: Record,
}

/// Rows of a time, from a place on.
#[derive(Debug, Clone)]
pub(in super::super) struct Span {
    /// When they came in: half-open.
    times: Range<Timestamp>,
    /// The row to go on with.
    next: u64,
    /// The row to end at.
    end: u64,
    /// Damaged rows that may be of the time, or not: what follows them tells.
    doubtful: Vec<DamagedRow>,
}

impl Span {
    /// The rows of a time below `end`, which is where the log ends or later.
    pub(in super::super) async fn of<S: Store>(
        store: &S,
        place: Place<'_>,
        times: Range<Timestamp>,
        end: u64,
    ) -> Result<Self, StoreError> {
        let ranges = end.div_ceil(ROWS_PER_RANGE);
        let first = times::first_range(store, place, times.start, ranges).await?;
        Ok(Self { times, next: first * ROWS_PER_RANGE, end, doubtful: Vec::new() })
    }

    /// All rows of a range, whenever they came in.
    pub(in super::super) fn whole(rows: Range<u64>) -> Self {
        let ends = [u64::MIN, u64::MAX].map(Timestamp::from_unix_millis);
        Self { times: ends[0]..ends[1], next: rows.start, end: rows.end, doubtful: Vec::new() }
    }

    /// The same from a row on, where that is further.
    #[must_use]
    pub(in super::super) fn not_before(self, row: u64) -> Self {
        Self { next: self.next.max(row), ..self }
    }

    /// The row to go on with: what lies before it was handed out.
    pub(in super::super) fn next_row(&self) -> u64 {
        self.doubtful.first().map_or(self.next, |damaged| damaged.row)
    }

    /// What lies on the next page, maybe nothing of the span; `None` at the end.
    pub(in super::super) async fn page<S: Store>(
        &mut self,
        store: &S,
        place: Place<'_>,
        limit: PageLimit,
    ) -> Result<Option<Vec<Found>>, StoreError> {
        if self.next >= self.end {
            return Ok(None);
        }
        let range = range_of_row(self.next);
        let from = ClusteringRange::new(self.next.to_be_bytes().to_vec(), Vec::new())?;
        let page = first_rows(store, &place.log_partition(range)?, from, limit).await?;
        let mut rows = Vec::with_capacity(page.rows.len());
        let mut is_past = false;
        for found in page.rows {
            let row = sequence(&found.key)?;
            self.next = row + 1;
            if row >= self.end {
                break;
            }
            let record = found.record;
            match SealedRow::decoded(record.value.clone().into_bytes()) {
                Some(sealed) => {
                    self.settle(sealed.at(), &mut rows);
                    is_past |= self.is_past(sealed.at());
                    if self.times.contains(&sealed.at()) {
                        rows.push(Found::Row(SpanRow { row, sealed, record }));
                    }
                }
                None if is_past => {}
                None => self.doubtful.push(DamagedRow { row, expires_at: record.expires_at }),
            }
        }
        if is_past {
            self.next = self.end;
        } else if page.rest.is_none() {
            self.next = self.next.max((range + 1) * ROWS_PER_RANGE);
        }
        // Nothing of all rows is doubtful, and nothing comes that would tell at the end.
        if self.times.start.as_unix_millis() == u64::MIN || self.next >= self.end {
            rows.extend(self.doubtful.drain(..).map(Found::Damaged));
        }
        Ok(Some(rows))
    }

    /// Hands out damaged rows before one that came in then, unless all of it is before the time.
    fn settle(&mut self, at: Timestamp, rows: &mut Vec<Found>) {
        let damaged = self.doubtful.drain(..);
        if at.until(self.times.start) <= MARGIN {
            rows.extend(damaged.map(Found::Damaged));
        }
    }

    /// Whether no row after one of this time can be of the span.
    fn is_past(&self, at: Timestamp) -> bool {
        self.times.end.until(at) > MARGIN
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::services::pull_stream::message::Message;
    use crate::services::pull_stream::resource_id::ResourceId;
    use crate::store::{Life, MemoryStore, Ttl, Value, Write};

    const START: u64 = 1_800_000_000_000;

    fn moment(second: u64) -> Timestamp {
        Timestamp::from_unix_millis(START + second * 1_000)
    }

    fn place() -> Place<'static> {
        Place { region: "local", ispb: "00000208".parse().unwrap() }
    }

    /// A log with a row for each second, of which some ranges have no note of their time.
    async fn log(rows: u64, unnoted: &[u64]) -> (MemoryStore, Arc<ManualClock>) {
        let clock = ManualClock::starting_at(moment(0), 7);
        let store = MemoryStore::new(clock.clone()).unwrap();
        for row in 0..rows {
            let message = Message::new("<Envelope/>").unwrap();
            let messages = [(ResourceId::draw(&*clock), message)];
            let sealed = SealedRow::seal(moment(row), [7; 16], &messages, None);
            let write = Write::new(sealed.value().unwrap(), Life::Permanent);
            let put = store.put(&place().row_key(row).unwrap(), write).await.unwrap();
            assert!(put.is_applied());
            let is_first = row.is_multiple_of(ROWS_PER_RANGE);
            if is_first && !unnoted.contains(&range_of_row(row)) {
                times::note(&store, place(), row, moment(row)).await.unwrap();
            }
        }
        (store, clock)
    }

    async fn rows(store: &MemoryStore, seconds: Range<u64>, end: u64) -> Vec<u64> {
        let times = moment(seconds.start)..moment(seconds.end);
        let mut span = Span::of(store, place(), times, end).await.unwrap();
        let mut rows = Vec::new();
        while let Some(page) =
            span.page(store, place(), PageLimit::new(100).unwrap()).await.unwrap()
        {
            rows.extend(page.iter().map(Found::row));
        }
        rows
    }

    #[tokio::test]
    async fn a_span_has_the_rows_of_its_time_and_no_others() {
        let (store, _clock) = log(3_000, &[]).await;
        for seconds in [0..1, 0..3_000, 250..260, 255..257, 700..1_900, 2_999..3_000] {
            let expected: Vec<u64> = seconds.clone().collect();
            assert_eq!(rows(&store, seconds, 3_000).await, expected);
        }
        assert_eq!(rows(&store, 3_000..4_000, 3_000).await, [0; 0]);
        assert_eq!(rows(&store, 2_900..3_000, 2_950).await, (2_900..2_950).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_is_not_noted_is_looked_for_from_further_back() {
        for unnoted in [&[0][..], &[5], &[4, 5, 6], &[8, 9, 10, 11], &[0, 1, 2, 3, 4, 5, 6, 7]] {
            let (store, _clock) = log(3_000, unnoted).await;
            for seconds in [10..20, 1_300..1_310, 1_500..1_700, 2_800..2_900] {
                let expected: Vec<u64> = seconds.clone().collect();
                assert_eq!(rows(&store, seconds, 3_000).await, expected, "without {unnoted:?}");
            }
        }
    }

    /// Rows in front have gone, but for one that stays: it is found, and so is what comes after.
    #[tokio::test]
    async fn rows_that_are_gone_are_passed_by() {
        let (store, clock) = log(3_000, &[]).await;
        for row in (0..2_000).filter(|row| *row != 777) {
            let key = place().row_key(row).unwrap();
            let value = store.get(&key).await.unwrap().unwrap().value;
            let write = Write::new(value, Life::For(Ttl::from_secs(1).unwrap()));
            assert!(store.put(&key, write).await.unwrap().is_applied());
        }
        clock.advance(Duration::from_secs(2));
        assert_eq!(rows(&store, 700..800, 3_000).await, [777]);
        assert_eq!(rows(&store, 0..2_002, 3_000).await, [777, 2_000, 2_001]);
    }

    /// Only rows that cannot be of the time are left out: those before it by more than the margin.
    #[tokio::test]
    async fn damaged_rows_are_handed_out_as_such_where_they_may_be_of_the_time() {
        let (store, _clock) = log(600, &[]).await;
        for row in [3, 200, 255, 256, 300, 301, 599] {
            let write = Write::new(Value::copy_from_slice(b"?").unwrap(), Life::Permanent);
            assert!(store.put(&place().row_key(row).unwrap(), write).await.unwrap().is_applied());
        }
        let damaged = async |seconds: Range<u64>| {
            let times = moment(seconds.start)..moment(seconds.end);
            let mut span = Span::of(&store, place(), times, 600).await.unwrap();
            let (mut damaged, mut readable) = (Vec::new(), Vec::new());
            while let Some(page) =
                span.page(&store, place(), PageLimit::new(7).unwrap()).await.unwrap()
            {
                assert!(page.is_sorted_by_key(Found::row));
                for found in page {
                    match found {
                        Found::Row(found) => readable.push(found.row),
                        Found::Damaged(found) => damaged.push(found.row),
                    }
                }
                let next = span.next_row();
                assert!(readable.iter().chain(&damaged).all(|row| *row < next), "before {next}");
            }
            (damaged, readable)
        };
        let (near, readable) = damaged(298..303).await;
        assert_eq!((near, readable), (vec![255, 256, 300, 301], vec![298, 299, 302]));
        assert_eq!(damaged(400..410).await, (vec![], (400..410).collect()));
        assert_eq!(damaged(590..600).await.0, [599]);
        assert_eq!(damaged(0..600).await.0, [3, 200, 255, 256, 300, 301, 599]);
    }

    /// A search that read everything would do.
    #[tokio::test]
    async fn a_span_begins_near_its_time() {
        let (store, _clock) = log(3_000, &[]).await;
        let span = Span::of(&store, place(), moment(2_500)..moment(2_600), 3_000).await.unwrap();
        assert!(span.next_row() >= 2_500 - 2 * ROWS_PER_RANGE, "{}", span.next_row());
    }
}
