//! Watches over the entries of an application: what changed, and what expired, on time.

use bytes::Bytes;

use super::disguise::Disguise;
use super::{AppTtlError, AppTtlStorage};
use crate::store::{EventKind, Notice, Store, Timestamp, Value, Watch, WatchedStore};

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppTtlEventKind {
    /// It was written where none was.
    Inserted,
    /// It was replaced, or given another life.
    Swapped,
    /// It was deleted.
    Deleted,
    /// It reached its expiry.
    Expired,
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppTtlEvent {
    /// Where a watch resumes after this event. It tells no order.
    pub id: u64,
    /// What happened.
    pub kind: AppTtlEventKind,
    /// The key.
    pub key: Bytes,
    /// The value written or, by a delete or an expiry, the one that went.
    pub value: Value,
    /// The expiry of that value.
    pub expires_at: Option<Timestamp>,
}

/// What a watch hears next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppTtlNotice {
    /// The next change.
    Event(AppTtlEvent),
    /// Changes may have been missed: read the entries anew. The watch goes on after it.
    Gap {
        /// Where a watch resumes after the gap.
        id: u64,
    },
}

/// A watch over the keys with one prefix. Dropping it ends it.
#[derive(Debug)]
pub struct AppTtlWatch {
    watch: Watch,
    disguise: Disguise,
}

impl AppTtlWatch {
    /// Waits for the next notice; `None` once the store was closed.
    pub async fn next(&mut self) -> Option<AppTtlNotice> {
        Some(match self.watch.next().await? {
            Notice::Gap { newest } => AppTtlNotice::Gap { id: self.disguise.put_on(newest) },
            Notice::Event(event) => AppTtlNotice::Event(AppTtlEvent {
                id: self.disguise.put_on(event.id),
                kind: kind(event.kind),
                key: Bytes::copy_from_slice(event.key.clustering()),
                value: event.value,
                expires_at: event.expires_at,
            }),
        })
    }
}

fn kind(kind: EventKind) -> AppTtlEventKind {
    match kind {
        EventKind::Inserted => AppTtlEventKind::Inserted,
        // Nothing here puts; a put is a write that nobody confirmed and that was found later.
        EventKind::Swapped | EventKind::Put => AppTtlEventKind::Swapped,
        EventKind::Deleted => AppTtlEventKind::Deleted,
        EventKind::Expired => AppTtlEventKind::Expired,
    }
}

impl<S: Store> AppTtlStorage<WatchedStore<S>> {
    /// Watches the keys that begin with `prefix`, from now on or on from the event `from`.
    ///
    /// Where the events after `from` are no longer known, the first notice is a gap.
    pub async fn watch(
        &self,
        prefix: impl AsRef<[u8]>,
        from: Option<u64>,
    ) -> Result<AppTtlWatch, AppTtlError> {
        let (partition, range) = (self.partition()?, self.range(prefix.as_ref())?);
        let store = &self.shared.store;
        let disguise = Disguise::new(self.shared.secret, self.app);
        let watch = match from {
            None => store.watch(&partition, range).await?,
            Some(id) => store.watch_from(&partition, range, disguise.take_off(id)).await?,
        };
        Ok(AppTtlWatch { watch, disguise })
    }
}
