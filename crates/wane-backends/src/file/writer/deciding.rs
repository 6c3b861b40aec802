//! Deciding a group: each change against what the ones before it in the group left behind.

use std::collections::HashMap;
use std::sync::Arc;

use wane::store::{Condition, Current, Outcome, Record, Step, StoreError, Timestamp, Value};

use super::Failure;
use crate::file::engine::ReadError;
use crate::file::format::{self, Place};
use crate::file::large::LargeValues;
use crate::file::queue::{KeyedChange, Lookup};
use crate::file::view::{Below, Shared, View};
use crate::file::young::{Held, Row, StoredKey, copied, newest};

/// A group while it is being decided.
pub(super) struct Deciding<'a> {
    shared: &'a Shared,
    /// What lay below the active generation when it began.
    below: Arc<Below>,
    large: &'a mut LargeValues,
    /// The instant that decides, which is later for some where the tree was brought up to date meanwhile.
    now: Timestamp,
    /// What keys come to hold, in no order that matters.
    rows: Vec<(StoredKey, Row)>,
    index: HashMap<StoredKey, usize, foldhash::fast::RandomState>,
    outcomes: Vec<Result<Outcome, StoreError>>,
}

/// What became of a group.
pub(super) struct Decided {
    /// What keys come to hold.
    pub(super) rows: Vec<(StoredKey, Row)>,
    /// What lay below the active generation.
    pub(super) below: Arc<Below>,
    /// The instant that decided the last of it.
    pub(super) now: Timestamp,
    /// By position in the group. A corrupt record fails its own change only.
    pub(super) outcomes: Vec<Result<Outcome, StoreError>>,
}

/// What a change meets under its key, expired or not.
struct Met {
    held: Option<Held>,
    has_older: bool,
    /// What has died by then may be gone.
    as_of: Timestamp,
    /// Where it was found. As long as it is kept, large values stay where they are.
    _below: Arc<Below>,
}

/// Why a change was not decided.
enum Undecided {
    /// Its record cannot be read; others can be decided.
    Change(StoreError),
    /// Nor can the rest of its group.
    Group(Failure),
}

impl From<Failure> for Undecided {
    fn from(failure: Failure) -> Self {
        Self::Group(failure)
    }
}

impl<'a> Deciding<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        large: &'a mut LargeValues,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let (_, View { below, .. }) = shared.newest(&[]).map_err(Failure::Refused)?;
        let (rows, index, outcomes) = (Vec::new(), HashMap::default(), Vec::new());
        Ok(Self { shared, below, large, now, rows, index, outcomes })
    }

    pub(super) fn decided(self) -> Decided {
        let Self { rows, below, now, outcomes, .. } = self;
        Decided { rows, below, now, outcomes }
    }

    /// Decides one change. An error ends the group.
    pub(super) fn change(&mut self, keyed: KeyedChange) -> Result<(), Failure> {
        let outcome = match self.try_change(keyed) {
            Ok(outcome) => Ok(outcome),
            Err(Undecided::Change(error)) => Err(error),
            Err(Undecided::Group(failure)) => return Err(failure),
        };
        self.outcomes.push(outcome);
        Ok(())
    }

    fn try_change(&mut self, keyed: KeyedChange) -> Result<Outcome, Undecided> {
        let KeyedChange { key, change, lookup } = keyed;
        let met = self.meet(&key, lookup).map_err(|error| self.unmet(error))?;
        let Met { held, has_older, as_of, _below } = met;
        self.now = self.now.max(as_of);
        let live = held.filter(|held| held.record.is_live(self.now));
        let (mut record, mut unread) =
            live.map_or((None, None), |held| (Some(held.record), held.place));
        // A large value is read only where something depends on it.
        if matches!(change.condition(), Condition::Equals(_)) {
            self.read(&key, unread.take(), &mut record)?;
        }
        let step = change.decide(record.as_ref().map(Current::from), self.now);
        if matches!(step, Step::Refuse) {
            self.read(&key, unread, &mut record)?;
        }
        let outcome = step.outcome(|| record);
        self.carry_out(key, step, has_older)?;
        Ok(outcome)
    }

    /// Why a change cannot be decided, where what lies under its key cannot be read.
    fn unmet(&self, error: ReadError) -> Undecided {
        match error {
            ReadError::Record(error) => Undecided::Change(error),
            ReadError::Engine(error) => {
                let generation = self.below.tree.generation;
                Failure::Unread { generation, reason: error.to_string() }.into()
            }
        }
    }

    /// Puts the value that lies at `place`, if that is one, into the record that it belongs to.
    fn read(
        &mut self,
        key: &[u8],
        place: Option<Place>,
        record: &mut Option<Record>,
    ) -> Result<(), Undecided> {
        let (Some(place), Some(record)) = (place, record) else { return Ok(()) };
        let value = self.large.read(key, place).map_err(Failure::from)?;
        record.value = value.map_err(|error| Undecided::Change(format::corrupt(key, error)))?;
        Ok(())
    }

    /// What lies under a key. Only this thread changes what is active, so that it stays.
    fn meet(&self, key: &StoredKey, lookup: Option<Lookup>) -> Result<Met, ReadError> {
        let (active, View { now: as_of, below }) = self.shared.newest(key)?;
        let met =
            |row: &Row, has_older, _below| Met { held: row.held.clone(), has_older, as_of, _below };
        if let Some(at) = self.index.get(key) {
            let row = &self.rows[*at].1;
            return Ok(met(row, row.has_older, below));
        }
        if let Some(row) = active {
            return Ok(met(&row, row.has_older, below));
        }
        if let Some(row) = newest(&below.sealed, key) {
            let row = row.clone();
            return Ok(met(&row, true, below));
        }
        // No generation has reached the tree since: what was found in it then is what it holds.
        let is_valid = |lookup: &Lookup| lookup.below.checkpoints == below.checkpoints;
        let (held, below) = match lookup.filter(is_valid) {
            Some(lookup) => (lookup.held, lookup.below),
            None => (below.tree.get(key)?, below),
        };
        Ok(Met { has_older: held.is_some(), held, as_of, _below: below })
    }

    fn carry_out(&mut self, key: StoredKey, step: Step, has_older: bool) -> Result<(), Failure> {
        let held = match step {
            Step::Refuse => return Ok(()),
            Step::Remove(_) => None,
            Step::Store(record) => {
                let place = self.large.put(&key, &record.value)?;
                let value = if place.is_some() { Value::default() } else { copied(&record.value) };
                Some(Held { record: Record { value, ..record }, place })
            }
        };
        let row = Row { held, has_older };
        match self.index.get(&key) {
            Some(at) => {
                let before = std::mem::replace(&mut self.rows[*at].1, row);
                // It is never logged, so nobody sees it.
                if let Some(place) = before.held.and_then(|held| held.place) {
                    self.large.give_up(place);
                }
            }
            None => {
                self.index.insert(Arc::clone(&key), self.rows.len());
                self.rows.push((key, row));
            }
        }
        Ok(())
    }
}
