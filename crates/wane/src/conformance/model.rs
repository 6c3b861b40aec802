//! The contract as the shortest program that keeps it: one lock over one ordered map.
//!
//! [`ModelStore`] is what other stores are compared with, so it is a reading of the contract of
//! its own: it shares no rule with [`Change::decide`](crate::store::Change::decide) and prefers
//! the obvious to the fast. Every operation takes the lock, asks the clock while it holds it,
//! and is done before it lets go: that instant is the operation's place in history.
//!
//! Invariant: the map may hold expired records, no operation sees them, and nothing but a write
//! or the sweep of [`footprint`](ModelStore::footprint) removes one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;

use parking_lot::{Mutex, MutexGuard};

use super::{Flaw, FlawedModel};
use crate::clock::SharedClock;
use crate::store::{
    ClusteringRange, Fence, Key, Life, Outcome, PAGE_BYTES, Page, PageLimit, Partition, Record,
    Remaining, Row, ScanPage, Store, StoreError, Timestamp, Ttl, Write,
};

type Records = BTreeMap<Key, Record>;

/// The reference model of the contract. A clone is a second handle on the same store.
#[derive(Debug, Clone)]
pub struct ModelStore {
    clock: SharedClock,
    records: Arc<Mutex<Records>>,
}

/// A write as the model reads it.
enum Request<'a> {
    Put(&'a Write),
    Insert(&'a Write),
    Swap(&'a [u8], &'a Write),
    Delete(&'a [u8], Fence),
}

impl ModelStore {
    /// An empty store that lives by `clock`.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, records: Arc::default() }
    }

    /// Another handle on the same store that lives by `clock`, as another node would.
    #[must_use]
    pub fn on_clock(&self, clock: SharedClock) -> Self {
        Self { clock, records: Arc::clone(&self.records) }
    }

    /// An empty store that makes one mistake, for controls: a check that it passes is no check.
    pub fn flawed(clock: SharedClock, flaw: Flaw) -> FlawedModel {
        FlawedModel::new(clock, flaw)
    }

    /// Removes what has expired and returns the bytes of the keys and values that are left.
    pub fn footprint(&self) -> u64 {
        let (mut records, now) = self.lock();
        records.retain(|_, record| record.is_live(now));
        records.iter().map(|(key, record)| (key.size() + record.value.len()) as u64).sum()
    }

    /// The records, expired ones included, and the instant at which they are looked at.
    pub(super) fn lock(&self) -> (MutexGuard<'_, Records>, Timestamp) {
        let records = self.records.lock();
        let now = self.clock.now();
        (records, now)
    }

    fn change(&self, key: &Key, request: &Request<'_>) -> Result<Outcome, StoreError> {
        let (mut records, now) = self.lock();
        check_life(request, now)?;
        Ok(apply(&mut records, key, request, now))
    }
}

/// Decides the request and carries it out in one go.
fn apply(records: &mut Records, key: &Key, request: &Request<'_>, now: Timestamp) -> Outcome {
    let current = live(records, key, now).cloned();
    let matches = match (request, &current) {
        (Request::Put(_), _) | (Request::Insert(_), None) => true,
        (Request::Insert(_), Some(_)) => false,
        (Request::Swap(..) | Request::Delete(..), None) => false,
        (Request::Swap(expected, _) | Request::Delete(expected, _), Some(record)) => {
            record.value[..] == **expected
        }
    };
    let Fence(stamp) = current.as_ref().map_or(Fence::NONE, |record| record.fence);
    let Fence(carried) = match request {
        Request::Put(write) | Request::Insert(write) | Request::Swap(_, write) => write.fence,
        Request::Delete(_, fence) => *fence,
    };
    let fenced_off = carried != 0 && carried < stamp;
    if !matches || fenced_off {
        return Outcome::Refused { current };
    }
    let old_expiry = current.and_then(|record| record.expires_at);
    match request {
        Request::Put(write) | Request::Insert(write) | Request::Swap(_, write) => {
            let expires_at = match write.life {
                Life::Permanent => None,
                Life::For(ttl) => Some(now.after(ttl)),
                Life::Until(instant) => Some(instant),
                Life::Keep => old_expiry,
            };
            let fence = Fence(if carried == 0 { stamp } else { carried });
            let value = write.value.clone();
            records.insert(key.clone(), Record { value, expires_at, fence });
            Outcome::Applied { expires_at }
        }
        Request::Delete(..) => {
            records.remove(key);
            Outcome::Applied { expires_at: old_expiry }
        }
    }
}

fn live<'a>(records: &'a Records, key: &Key, now: Timestamp) -> Option<&'a Record> {
    records.get(key).filter(|record| match record.expires_at {
        None => true,
        Some(expiry) => now < expiry,
    })
}

fn check_life(request: &Request<'_>, now: Timestamp) -> Result<(), StoreError> {
    let (write, swap) = match request {
        Request::Put(write) | Request::Insert(write) => (write, false),
        Request::Swap(_, write) => (write, true),
        Request::Delete(..) => return Ok(()),
    };
    match write.life {
        Life::Keep if !swap => Err(StoreError::invalid("life", "there is no expiry to keep")),
        Life::Until(instant) if now.until(instant) > Ttl::MAX.as_duration() => {
            Err(StoreError::invalid("life", "the instant is more than 365 days ahead"))
        }
        Life::Permanent | Life::For(_) | Life::Until(_) | Life::Keep => Ok(()),
    }
}

/// Moves rows onto a page, in order, until it is full.
fn fill(rows: &mut impl Iterator<Item = Row>, limit: PageLimit) -> Vec<Row> {
    let mut page = Vec::new();
    let mut bytes = 0;
    while page.len() < limit.rows() && bytes < PAGE_BYTES {
        let Some(row) = rows.next() else { break };
        bytes += row.key.size() + row.record.value.len();
        page.push(row);
    }
    page
}

/// The rest of a scan: the store as it was when the scan began.
#[derive(Debug)]
pub struct ModelCursor(pub(super) vec::IntoIter<Row>);

impl Store for ModelStore {
    type ScanCursor = ModelCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let (records, now) = self.lock();
        Ok(live(&records, key, now).cloned())
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let (records, now) = self.lock();
        Ok(keys.iter().map(|key| live(&records, key, now).cloned()).collect())
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        let (records, now) = self.lock();
        let first = Key::new(partition.as_bytes(), b"")?;
        let mut rows = records
            .range(first..)
            .take_while(|(key, _)| key.partition() == partition.as_bytes())
            .filter(|(key, record)| range.contains(key.clustering()) && record.is_live(now))
            .map(|(key, record)| Row { key: key.clone(), record: record.clone() });
        let page = fill(&mut rows, limit);
        let rest = match (page.last(), rows.next()) {
            // The least clustering after the last one is the last one and a zero byte.
            (Some(last), Some(_)) => {
                Some(range.starting_at([last.key.clustering(), &[0]].concat()))
            }
            (None, _) | (_, None) => None,
        };
        Ok(Page { rows: page, rest })
    }

    async fn scan(
        &self,
        after: Option<ModelCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<ModelCursor>, StoreError> {
        let mut rest = match after {
            Some(ModelCursor(rest)) => rest,
            None => {
                let (records, now) = self.lock();
                let live = records.iter().filter(|(_, record)| record.is_live(now));
                let row = |(key, record): (&Key, &Record)| Row {
                    key: key.clone(),
                    record: record.clone(),
                };
                live.map(row).collect::<Vec<_>>().into_iter()
            }
        };
        let rows = fill(&mut rest, limit);
        let next = (rest.len() > 0).then_some(ModelCursor(rest));
        Ok(ScanPage { rows, next })
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(key, &Request::Put(&write))
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        let (mut records, now) = self.lock();
        for (_, write) in &writes {
            check_life(&Request::Put(write), now)?;
        }
        let put = |(key, write): &(Key, Write)| apply(&mut records, key, &Request::Put(write), now);
        Ok(writes.iter().map(put).collect())
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(key, &Request::Insert(&write))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.change(key, &Request::Swap(expected, &write))
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.change(key, &Request::Delete(expected, fence))
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        let (records, now) = self.lock();
        Ok(match live(&records, key, now).map(|record| record.expires_at) {
            None => Remaining::Absent,
            Some(None) => Remaining::Permanent,
            Some(Some(expiry)) => Remaining::For(now.until(expiry)),
        })
    }
}
