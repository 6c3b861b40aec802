//! The number of buckets, recorded in the store that it holds for.
//!
//! One permanent record in the settings keyspace, beside those of applications: the first to open
//! an empty store inserts it, everyone else finds it. Nothing changes it afterwards.

use serde::{Deserialize, Serialize};

use super::bucket::Buckets;
use crate::store::{
    BoxError, Key, Keyspace, Life, Outcome, PageLimit, Record, Store, StoreError, Value, Write,
};

/// The partition of the record after its keyspace; its clustering is empty.
const NAME: &[u8] = b"spread";

/// Why a spread was not opened. Nothing was changed, except that the number may be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum SpreadError {
    /// A spread needs a bucket.
    #[error("0 is not a number of buckets; give 1 to 65535, where 1 means no spread")]
    NoBuckets,

    /// The records lie elsewhere.
    #[error(
        "the records of the store lie in {recorded} bucket(s), but {given} were asked for; open \
         it with {recorded}, or make a backup with {recorded} and restore it into an empty store \
         with {given}"
    )]
    Mismatch { recorded: u16, given: u16 },

    /// What is recorded is not a number of buckets. An operator must look at the store.
    #[error("the record {key:?} does not hold a number of buckets: {source}")]
    Unreadable { key: Key, source: BoxError },

    /// The store failed.
    #[error("the number of buckets was not agreed on: {0}")]
    Store(#[from] StoreError),
}

/// The record's value. A field that this version does not know may change where records lie.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    buckets: u16,
}

/// Whether this is the key of the record.
pub(super) fn is_record(key: &Key) -> bool {
    let name = key.partition().strip_prefix(&Keyspace::Settings.prefix());
    name == Some(NAME) && key.clustering().is_empty()
}

/// Refuses writes to the record.
pub(super) fn check_writable(key: &Key) -> Result<(), StoreError> {
    if !is_record(key) {
        return Ok(());
    }
    let reason = "it holds the number of buckets and is written on opening only; a backup that \
                  holds it was made below the spread";
    Err(StoreError::invalid("key", reason))
}

/// The number of buckets of a store, once it is known to be the one that is asked for.
pub(super) async fn agree(store: &impl Store, given: u16) -> Result<Buckets, SpreadError> {
    let buckets = Buckets::new(given).ok_or(SpreadError::NoBuckets)?;
    let partition = Keyspace::Settings.partition(NAME)?;
    let key = Key::new(partition.as_bytes(), &[])?;
    let recorded = match store.get(&key).await? {
        Some(record) => read(&key, &record)?,
        None => first(store, &key, given).await?,
    };
    if recorded == given { Ok(buckets) } else { Err(SpreadError::Mismatch { recorded, given }) }
}

/// The number of a store that had none a moment ago.
async fn first(store: &impl Store, key: &Key, given: u16) -> Result<u16, SpreadError> {
    let number = if is_empty(store).await? { given } else { 1 };
    if let Some(record) = store.get(key).await? {
        // Somebody else was first, and may have written the records that were found.
        return read(key, &record);
    }
    if number != given {
        return Ok(number);
    }
    let bytes = serde_json::to_vec(&Number { buckets: number });
    let bytes = bytes.map_err(|error| unreadable(key, error.into()))?;
    let write = Write::new(Value::new(bytes)?, Life::Permanent);
    match store.insert_if_not_exists(key, write).await? {
        Outcome::Applied { .. } => Ok(number),
        Outcome::Refused { current: Some(record) } => read(key, &record),
        Outcome::Refused { current: None } => {
            Err(unreadable(key, "it was removed while it was read".into()))
        }
    }
}

async fn is_empty(store: &impl Store) -> Result<bool, SpreadError> {
    let mut cursor = None;
    loop {
        let page = store.scan(cursor, PageLimit::new(100)?).await?;
        if !page.rows.is_empty() {
            return Ok(false);
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(true),
        }
    }
}

fn read(key: &Key, record: &Record) -> Result<u16, SpreadError> {
    let number: Number =
        serde_json::from_slice(&record.value).map_err(|error| unreadable(key, error.into()))?;
    match number.buckets {
        0 => Err(unreadable(key, "it says 0".into())),
        buckets => Ok(buckets),
    }
}

fn unreadable(key: &Key, source: BoxError) -> SpreadError {
    SpreadError::Unreadable { key: key.clone(), source }
}
