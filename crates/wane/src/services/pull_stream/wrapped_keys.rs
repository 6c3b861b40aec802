//! Keys that the store keeps closed, and that a key service opens: at start, and when they change.
//!
//! The record is that of `key_ring`, with secrets that only the service can open. An opened key stays
//! in memory, so that tokens are signed and checked without the service: while it is away everything
//! goes on with the keys at hand, the next key comes later, and [`KeyService`] says so. The service is
//! asked every half minute whether it is there, so that this is known before it is needed.
//!
//! Invariants:
//! - No secret is in the store, and none is drawn here: the service draws it and hands out what only
//!   it can open.
//! - A key signs nothing before it has been in the record for an hour, nor on a node that could not
//!   open it. A node that the service is away from for less than that notices nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::PullStreamError;
use super::key_ring::{self, Due, ring_key};
use super::keys::{KeySource, StaticKeys, TokenKey, TokenKeys};
use crate::clock::SharedClock;
use crate::services::drawn::found_or_drawn;
use crate::store::{Outcome, Store, Timestamp, Value};

/// How long a key is in the record before it signs.
const KNOWN_AFTER: Duration = Duration::from_secs(60 * 60);

/// How often the service is asked whether it is there.
const ASKED_EVERY: Duration = Duration::from_secs(30);

/// Where the record is: not where keys are that anybody can read who reads the store.
const RECORD: &str = "pull_stream wrapped";

/// What a key service answers, later.
pub type WrapFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, WrapError>> + Send + 'a>>;

/// Why a key service did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum WrapError {
    /// It does not answer, or has too much to do. Ask again later.
    #[error("the key service does not answer: {reason}")]
    Away { reason: String },

    /// It answers, and will not do it. An operator must look.
    #[error("the key service refuses: {reason}")]
    Refused { reason: String },
}

/// A secret that only the service can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedSecret {
    /// The key of the service that it is closed with, as the service calls it.
    pub by: String,
    /// What it looks like closed.
    pub bytes: Vec<u8>,
}

/// A service that draws secrets and keeps them closed.
///
/// - **For one key.** What was drawn for the key of an id is opened for that id alone.
/// - **In time.** Every call ends by itself, within seconds.
pub trait KeyWrap: fmt::Debug + Send + Sync + 'static {
    /// Draws a secret of 64 bytes for the key of this id, and shows it to nobody.
    fn draw<'a>(&'a self, kid: &'a str) -> WrapFuture<'a, WrappedSecret>;

    /// Opens the secret of the key of this id.
    fn open<'a>(&'a self, kid: &'a str, secret: &'a WrappedSecret) -> WrapFuture<'a, Vec<u8>>;
}

/// How the service does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyService {
    /// It did what it was asked the last time.
    Answers,
    /// It did not, since then. The keys at hand are in use.
    Fails {
        /// Since when.
        since: Timestamp,
        /// What it said, or that it says nothing.
        reason: String,
    },
}

/// Why keys could not be had, or looked at.
#[derive(Debug, thiserror::Error)]
pub enum WrappedKeysError {
    /// The key service did not help.
    #[error(transparent)]
    Service(#[from] WrapError),

    /// The store failed, or what it holds is of no use.
    #[error(transparent)]
    Stream(#[from] PullStreamError),
}

impl From<crate::store::StoreError> for WrappedKeysError {
    fn from(error: crate::store::StoreError) -> Self {
        Self::Stream(error.into())
    }
}

type Ring = key_ring::Ring<WrappedKey>;

#[derive(Clone, Serialize, Deserialize)]
struct WrappedKey {
    kid: String,
    by: String,
    /// In Base64.
    wrapped: String,
}

impl WrappedKey {
    fn new(kid: String, secret: &WrappedSecret) -> Self {
        Self { kid, by: secret.by.clone(), wrapped: STANDARD.encode(&secret.bytes) }
    }

    fn secret(&self) -> Result<WrappedSecret, PullStreamError> {
        let bytes = STANDARD.decode(&self.wrapped).map_err(|_| PullStreamError::Invalid {
            field: "key",
            reason: format!("the stored key {} is not Base64", self.kid),
        })?;
        Ok(WrappedSecret { by: self.by.clone(), bytes })
    }
}

/// The keys in the record of a store, opened.
#[derive(Debug)]
pub struct WrappedKeys<S> {
    store: S,
    clock: SharedClock,
    wrap: Arc<dyn KeyWrap>,
    live: StaticKeys,
    /// Those of the record that were opened: two at most.
    opened: Mutex<Vec<TokenKey>>,
    /// When the service answered last, of the monotonic clock.
    heard: Mutex<Duration>,
    service: watch::Sender<KeyService>,
}

impl<S: Store> WrappedKeys<S> {
    /// The keys of a store, drawn now if it has none. Fails where the key that signs cannot be
    /// opened, or where the service does not answer.
    pub async fn open(
        store: S,
        clock: SharedClock,
        wrap: Arc<dyn KeyWrap>,
    ) -> Result<Arc<Self>, WrappedKeysError> {
        let (_, ring) = ring_of(&store, &clock, &*wrap).await?;
        let current = opened(&*wrap, &ring.current).await?;
        let other = match &ring.other {
            None => Ok(None),
            Some(other) => opened(&*wrap, other).await.map(Some),
        };
        let (other, service) = match other {
            Ok(other) => (other, KeyService::Answers),
            // Taken away from us on purpose, perhaps: its tokens are nobody's then.
            Err(WrappedKeysError::Service(refused @ WrapError::Refused { .. })) => {
                (None, KeyService::Fails { since: clock.now(), reason: refused.to_string() })
            }
            Err(error) => return Err(error),
        };
        let live = StaticKeys::new(TokenKeys::new(current.clone(), other.clone())?);
        let opened = Mutex::new(std::iter::once(current).chain(other).collect());
        let heard = Mutex::new(clock.monotonic());
        let service = watch::Sender::new(service);
        Ok(Arc::new(Self { store, clock, wrap, live, opened, heard, service }))
    }

    /// How the service does, from now on.
    pub fn service(&self) -> watch::Receiver<KeyService> {
        self.service.subscribe()
    }

    /// Reads the record again, opens what is new in it, and takes the step that is due. To be called
    /// every [`REFRESH_EVERY`](super::REFRESH_EVERY). Whatever fails, the keys at hand stay.
    pub async fn refresh(&self) -> Result<(), WrappedKeysError> {
        let looked = self.look().await;
        match &looked {
            Ok(()) => self.note(KeyService::Answers),
            Err(WrappedKeysError::Service(error)) => {
                let (since, reason) = (self.clock.now(), error.to_string());
                self.note(KeyService::Fails { since, reason });
            }
            // Nothing is known of the service.
            Err(WrappedKeysError::Stream(_)) => {}
        }
        looked
    }

    fn note(&self, found: KeyService) {
        self.service.send_if_modified(|known| match (&*known, found) {
            (KeyService::Answers, KeyService::Answers) => false,
            (KeyService::Fails { since, reason: before }, KeyService::Fails { reason, .. }) => {
                let is_other = *before != reason;
                *known = KeyService::Fails { since: *since, reason };
                is_other
            }
            (_, found) => {
                *known = found;
                true
            }
        });
    }

    async fn look(&self) -> Result<(), WrappedKeysError> {
        let (value, ring) = ring_of(&self.store, &self.clock, &*self.wrap).await?;
        let taken = self.take_in(&ring).await;
        let now = self.clock.now();
        let next = match ring.due(now, KNOWN_AFTER) {
            Due::Nothing => {
                taken?;
                return self.ask_if_due(&ring).await;
            }
            // A key before that cannot be opened any more is left behind by this.
            Due::Announcing => ring.announcing(drawn(&self.clock, &*self.wrap).await?, now),
            Due::Changing => {
                taken?;
                ring.changed(now)
            }
        };
        let key = ring_key(RECORD)?;
        match self.store.compare_and_swap(&key, &value, next.write()?).await? {
            Outcome::Applied { .. } => self.take_in(&next).await,
            Outcome::Refused { current: Some(current) } => {
                self.take_in(&Ring::read(&key, &current.value)?).await
            }
            // Whatever stands there is read the next time.
            Outcome::Refused { current: None } => Ok(()),
        }
    }

    /// Uses the keys of a record, as far as they are open or can be opened.
    async fn take_in(&self, ring: &Ring) -> Result<(), WrappedKeysError> {
        let mut keys = Vec::new();
        let mut failed = Ok(());
        for stored in std::iter::once(&ring.current).chain(&ring.other) {
            let known = self.opened.lock().iter().find(|key| key.kid() == stored.kid).cloned();
            let key = match known {
                Some(key) => Ok(key),
                None => opened(&*self.wrap, stored).await.inspect(|_| self.hear()),
            };
            match key {
                Ok(key) => keys.push(key),
                Err(error) => failed = Err(error),
            }
        }
        if let Some((current, rest)) = keys.split_first() {
            self.live.replace(TokenKeys::new(current.clone(), rest.first().cloned())?);
            *self.opened.lock() = keys;
        }
        failed
    }

    fn hear(&self) {
        *self.heard.lock() = self.clock.monotonic();
    }

    /// Asks the service for what is known already, where it was not asked for a while.
    async fn ask_if_due(&self, ring: &Ring) -> Result<(), WrappedKeysError> {
        let is_due = self.clock.monotonic() >= *self.heard.lock() + ASKED_EVERY;
        let fails = matches!(*self.service.borrow(), KeyService::Fails { .. });
        if is_due || fails {
            opened(&*self.wrap, &ring.current).await?;
            self.hear();
        }
        Ok(())
    }
}

impl<S: Store> KeySource for WrappedKeys<S> {
    fn keys(&self) -> Arc<TokenKeys> {
        self.live.keys()
    }
}

/// The record of a store, with what stands there; drawn now if there is none.
async fn ring_of<S: Store>(
    store: &S,
    clock: &SharedClock,
    wrap: &dyn KeyWrap,
) -> Result<(Value, Ring), WrappedKeysError> {
    let key = ring_key(RECORD)?;
    if let Some(record) = store.get(&key).await? {
        let ring = Ring::read(&key, &record.value)?;
        return Ok((record.value, ring));
    }
    let first = Ring::first(drawn(clock, wrap).await?, clock.now());
    let found = found_or_drawn(store, &key, || first.write()).await?;
    let found = found.ok_or(PullStreamError::Contended)?;
    let ring = Ring::read(&key, &found)?;
    Ok((found, ring))
}

async fn drawn(clock: &SharedClock, wrap: &dyn KeyWrap) -> Result<WrappedKey, WrapError> {
    let kid = format!("{:016x}", clock.random_u64());
    let secret = wrap.draw(&kid).await?;
    Ok(WrappedKey::new(kid, &secret))
}

async fn opened(wrap: &dyn KeyWrap, key: &WrappedKey) -> Result<TokenKey, WrappedKeysError> {
    let secret = wrap.open(&key.kid, &key.secret()?).await?;
    Ok(TokenKey::new(&key.kid, &secret)?)
}
