//! Keys that the store keeps: drawn by whoever asks first, alike on every node, replaced in time.
//!
//! One permanent record holds both live keys. After 90 days the next key is put beside the current
//! one, where every node finds it, and a minute later takes its place; the key before stays good
//! until the next change. Each step is one swap, so that nodes which think of it at once make one.
//!
//! Invariant: a key signs nothing before it has been in the record for a minute, in which every node
//! that is alive has read it several times.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::PullStreamError;
use super::keys::{KeySource, StaticKeys, TokenKey, TokenKeys};
use crate::clock::{Clock, SharedClock};
use crate::services::drawn::found_or_drawn;
use crate::store::{Key, Keyspace, Life, Outcome, Store, StoreError, Timestamp, Value, Write};

/// How long a key signs.
const SIGNS_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How long a key is in the record before it signs.
const KNOWN_AFTER: Duration = Duration::from_secs(60);

/// How often each node should [refresh](StoredKeys::refresh): several times before a key signs.
pub const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// The keys in the record of a store.
#[derive(Debug)]
pub struct StoredKeys<S> {
    store: S,
    clock: SharedClock,
    live: StaticKeys,
}

impl<S: Store> StoredKeys<S> {
    /// The keys of a store, drawn now if it has none.
    pub async fn open(store: S, clock: SharedClock) -> Result<Arc<Self>, PullStreamError> {
        let ring = ring_of(&store, &*clock).await?;
        let live = StaticKeys::new(ring.keys()?);
        Ok(Arc::new(Self { store, clock, live }))
    }

    /// Reads the record again, and takes the step that is due. To be called every
    /// [`REFRESH_EVERY`].
    pub async fn refresh(&self) -> Result<(), PullStreamError> {
        let key = record_key()?;
        let Some(record) = self.store.get(&key).await? else {
            // Taken out, as by a restore: drawn anew, as for any store that has none.
            self.live.replace(ring_of(&self.store, &*self.clock).await?.keys()?);
            return Ok(());
        };
        let ring = Ring::read(&key, &record.value)?;
        let Some(next) = ring.next(&*self.clock) else {
            self.live.replace(ring.keys()?);
            return Ok(());
        };
        let write = next.write()?;
        match self.store.compare_and_swap(&key, &record.value, write).await? {
            Outcome::Applied { .. } => self.live.replace(next.keys()?),
            Outcome::Refused { current: Some(current) } => {
                self.live.replace(Ring::read(&key, &current.value)?.keys()?);
            }
            // Whatever stands there is read the next time.
            Outcome::Refused { current: None } => {}
        }
        Ok(())
    }
}

impl<S: Store> KeySource for StoredKeys<S> {
    fn keys(&self) -> Arc<TokenKeys> {
        self.live.keys()
    }
}

fn record_key() -> Result<Key, StoreError> {
    Key::new(Keyspace::Settings.partition(b"keys")?.as_bytes(), b"pull_stream")
}

async fn ring_of<S: Store>(store: &S, clock: &dyn Clock) -> Result<Ring, PullStreamError> {
    let key = record_key()?;
    let found = found_or_drawn(store, &key, || Ring::drawn(clock).write()).await?;
    Ring::read(&key, &found.ok_or(PullStreamError::Contended)?)
}

/// The record.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ring {
    current: StoredKey,
    /// The one before; or the next one, while it is announced.
    other: Option<StoredKey>,
    /// Since when the current one signs.
    since: u64,
    /// Since when the other one is the next.
    announced_at: Option<u64>,
    #[serde(flatten)]
    more: Map<String, Json>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredKey {
    kid: String,
    /// In Base64.
    secret: String,
}

impl StoredKey {
    fn drawn(clock: &dyn Clock) -> Self {
        let mut secret = [0; 64];
        clock.fill_random(&mut secret);
        let kid = format!("{:016x}", clock.random_u64());
        Self { kid, secret: STANDARD.encode(secret) }
    }

    fn key(&self) -> Result<TokenKey, PullStreamError> {
        let secret = STANDARD.decode(&self.secret).map_err(|_| PullStreamError::Invalid {
            field: "key",
            reason: format!("the stored key {} is not Base64", self.kid),
        })?;
        TokenKey::new(&self.kid, &secret)
    }
}

impl Ring {
    fn drawn(clock: &dyn Clock) -> Self {
        Self {
            current: StoredKey::drawn(clock),
            other: None,
            since: clock.now().as_unix_millis(),
            announced_at: None,
            more: Map::new(),
        }
    }

    fn keys(&self) -> Result<TokenKeys, PullStreamError> {
        let other = self.other.as_ref().map(StoredKey::key).transpose()?;
        TokenKeys::new(self.current.key()?, other)
    }

    /// The record after the step that is due; `None` where none is.
    fn next(&self, clock: &dyn Clock) -> Option<Self> {
        let now = clock.now();
        let age = |since: u64| Timestamp::from_unix_millis(since).until(now);
        let more = self.more.clone();
        match (self.announced_at, &self.other) {
            (Some(announced_at), Some(next)) if age(announced_at) >= KNOWN_AFTER => Some(Self {
                current: next.clone(),
                other: Some(self.current.clone()),
                since: now.as_unix_millis(),
                announced_at: None,
                more,
            }),
            (None, _) if age(self.since) >= SIGNS_FOR => Some(Self {
                current: self.current.clone(),
                other: Some(StoredKey::drawn(clock)),
                since: self.since,
                announced_at: Some(now.as_unix_millis()),
                more,
            }),
            (Some(_) | None, _) => None,
        }
    }

    fn read(key: &Key, value: &[u8]) -> Result<Self, PullStreamError> {
        serde_json::from_slice(value).map_err(|_| {
            let reason = "it does not hold the keys of pull streams".into();
            StoreError::Corrupt { key: key.clone(), reason }.into()
        })
    }

    fn write(&self) -> Result<Write, StoreError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| StoreError::invalid("keys", format!("cannot be written: {error}")))?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::MemoryStore;

    fn kids<S: Store>(keys: &StoredKeys<S>) -> Vec<String> {
        keys.keys().live().map(|key| key.kid().to_owned()).collect()
    }

    #[tokio::test]
    async fn nodes_find_the_same_keys() {
        let clock = ManualClock::seeded(1);
        let store = MemoryStore::new(clock.clone()).unwrap();
        let first = StoredKeys::open(store.clone(), clock.clone()).await.unwrap();
        let second = StoredKeys::open(store, clock).await.unwrap();
        assert_eq!(kids(&first).len(), 1);
        assert_eq!(kids(&first), kids(&second));
        let signed = |keys: &StoredKeys<_>| keys.keys().current().mac(b"token");
        assert_eq!(signed(&first), signed(&second));
    }

    #[tokio::test]
    async fn a_key_is_known_everywhere_before_it_signs_and_the_one_before_stays_good() {
        let clock = ManualClock::seeded(2);
        let store = MemoryStore::new(clock.clone()).unwrap();
        let first = StoredKeys::open(store.clone(), clock.clone()).await.unwrap();
        let second = StoredKeys::open(store, clock.clone()).await.unwrap();
        let old = kids(&first);

        clock.advance(SIGNS_FOR);
        first.refresh().await.unwrap();
        second.refresh().await.unwrap();
        let announced = kids(&second);
        assert_eq!((announced.len(), &announced[0]), (2, &old[0]), "it signs nothing yet");
        clock.advance(KNOWN_AFTER - Duration::from_millis(1));
        first.refresh().await.unwrap();
        assert_eq!(kids(&first), announced);

        clock.advance(Duration::from_millis(1));
        second.refresh().await.unwrap();
        first.refresh().await.unwrap();
        let changed = kids(&first);
        assert_eq!(changed, [announced[1].clone(), announced[0].clone()]);
        assert_eq!(kids(&second), changed);
        clock.advance(KNOWN_AFTER);
        first.refresh().await.unwrap();
        assert_eq!(kids(&first), changed, "until the next change");
    }
}
