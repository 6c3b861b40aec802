//! Institutions: a list of those that messages have come in for, which nothing else tells.
//!
//! One partition per region, a small permanent record for each. The node that appends to a log
//! writes it with the first row that it appends, and again after a start: so that a record that
//! could not be written comes with a later row.

use std::collections::HashSet;

use parking_lot::Mutex;

use super::log::Place;
use super::{Ispb, PullStream, PullStreamError};
use crate::store::{
    ClusteringRange, Key, Keyspace, Life, PageLimit, Partition, Store, StoreError, Value, Write,
};

/// Institutions that a node remembers to have listed.
const MOST_KNOWN: usize = 10_000;

/// Which ones are known to be in the list.
#[derive(Debug, Default)]
pub(super) struct Institutions(Mutex<HashSet<Ispb>>);

impl Institutions {
    /// Sees to it that an institution is in the list. Failing is no harm: the next row tries again.
    pub(super) async fn note<S: Store>(&self, store: &S, place: Place<'_>) {
        if self.0.lock().contains(&place.ispb) || insert(store, place).await.is_err() {
            return;
        }
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(place.ispb);
    }
}

/// Shorter than that of any institution, so that it is none of theirs.
fn partition(region: &str) -> Result<Partition, StoreError> {
    // At most 32 bytes, so the length fits in one.
    let length = [region.len() as u8];
    Keyspace::PullStreamState.partition(&[&length, region.as_bytes()].concat())
}

async fn insert<S: Store>(store: &S, place: Place<'_>) -> Result<(), StoreError> {
    let key = Key::new(partition(place.region)?.as_bytes(), place.ispb.as_bytes())?;
    let write = Write::new(Value::default(), Life::Permanent);
    // Refused, it is there.
    store.insert_if_not_exists(&key, write).await.map(drop)
}

impl<S: Store> PullStream<S> {
    /// The institutions of this store that messages have come in for, by their numbers.
    pub async fn institutions(&self) -> Result<Vec<Ispb>, PullStreamError> {
        let partition = partition(&self.core.settings.home)?;
        let mut rest = Some(ClusteringRange::ALL);
        let mut found = Vec::new();
        while let Some(range) = rest {
            let page = self.core.store.read(&partition, &range, PageLimit::MAX).await?;
            for row in page.rows {
                let text = std::str::from_utf8(row.key.clustering()).ok();
                let ispb = text.and_then(|text| text.parse().ok());
                found.push(ispb.ok_or_else(|| StoreError::Corrupt {
                    key: row.key.clone(),
                    reason: "its clustering is not the number of an institution".into(),
                })?);
            }
            rest = page.rest;
        }
        Ok(found)
    }
}
