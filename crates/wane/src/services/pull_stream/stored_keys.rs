//! Keys that the store keeps: drawn by whoever asks first, alike on every node, replaced in time.
//!
//! One permanent record holds both live keys, and goes through the steps of `key_ring`: after 90 days
//! the next key is announced there, where every node finds it, and a minute later takes the place of
//! the current one. Each step is one swap, so that nodes which think of it at once make one.
//!
//! Invariant: a key signs nothing before it has been in the record for a minute, in which every node
//! that is alive has read it several times.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::PullStreamError;
use super::key_ring::{self, Due, ring_key};
use super::keys::{KeySource, StaticKeys, TokenKey, TokenKeys};
use crate::clock::{Clock, SharedClock};
use crate::services::drawn::found_or_drawn;
use crate::store::{Outcome, Store};

/// How long a key is in the record before it signs.
const KNOWN_AFTER: Duration = Duration::from_secs(60);

/// Where the record is.
const RECORD: &str = "pull_stream";

type Ring = key_ring::Ring<StoredKey>;

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
        let live = StaticKeys::new(keys_of(&ring_of(&store, &*clock).await?)?);
        Ok(Arc::new(Self { store, clock, live }))
    }

    /// Reads the record again, and takes the step that is due. To be called every
    /// [`REFRESH_EVERY`](super::REFRESH_EVERY).
    pub async fn refresh(&self) -> Result<(), PullStreamError> {
        let key = ring_key(RECORD)?;
        let Some(record) = self.store.get(&key).await? else {
            // Taken out, as by a restore: drawn anew, as for any store that has none.
            self.live.replace(keys_of(&ring_of(&self.store, &*self.clock).await?)?);
            return Ok(());
        };
        let ring = Ring::read(&key, &record.value)?;
        let now = self.clock.now();
        let next = match ring.due(now, KNOWN_AFTER) {
            Due::Nothing => {
                self.live.replace(keys_of(&ring)?);
                return Ok(());
            }
            Due::Announcing => ring.announcing(StoredKey::drawn(&*self.clock), now),
            Due::Changing => ring.changed(now),
        };
        let write = next.write()?;
        match self.store.compare_and_swap(&key, &record.value, write).await? {
            Outcome::Applied { .. } => self.live.replace(keys_of(&next)?),
            Outcome::Refused { current: Some(current) } => {
                self.live.replace(keys_of(&Ring::read(&key, &current.value)?)?);
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

async fn ring_of<S: Store>(store: &S, clock: &dyn Clock) -> Result<Ring, PullStreamError> {
    let key = ring_key(RECORD)?;
    let draw = || Ring::first(StoredKey::drawn(clock), clock.now()).write();
    let found = found_or_drawn(store, &key, draw).await?;
    Ring::read(&key, &found.ok_or(PullStreamError::Contended)?)
}

fn keys_of(ring: &Ring) -> Result<TokenKeys, PullStreamError> {
    let other = ring.other.as_ref().map(StoredKey::key).transpose()?;
    TokenKeys::new(ring.current.key()?, other)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::services::pull_stream::key_ring::SIGNS_FOR;
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
