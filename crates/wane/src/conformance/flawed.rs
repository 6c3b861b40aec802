//! The model with one mistake: the control of the suite, and of any other check of a store.
//!
//! Each operation runs on a sound [`ModelStore`], and the flaw changes what goes in, what comes
//! out, or what happens instead. A check that passes on every [`FlawedModel`] checks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::yield_now;

use super::flawed_writes::Call;
use super::{Flaw, ModelCursor, ModelStore};
use crate::clock::SharedClock;
use crate::store::{
    ClusteringRange, Fence, Key, Life, MAX_CLUSTERING, MAX_PARTITION, Outcome, Page, PageLimit,
    Partition, Record, Remaining, Row, ScanPage, Store, StoreError, Timestamp, Ttl, Value, Write,
};

/// A [`ModelStore`] that makes one mistake. A clone is a second handle on the same store.
#[derive(Debug)]
pub struct FlawedModel {
    pub(super) model: ModelStore,
    clock: SharedClock,
    pub(super) flaw: Flaw,
    started: Timestamp,
    pub(super) traces: Arc<Mutex<Traces>>,
    /// What this handle remembers of its reads.
    pub(super) cached: Mutex<BTreeMap<Key, Option<Record>>>,
}

/// What flaws leave behind beside the records.
#[derive(Debug, Default)]
pub(super) struct Traces {
    /// Index entries that outlived their records.
    pub(super) index: Vec<(Timestamp, Key)>,
    /// The latest expiry that a row ever had since it was deleted.
    pub(super) markers: BTreeMap<Key, Timestamp>,
    /// The last record of deleted rows.
    pub(super) deleted: BTreeMap<Key, Record>,
    /// Rows that the rest of a range begins with.
    pub(super) rests: BTreeSet<Key>,
    /// Whether a read has begun and not ended.
    reading: bool,
    /// Rows written by batches.
    pub(super) batched: BTreeSet<Key>,
}

impl Clone for FlawedModel {
    fn clone(&self) -> Self {
        Self {
            model: self.model.clone(),
            clock: Arc::clone(&self.clock),
            flaw: self.flaw,
            started: self.started,
            traces: Arc::clone(&self.traces),
            cached: Mutex::default(),
        }
    }
}

impl FlawedModel {
    pub(super) fn new(clock: SharedClock, flaw: Flaw) -> Self {
        Self {
            model: ModelStore::new(Arc::clone(&clock)),
            started: Timestamp::from_unix_millis(
                clock.now().as_unix_millis() - clock.monotonic().as_millis() as u64,
            ),
            clock,
            flaw,
            traces: Arc::default(),
            cached: Mutex::default(),
        }
    }

    /// Like [`ModelStore::footprint`].
    pub fn footprint(&self) -> u64 {
        let (mut records, now) = self.model.lock();
        let sweeps = records.values().any(|record| !record.is_live(now));
        if self.has(Flaw::SweepsLiveRecords) && sweeps {
            records.retain(|_, record| record.expires_at.is_none());
        }
        if !self.has(Flaw::NeverSweeps) {
            records.retain(|_, record| record.is_live(now));
        }
        records.iter().map(|(key, record)| (key.size() + record.value.len()) as u64).sum()
    }

    /// Closes the store and opens it again.
    pub fn restart(&self) {
        let mut traces = self.traces.lock();
        let (mut records, now) = self.model.lock();
        if self.has(Flaw::RestartForgetsRecords) {
            records.clear();
        }
        if self.has(Flaw::RestartForgetsBatches) {
            records.retain(|key, _| !traces.batched.contains(key));
        }
        if self.has(Flaw::RestartRevivesDeleted) {
            records.append(&mut traces.deleted);
        }
        for record in records.values_mut() {
            if self.has(Flaw::RestartForgetsExpiries) {
                record.expires_at = None;
            }
            if self.has(Flaw::RestartRenewsLives) {
                record.expires_at = record.expires_at.map(|_| now.after(Ttl::MAX));
            }
            if self.has(Flaw::RestartForgetsFences) {
                record.fence = Fence::NONE;
            }
        }
    }

    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The record at the key, whether it has expired or not.
    pub(super) fn raw(&self, key: &Key) -> Option<Record> {
        self.model.lock().0.get(key).cloned()
    }

    pub(super) fn remove(&self, key: &Key) {
        self.model.lock().0.remove(key);
    }

    pub(super) fn amend(&self, key: &Key, change: impl FnOnce(&mut Record)) {
        self.model.lock().0.get_mut(key).map(change);
    }

    /// The time by a clock that follows the machine's where that was set back.
    fn stepping_time(&self) -> Timestamp {
        let now = self.clock.now().as_unix_millis();
        let elapsed = self.clock.monotonic().as_millis() as u64;
        let lost = (self.started.as_unix_millis() + elapsed).saturating_sub(now);
        Timestamp::from_unix_millis(now - lost * 200)
    }

    /// Removes what old index entries say, though the records have changed since.
    pub(super) fn sweep_by_stale_index(&self) {
        let mut traces = self.traces.lock();
        let (mut records, now) = self.model.lock();
        for (_, key) in traces.index.extract_if(.., |(expiry, _)| *expiry <= now) {
            records.remove(&key);
        }
    }

    /// The key under which the record is stored.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a flaw changes few things")]
    pub(super) fn stored(&self, key: &Key) -> Result<Key, StoreError> {
        let (partition, clustering) = (key.partition(), key.clustering());
        let long = clustering.len() >= MAX_CLUSTERING - 1;
        match self.flaw {
            Flaw::EmptyIsZeroByte | Flaw::EmptyHandledInGetOnly if clustering.is_empty() => {
                Key::new(partition, &[0])
            }
            Flaw::LongKeysCut if long => Key::new(partition, &clustering[..1_000]),
            Flaw::LongPartitionsRefused if partition.len() == MAX_PARTITION => {
                Err(StoreError::invalid("partition", "the prefix does not fit"))
            }
            Flaw::LongKeysRefused if long => {
                Err(StoreError::invalid("clustering", "the prefix does not fit"))
            }
            Flaw::SplitNotStored if partition.len() + clustering.len() <= MAX_CLUSTERING => {
                Key::new(&partition[..1], &[&partition[1..], clustering].concat())
            }
            Flaw::TrailingZerosCut => {
                let kept = clustering.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                Key::new(partition, &clustering[..kept])
            }
            _ => Ok(key.clone()),
        }
    }

    /// The record that a read by key finds.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a flaw changes few things")]
    fn found(&self, key: &Key, expired_too: bool) -> Option<Record> {
        let now = self.model.lock().1;
        let sees = |record: &Record| match self.flaw {
            Flaw::AliveAtTheInstant => record.expires_at.is_none_or(|expiry| now <= expiry),
            Flaw::ClockStepsBack => record.is_live(self.stepping_time()),
            Flaw::EmptyValueIsAbsent => record.is_live(now) && !record.value.is_empty(),
            _ => expired_too || record.is_live(now),
        };
        self.raw(key).filter(sees)
    }
}

impl Store for FlawedModel {
    type ScanCursor = ModelCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.sweep_by_stale_index();
        let key = self.stored(key)?;
        let caches = self.has(Flaw::AbsenceCached) || self.has(Flaw::ValueCached);
        if let Some(known) = self.cached.lock().get(&key).filter(|_| caches) {
            return Ok(known.clone());
        }
        let found = self.found(&key, self.has(Flaw::ExpiredInGet));
        if found.is_none() == self.has(Flaw::AbsenceCached) {
            self.cached.lock().insert(key, found.clone());
        }
        Ok(found)
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.sweep_by_stale_index();
        let mut asked = keys.to_vec();
        if self.has(Flaw::BatchAnswersOnce) {
            asked.sort();
            asked.dedup();
        }
        if self.has(Flaw::BatchAnswersSorted) {
            asked.sort();
        }
        let mut answers = Vec::new();
        for (at, key) in asked.iter().enumerate() {
            let key =
                if self.has(Flaw::EmptyHandledInGetOnly) { key } else { &self.stored(key)? };
            let unread = self.has(Flaw::BatchReadsFirst100) && at >= 100;
            let found = self.found(key, self.has(Flaw::ExpiredInBatch));
            answers.push(found.filter(|_| !unread));
        }
        if self.has(Flaw::BatchLosesFences) {
            answers.iter_mut().flatten().for_each(|record| record.fence = Fence::NONE);
        }
        if self.has(Flaw::BatchSkipsAbsent) {
            answers.retain(Option::is_some);
        }
        Ok(answers)
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.sweep_by_stale_index();
        if self.has(Flaw::AbandonedReadBlocks) {
            if std::mem::replace(&mut self.traces.lock().reading, true) {
                return Ok(Page { rows: Vec::new(), rest: None });
            }
            yield_now().await;
            self.traces.lock().reading = false;
        }
        if self.has(Flaw::SplitNotStored) {
            return Ok(self.read_unsplit(partition, range, limit));
        }
        let range = &self.misread(range);
        if let Ok(first) = Key::new(partition.as_bytes(), range.start())
            && self.traces.lock().rests.contains(&first)
            && self.raw(&first).is_none()
        {
            return Ok(Page { rows: Vec::new(), rest: None });
        }
        let more = PageLimit::new(limit.rows() + 1).unwrap_or(limit);
        let limit = if self.has(Flaw::PageBeyondLimit) { more } else { limit };
        let mut page = self.model.read(partition, range, limit).await?;
        while let Some(rest) = page.rest.as_ref().filter(|_| self.has(Flaw::PageBeyondBytes)) {
            let Ok(left) = PageLimit::new(limit.rows() - page.rows.len()) else { break };
            let next = self.model.read(partition, rest, left).await?;
            page.rows.extend(next.rows);
            page.rest = next.rest;
        }
        self.spoil(partition, range, &mut page);
        Ok(page)
    }

    async fn scan(
        &self,
        after: Option<ModelCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<ModelCursor>, StoreError> {
        let begins = after.is_none();
        let after = after.map(|ModelCursor(rows)| {
            let refreshed = rows.as_slice().iter().filter_map(|row| {
                let record = self.raw(&row.key)?;
                Some(Row { key: row.key.clone(), record })
            });
            let moved = refreshed.collect::<Vec<_>>().into_iter();
            ModelCursor(if self.has(Flaw::ScanMovesOn) { moved } else { rows })
        });
        let mut page = self.model.scan(after, limit).await?;
        while self.has(Flaw::ScanBeyondBytes) && page.rows.len() < limit.rows() {
            let Some(next) = page.next.take() else { break };
            let next = self.model.scan(Some(next), limit).await?;
            page.rows.extend(next.rows);
            page.next = next.next;
        }
        if self.has(Flaw::ScanFirstPageOnly) {
            page.next = None;
        }
        let repeats = self.has(Flaw::ScanRepeats) && limit.rows() > 1;
        if let Some(ModelCursor(rest)) = page.next.as_mut().filter(|_| repeats) {
            let last = page.rows.last().cloned();
            *rest = last.into_iter().chain(rest.by_ref()).collect::<Vec<_>>().into_iter();
        }
        if self.has(Flaw::ScanLosesFences) {
            page.rows.iter_mut().for_each(|row| row.record.fence = Fence::NONE);
        }
        if self.has(Flaw::ExpiredInScan) && begins {
            let (records, now) = self.model.lock();
            let expired = records.iter().filter(|(_, record)| !record.is_live(now));
            let row =
                |(key, record): (&Key, &Record)| Row { key: key.clone(), record: record.clone() };
            page.rows.extend(expired.map(row).take(limit.rows() - page.rows.len()));
        }
        Ok(page)
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(Call::Put, key, write).await
    }

    async fn put_batch(&self, mut writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        for (_, write) in writes.iter().filter(|_| !self.has(Flaw::BatchAppliedInPart)) {
            self.check_life(Call::Put, write)?;
        }
        let asked = writes.len();
        let shared = writes.first().map(|(_, write)| write.life);
        if let Some(life) = shared.filter(|_| self.has(Flaw::BatchSharesLife)) {
            writes.iter_mut().for_each(|(_, write)| write.life = life);
        }
        if self.has(Flaw::BatchFirstWins) {
            writes.reverse();
        }
        if self.has(Flaw::BatchWritesFirst25) {
            writes.truncate(25);
        }
        let mut outcomes = Vec::new();
        for (key, write) in writes {
            outcomes.push(self.change(Call::Put, &key, write).await?);
            self.traces.lock().batched.insert(key);
        }
        outcomes.resize(asked, Outcome::Applied { expires_at: None });
        Ok(outcomes)
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.change(Call::Insert, key, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.change(Call::Swap(expected), key, write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let nothing = Write::new(Value::default(), Life::Permanent).fenced(fence);
        self.change(Call::Delete(expected), key, nothing).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.sweep_by_stale_index();
        let key = &self.stored(key)?;
        Ok(match (self.flaw, self.model.query_ttl(key).await?) {
            (Flaw::RemainingInSeconds, Remaining::For(left)) => match left.as_secs() {
                0 => Remaining::Absent,
                secs => Remaining::For(Duration::from_secs(secs)),
            },
            (Flaw::RemainingRoundedUp, Remaining::For(left)) => {
                Remaining::For(Duration::from_secs(left.as_secs() + 1))
            }
            (Flaw::ExpiredHasZeroLeft, Remaining::Absent) if self.raw(key).is_some() => {
                Remaining::For(Duration::ZERO)
            }
            (_, remaining) => remaining,
        })
    }
}
