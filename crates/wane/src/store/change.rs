//! Changes: every write as a condition and an effect, decided by one pure function.
//!
//! The four writes of the contract differ only in what they ask of the current record. A backend
//! that holds the record still (a lock, a single writer) calls [`Change::decide`] and carries out
//! the [`Step`]; a backend whose server decides translates the same pair into its own language.

use std::borrow::Cow;

use super::{Fence, Life, Outcome, Record, StoreError, Timestamp, Ttl, Write};

/// What must hold of the current record for a change to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition<'a> {
    /// Nothing: the change applies over any record and over none.
    Always,
    /// There is no live record.
    Absent,
    /// There is a live record with exactly this value.
    Equals(Cow<'a, [u8]>),
}

/// What a change does once its condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store this.
    Write(Write),
    /// Remove the record, unless its fence is higher than this one.
    Delete(Fence),
}

/// A write of the contract, ready to be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    condition: Condition<'a>,
    effect: Effect,
}

/// The live record that a change meets, wherever a backend keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current<'a> {
    /// Its bytes.
    pub value: &'a [u8],
    /// Its expiry, or `None` for never.
    pub expires_at: Option<Timestamp>,
    /// Its stamp.
    pub fence: Fence,
}

impl<'a> From<&'a Record> for Current<'a> {
    fn from(record: &'a Record) -> Self {
        Self { value: &record.value, expires_at: record.expires_at, fence: record.fence }
    }
}

/// What a backend has to do for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Store this record in place of whatever is there.
    Store(Record),
    /// Remove the record, which had this expiry.
    Remove(Option<Timestamp>),
    /// Do nothing: the live record stands in the way, or there is none to match.
    Refuse,
}

impl Step {
    /// The answer to give once the step is done; `current` is the live record that it met.
    pub fn outcome(&self, current: impl FnOnce() -> Option<Record>) -> Outcome {
        match self {
            Self::Store(record) => Outcome::Applied { expires_at: record.expires_at },
            Self::Remove(expires_at) => Outcome::Applied { expires_at: *expires_at },
            Self::Refuse => Outcome::Refused { current: current() },
        }
    }
}

impl<'a> Change<'a> {
    /// An upsert. [`StoreError::Invalid`] for a life that a put cannot have; the time is asked for
    /// only where that depends on it.
    pub fn put(write: Write, now: impl FnOnce() -> Timestamp) -> Result<Self, StoreError> {
        Self::writing(Condition::Always, write, now)
    }

    /// An insert where nothing lives.
    pub fn insert(write: Write, now: impl FnOnce() -> Timestamp) -> Result<Self, StoreError> {
        Self::writing(Condition::Absent, write, now)
    }

    /// A swap of `expected` for `write`.
    pub fn swap(
        expected: &'a [u8],
        write: Write,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Self, StoreError> {
        Self::writing(Condition::Equals(expected.into()), write, now)
    }

    /// A removal of `expected`.
    pub fn delete(expected: &'a [u8], fence: Fence) -> Self {
        let condition = Condition::Equals(expected.into());
        Self { condition, effect: Effect::Delete(fence) }
    }

    fn writing(
        condition: Condition<'a>,
        write: Write,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Self, StoreError> {
        check_life(write.life, matches!(condition, Condition::Equals(_)), now)?;
        Ok(Self { condition, effect: Effect::Write(write) })
    }

    /// The same change, borrowing nothing.
    pub fn into_owned(self) -> Change<'static> {
        let condition = match self.condition {
            Condition::Always => Condition::Always,
            Condition::Absent => Condition::Absent,
            Condition::Equals(expected) => Condition::Equals(expected.into_owned().into()),
        };
        Change { condition, effect: self.effect }
    }

    /// The condition.
    pub fn condition(&self) -> &Condition<'a> {
        &self.condition
    }

    /// The effect.
    pub fn effect(&self) -> &Effect {
        &self.effect
    }

    /// Decides the change against the record that is live at `now`, if any.
    ///
    /// The caller must keep the record as it is until the step is done, and must have filtered
    /// out an expired one: expired is absent.
    pub fn decide(self, current: Option<Current<'_>>, now: Timestamp) -> Step {
        let fence = match &self.effect {
            Effect::Write(write) => write.fence,
            Effect::Delete(fence) => *fence,
        };
        let stamp = current.map_or(Fence::NONE, |record| record.fence);
        if !self.condition.holds(current) || (fence != Fence::NONE && fence < stamp) {
            return Step::Refuse;
        }
        match self.effect {
            Effect::Write(write) => Step::Store(Record {
                expires_at: expiry(write.life, current, now),
                fence: fence.max(stamp),
                value: write.value,
            }),
            Effect::Delete(_) => Step::Remove(current.and_then(|record| record.expires_at)),
        }
    }
}

impl Condition<'_> {
    fn holds(&self, current: Option<Current<'_>>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => current.is_none(),
            Self::Equals(expected) => current.is_some_and(|record| record.value == &**expected),
        }
    }
}

fn expiry(life: Life, current: Option<Current<'_>>, now: Timestamp) -> Option<Timestamp> {
    match life {
        Life::Permanent => None,
        Life::For(ttl) => Some(now.after(ttl)),
        Life::Until(instant) => Some(instant),
        Life::Keep => current.and_then(|record| record.expires_at),
    }
}

fn check_life(life: Life, swap: bool, now: impl FnOnce() -> Timestamp) -> Result<(), StoreError> {
    match life {
        Life::Keep if !swap => {
            Err(StoreError::invalid("life", "only a swap has an expiry to keep; give a TTL"))
        }
        Life::Until(instant) if instant > now().after(Ttl::MAX) => {
            Err(StoreError::invalid("life", "the instant is more than 365 days ahead"))
        }
        Life::Permanent | Life::For(_) | Life::Until(_) | Life::Keep => Ok(()),
    }
}
