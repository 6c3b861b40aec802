//! The records of sequencers: their keys, their values, and the one way they are written.
//!
//! | keyspace | partition | clustering | value |
//! |---|---|---|---|
//! | 2 | app u32, partition u16 | 4 zero bytes | offset u64 |
//! | 3 | app u32, workspace u64 | sequence u16 | number u64 |
//!
//! All big-endian, all permanent. A record only ever grows: it is written where it is absent or
//! lower, each time by one conditional write. So a write that comes late, or twice, or from a
//! sequencer that slept, changes nothing or raises the record to what is true anyway. And a record
//! that has fallen below what is known of it was lost by the store, which is an error.

use super::event_log::Offset;
use crate::services::ClusterAppId;
use crate::store::{Key, Keyspace, Life, Outcome, Record, Store, StoreError, Value, Write};

/// What kind of workspace: it decides which sequences there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceKind(pub u16);

/// A workspace. It belongs to one partition of its application for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceId(pub u64);

/// A sequence of numbers within a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u16);

/// Where numbers are counted: a sequence of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Counter {
    pub(super) workspace: WorkspaceId,
    pub(super) sequence: SequenceId,
}

impl Counter {
    pub(super) fn key(self, app: ClusterAppId) -> Result<Key, StoreError> {
        let prefix = Keyspace::SequencerNumbers.prefix();
        let partition =
            [&prefix[..], &app.0.to_be_bytes(), &self.workspace.0.to_be_bytes()].concat();
        Key::new(&partition, &self.sequence.0.to_be_bytes())
    }
}

/// The key of a partition's offset: every number of every event below it is stored.
pub(super) fn offset_key(app: ClusterAppId, partition: u16) -> Result<Key, StoreError> {
    let prefix = Keyspace::SequencerOffsets.prefix();
    let partition = [&prefix[..], &app.0.to_be_bytes(), &partition.to_be_bytes()].concat();
    Key::new(&partition, &[0; 4])
}

/// What was last read or acknowledged of a record. By now it may be higher, which costs a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    Unknown,
    Absent,
    At(u64),
}

impl From<Option<u64>> for Stands {
    fn from(stored: Option<u64>) -> Self {
        stored.map_or(Self::Absent, Self::At)
    }
}

impl From<Offset> for Stands {
    fn from(offset: Offset) -> Self {
        Self::At(offset.0)
    }
}

/// Reads a record.
pub(super) async fn stored<S: Store>(store: &S, key: &Key) -> Result<Option<u64>, StoreError> {
    decoded(key, store.get(key).await?.as_ref())
}

/// Raises a record to `to` unless it is there already, and returns what stands then.
pub(super) async fn grow<S: Store>(
    store: &S,
    key: &Key,
    stands: Stands,
    to: u64,
) -> Result<u64, StoreError> {
    let write = Write::new(Value::copy_from_slice(&to.to_be_bytes())?, Life::Permanent);
    let mut current = match stands {
        Stands::Unknown => stored(store, key).await?,
        Stands::Absent => None,
        Stands::At(number) => Some(number),
    };
    loop {
        let outcome = match current {
            Some(number) if number >= to => return Ok(number),
            Some(number) => {
                store.compare_and_swap(key, &number.to_be_bytes(), write.clone()).await?
            }
            None => store.insert_if_not_exists(key, write.clone()).await?,
        };
        match outcome {
            Outcome::Applied { .. } => return Ok(to),
            Outcome::Refused { current: found } => {
                let found = decoded(key, found.as_ref())?;
                if found < current {
                    return Err(fallen(key, current, found));
                }
                current = found;
            }
        }
    }
}

/// What was read or acknowledged never falls, unless the store lost it.
fn fallen(key: &Key, known: Option<u64>, found: Option<u64>) -> StoreError {
    let [known, found] = [known, found]
        .map(|number| number.map_or_else(|| "absent".to_owned(), |number| number.to_string()));
    let reason = format!("it was {known} and is {found}: the store lost what it had acknowledged");
    StoreError::Corrupt { key: key.clone(), reason }
}

fn decoded(key: &Key, record: Option<&Record>) -> Result<Option<u64>, StoreError> {
    let Some(record) = record else { return Ok(None) };
    match <[u8; 8]>::try_from(&*record.value) {
        Ok(bytes) => Ok(Some(u64::from_be_bytes(bytes))),
        Err(_) => {
            let reason = format!("a number has 8 bytes, this has {}", record.value.len());
            Err(StoreError::Corrupt { key: key.clone(), reason })
        }
    }
}
