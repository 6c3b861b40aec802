//! Which ranges are watched, by whom, and since when without a gap.
//!
//! A region is the range of one watch. It outlives the watch by a while, so that one that was
//! cut off can resume; then it is removed and its keys are free again.
//!
//! A write finds the regions of single rows by their clustering and tries the wider ones of its
//! partition one by one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::event::Inbox;
use crate::store::{ClusteringRange, Key, Partition, Timestamp};

type Map<T> = HashMap<Bytes, T, foldhash::fast::RandomState>;

/// All regions of a store.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Lets a write see without a lock that nothing is watched.
    partitions: AtomicUsize,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_partition: Map<PartitionRegions>,
    /// No lingering region ends before this.
    next_end: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct PartitionRegions {
    wide: Vec<Region>,
    /// Regions of one row each, by its clustering.
    rows: Map<Vec<Region>>,
}

/// A watched range.
#[derive(Debug)]
pub(super) struct Region {
    range: ClusteringRange,
    /// `None` once the watch has ended.
    inbox: Option<Arc<Inbox>>,
    /// All events of the range after this one were posted; `None` while its rows are read.
    complete_since: Option<u64>,
    lingers_until: Option<Timestamp>,
}

/// A watch's place among the regions.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) partition: Partition,
    pub(super) range: ClusteringRange,
    pub(super) inbox: Arc<Inbox>,
}

impl PartitionRegions {
    fn of(&self, clustering: &[u8]) -> impl Iterator<Item = &Region> {
        let wide = self.wide.iter().filter(move |region| region.range.contains(clustering));
        wide.chain(self.rows.get(clustering).into_iter().flatten())
    }

    fn all(&self) -> impl Iterator<Item = &Region> {
        self.wide.iter().chain(self.rows.values().flatten())
    }

    /// Where regions of this very range are kept.
    fn shelf(&mut self, range: &ClusteringRange) -> &mut Vec<Region> {
        if is_one_row(range) {
            return self.rows.entry(Bytes::copy_from_slice(range.start())).or_default();
        }
        &mut self.wide
    }

    fn retain(&mut self, keep: impl Fn(&Region) -> bool) {
        self.wide.retain(&keep);
        self.rows.retain(|_, regions| {
            regions.retain(&keep);
            !regions.is_empty()
        });
    }
}

/// Whether the range ends right after its start: no clustering lies between.
fn is_one_row(range: &ClusteringRange) -> bool {
    range.end().and_then(|end| end.strip_suffix(&[0])) == Some(range.start())
}

impl Region {
    pub(super) fn inbox(&self) -> Option<&Inbox> {
        self.inbox.as_deref()
    }

    fn is_of(&self, seat: &Seat) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| Arc::ptr_eq(inbox, &seat.inbox))
    }

    fn covers(&self, range: &ClusteringRange) -> bool {
        let ends_within = match (self.range.end(), range.end()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => other <= own,
        };
        self.range.start() <= range.start() && ends_within
    }
}

/// The regions, held still.
#[derive(Debug)]
pub(super) struct RegionsWriter<'a> {
    partitions: &'a AtomicUsize,
    table: RwLockWriteGuard<'a, Table>,
}

/// The regions, held still for reading.
#[derive(Debug)]
pub(super) struct RegionsReader<'a>(RwLockReadGuard<'a, Table>);

impl Regions {
    /// Whether a write to this key must be reported.
    pub(super) fn contain(&self, key: &Key) -> bool {
        self.partitions.load(Ordering::SeqCst) > 0 && self.read().of(key).next().is_some()
    }

    pub(super) fn read(&self) -> RegionsReader<'_> {
        RegionsReader(self.table.read())
    }

    pub(super) fn write(&self) -> RegionsWriter<'_> {
        RegionsWriter { partitions: &self.partitions, table: self.table.write() }
    }
}

impl RegionsReader<'_> {
    /// The regions that hold the key.
    pub(super) fn of<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Region> {
        let regions = self.0.by_partition.get(key.partition());
        regions.into_iter().flat_map(|regions| regions.of(key.clustering()))
    }

    /// Whether a lingering region may have ended, or when the next one may.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.0.next_end
    }

    /// Whether the watch has not been ended from the other side.
    pub(super) fn hold(&self, seat: &Seat) -> bool {
        let regions = self.0.by_partition.get(seat.partition.as_bytes());
        regions.is_some_and(|regions| regions.all().any(|region| region.is_of(seat)))
    }
}

impl RegionsWriter<'_> {
    /// Since which event everything in the range was posted, if it is watched already.
    pub(super) fn complete_since(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
    ) -> Option<u64> {
        let regions = self.table.by_partition.get(partition.as_bytes())?;
        let covering = regions.of(range.start()).filter(|region| region.covers(range));
        covering.filter_map(|region| region.complete_since).min()
    }

    pub(super) fn enter(&mut self, seat: &Seat, complete_since: Option<u64>) {
        let partition = Bytes::copy_from_slice(seat.partition.as_bytes());
        let shelf = self.table.by_partition.entry(partition).or_default().shelf(&seat.range);
        if complete_since.is_some() {
            // This region goes on where a lingering one of the same range would have ended.
            shelf.retain(|region| region.inbox.is_some() || region.range != seat.range);
        }
        shelf.push(Region {
            range: seat.range.clone(),
            inbox: Some(Arc::clone(&seat.inbox)),
            complete_since,
            lingers_until: None,
        });
        self.recount();
    }

    pub(super) fn loaded(&mut self, seat: &Seat, complete_since: u64) {
        if let Some(region) = self.find(seat) {
            region.complete_since = Some(complete_since);
        }
    }

    /// Lets the region of an ended watch linger. One that never was complete is of no use.
    pub(super) fn leave(&mut self, seat: &Seat, until: Timestamp) {
        if let Some(region) = self.find(seat) {
            region.inbox = None;
            let at_once = Timestamp::from_unix_millis(0);
            let until = region.complete_since.map_or(at_once, |_| until);
            region.lingers_until = Some(until);
            self.table.next_end = self.table.next_end.into_iter().chain([until]).min();
        }
    }

    /// Removes regions that have lingered long enough and returns their partitions.
    pub(super) fn remove_ended(&mut self, now: Timestamp) -> Vec<Bytes> {
        let mut changed = Vec::new();
        let lives = |region: &Region| region.lingers_until.is_none_or(|until| now < until);
        self.table.by_partition.retain(|partition, regions| {
            if !regions.all().all(lives) {
                regions.retain(lives);
                changed.push(partition.clone());
            }
            regions.all().next().is_some()
        });
        let left = self.table.by_partition.values().flat_map(PartitionRegions::all);
        let next_end = left.filter_map(|region| region.lingers_until).min();
        self.table.next_end = next_end;
        self.recount();
        changed
    }

    /// Ends every watch.
    pub(super) fn close_all(&mut self) {
        let ended = std::mem::take(&mut *self.table);
        let regions = ended.by_partition.values().flat_map(PartitionRegions::all);
        regions.filter_map(Region::inbox).for_each(Inbox::close);
        self.recount();
    }

    pub(super) fn contain(&self, key: &Key) -> bool {
        let regions = self.table.by_partition.get(key.partition());
        regions.is_some_and(|regions| regions.of(key.clustering()).next().is_some())
    }

    fn find(&mut self, seat: &Seat) -> Option<&mut Region> {
        let regions = self.table.by_partition.get_mut(seat.partition.as_bytes())?;
        regions.shelf(&seat.range).iter_mut().find(|region| region.is_of(seat))
    }

    fn recount(&self) {
        self.partitions.store(self.table.by_partition.len(), Ordering::SeqCst);
    }
}
