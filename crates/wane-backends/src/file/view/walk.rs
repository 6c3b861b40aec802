//! What one reader sees: what is young and the tree, as one.

use std::ops::Bound;
use std::sync::Arc;
use std::{array, hint};

use wane::store::{PageLimit, Record, Timestamp};

use super::Below;
use crate::file::engine::{ReadError, Walk};
use crate::file::young::{CopiedRows, Generation, Held, Merge, Row, newest};

/// Rows of the active generation that one page looks at: they are copied under the lock.
const ACTIVE_ROWS: usize = 1_024;

/// Rows of it that are looked for together.
const AHEAD: usize = 16;

/// What a page needs of the active generation.
#[derive(Debug)]
pub(in crate::file) struct ActiveRows {
    rows: CopiedRows,
    /// There are more behind these.
    cut: bool,
}

impl ActiveRows {
    /// Copies rows from `start` on, as long as `is_within` says so of their keys: so many that are
    /// live at `now`, and one more, which tells where the next page begins.
    pub(in crate::file) fn copy(
        (active, now): (&Generation, Timestamp),
        start: Bound<&[u8]>,
        limit: PageLimit,
        is_within: impl Fn(&[u8]) -> bool,
    ) -> Self {
        let mut ahead = active.range(start);
        let mut rows = CopiedRows::with_capacity(limit.rows().min(ACTIVE_ROWS));
        let mut live = 0;
        loop {
            let next: [_; AHEAD] = array::from_fn(|_| ahead.next().map(|(key, row)| (&**key, row)));
            fetch(&next, now);
            for next in next {
                let within = next.filter(|(key, _)| is_within(key));
                let Some((key, row)) = within else { return Self { rows, cut: false } };
                if live > limit.rows() || rows.len() >= ACTIVE_ROWS {
                    return Self { rows, cut: true };
                }
                live += usize::from(row.is_live(now));
                rows.push(key, row);
            }
        }
    }

    /// None.
    pub(in crate::file) fn none() -> Self {
        Self { rows: CopiedRows::default(), cut: false }
    }

    /// The key from which on it is not known what there is.
    fn end(&self) -> Option<&[u8]> {
        self.rows.last_key().filter(|_| self.cut)
    }
}

/// Has these rows fetched at once, as each lies somewhere else in memory, by a look at all of them before
/// anything is done with one. Nothing depends on what is seen.
fn fetch(rows: &[Option<(&[u8], &Row)>], now: Timestamp) {
    let looks = rows.iter().flatten().map(|(key, row)| (key.last(), row.is_live(now)));
    hint::black_box(looks.filter(|(last, live)| *last == Some(&0) && *live).count());
}

/// The store at one instant, but for the active generation.
#[derive(Debug)]
pub(in crate::file) struct View {
    pub(in crate::file) now: Timestamp,
    pub(in crate::file) below: Arc<Below>,
}

impl View {
    /// The number of the engine that it reads the tree by.
    pub(in crate::file) fn generation(&self) -> u64 {
        self.below.tree.generation
    }

    /// The live record under a key, of which the active generation knows `active`.
    pub(in crate::file) fn point(
        &self,
        key: &[u8],
        active: Option<&Row>,
    ) -> Result<Option<Record>, ReadError> {
        match active {
            Some(row) => self.live(key, row.held.as_ref()),
            None => match newest(&self.below.sealed, key) {
                Some(row) => self.live(key, row.held.as_ref()),
                None => self.live(key, self.below.tree.recall(key)?.as_ref()),
            },
        }
    }

    /// The record with its value, unless it has expired.
    fn live(&self, key: &[u8], held: Option<&Held>) -> Result<Option<Record>, ReadError> {
        let live = held.filter(|held| held.record.is_live(self.now));
        live.map(|held| self.record(key, held)).transpose()
    }

    /// The record that a key holds, with its value.
    pub(in crate::file) fn record(&self, key: &[u8], held: &Held) -> Result<Record, ReadError> {
        self.below.tree.record(key, held)
    }

    /// Hands every key from `start` on to `visit`, in order, with what it holds where that is live. It
    /// may leave out keys from the first on that is not `is_wanted`.
    /// Returns the key before which it ended, where more of the active generation must be known.
    pub(in crate::file) fn walk<'a>(
        &self,
        start: Bound<&[u8]>,
        active: &'a ActiveRows,
        is_wanted: impl Fn(&[u8]) -> bool,
        visit: impl FnMut(&[u8], Option<&Held>) -> Result<Walk, ReadError>,
    ) -> Result<Option<&'a [u8]>, ReadError> {
        let mut young = Merge::new(&active.rows, &self.below.sealed, start, is_wanted);
        let mut walker = Walker { now: self.now, visit, end: active.end(), ended: None };
        self.below.tree.walk(start, |key, stored| {
            while let Some(((next, row), order)) = young.next_up_to(key) {
                let walk = walker.step(next, row.held.as_ref())?;
                if matches!(walk, Walk::Stop) || order.is_eq() {
                    return Ok(walk);
                }
            }
            walker.step(key, Some(&stored.held()?))
        })?;
        while walker.ended.is_none() {
            let Some((key, row)) = young.next() else { break };
            walker.step(key, row.held.as_ref())?;
        }
        let was_cut = matches!(walker.ended, Some(Ended::Cut) | None);
        Ok(active.end().filter(|_| was_cut))
    }
}

/// Why a walk ended before it was through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Its visitor has seen enough.
    Enough,
    /// What comes next is not known.
    Cut,
}

/// A walk over what is young and what is in the tree.
struct Walker<'a, V> {
    now: Timestamp,
    visit: V,
    end: Option<&'a [u8]>,
    ended: Option<Ended>,
}

impl<V: FnMut(&[u8], Option<&Held>) -> Result<Walk, ReadError>> Walker<'_, V> {
    fn step(&mut self, key: &[u8], held: Option<&Held>) -> Result<Walk, ReadError> {
        if self.end.is_some_and(|end| key >= end) {
            self.ended = Some(Ended::Cut);
            return Ok(Walk::Stop);
        }
        let live = held.filter(|held| held.record.is_live(self.now));
        let walk = (self.visit)(key, live)?;
        if matches!(walk, Walk::Stop) {
            self.ended = Some(Ended::Enough);
        }
        Ok(walk)
    }
}
