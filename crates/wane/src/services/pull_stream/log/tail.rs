//! The tail: a permanent record of where the log ended lately.
//!
//! It is raised about once a second and once appends rest, never lowered, and is needed once
//! retention has removed the last rows: then nothing else tells which sequences were used.

use super::Place;
use crate::services::pull_stream::record::COUNT_LIMIT;
use crate::store::{Fence, Key, Life, Store, StoreError, Value, Write};

/// The first sequence that was not used when the record was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in super::super) struct Tail(pub(in super::super) u64);

/// Where the record lies.
pub(in super::super) fn tail_key(place: Place<'_>) -> Result<Key, StoreError> {
    place.state_key("tail")
}

impl Tail {
    pub(in super::super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let corrupt =
            |reason: &str| StoreError::Corrupt { key: key.clone(), reason: reason.into() };
        let bytes = <[u8; 8]>::try_from(value)
            .map_err(|_| corrupt("it is not a tail: it does not have eight bytes"))?;
        match u64::from_be_bytes(bytes) {
            tail if tail < COUNT_LIMIT => Ok(Self(tail)),
            _ => Err(corrupt("it is beyond all sequences")),
        }
    }

    /// Raises the record, unless it is higher already: its fence is the number itself.
    pub(super) async fn raise<S: Store>(
        self,
        store: &S,
        place: Place<'_>,
    ) -> Result<(), StoreError> {
        let value = Value::copy_from_slice(&self.0.to_be_bytes())?;
        let write = Write::new(value, Life::Permanent).fenced(Fence(self.0));
        // Refused, it is higher already.
        store.put(&tail_key(place)?, write).await.map(drop)
    }
}
