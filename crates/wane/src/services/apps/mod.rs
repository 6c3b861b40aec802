//! Applications: their names and numbers, their limits, and the credentials that open them.
//!
//! All of it lives in the store, in keyspace 10:
//!
//! | partition | clustering | value |
//! |---|---|---|
//! | `numbers` | empty | the last number given out |
//! | `apps` | number | the application: name, limits, credentials |
//! | `names` | `owner/app` | the number |
//!
//! An application is one record, so that each change of it is one swap: no race makes a third live
//! key. Its name is listed last; a number without a name was given to a creation that did not
//! finish, and is not used again. Number 0 is the system, which holds the credentials of no
//! application.
//!
//! Reads are kept for half a second, so that a revocation is felt within one, also where another
//! process made it. Changes made here are felt at once.

mod credential;
mod limits;
mod record;

pub use credential::{Credential, NewKey, Scope};
pub use limits::{Limits, LimitsChange};
pub use record::{App, AppKey, AppName};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::credential::{Presented, matches};
use super::ClusterAppId;
use crate::clock::SharedClock;
use crate::store::{
    ClusteringRange, Key, Keyspace, Life, Outcome, PageLimit, Partition, Record, Store, StoreError,
    Value, Write,
};

/// How long a read application may be answered from memory.
const FRESH: Duration = Duration::from_millis(500);

/// Applications kept in memory; beyond, all are read anew.
const REMEMBERED: usize = 10_000;

/// Live keys that an application may have, those of nodes left out.
const LIVE_KEYS: usize = 2;

/// Keys that one record may hold in all.
const MOST_KEYS: usize = 1_000;

/// How often a change tries again when somebody else was faster.
const ATTEMPTS: usize = 32;

/// Why a change of applications failed. Nothing was changed, unless the store does not know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum AppsError {
    /// A field breaks a rule.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// The name is taken.
    #[error("the app {name} exists already")]
    Exists { name: AppName },

    /// There is no such application.
    #[error("there is no app {name}")]
    NoApp { name: AppName },

    /// There is no such key.
    #[error("there is no key {id}")]
    NoKey { id: String },

    /// The application has as many live keys as it may.
    #[error("the app has {LIVE_KEYS} live keys already; revoke one first: {}", live.join(", "))]
    TooManyKeys { live: Vec<String> },

    /// There are as many keys, those of nodes or those of no application, as there may be.
    #[error("there are {MOST_KEYS} keys already; revoke some first")]
    NoMoreKeys,

    /// Others kept changing the application. Try again.
    #[error("the app kept changing under the write; try again")]
    Contended,

    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An application that was just made, with its first key.
#[derive(Debug)]
pub struct NewApp {
    /// The application.
    pub app: Arc<App>,
    /// Its key, told this once.
    pub key: NewKey,
}

/// All applications. A clone is a second handle.
#[derive(Debug)]
pub struct Apps<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    store: S,
    clock: SharedClock,
    remembered: Mutex<Memory>,
    numbers: Mutex<HashMap<AppName, ClusterAppId>>,
}

/// Applications as they were read, and how often one was changed here.
#[derive(Debug, Default)]
struct Memory {
    apps: HashMap<ClusterAppId, Remembered>,
    changes: u64,
}

#[derive(Debug, Clone)]
struct Remembered {
    app: Option<Arc<App>>,
    read_at: Duration,
}

impl<S> Clone for Apps<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> Apps<S> {
    /// The applications of a store.
    pub fn new(store: S, clock: SharedClock) -> Self {
        let (remembered, numbers) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { store, clock, remembered, numbers }) }
    }

    /// Makes an application with a key of every scope that applications have.
    pub async fn create(&self, name: &AppName) -> Result<NewApp, AppsError> {
        if self.find(name).await?.is_some() {
            return Err(AppsError::Exists { name: name.clone() });
        }
        let id = self.next_number().await?;
        let (key, stored) = NewKey::make(&*self.shared.clock, id, &Scope::OF_APPS, None);
        let app = App::new(id, name.clone(), self.shared.clock.now(), vec![stored]);
        let write = Write::new(app.encode()?, Life::Permanent);
        let outcome = self.shared.store.insert_if_not_exists(&app_key(id)?, write).await?;
        if !outcome.is_applied() {
            return Err(AppsError::Contended);
        }
        let number = Value::copy_from_slice(&id.0.to_be_bytes())?;
        let listed = Write::new(number, Life::Permanent);
        let outcome = self.shared.store.insert_if_not_exists(&name_key(name)?, listed).await?;
        if !outcome.is_applied() {
            return Err(AppsError::Exists { name: name.clone() });
        }
        self.forget(id);
        Ok(NewApp { app: Arc::new(app), key })
    }

    /// Returns the application of this name.
    pub async fn find(&self, name: &AppName) -> Result<Option<Arc<App>>, AppsError> {
        let known = self.shared.numbers.lock().get(name).copied();
        let id = match known {
            Some(id) => id,
            None => match self.shared.store.get(&name_key(name)?).await? {
                None => return Ok(None),
                Some(record) => self.learn_number(name, &record)?,
            },
        };
        self.get(id).await
    }

    /// Returns the application of this number, of those that have a name.
    pub async fn numbered(&self, id: ClusterAppId) -> Result<Option<Arc<App>>, AppsError> {
        if id == ClusterAppId::NONE { Ok(None) } else { self.get(id).await }
    }

    /// Returns a page of applications in the order of their names, after the name `after`.
    pub async fn list(
        &self,
        after: Option<&AppName>,
        limit: PageLimit,
    ) -> Result<(Vec<Arc<App>>, Option<AppName>), AppsError> {
        let start = after.map_or(Vec::new(), |name| [name.to_string().as_bytes(), &[0]].concat());
        let range = ClusteringRange::ALL.starting_at(start);
        let page = self.shared.store.read(&partition("names")?, &range, limit).await?;
        let mut apps = Vec::new();
        for row in &page.rows {
            let id = number_of(&row.key, &row.record)?;
            apps.extend(self.get(id).await?);
        }
        let next = apps.last().map(|app| app.name.clone()).filter(|_| page.rest.is_some());
        Ok((apps, next))
    }

    /// Changes the limits that `change` names and returns all of them.
    pub async fn set_limits(
        &self,
        name: &AppName,
        change: &LimitsChange,
    ) -> Result<Limits, AppsError> {
        change.check()?;
        let id = self.number(name).await?;
        let app = self.update(id, |app| {
            change.apply(&mut app.limits);
            Ok(())
        });
        Ok(app.await?.limits.clone())
    }

    /// Adds a key. A third live one is refused.
    pub async fn add_key(&self, name: &AppName, scopes: &[Scope]) -> Result<NewKey, AppsError> {
        if let Some(scope) = scopes.iter().find(|scope| !Scope::OF_APPS.contains(scope)) {
            let reason = format!("{scope} is not a scope of apps; give read, write or device");
            return Err(AppsError::Invalid { field: "scopes", reason });
        }
        let id = self.number(name).await?;
        let (key, stored) = NewKey::make(&*self.shared.clock, id, scopes, None);
        self.update(id, |app| {
            let live: Vec<_> = app.keys.iter().filter(|key| !key.node).collect();
            if live.len() >= LIVE_KEYS {
                let live = live.into_iter().map(|key| key.id.clone()).collect();
                return Err(AppsError::TooManyKeys { live });
            }
            app.keys.push(stored.clone());
            Ok(())
        })
        .await?;
        Ok(key)
    }

    /// Adds the key of a node to an application, beside the two that it may have.
    pub async fn add_node_key(&self, name: &AppName) -> Result<NewKey, AppsError> {
        let id = self.number(name).await?;
        let (key, stored) = NewKey::make(&*self.shared.clock, id, &Scope::OF_APPS, None);
        self.push_key(id, AppKey { node: true, ..stored }).await?;
        Ok(key)
    }

    /// Takes a key back. It opens nothing any more.
    pub async fn revoke_key(&self, name: &AppName, key: &str) -> Result<(), AppsError> {
        self.remove_key(self.number(name).await?, key).await
    }

    /// Takes a credential of no application back. It opens nothing any more.
    pub async fn revoke_credential(&self, id: &str) -> Result<(), AppsError> {
        if self.get(ClusterAppId::NONE).await?.is_none() {
            return Err(AppsError::NoKey { id: id.to_owned() });
        }
        self.remove_key(ClusterAppId::NONE, id).await
    }

    async fn remove_key(&self, app: ClusterAppId, key: &str) -> Result<(), AppsError> {
        self.update(app, |app| {
            let before = app.keys.len();
            app.keys.retain(|kept| kept.id != key);
            if app.keys.len() == before {
                // Whoever gave a whole credential does not get its secret repeated.
                let id = key.split('.').next().unwrap_or_default().to_owned();
                return Err(AppsError::NoKey { id });
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Makes a credential of no application: an operator's, a producer's or a reader's.
    pub async fn add_credential(
        &self,
        scopes: &[Scope],
        ispb: Option<&str>,
    ) -> Result<NewKey, AppsError> {
        credential::check_system(scopes, ispb)?;
        let system =
            App::new(ClusterAppId::NONE, AppName::system(), self.shared.clock.now(), vec![]);
        let write = Write::new(system.encode()?, Life::Permanent);
        let key = app_key(ClusterAppId::NONE)?;
        // Refused where the system is known already, which is as good.
        let _there = self.shared.store.insert_if_not_exists(&key, write).await?;
        let (key, stored) = NewKey::make(&*self.shared.clock, ClusterAppId::NONE, scopes, ispb);
        self.push_key(ClusterAppId::NONE, stored).await?;
        Ok(key)
    }

    /// Whose credential this is, written `id.secret`; `None` for anything that opens nothing.
    pub async fn authenticate(&self, presented: &str) -> Result<Option<Credential>, AppsError> {
        let presented = Presented::parse(presented);
        let app = match presented.app() {
            Some(id) => self.get(id).await?,
            None => None,
        };
        let keys = app.as_ref().map_or(&[][..], |app| &app.keys);
        let place = keys.iter().position(|key| presented.names(key));
        // The secret is hashed and compared either way: the time tells nothing of ids.
        let is_right = matches(&presented, place.map(|place| &keys[place]));
        let found = app.zip(place).filter(|_| is_right);
        Ok(found.map(|(holder, place)| Credential::new(holder, place)))
    }

    /// Whether this key of the application is live and has the scope.
    pub async fn holds(
        &self,
        app: ClusterAppId,
        key: &str,
        scope: Scope,
    ) -> Result<bool, AppsError> {
        let app = self.get(app).await?;
        let mut keys = app.iter().flat_map(|app| &app.keys);
        Ok(keys.any(|held| held.id == key && held.scopes.contains(&scope)))
    }

    async fn push_key(&self, id: ClusterAppId, stored: AppKey) -> Result<(), AppsError> {
        self.update(id, |app| {
            if app.keys.len() >= MOST_KEYS {
                return Err(AppsError::NoMoreKeys);
            }
            app.keys.push(stored.clone());
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// The application of this number, at most half a second old.
    async fn get(&self, id: ClusterAppId) -> Result<Option<Arc<App>>, AppsError> {
        let read_at = self.shared.clock.monotonic();
        let changes = {
            let memory = self.shared.remembered.lock();
            match memory.apps.get(&id) {
                Some(known) if read_at.saturating_sub(known.read_at) < FRESH => {
                    return Ok(known.app.clone());
                }
                Some(_) | None => memory.changes,
            }
        };
        let key = app_key(id)?;
        let record = self.shared.store.get(&key).await?;
        let app = record.map(|record| App::decode(id, &key, &record.value)).transpose()?;
        let app = app.map(Arc::new);
        self.remember(id, Remembered { app: app.clone(), read_at }, changes);
        Ok(app)
    }

    /// Remembers what was read, unless something was changed here since: it may be what was read.
    fn remember(&self, id: ClusterAppId, app: Remembered, changes: u64) {
        let mut memory = self.shared.remembered.lock();
        if memory.changes != changes {
            return;
        }
        if memory.apps.len() >= REMEMBERED {
            memory.apps.clear();
        }
        memory.apps.insert(id, app);
    }

    fn forget(&self, id: ClusterAppId) {
        let mut memory = self.shared.remembered.lock();
        memory.apps.remove(&id);
        memory.changes += 1;
    }

    /// Changes an application by a swap, again as long as somebody else is faster.
    async fn update(
        &self,
        id: ClusterAppId,
        change: impl Fn(&mut App) -> Result<(), AppsError>,
    ) -> Result<Arc<App>, AppsError> {
        let key = app_key(id)?;
        for _ in 0..ATTEMPTS {
            let Some(record) = self.shared.store.get(&key).await? else { break };
            let mut app = App::decode(id, &key, &record.value)?;
            change(&mut app)?;
            let write = Write::new(app.encode()?, Life::Permanent);
            let outcome = self.shared.store.compare_and_swap(&key, &record.value, write).await;
            // Also where nobody knows: what is remembered may no longer be true.
            self.forget(id);
            if outcome?.is_applied() {
                return Ok(Arc::new(app));
            }
        }
        Err(AppsError::Contended)
    }

    async fn number(&self, name: &AppName) -> Result<ClusterAppId, AppsError> {
        let app = self.find(name).await?;
        app.map(|app| app.id).ok_or_else(|| AppsError::NoApp { name: name.clone() })
    }

    fn learn_number(&self, name: &AppName, record: &Record) -> Result<ClusterAppId, AppsError> {
        let id = number_of(&name_key(name)?, record)?;
        let mut numbers = self.shared.numbers.lock();
        if numbers.len() >= REMEMBERED {
            numbers.clear();
        }
        numbers.insert(name.clone(), id);
        Ok(id)
    }

    /// Takes the next number. It stays taken, whatever becomes of the creation.
    async fn next_number(&self) -> Result<ClusterAppId, AppsError> {
        let key = Key::new(partition("numbers")?.as_bytes(), &[])?;
        for _ in 0..ATTEMPTS {
            let last = self.shared.store.get(&key).await?;
            let number = match &last {
                Some(record) => number_of(&key, record)?.0,
                None => 0,
            };
            let next = ClusterAppId(number.checked_add(1).ok_or(AppsError::Contended)?);
            let write = Write::new(Value::copy_from_slice(&next.0.to_be_bytes())?, Life::Permanent);
            let outcome: Outcome = match &last {
                Some(last) => self.shared.store.compare_and_swap(&key, &last.value, write).await?,
                None => self.shared.store.insert_if_not_exists(&key, write).await?,
            };
            if outcome.is_applied() {
                return Ok(next);
            }
        }
        Err(AppsError::Contended)
    }
}

fn partition(name: &str) -> Result<Partition, StoreError> {
    Keyspace::Settings.partition(name.as_bytes())
}

fn app_key(id: ClusterAppId) -> Result<Key, StoreError> {
    Key::new(partition("apps")?.as_bytes(), &id.0.to_be_bytes())
}

fn name_key(name: &AppName) -> Result<Key, StoreError> {
    Key::new(partition("names")?.as_bytes(), name.to_string().as_bytes())
}

fn number_of(key: &Key, record: &Record) -> Result<ClusterAppId, StoreError> {
    let bytes: Result<[u8; 4], _> = record.value[..].try_into();
    let corrupt = |_| StoreError::Corrupt { key: key.clone(), reason: "not a number".into() };
    bytes.map(|bytes| ClusterAppId(u32::from_be_bytes(bytes))).map_err(corrupt)
}
