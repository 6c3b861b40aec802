//! Items: how a record and its key are laid out in the table.
//!
//! | attribute | type | what |
//! |---|---|---|
//! | `p` | B, hash key | the partition |
//! | `c` | B, range key | the clustering, escaped |
//! | `v` | B | the value |
//! | `exp` | N | when the record expires, in Unix milliseconds; [`NEVER`] for never |
//! | `fence` | N | the stamp |
//! | `op` | B | the operation that wrote the item last |
//! | `ttl` | N | when DynamoDB may clean the item up, in Unix seconds; none for never |
//! | `was` | N | only what a delete leaves: the `exp` of the record that it removed |
//!
//! Invariant: an item without `exp` is no record. What a delete leaves has none, and neither has
//! the mark of the format, so no read needs to know of either.
//!
//! A range key has 1 to 1,024 bytes and a clustering may be empty, so the empty one is stored as
//! one 0x00 and a leading 0x00 is doubled. The order of bytes stays what it was, and range keys
//! that begin with 0x00 and another byte are left for marks.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use wane::store::{Fence, Key, MAX_CLUSTERING, Record, StoreError, Timestamp, Value};

/// Attributes by name.
pub(super) type Item = HashMap<String, AttributeValue>;

pub(super) const PARTITION: &str = "p";
pub(super) const CLUSTERING: &str = "c";
pub(super) const VALUE: &str = "v";
pub(super) const EXPIRY: &str = "exp";
pub(super) const FENCE: &str = "fence";
pub(super) const OPERATION: &str = "op";
pub(super) const CLEANUP: &str = "ttl";
pub(super) const REMOVED_EXPIRY: &str = "was";

/// The expiry of a permanent record: past any that a life can give.
pub(super) const NEVER: u64 = u64::MAX;

/// DynamoDB cleans up no sooner than this after the expiry, in seconds: clocks may differ, and an
/// operation id must be there for whoever asks what became of the operation.
const CLEANUP_SLACK: u64 = 60;

/// How long what a delete leaves is kept, in milliseconds, before the slack.
const DELETED_KEPT: u64 = 60_000;

/// The id of a write, by which it is known again.
pub(super) type OperationId = [u8; 16];

pub(super) fn binary(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// The attributes that name the item of `key`.
pub(super) fn item_key(key: &Key) -> Item {
    Item::from([
        (PARTITION.to_owned(), binary(key.partition())),
        (CLUSTERING.to_owned(), binary(stored_clustering(key.clustering()))),
    ])
}

/// A clustering as a range key.
pub(super) fn stored_clustering(clustering: &[u8]) -> Vec<u8> {
    match clustering.first() {
        None => vec![0],
        Some(0) => [&[0], clustering].concat(),
        Some(_) => clustering.to_vec(),
    }
}

/// The clustering of a range key, or `None` where no clustering is stored so.
pub(super) fn clustering_of(stored: &[u8]) -> Option<&[u8]> {
    match stored {
        [] => None,
        [0] => Some(&[]),
        [0, rest @ ..] => (rest[0] == 0).then_some(rest),
        _ => Some(stored),
    }
}

/// A bound as a range key. Of a bound that is too long for one, as much as fits: no row lies
/// between the two but the one that is equal to it.
pub(super) fn stored_bound(bound: &[u8]) -> Vec<u8> {
    let mut stored = stored_clustering(bound);
    stored.truncate(MAX_CLUSTERING);
    stored
}

/// When DynamoDB may remove an item that expires at `expiry`, in seconds. An expiry that has
/// passed counts as `now`: items of the distant past are never removed.
pub(super) fn cleanup_after(expiry: Timestamp, now: Timestamp) -> u64 {
    expiry.max(now).as_unix_millis().div_ceil(1_000) + CLEANUP_SLACK
}

/// The same for what a delete leaves.
pub(super) fn cleanup_of_deleted(now: Timestamp) -> u64 {
    let kept = Timestamp::from_unix_millis(now.as_unix_millis().saturating_add(DELETED_KEPT));
    cleanup_after(kept, now)
}

/// The expiry as an attribute.
pub(super) fn stored_expiry(expires_at: Option<Timestamp>) -> AttributeValue {
    number(expires_at.map_or(NEVER, Timestamp::as_unix_millis))
}

/// The key of an item, or what is wrong with it.
pub(super) fn key_of(item: &Item) -> Result<Key, StoreError> {
    let (Some(partition), Some(stored)) = (bytes(item, PARTITION), bytes(item, CLUSTERING)) else {
        return Err(unreadable("an item without a key of ours"));
    };
    let Some(clustering) = clustering_of(stored) else {
        return Err(unreadable("an item whose range key is no clustering"));
    };
    Key::stored(partition, clustering)
}

fn unreadable(reason: &str) -> StoreError {
    StoreError::Unavailable { backend: super::BACKEND, source: reason.into() }
}

/// The record of an item that is live at `now`; none where the item is none or has expired.
pub(super) fn live_record(
    key: &Key,
    mut item: Item,
    now: Timestamp,
) -> Result<Option<Record>, StoreError> {
    let corrupt = |reason: &str| StoreError::Corrupt { key: key.clone(), reason: reason.into() };
    if !item.contains_key(EXPIRY) {
        return Ok(None);
    }
    let expiry = integer(&item, EXPIRY).ok_or_else(|| corrupt("exp is no whole number"))?;
    if expiry <= now.as_unix_millis() {
        return Ok(None);
    }
    let fence = integer(&item, FENCE).ok_or_else(|| corrupt("fence is no whole number"))?;
    let Some(AttributeValue::B(value)) = item.remove(VALUE) else {
        return Err(corrupt("v is not binary"));
    };
    let value = Value::new(value.into_inner()).map_err(|_| corrupt("v is too long"))?;
    Ok(Some(Record { value, expires_at: expiry_at(expiry), fence: Fence(fence) }))
}

/// The expiry that an item has or, after a delete, had; `None` where it tells neither.
pub(super) fn told_expiry(item: &Item) -> Option<Option<Timestamp>> {
    let expiry = integer(item, EXPIRY).or_else(|| integer(item, REMOVED_EXPIRY))?;
    Some(expiry_at(expiry))
}

/// Whether the item was written by this operation.
pub(super) fn is_written_by(item: &Item, operation: &OperationId) -> bool {
    bytes(item, OPERATION) == Some(operation)
}

fn expiry_at(millis: u64) -> Option<Timestamp> {
    (millis != NEVER).then(|| Timestamp::from_unix_millis(millis))
}

pub(super) fn bytes<'i>(item: &'i Item, name: &str) -> Option<&'i [u8]> {
    item.get(name)?.as_b().ok().map(AsRef::as_ref)
}

pub(super) fn integer(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}
