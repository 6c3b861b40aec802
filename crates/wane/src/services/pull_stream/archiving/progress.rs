//! How far the archive of an institution is: one permanent record beside its state.
//!
//! It says which rows are archived, and which segment is being written. A segment is planned in the
//! record before it is put, so that whoever comes upon the plan, a node that started anew or another
//! one, writes the same segment and none that overlaps it.
//!
//! Invariants:
//! - Rows are archived once a segment with them has been put, or once they have expired.
//! - One segment is planned at a time, and its rows are not archived.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::draft::{Damaged, Finished};
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::archive::SegmentName;
use crate::services::pull_stream::log::Place;
use crate::store::{Key, Life, Outcome, Store, StoreError, Value, Write};

/// The most ranges of rows that are archived apart from each other: 40 KiB of them.
const MOST_RANGES: usize = 1_000;

/// What is archived of a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    /// Ranges of rows, first and end, in their order and with others between them.
    archived: Vec<(u64, u64)>,
    /// The segment that is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) planned: Option<Plan>,
    /// Rows that had expired before they were archived, since there has been an archive.
    #[serde(default)]
    pub(super) gone: u64,
    /// Rows that could not be read, and are not archived.
    #[serde(default)]
    pub(super) damaged: u64,
    #[serde(flatten)]
    more: Map<String, Json>,
}

/// A segment that is being written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    /// The rows that are archived by it, first and end.
    rows: (u64, u64),
    /// Its name.
    segment: String,
    /// Rows of it that are gone.
    pub(super) gone: u64,
    /// Rows of it that cannot be read, and the first of them.
    #[serde(default)]
    damaged: (u64, Option<u64>),
    /// When it was planned: Unix milliseconds.
    pub(super) at: u64,
}

impl Plan {
    pub(super) fn new(finished: &Finished, gone: u64, at: u64) -> Self {
        let Finished { rows, segment, damaged, .. } = finished;
        let (rows, segment) = ((rows.start, rows.end), segment.to_string());
        Self { rows, segment, gone, damaged: (damaged.count, damaged.first), at }
    }

    /// Rows of it that cannot be read.
    pub(super) fn damaged(&self) -> Damaged {
        Damaged { count: self.damaged.0, first: self.damaged.1 }
    }

    /// The rows that are archived by it.
    pub(super) fn rows(&self) -> Range<u64> {
        self.rows.0..self.rows.1
    }

    pub(super) fn is_of(&self, segment: &SegmentName) -> bool {
        self.segment == segment.to_string()
    }

    pub(super) fn segment(&self) -> Option<SegmentName> {
        self.segment.parse().ok()
    }

    /// How many rows are in the segment.
    pub(super) fn count(&self) -> u64 {
        self.segment().map_or(0, |segment| segment.count)
    }
}

impl Progress {
    /// The first rows that are not archived, from a row on and below `end`.
    pub(super) fn gap(&self, from: u64, end: u64) -> Option<Range<u64>> {
        let mut start = from;
        for (first, last) in &self.archived {
            if *first > start {
                let gap = start..end.min(*first);
                return (!gap.is_empty()).then_some(gap);
            }
            start = start.max(*last);
        }
        (start < end).then_some(start..end)
    }

    /// Counts rows as archived.
    pub(super) fn cover(&mut self, rows: &Range<u64>) -> Result<(), PullStreamError> {
        self.archived.push((rows.start, rows.end));
        self.archived.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.archived.len());
        for (first, end) in self.archived.drain(..) {
            match joined.last_mut() {
                Some((_, last)) if first <= *last => *last = end.max(*last),
                Some(_) | None => joined.push((first, end)),
            }
        }
        self.archived = joined;
        if self.archived.len() > MOST_RANGES {
            let reason = format!(
                "{MOST_RANGES} times are archived apart from each other already; archive what lies \
                 between them first, by giving an earlier one"
            );
            return Err(PullStreamError::Invalid { field: "from", reason });
        }
        Ok(())
    }

    /// Whether a row is archived, or is being.
    pub(super) fn has(&self, row: u64) -> bool {
        let at = self.archived.partition_point(|(_, end)| *end <= row);
        let is_archived = self.archived.get(at).is_some_and(|(first, _)| *first <= row);
        is_archived || self.planned.as_ref().is_some_and(|plan| plan.rows().contains(&row))
    }

    /// The rows that are archived.
    pub(super) fn rows(&self) -> u64 {
        self.archived.iter().map(|(first, end)| end - first).sum()
    }
}

/// The record as it stands.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) progress: Progress,
    key: Key,
    stored: Option<Value>,
}

impl Known {
    pub(super) async fn read<S: Store>(store: &S, place: Place<'_>) -> Result<Self, StoreError> {
        let key = place.state_key("archive")?;
        let Some(record) = store.get(&key).await? else {
            return Ok(Self { progress: Progress::default(), key, stored: None });
        };
        let progress = serde_json::from_slice(&record.value);
        let progress = progress.map_err(|error| StoreError::Corrupt {
            key: key.clone(),
            reason: format!("it is not the progress of an archive: {error}"),
        })?;
        Ok(Self { progress, key, stored: Some(record.value) })
    }

    /// Whether nothing of the log has been archived yet.
    pub(super) fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// Replaces the record; `None` where it was changed meanwhile.
    pub(super) async fn swap<S: Store>(
        self,
        store: &S,
        progress: Progress,
    ) -> Result<Option<Self>, StoreError> {
        let json = serde_json::to_vec(&progress)
            .map_err(|error| StoreError::invalid("archive", error.to_string()))?;
        let value = Value::new(json)?;
        let write = Write::new(value.clone(), Life::Permanent);
        let outcome = match &self.stored {
            Some(stored) => store.compare_and_swap(&self.key, stored, write).await?,
            None => store.insert_if_not_exists(&self.key, write).await?,
        };
        Ok(match outcome {
            Outcome::Applied { .. } => Some(Self { progress, key: self.key, stored: Some(value) }),
            Outcome::Refused { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_archived_is_joined_and_gaps_are_found() {
        let mut progress = Progress::default();
        assert_eq!(progress.gap(0, 0), None);
        assert_eq!(progress.gap(3, 10), Some(3..10));
        for rows in [10..20, 30..40, 0..5] {
            progress.cover(&rows).unwrap();
        }
        assert_eq!(progress.gap(0, 100), Some(5..10));
        assert_eq!(progress.gap(10, 100), Some(20..30));
        assert_eq!((progress.gap(12, 25), progress.gap(12, 20)), (Some(20..25), None));
        assert_eq!((progress.gap(35, 100), progress.gap(35, 40)), (Some(40..100), None));
        progress.cover(&(5..30)).unwrap();
        assert_eq!((progress.gap(0, 100), progress.rows()), (Some(40..100), 40));
        progress.cover(&(50..60)).unwrap();
        for (row, is_archived) in [(0, true), (39, true), (40, false), (49, false), (50, true)] {
            assert_eq!(progress.has(row), is_archived, "row {row}");
        }
        assert!(progress.has(59) && !progress.has(60));
    }

    #[test]
    fn ranges_that_lie_apart_are_limited() {
        let mut progress = Progress::default();
        for range in 0..MOST_RANGES as u64 {
            progress.cover(&(range * 2..range * 2 + 1)).unwrap();
        }
        assert!(progress.clone().cover(&(9_999..10_000)).is_err());
        progress.cover(&(1..2)).unwrap();
    }
}
