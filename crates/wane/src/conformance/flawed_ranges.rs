//! The ranges of the flawed model: what is read in place of what was asked for.

use std::ops::Bound::{Excluded, Unbounded};

use super::{Flaw, FlawedModel};
use crate::store::{
    ClusteringRange, Fence, Key, Page, PageFill, PageLimit, Partition, Record, Row,
};

impl FlawedModel {
    /// The range that the store reads in place of the one it was asked for.
    pub(super) fn misread(&self, range: &ClusteringRange) -> ClusteringRange {
        let (start, end) = (range.start(), range.end());
        let after = |bound: &[u8]| [bound, &[0]].concat();
        let other = match (self.flaw, end) {
            (Flaw::UpperBoundIncluded, Some(end)) => {
                ClusteringRange::new(start.to_vec(), after(end))
            }
            (Flaw::LowerBoundLeftOut, _) if !start.is_empty() => {
                Ok(range.starting_at(after(start)))
            }
            (Flaw::ReversedRangeReadsAll, Some(end)) if end < start => Ok(ClusteringRange::ALL),
            _ => Ok(range.clone()),
        };
        other.unwrap_or_else(|_| range.clone())
    }

    /// A page of rows that are stored without their partition's length.
    pub(super) fn read_unsplit(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Page {
        let (records, now) = self.model.lock();
        let rows = records.iter().filter(|(_, record)| record.is_live(now));
        let rows = rows.filter_map(|(key, record)| {
            let joined = [key.partition(), key.clustering()].concat();
            let clustering = joined.strip_prefix(partition.as_bytes())?;
            let key = Key::new(partition.as_bytes(), clustering).ok()?;
            range.contains(clustering).then(|| Row { key, record: record.clone() })
        });
        let mut page = PageFill::new(limit);
        let mut rest = None;
        for row in rows {
            if page.is_full() {
                rest = Some(range.starting_at(row.key.clustering().to_vec()));
                break;
            }
            page.push(row.key, row.record);
        }
        Page { rows: page.into_rows(), rest }
    }

    /// Rows of the range that the model does not return.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a flaw changes few things")]
    fn strays(&self, partition: &Partition, range: &ClusteringRange) -> Vec<Row> {
        let (records, now) = self.model.lock();
        let stray = |key: &Key, record: &Record| match self.flaw {
            Flaw::ExpiredInRead => key.partition() == partition.as_bytes() && !record.is_live(now),
            Flaw::PartitionTakenAsPrefix => {
                let own = key.partition() == partition.as_bytes();
                !own && key.partition().starts_with(partition.as_bytes()) && record.is_live(now)
            }
            _ => false,
        };
        let rows = records
            .iter()
            .filter(|(key, record)| stray(key, record) && range.contains(key.clustering()));
        rows.map(|(key, record)| Row { key: key.clone(), record: record.clone() }).collect()
    }

    /// Spoils a page that the model read from `range`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a flaw changes few things")]
    pub(super) fn spoil(&self, partition: &Partition, range: &ClusteringRange, page: &mut Page) {
        let first_page = range.start().is_empty();
        match self.flaw {
            Flaw::FirstPageOnly => page.rest = None,
            Flaw::RowsDescend => page.rows.reverse(),
            Flaw::ReadLosesFences => {
                page.rows.iter_mut().for_each(|row| row.record.fence = Fence::NONE);
            }
            Flaw::StartMustBeARow => {
                let start = Key::new(partition.as_bytes(), range.start());
                if !first_page && start.is_ok_and(|start| self.raw(&start).is_none()) {
                    *page = Page { rows: Vec::new(), rest: None };
                }
            }
            Flaw::EndLostAfterFirstPage => {
                let open =
                    |rest: ClusteringRange| ClusteringRange::ALL.starting_at(rest.start().to_vec());
                page.rest = page.rest.take().map(open);
            }
            Flaw::PagesOverlap => {
                let last = page.rows.last().map(|row| row.key.clustering().to_vec());
                let again = |rest: ClusteringRange| rest.starting_at(last.unwrap_or_default());
                page.rest = page.rest.take().map(again);
            }
            Flaw::RestLostWithItsRow => {
                let last = page.rows.last().map_or(Unbounded, |row| Excluded(row.key.clone()));
                let next =
                    self.model.lock().0.range((last, Unbounded)).next().map(|(key, _)| key.clone());
                if let (Some(rest), Some(next)) = (&mut page.rest, next) {
                    *rest = rest.starting_at(next.clustering().to_vec());
                    self.traces.lock().rests.insert(next);
                }
            }
            Flaw::SignedByteOrder => page.rows.sort_by_key(|row| {
                row.key.clustering().iter().map(|byte| *byte as i8).collect::<Vec<_>>()
            }),
            Flaw::EmptyValueIsAbsent => page.rows.retain(|row| !row.record.value.is_empty()),
            Flaw::ExpiredEndsRead => {
                let (records, now) = self.model.lock();
                let expired = records.iter().find(|(key, record)| {
                    let own = key.partition() == partition.as_bytes();
                    own && !record.is_live(now) && range.contains(key.clustering())
                });
                if let Some((expired, _)) = expired {
                    page.rows.retain(|row| row.key < *expired);
                    page.rest = None;
                }
            }
            Flaw::ExpiredInRead | Flaw::PartitionTakenAsPrefix if first_page => {
                page.rows.extend(self.strays(partition, range));
            }
            _ => {}
        }
    }
}
