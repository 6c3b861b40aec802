//! Opening the log: what was logged and has not reached the tree becomes young again.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use wane::store::{Record, Timestamp};

use super::acknowledged::Acknowledged;
use super::engine::Found;
use super::format::{Entry, Place};
use super::log::{Recovered, Segments, Shelf, Unread, recover};
use super::space::Extent;
use super::values::ValuesFile;
use super::verified::VerifiedLog;
use super::young::{Generation, Held, Row, newest};

/// A log that was read back, and nothing of it changed.
#[derive(Debug)]
pub(super) struct Replayed {
    /// Oldest first.
    pub(super) generations: Vec<Arc<Generation>>,
    pub(super) segments: Arc<Segments>,
    pub(super) recovered: Recovered,
    /// The last frame that callers were told of.
    pub(super) acknowledged: Acknowledged,
}

/// The name of the note beside the segments.
const ACKNOWLEDGED: &str = "acknowledged";

impl Replayed {
    /// Reads the log in `folder` back, whose tree was found as `found`.
    pub(super) fn read(
        folder: &Path,
        shelf: Arc<dyn Shelf>,
        found: &Found,
    ) -> Result<Self, Unread> {
        let mut generations: Vec<Generation> = Vec::new();
        let recovered = recover(&*shelf, found.identity, found.logged, |segment, logged| {
            let entry = logged.entry.map(|bytes| Entry::decode(logged.key, bytes)).transpose()?;
            let row = Row { held: entry.map(Held::from), has_older: true };
            if generations.last().is_none_or(|last| last.segment != segment) {
                generations.push(Generation::of(segment));
            }
            if let Some(generation) = generations.last_mut() {
                generation.insert(logged.key.into(), row);
            }
            Ok(())
        })?;
        for generation in &mut generations {
            let mut segments = recovered.segments.iter();
            let last = segments.find(|found| found.number == generation.segment);
            generation.sequence = last.and_then(|found| found.last).unwrap_or_default();
            // It has been young for long enough.
            generation.since = Some(Timestamp::from_unix_millis(0));
        }
        let note = folder.join(ACKNOWLEDGED);
        let (acknowledged, told) = Acknowledged::open(&note, found.identity)?;
        if let Some(told) = told.filter(|told| recovered.last < *told) {
            let reason = format!(
                "frame {told} was acknowledged, and the log ends at frame {}; if an older log was put \
                 here on purpose, remove the file `{ACKNOWLEDGED}` in it",
                recovered.last
            );
            return Err(Unread::Damaged { path: folder.to_path_buf(), reason });
        }
        let generations = generations.into_iter().map(Arc::new).collect();
        let segments = Segments::new(shelf, found.identity, &recovered.segments);
        Ok(Self { generations, segments, recovered, acknowledged })
    }

    /// Makes durable what was read back.
    pub(super) fn make_durable(&self) -> std::io::Result<()> {
        self.segments.make_durable(&self.recovered)
    }

    /// Notes the last frame, which callers are told of from here on. It must be durable. The note also
    /// takes the little room that later numbers need.
    pub(super) fn note_last(&mut self) -> std::io::Result<()> {
        self.acknowledged.note(self.recovered.last)
    }

    /// What the log holds.
    pub(super) fn tally(&self) -> VerifiedLog {
        let segments = &self.recovered.segments;
        let young = self.generations.iter().map(|young| young.range(Bound::Unbounded).count());
        VerifiedLog {
            segments: segments.len() as u64,
            bytes: segments.iter().map(|segment| segment.size).sum(),
            last_frame: self.recovered.last,
            young: young.sum::<usize>() as u64,
        }
    }

    /// Whether every large value that can still be read is as it was written.
    pub(super) fn has_values(&self, values: &ValuesFile) -> std::io::Result<bool> {
        for (at, generation) in self.generations.iter().enumerate() {
            let later = &self.generations[at + 1..];
            for (key, row) in generation.range(Bound::Unbounded) {
                let live = row.held.as_ref().filter(|held| self.is_live(&held.record));
                let Some(place) = live.and_then(|held| held.place) else { continue };
                if newest(later, key).is_none() && values.read(key, place)?.is_err() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn is_live(&self, record: &Record) -> bool {
        self.recovered.time.is_none_or(|time| record.is_live(time))
    }

    /// What is in use in the file of large values, beside what is `listed` by the tree, in the order
    /// of the file.
    pub(super) fn in_use(&self, mut listed: Vec<Extent>) -> Vec<Extent> {
        listed.extend(self.places().map(|place| Extent::around(place.offset, place.len)));
        listed.sort_unstable_by_key(|extent| extent.offset);
        listed
    }

    /// The places of all large values that are young. One that a later generation has replaced is in
    /// use until its own has reached the tree.
    fn places(&self) -> impl Iterator<Item = Place> {
        let rows = self.generations.iter().flat_map(|young| young.range(Bound::Unbounded));
        rows.filter_map(|(_, row)| row.place())
    }
}
