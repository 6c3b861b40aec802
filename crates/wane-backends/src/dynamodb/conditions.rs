//! Conditions: every change of the contract as one call that DynamoDB decides.
//!
//! The expressions are constants; what varies is bound. Each condition holds the expiry, compared
//! with the caller's time, so that an expired item that was not cleaned up yet is absent. A
//! comparison with an attribute that is not there is false, so `exp > :now` says "live" and needs
//! no second test.
//!
//! A write that stamps a fence, or finds nothing to keep one of, replaces the item. A write that
//! leaves the stamp, and one that keeps the expiry, changes the item in place, so that neither
//! needs to be read before. One case takes two calls: an expired item with a stamp, which a put
//! without a fence may not inherit (see [`Meets`]).

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use wane::store::{Change, Condition, Effect, Fence, Key, Life, Timestamp, Write};

use super::item::{
    self, CLEANUP, EXPIRY, FENCE, Item, OPERATION, OperationId, VALUE, binary, item_key, number,
    stored_expiry,
};

/// Nothing live is there: never written, deleted, or expired.
const ABSENT: &str = "attribute_not_exists(exp) OR exp <= :now";

/// No live record has a higher fence.
const NOT_FENCED_OFF: &str = "attribute_not_exists(exp) OR exp <= :now OR fence <= :fence";

/// The stamp that is there, if any, is that of a live record.
const STAMP_IS_LIVE: &str = "attribute_not_exists(fence) OR fence = :none OR exp > :now";

/// A live record has this value.
const EQUALS: &str = "exp > :now AND v = :old";

/// A live record has this value and no higher fence.
const EQUALS_NOT_FENCED_OFF: &str = "exp > :now AND v = :old AND fence <= :fence";

/// Stores a record that expires, and leaves the stamp.
const STORE: &str = "SET v = :v, exp = :exp, op = :op, #ttl = :ttl, \
                     fence = if_not_exists(fence, :none) REMOVE was";

/// Stores a permanent record, and leaves the stamp.
const STORE_PERMANENT: &str = "SET v = :v, exp = :exp, op = :op, \
                               fence = if_not_exists(fence, :none) REMOVE was, #ttl";

/// Replaces the value, and leaves expiry and stamp.
const REPLACE: &str = "SET v = :v, op = :op";

/// Replaces the value, stamps, and leaves the expiry.
const REPLACE_STAMPED: &str = "SET v = :v, op = :op, fence = :fence";

/// Leaves the operation, and what it removed the expiry of.
const DELETE: &str = "SET op = :op, #ttl = :ttl, was = exp REMOVE v, exp, fence";

/// The one name that is a reserved word.
const CLEANUP_NAME: &str = "#ttl";

/// What a put without a fence expects to meet. It passes over anything, but only the stamp of a
/// live record is kept, and one expression cannot do both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meets {
    /// A live record, or an item without a stamp, or nothing.
    NoStaleStamp,
    /// Nothing live.
    Nothing,
}

/// One call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) condition: &'static str,
    pub(super) values: Item,
    /// The expiry that the call gives the record, unless only the answer tells it.
    pub(super) expires_at: Option<Option<Timestamp>>,
}

/// How the item is changed.
#[derive(Debug)]
pub(super) enum Request {
    /// The whole item is put in place of the old one.
    Put(Item),
    /// The item with this key is changed in place.
    Update { key: Item, expression: &'static str, answers: ReturnValue },
}

impl Request {
    /// The names that the expression uses for attributes.
    pub(super) fn names(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Update { expression, .. } if expression.contains(CLEANUP_NAME) => {
                Some((CLEANUP_NAME, CLEANUP))
            }
            Self::Put(_) | Self::Update { .. } => None,
        }
    }
}

/// What a call is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose<'a> {
    pub(super) key: &'a Key,
    pub(super) change: &'a Change<'a>,
    pub(super) operation: &'a OperationId,
}

impl Purpose<'_> {
    /// The call that carries out the change at `now`, or is refused.
    pub(super) fn call(self, meets: Meets, now: Timestamp) -> Call {
        let call = match (self.change.condition(), self.change.effect()) {
            (Condition::Equals(expected), Effect::Write(write)) => {
                self.swap(write, now).over(expected, write.fence)
            }
            (Condition::Equals(expected), Effect::Delete(fence)) => {
                self.delete(now).over(expected, *fence)
            }
            (Condition::Always, Effect::Write(write)) if write.fence != Fence::NONE => {
                self.put(write, now).only(NOT_FENCED_OFF).with(":fence", number(write.fence.0))
            }
            (Condition::Always, Effect::Write(write)) if meets == Meets::NoStaleStamp => {
                self.store(write, now).only(STAMP_IS_LIVE)
            }
            (Condition::Always | Condition::Absent, Effect::Write(write)) => {
                self.put(write, now).only(ABSENT)
            }
            (Condition::Always | Condition::Absent, Effect::Delete(_)) => {
                unreachable!("a delete names the value that it removes")
            }
        };
        call.with(":now", number(now.as_unix_millis()))
    }

    fn swap(self, write: &Write, now: Timestamp) -> Call {
        match (write.life, write.fence) {
            (Life::Keep, fence) => self.replace(write, fence),
            (Life::Permanent | Life::For(_) | Life::Until(_), Fence::NONE) => {
                self.store(write, now)
            }
            (Life::Permanent | Life::For(_) | Life::Until(_), _) => self.put(write, now),
        }
    }

    /// Puts a whole item with the fence of the write.
    fn put(self, write: &Write, now: Timestamp) -> Call {
        let expires_at = expiry(write.life, now);
        let mut item = item_key(self.key);
        item.insert(VALUE.to_owned(), binary(&*write.value));
        item.insert(EXPIRY.to_owned(), stored_expiry(expires_at));
        item.insert(FENCE.to_owned(), number(write.fence.0));
        item.insert(OPERATION.to_owned(), binary(*self.operation));
        if let Some(expiry) = expires_at {
            item.insert(CLEANUP.to_owned(), number(item::cleanup_after(expiry, now)));
        }
        Call::new(Request::Put(item), Some(expires_at))
    }

    /// Stores value and expiry and leaves the stamp.
    fn store(self, write: &Write, now: Timestamp) -> Call {
        let expires_at = expiry(write.life, now);
        let expression = if expires_at.is_some() { STORE } else { STORE_PERMANENT };
        let call = self.update(expression, ReturnValue::None, Some(expires_at));
        let call = call
            .with(":v", binary(&*write.value))
            .with(":exp", stored_expiry(expires_at))
            .with(":none", number(Fence::NONE.0));
        match expires_at {
            Some(expiry) => call.with(":ttl", number(item::cleanup_after(expiry, now))),
            None => call,
        }
    }

    /// Stores the value and leaves the expiry, which the answer tells.
    fn replace(self, write: &Write, fence: Fence) -> Call {
        let expression = if fence == Fence::NONE { REPLACE } else { REPLACE_STAMPED };
        let call = self.update(expression, ReturnValue::AllNew, None);
        call.with(":v", binary(&*write.value))
    }

    /// Removes the record, whose expiry the answer tells.
    fn delete(self, now: Timestamp) -> Call {
        let call = self.update(DELETE, ReturnValue::UpdatedNew, None);
        call.with(":ttl", number(item::cleanup_of_deleted(now)))
    }

    fn update(
        self,
        expression: &'static str,
        answers: ReturnValue,
        expires_at: Option<Option<Timestamp>>,
    ) -> Call {
        let request = Request::Update { key: item_key(self.key), expression, answers };
        Call::new(request, expires_at).with(":op", binary(*self.operation))
    }
}

impl Call {
    fn new(request: Request, expires_at: Option<Option<Timestamp>>) -> Self {
        Self { request, condition: "", values: Item::new(), expires_at }
    }

    fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    fn only(self, condition: &'static str) -> Self {
        Self { condition, ..self }
    }

    /// Only over a live record of the expected value that has no higher fence.
    fn over(self, expected: &[u8], fence: Fence) -> Self {
        let call = self.with(":old", binary(expected));
        match fence {
            Fence::NONE => call.only(EQUALS),
            Fence(fence) => call.only(EQUALS_NOT_FENCED_OFF).with(":fence", number(fence)),
        }
    }
}

fn expiry(life: Life, now: Timestamp) -> Option<Timestamp> {
    match life {
        Life::For(ttl) => Some(now.after(ttl)),
        Life::Until(instant) => Some(instant),
        Life::Permanent | Life::Keep => None,
    }
}
