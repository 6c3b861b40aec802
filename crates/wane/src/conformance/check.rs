//! The words that cases assert with. Each failure says where in the suite it arose.

use std::fmt::{self, Debug, Display};
use std::panic::Location;

use crate::store::{Outcome, Record, Remaining, StoreError, Timestamp, Value};

/// What a case returns: nothing, or why the store does not keep the rule.
pub type CaseResult = Result<(), CaseError>;

/// A rule that was not kept, and the line of the suite that noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseError {
    message: String,
    place: &'static Location<'static>,
}

impl CaseError {
    /// The failure of whoever calls this.
    #[track_caller]
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: Location::caller() }
    }
}

impl Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.file(), self.place.line(), self.message)
    }
}

impl std::error::Error for CaseError {}

impl From<StoreError> for CaseError {
    #[track_caller]
    fn from(error: StoreError) -> Self {
        Self::new(format!("the store failed: {error}"))
    }
}

/// Fails with `message` unless `holds`.
#[track_caller]
pub(super) fn that(holds: bool, message: impl Display) -> CaseResult {
    if holds { Ok(()) } else { Err(CaseError::new(message.to_string())) }
}

/// `what` must be `expected`.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "most callers have values at hand")]
pub(super) fn equal<T: Debug + PartialEq>(what: &str, actual: T, expected: T) -> CaseResult {
    that(actual == expected, format_args!("{what}: {actual:?}, expected {expected:?}"))
}

/// The write was applied. Returns the expiry that it reported.
#[track_caller]
pub(super) fn applied(outcome: Outcome) -> Result<Option<Timestamp>, CaseError> {
    match outcome {
        Outcome::Applied { expires_at } => Ok(expires_at),
        Outcome::Refused { current } => {
            Err(CaseError::new(format!("refused by {current:?}, expected it applied")))
        }
    }
}

/// The write was refused by a record with this value. Returns the record.
#[track_caller]
pub(super) fn refused_by(outcome: Outcome, value: &[u8]) -> Result<Record, CaseError> {
    match outcome {
        Outcome::Refused { current } => holds(current, value),
        Outcome::Applied { .. } => {
            Err(CaseError::new(format!("applied, expected a refusal by {:?}", shown(value))))
        }
    }
}

/// The write was refused because there is nothing.
#[track_caller]
pub(super) fn refused_by_absence(outcome: Outcome) -> CaseResult {
    match outcome {
        Outcome::Refused { current } => absent(current),
        Outcome::Applied { .. } => Err(CaseError::new("applied to an absent record")),
    }
}

/// There is a record with this value. Returns it.
#[track_caller]
pub(super) fn holds(record: Option<Record>, value: &[u8]) -> Result<Record, CaseError> {
    let expected = shown(value);
    match record {
        Some(record) if record.value[..] == *value => Ok(record),
        Some(record) => {
            Err(CaseError::new(format!("value {:?}, expected {expected:?}", record.value)))
        }
        None => Err(CaseError::new(format!("absent, expected {expected:?}"))),
    }
}

/// There is no record.
#[track_caller]
pub(super) fn absent(record: Option<Record>) -> CaseResult {
    match record {
        None => Ok(()),
        Some(record) => Err(CaseError::new(format!("{record:?}, expected it absent"))),
    }
}

/// The record lives for a limited time. Returns what is left of it, in milliseconds.
#[track_caller]
pub(super) fn remaining_millis(remaining: Remaining) -> Result<u64, CaseError> {
    match remaining {
        Remaining::For(left) => Ok(left.as_millis() as u64),
        Remaining::Absent | Remaining::Permanent => {
            Err(CaseError::new(format!("{remaining:?}, expected a remaining time")))
        }
    }
}

/// The request was found invalid because of `field`.
#[track_caller]
pub(super) fn invalid<T: Debug>(result: Result<T, StoreError>, field: &str) -> CaseResult {
    match result {
        Err(StoreError::Invalid { field: named, .. }) if named == field => Ok(()),
        other => Err(CaseError::new(format!("{other:?}, expected an invalid {field}"))),
    }
}

/// The value as failures show it: its beginning and its length.
fn shown(value: &[u8]) -> Value {
    Value::new(value.to_vec()).unwrap_or_default()
}
