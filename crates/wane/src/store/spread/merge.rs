//! One page of a partition out of all of its buckets, in the order of bytes.
//!
//! Each bucket is a lane with a frontier: everything below it has been seen. A page of each lane is
//! fetched, up to [`AT_ONCE`] at a time, and of all rows seen only the least are kept: those that
//! the page has room for. Lanes whose frontier lies below the last row kept are asked again, and
//! only for rows below it, until no lane can hold a row that belongs on the page.
//!
//! A lane that answers with no rows and a rest (a stretch of expired rows) ends the page: it then
//! holds what lies below every frontier, and the reader goes on from there.
//!
//! Memory, whatever the number of buckets: the rows kept are one page, and each fetch under way is
//! at most one page of the backend. With pages of up to 1 MiB and one row of up to 258 KiB that is
//! 17 times 1.25 MiB, and less where rows are small: a lane is asked for its share of the page.
//! Beside that a lane takes about a hundred bytes.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::store::{
    ClusteringRange, Key, PAGE_BYTES, Page, PageLimit, Partition, Record, Row, Store, StoreError,
};

/// How many buckets are read at a time: enough to hide the way to a server, few enough for memory.
pub(super) const AT_ONCE: usize = 16;

/// A page being merged.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    partition: &'a Partition,
    range: &'a ClusteringRange,
    lanes: Vec<Lane>,
    /// The second request to a lane asks for this many rows.
    refill: usize,
    kept: Kept,
    /// A lane met nothing but expired rows.
    stalled: bool,
}

/// A bucket while it is read.
#[derive(Debug, Clone)]
struct Lane {
    /// What is left to read, from the frontier on; none once it was read to the end.
    rest: Option<ClusteringRange>,
    /// How many rows to ask for next.
    rows: usize,
    asked: bool,
}

/// A page of a lane, or why there is none.
#[derive(Debug)]
struct Fetched {
    bucket: u16,
    asked_for: ClusteringRange,
    page: Result<Page, StoreError>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        partition: &'a Partition,
        range: &'a ClusteringRange,
        limit: PageLimit,
        buckets: u16,
    ) -> Self {
        // The share of a lane, and a standard deviation more: few lanes are asked twice.
        let share = limit.rows() / usize::from(buckets);
        let rows = limit.rows().div_ceil(usize::from(buckets)) + share.isqrt();
        let lane = Lane { rest: Some(range.clone()), rows, asked: false };
        Self {
            partition,
            range,
            lanes: vec![lane; buckets.into()],
            refill: share.isqrt() + 1,
            kept: Kept { rows: BTreeMap::new(), bytes: 0, ceiling: None, limit },
            stalled: false,
        }
    }

    /// Reads the page.
    pub(super) async fn read(mut self, store: &impl Store) -> Result<Page, StoreError> {
        let mut fetches = FuturesUnordered::new();
        // Lanes go back to the end, so that each is asked once before any is asked again.
        let mut lanes: VecDeque<u16> = (0..=u16::MAX).take(self.lanes.len()).collect();
        loop {
            while fetches.len() < AT_ONCE
                && let Some(bucket) = lanes.pop_front()
            {
                if let Some((range, limit)) = self.next_request(bucket)? {
                    let partition = self.partition.in_bucket(bucket);
                    fetches.push(fetch(store, bucket, partition, range, limit));
                }
            }
            let Some(fetched) = fetches.next().await else { break };
            let bucket = fetched.bucket;
            self.take(fetched)?;
            lanes.push_back(bucket);
        }
        Ok(self.into_page())
    }

    /// What to ask of a lane, unless it cannot hold a row of the page.
    ///
    /// Frontiers only rise and the last row of a full page only falls, so that a lane that is not
    /// needed now will not be later.
    fn next_request(
        &mut self,
        bucket: u16,
    ) -> Result<Option<(ClusteringRange, PageLimit)>, StoreError> {
        let lane = &mut self.lanes[usize::from(bucket)];
        let Some(rest) = lane.rest.as_ref().filter(|_| !(self.stalled && lane.asked)) else {
            return Ok(None);
        };
        let range = match self.kept.last_of_full() {
            None => rest.clone(),
            Some(last) if rest.start() < last => rest.ending_at(last),
            // A row is in one bucket only: at the last row itself there is nothing to find.
            Some(_) => return Ok(None),
        };
        let limit = PageLimit::new(lane.rows)?;
        let more = if lane.asked { lane.rows * 2 } else { self.refill };
        lane.rows = more.min(self.kept.limit.rows());
        lane.asked = true;
        Ok(Some((range, limit)))
    }

    fn take(&mut self, fetched: Fetched) -> Result<(), StoreError> {
        let Page { rows, rest } = fetched.page?;
        self.stalled |= rows.is_empty() && rest.is_some();
        for Row { key, record } in rows {
            self.kept.add(Key::join(self.partition.as_bytes(), key.clustering()), record);
        }
        let frontier = match &rest {
            Some(rest) => Some(rest.start()),
            // Read to the end of what was asked for, which may be less than the range.
            None => fetched.asked_for.end().filter(|end| self.range.end() != Some(*end)),
        };
        let rest = frontier.map(|start| self.range.starting_at(Bytes::copy_from_slice(start)));
        self.lanes[usize::from(fetched.bucket)].rest = rest;
        Ok(())
    }

    fn into_page(self) -> Page {
        let Kept { mut rows, ceiling, .. } = self.kept;
        let frontiers = self.lanes.iter().filter_map(|lane| lane.rest.as_ref());
        let ceiling = ceiling.as_ref().map(|key| key.clustering());
        let Some(horizon) = frontiers.map(|rest| rest.start()).chain(ceiling).min() else {
            return Page { rows: into_rows(rows), rest: None };
        };
        // A row at the frontier of another lane is not in that lane.
        while let Some(row) = rows.last_entry().filter(|row| row.key().clustering() > horizon) {
            row.remove();
        }
        let rest = match rows.last_key_value() {
            Some((last, _)) if last.clustering() == horizon => self.range.after(horizon),
            _ => Some(self.range.starting_at(Bytes::copy_from_slice(horizon))),
        };
        Page { rows: into_rows(rows), rest }
    }
}

fn into_rows(rows: BTreeMap<Key, Record>) -> Vec<Row> {
    rows.into_iter().map(|(key, record)| Row { key, record }).collect()
}

async fn fetch(
    store: &impl Store,
    bucket: u16,
    partition: Partition,
    asked_for: ClusteringRange,
    limit: PageLimit,
) -> Fetched {
    let page = store.read(&partition, &asked_for, limit).await;
    Fetched { bucket, asked_for, page }
}

/// The least rows seen, up to a full page.
#[derive(Debug)]
struct Kept {
    rows: BTreeMap<Key, Record>,
    bytes: usize,
    /// The least row that was seen and not kept.
    ceiling: Option<Key>,
    limit: PageLimit,
}

impl Kept {
    fn add(&mut self, key: Key, record: Record) {
        if self.ceiling.as_ref().is_some_and(|ceiling| key >= *ceiling) {
            return;
        }
        self.bytes += size(&key, &record);
        if let Some((key, replaced)) = self.rows.remove_entry(&key) {
            self.bytes -= size(&key, &replaced);
        }
        self.rows.insert(key, record);
        self.trim();
    }

    /// Lets go of rows beyond a full page: nothing that is yet to come makes room for them.
    fn trim(&mut self) {
        while let Some(last) = self.rows.last_entry() {
            let size = size(last.key(), last.get());
            let rows = self.rows.len();
            if !self.is_full(rows - 1, self.bytes - size) {
                return;
            }
            if let Some((key, _)) = self.rows.pop_last() {
                self.bytes -= size;
                self.ceiling = Some(key);
            }
        }
    }

    /// Whether a page with so many rows and bytes takes no further row.
    fn is_full(&self, rows: usize, bytes: usize) -> bool {
        rows >= self.limit.rows() || bytes >= PAGE_BYTES
    }

    /// The last row of the page, if that is full.
    fn last_of_full(&self) -> Option<&[u8]> {
        if !self.is_full(self.rows.len(), self.bytes) {
            return None;
        }
        self.rows.last_key_value().map(|(key, _)| key.clustering())
    }
}

fn size(key: &Key, record: &Record) -> usize {
    key.size() + record.value.len()
}
