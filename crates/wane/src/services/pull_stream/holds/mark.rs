//! The mark of a row: which holds it is under, and when it would have gone without them.
//!
//! A mark lies beside the log, one for each row that is held, and is gone again when no hold is left.
//! It is changed by compare-and-swap, its version going up each time, and the row is written with
//! that version as its fence: a writer that is late does not undo what a later mark says.

use serde::{Deserialize, Serialize};

use super::HoldId;
use crate::services::pull_stream::log::Place;
use crate::store::{Fence, Key, Life, Record, Store, StoreError, Timestamp, Value, Write};

/// How often a row is tried when others change its mark.
const ATTEMPTS: usize = 64;

/// How often a row without an end is looked at again for its mark, before it counts as one that
/// never had an end.
const LOOKS_FOR_MARK: usize = 8;

/// What is known of a row under holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    version: u64,
    /// When the row would have gone, in Unix milliseconds; `None` for never.
    until: Option<u64>,
    holds: Vec<HoldId>,
}

impl Mark {
    fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(value).map_err(|error| StoreError::Corrupt {
            key: key.clone(),
            reason: format!("it is not the mark of a row: {error}"),
        })
    }

    fn value(&self) -> Result<Value, StoreError> {
        let json = serde_json::to_vec(self).map_err(|error| {
            StoreError::invalid("mark", format!("it cannot be written: {error}"))
        })?;
        Value::new(json)
    }

    fn fence(&self) -> Fence {
        Fence(self.version)
    }
}

/// A row of the log and its mark.
pub(super) struct MarkedRow<'a, S> {
    store: &'a S,
    row_key: Key,
    mark_key: Key,
}

/// What a try came to.
enum Tried<T> {
    Done(T),
    /// Somebody else changed something, or nobody knows: look again.
    Again,
}

impl<'a, S: Store> MarkedRow<'a, S> {
    pub(super) fn new(store: &'a S, place: Place<'_>, row: u64) -> Result<Self, StoreError> {
        Ok(Self { store, row_key: place.row_key(row)?, mark_key: place.mark_key(row)? })
    }

    /// Puts the row under a hold; false where it is gone.
    pub(super) async fn hold(&self, id: &HoldId) -> Result<bool, StoreError> {
        for tried in 0..ATTEMPTS {
            if let Tried::Done(is_held) = self.try_hold(id, tried).await? {
                return Ok(is_held);
            }
        }
        Err(contended())
    }

    async fn try_hold(&self, id: &HoldId, tried: usize) -> Result<Tried<bool>, StoreError> {
        // In this order: a row that has no end had its mark before.
        let mark = self.mark().await?;
        let Some(row) = self.store.get(&self.row_key).await? else {
            self.forget(mark, id).await?;
            return Ok(Tried::Done(false));
        };
        let marked = match mark {
            Some((mark, _)) if mark.holds.contains(id) => {
                // Written by this mark or a later one, it stays whatever arrives late.
                if row.expires_at.is_none() && row.fence >= mark.fence() {
                    return Ok(Tried::Done(true));
                }
                Some(mark)
            }
            // Lower than what the row was written with, it was removed once, and came back late.
            Some((mark, value)) if mark.fence() < row.fence => {
                let until = row.expires_at.map(Timestamp::as_unix_millis).or(mark.until);
                let next = Mark { version: row.fence.0 + 1, until, holds: vec![id.clone()] };
                self.change(&value, &next).await?.then_some(next)
            }
            Some((mark, value)) => {
                let holds = mark.holds.iter().chain([id]).cloned().collect();
                let next = Mark { version: mark.version + 1, holds, ..mark };
                self.change(&value, &next).await?.then_some(next)
            }
            None if row.expires_at.is_none() && tried < LOOKS_FOR_MARK => None,
            None => self.begin(id, &row).await?,
        };
        let Some(mark) = marked else { return Ok(Tried::Again) };
        self.rewrite(&row, &mark).await?;
        // Looked at again: another clock may have taken the row for gone, and the mark with it.
        Ok(Tried::Again)
    }

    /// The first mark of a row, whose end it keeps.
    async fn begin(&self, id: &HoldId, row: &Record) -> Result<Option<Mark>, StoreError> {
        let until = row.expires_at.map(Timestamp::as_unix_millis);
        let mark = Mark { version: row.fence.0 + 1, until, holds: vec![id.clone()] };
        let write = Write::new(mark.value()?, Life::Permanent);
        match self.store.insert_if_not_exists(&self.mark_key, write).await {
            Ok(outcome) => Ok(outcome.is_applied().then_some(mark)),
            Err(StoreError::Unknown { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the row's end away, unless a later mark has decided otherwise.
    async fn rewrite(&self, row: &Record, mark: &Mark) -> Result<(), StoreError> {
        let write = Write::new(row.value.clone(), Life::Permanent).fenced(mark.fence());
        match self.store.compare_and_swap(&self.row_key, &row.value, write).await {
            Ok(_) | Err(StoreError::Unknown { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes a hold off a row that is gone.
    async fn forget(&self, mark: Option<(Mark, Value)>, id: &HoldId) -> Result<(), StoreError> {
        match mark {
            Some((mark, value)) if mark.holds == [id.clone()] => {
                self.remove(&value).await.map(drop)
            }
            // Others will find that it is gone as well.
            Some(_) | None => Ok(()),
        }
    }

    /// Takes a hold off the row. The last one gives it its end back.
    pub(super) async fn let_go(&self, id: &HoldId) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            if let Tried::Done(()) = self.try_let_go(id).await? {
                return Ok(());
            }
        }
        Err(contended())
    }

    async fn try_let_go(&self, id: &HoldId) -> Result<Tried<()>, StoreError> {
        let Some((mark, mut value)) = self.mark().await? else { return Ok(Tried::Done(())) };
        let mut next = mark.clone();
        if mark.holds.contains(id) {
            next.holds.retain(|held| held != id);
            next.version += 1;
            if !self.change(&value, &next).await? {
                return Ok(Tried::Again);
            }
            value = next.value()?;
        }
        // Without any, somebody ended before it was let go.
        if !next.holds.is_empty() {
            return Ok(Tried::Done(()));
        }
        if let Some(row) = self.store.get(&self.row_key).await?
            && !self.give_back(&row, &next).await?
        {
            return Ok(Tried::Again);
        }
        Ok(if self.remove(&value).await? { Tried::Done(()) } else { Tried::Again })
    }

    /// Gives the row its end back, with which it is gone where that has passed. False where nobody
    /// knows.
    async fn give_back(&self, row: &Record, mark: &Mark) -> Result<bool, StoreError> {
        let Some(until) = mark.until.map(Timestamp::from_unix_millis) else { return Ok(true) };
        let write = Write::new(row.value.clone(), Life::Until(until)).fenced(mark.fence());
        match self.store.compare_and_swap(&self.row_key, &row.value, write).await {
            // Refused, it is gone, or a later mark has decided otherwise.
            Ok(_) => Ok(true),
            Err(StoreError::Unknown { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn mark(&self) -> Result<Option<(Mark, Value)>, StoreError> {
        let Some(record) = self.store.get(&self.mark_key).await? else { return Ok(None) };
        Ok(Some((Mark::read(&self.mark_key, &record.value)?, record.value)))
    }

    /// Whether the mark was changed by this call.
    async fn change(&self, expected: &Value, next: &Mark) -> Result<bool, StoreError> {
        let write = Write::new(next.value()?, Life::Permanent);
        match self.store.compare_and_swap(&self.mark_key, expected, write).await {
            Ok(outcome) => Ok(outcome.is_applied()),
            Err(StoreError::Unknown { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the mark, unless it has changed. False where nobody knows.
    async fn remove(&self, value: &Value) -> Result<bool, StoreError> {
        match self.store.compare_and_delete(&self.mark_key, value, Fence::NONE).await {
            // What stands there instead is somebody else's.
            Ok(_) => Ok(true),
            Err(StoreError::Unknown { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn contended() -> StoreError {
    StoreError::Unavailable {
        backend: "holds",
        source: "others kept changing the same row; try again".into(),
    }
}
