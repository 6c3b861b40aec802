//! The one record of an election, and what its parts are made of.
//!
//! It is JSON, so that later versions read it: the token, the lease's id, its holder, how long it
//! was asked for and when it ends. An end of 0 is a lease that was given up.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{ElectionsError, Standing};
use crate::clock::Clock;
use crate::services::names;
use crate::store::{Key, Keyspace, Life, Record, StoreError, Timestamp, Ttl, Value, Write};

/// What a restored election skips, so that no token given out since the backup comes again.
const SKIPPED_BY_RESTORE: u64 = 1 << 32;

/// A fencing token: it grows with each win of its election, for ever. From 1 to below 2^53, so that
/// every JSON reader keeps it exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(u64);

impl Token {
    /// The token of an election that nobody has won.
    const ZERO: Self = Self(0);

    /// The highest token.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// This token, or `None` where no election gives it out.
    pub fn new(number: u64) -> Option<Self> {
        (1..=Self::MAX.0).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    fn plus(self, more: u64) -> Result<Self, ElectionsError> {
        let sum = self.0.checked_add(more).and_then(Self::new);
        sum.ok_or(ElectionsError::Exhausted)
    }
}

impl TryFrom<u64> for Token {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Self::new(number).ok_or("a token is 1 to 2^53 - 1")
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one lease: 128 random bits, drawn by each campaign.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    /// Belongs to nobody.
    const NOBODY: Self = Self([0; 16]);

    pub(super) fn draw(clock: &dyn Clock) -> Self {
        let mut bytes = [0; 16];
        clock.fill_random(&mut bytes);
        Self(bytes)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LeaseId {
    /// Whoever knows the id can end the lease: logs do not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({:02x}..)", self.0[0])
    }
}

impl FromStr for LeaseId {
    type Err = ElectionsError;

    fn from_str(text: &str) -> Result<Self, ElectionsError> {
        let invalid = || ElectionsError::Invalid {
            field: "leaseId",
            reason: "give the 32 lower-case hex digits that the campaign answered".into(),
        };
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_hex) {
            return Err(invalid());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| invalid())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl TryFrom<String> for LeaseId {
    type Error = ElectionsError;

    fn try_from(text: String) -> Result<Self, ElectionsError> {
        text.parse()
    }
}

impl From<LeaseId> for String {
    fn from(id: LeaseId) -> Self {
        id.to_string()
    }
}

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
    pub(super) token: Token,
    pub(super) lease_id: LeaseId,
    holder: String,
    ttl_millis: u64,
    /// When the lease ends, in Unix milliseconds; 0 once it was given up.
    ends_at: u64,
    /// What a later version wrote beside it, kept while nodes of both serve.
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Stored {
    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(value).map_err(|error| StoreError::Corrupt {
            key: key.clone(),
            reason: format!("it is not the record of an election: {error}"),
        })
    }

    /// The record after `holder` has won over `before`.
    pub(super) fn won(
        before: Option<&Self>,
        lease_id: LeaseId,
        holder: &str,
        ttl: Ttl,
        now: Timestamp,
    ) -> Result<Self, ElectionsError> {
        let newest = before.map_or(Token::ZERO, |stored| stored.token);
        Ok(Self {
            token: newest.plus(1)?,
            lease_id,
            holder: holder.to_owned(),
            ttl_millis: ttl.as_millis(),
            ends_at: now.after(ttl).as_unix_millis(),
            more: before.map(|stored| stored.more.clone()).unwrap_or_default(),
        })
    }

    /// The same lease with its whole life before it. It never ends earlier than it did: another
    /// node, whose clock is ahead, may have renewed it last.
    pub(super) fn renewed(&self, now: Timestamp) -> Self {
        let ends_at = now.as_unix_millis().saturating_add(self.ttl_millis);
        Self { ends_at: ends_at.max(self.ends_at), ..self.clone() }
    }

    /// The same lease, ended. The token stays.
    pub(super) fn resigned(&self) -> Self {
        Self { ends_at: 0, ..self.clone() }
    }

    pub(super) fn write(&self) -> Result<Write, StoreError> {
        let json = serde_json::to_vec(self);
        let json = json.map_err(|error| StoreError::invalid("election", error.to_string()))?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }

    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        now < self.end()
    }

    pub(super) fn is_lease(&self, id: LeaseId, token: Token) -> bool {
        self.lease_id == id && self.token == token
    }

    pub(super) fn end(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.ends_at)
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_millis)
    }

    pub(super) fn standing(&self, now: Timestamp) -> Standing {
        let holder = self.is_held(now).then(|| self.holder.clone());
        Standing { holder, token: self.token, remaining: now.until(self.end()) }
    }
}

/// A record as it is restored from a backup: an election's lease has ended, and its tokens go on
/// far above any that were given out since. Records of other keyspaces stay as they are, and so
/// does one that cannot be read: nobody is elected by it.
pub(crate) fn restored(key: &Key, record: Record) -> Record {
    if Keyspace::of(key.partition()) != Some(Keyspace::Elections) {
        return record;
    }
    let restored = Stored::read(key, &record.value).and_then(|stored| {
        // Beyond the last token the election stays where it is, with none left to give.
        let token = stored.token.plus(SKIPPED_BY_RESTORE).unwrap_or(Token::MAX);
        Stored { token, lease_id: LeaseId::NOBODY, ..stored.resigned() }.write()
    });
    match restored {
        Ok(write) => Record { value: write.value, ..record },
        Err(_) => record,
    }
}

pub(super) fn checked_name(name: &str) -> Result<(), ElectionsError> {
    checked("name", name)
}

pub(super) fn checked_holder(holder: &str) -> Result<(), ElectionsError> {
    checked("holder", holder)
}

fn checked(field: &'static str, text: &str) -> Result<(), ElectionsError> {
    names::checked(text).map_err(|reason| ElectionsError::Invalid { field, reason })
}
