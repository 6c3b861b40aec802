//! A store that does with each write what a script says, for outcomes that must fall just so.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use wane::clock::SharedClock;
use wane::services::sequences::{AppSequences, Sequences};
use wane::store::{
    ClusteringRange, Fence, Key, Outcome, Page, PageLimit, Partition, Record, Remaining, ScanPage,
    Store, StoreError, Write,
};

use super::APP;
use crate::InnerStore;

/// What happens to one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Another node takes five numbers with this fence before it arrives, or anything late does.
    Overtaken(Fence),
    /// It is applied, nobody says so, and another node takes five numbers before anybody looks.
    UnansweredThenOvertaken,
    /// It never arrives, and nobody says so.
    Lost,
    /// The same, and the look for it fails.
    LostUnseen,
    /// Nobody says what became of it, and it arrives just before the next write.
    Late,
    /// It never arrives, and that is said.
    Unavailable,
}

/// The store of one node, below which another node works on the sequence `s`.
#[derive(Debug, Clone)]
pub(super) struct ScriptedStore(Arc<Parts>);

/// A write on its way: the key, what it expects to stand there, and what it writes.
type Late = (Key, Option<Vec<u8>>, Write);

#[derive(Debug)]
struct Parts {
    inner: InnerStore,
    rival: AppSequences<InnerStore>,
    script: Mutex<VecDeque<Act>>,
    late: Mutex<Option<Late>>,
    blind: Mutex<bool>,
    writes: Mutex<u64>,
}

impl ScriptedStore {
    pub(super) fn new(inner: InnerStore, clock: SharedClock) -> Self {
        let rival = Sequences::new(inner.clone(), clock).of(APP);
        let (script, late) = (Mutex::default(), Mutex::default());
        let (blind, writes) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Parts { inner, rival, script, late, blind, writes }))
    }

    /// What happens to the next writes; those after them pass.
    pub(super) fn play(&self, acts: impl IntoIterator<Item = Act>) {
        *self.0.script.lock() = acts.into_iter().collect();
    }

    /// How many writes there were.
    pub(super) fn writes(&self) -> u64 {
        *self.0.writes.lock()
    }

    /// An insert where nothing is expected, or a swap.
    async fn write(
        &self,
        key: &Key,
        expected: Option<&[u8]>,
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let parts = &*self.0;
        *parts.writes.lock() += 1;
        let act = parts.script.lock().pop_front();
        if let Some(Act::Overtaken(fence)) = act {
            parts.take_five(fence).await;
        }
        let late = parts.late.lock().take();
        if let Some((key, expected, write)) = late {
            drop(parts.apply(&key, expected.as_deref(), write).await?);
        }
        match act {
            None | Some(Act::Overtaken(_)) => parts.apply(key, expected, write).await,
            Some(Act::UnansweredThenOvertaken) => {
                drop(parts.apply(key, expected, write).await?);
                parts.take_five(Fence::NONE).await;
                Err(unknown())
            }
            Some(Act::Lost) => Err(unknown()),
            Some(Act::LostUnseen) => {
                *parts.blind.lock() = true;
                Err(unknown())
            }
            Some(Act::Late) => {
                let expected = expected.map(<[u8]>::to_vec);
                *parts.late.lock() = Some((key.clone(), expected, write));
                Err(unknown())
            }
            Some(Act::Unavailable) => Err(unavailable()),
        }
    }
}

impl Parts {
    async fn apply(
        &self,
        key: &Key,
        expected: Option<&[u8]>,
        write: Write,
    ) -> Result<Outcome, StoreError> {
        match expected {
            Some(expected) => self.inner.compare_and_swap(key, expected, write).await,
            None => self.inner.insert_if_not_exists(key, write).await,
        }
    }

    async fn take_five(&self, fence: Fence) {
        self.rival.next_fenced("s", 5, None, fence).await.expect("nothing fails below");
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { backend: "scripted", source: "no answer came".into() }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { backend: "scripted", source: "nobody is there".into() }
}

impl Store for ScriptedStore {
    type ScanCursor = <InnerStore as Store>::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        if std::mem::take(&mut *self.0.blind.lock()) {
            return Err(unavailable());
        }
        self.0.inner.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.0.inner.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.0.inner.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.0.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.0.inner.put(key, write).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.0.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.write(key, None, write).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.write(key, Some(expected), write).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        self.0.inner.compare_and_delete(key, expected, fence).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.0.inner.query_ttl(key).await
    }
}
