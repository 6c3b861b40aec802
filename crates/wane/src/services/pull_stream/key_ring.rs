//! The record of live keys that the nodes of a store share, and the steps that it goes through.
//!
//! Two keys are in it at most. When the current one has signed for 90 days, the next one is put
//! beside it, in the place of the one before; once it has been there for long enough that every node
//! has read it, it takes its place, and the one that was current stays good until the next change.
//!
//! Invariant: a key signs nothing before it has been in the record for `known_after`. What a key
//! looks like in the record is its owner's: see `stored_keys` and `wrapped_keys`.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::PullStreamError;
use crate::store::{Key, Keyspace, Life, StoreError, Timestamp, Value, Write};

/// How long a key signs.
pub(super) const SIGNS_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How often each node should look at the record: several times before a key signs.
pub const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// The record. It is not shown: there may be secrets in it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ring<K> {
    pub(super) current: K,
    /// The one before; or the next one, while it is announced.
    pub(super) other: Option<K>,
    /// Since when the current one signs.
    since: u64,
    /// Since when the other one is the next.
    announced_at: Option<u64>,
    #[serde(flatten)]
    more: Map<String, Json>,
}

/// What is to be done about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// A next key is to be put beside the current one.
    Announcing,
    /// The next key is to sign.
    Changing,
}

impl<K: Clone + Serialize + DeserializeOwned> Ring<K> {
    pub(super) fn first(current: K, now: Timestamp) -> Self {
        let since = now.as_unix_millis();
        Self { current, other: None, since, announced_at: None, more: Map::new() }
    }

    /// The step that is due, where a key is known everywhere after so long.
    pub(super) fn due(&self, now: Timestamp, known_after: Duration) -> Due {
        let age = |since: u64| Timestamp::from_unix_millis(since).until(now);
        match (self.announced_at, &self.other) {
            (Some(announced_at), Some(_)) if age(announced_at) >= known_after => Due::Changing,
            (None, _) if age(self.since) >= SIGNS_FOR => Due::Announcing,
            (Some(_) | None, _) => Due::Nothing,
        }
    }

    /// The record with the next key beside the current one.
    pub(super) fn announcing(&self, next: K, now: Timestamp) -> Self {
        let announced_at = Some(now.as_unix_millis());
        Self { other: Some(next), announced_at, ..self.clone() }
    }

    /// The record with the announced key in its place.
    pub(super) fn changed(&self, now: Timestamp) -> Self {
        let Some(next) = self.other.clone() else { return self.clone() };
        Self {
            current: next,
            other: Some(self.current.clone()),
            since: now.as_unix_millis(),
            announced_at: None,
            more: self.more.clone(),
        }
    }

    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, PullStreamError> {
        serde_json::from_slice(value).map_err(|_| {
            let reason = "it does not hold the keys of pull streams".into();
            StoreError::Corrupt { key: key.clone(), reason }.into()
        })
    }

    pub(super) fn write(&self) -> Result<Write, StoreError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| StoreError::invalid("keys", format!("cannot be written: {error}")))?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }
}

/// Where a record of keys is.
pub(super) fn ring_key(name: &str) -> Result<Key, StoreError> {
    Key::new(Keyspace::Settings.partition(b"keys")?.as_bytes(), name.as_bytes())
}
