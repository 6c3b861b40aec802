//! The clients of an application: registered, listed, given other secrets, removed.
//!
//! The record of a client decides whether there is one. Beside it lies an entry of the application
//! that registered it, which lists it: written before the record, removed after it, and worth
//! nothing without it. An entry carries the number of its registration, and whoever removes one
//! removes its own: so a client that lives is always listed, whatever races.
//!
//! A client that is removed takes everything along that it started: its codes cannot be redeemed,
//! and the tokens of its devices are not good any more, also where its id is registered again.

use std::time::Duration;

use serde_json::Map;

use super::client::{ClientId, NewClient, Registered, Stored};
use super::grant::Grant;
use super::place;
use super::secret::{ClientSecret, secret_hash};
use super::{AppDeviceAuth, DeviceAuthError};
use crate::store::{
    ClusteringRange, Fence, Key, Life, Outcome, PageLimit, Partition, Record, Store, StoreError,
    Timestamp, Value, Write,
};

/// What is known of a client. It proves nothing: only authenticating does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its id.
    pub id: ClientId,
    /// What people are told is asking. Text, whatever it looks like.
    pub name: String,
    /// Whether it has a secret.
    pub is_confidential: bool,
    /// What it may ask for.
    pub scopes: Vec<String>,
    /// How long its codes live.
    pub code_life: Duration,
    /// How long its tokens live.
    pub token_life: Duration,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// Some of the clients, ordered by their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPage {
    /// The clients. Only `next` tells the end: a page may be short.
    pub clients: Vec<ClientInfo>,
    /// After which one to go on, or `None` once all were listed.
    pub next: Option<ClientId>,
}

impl ClientInfo {
    fn of(id: ClientId, stored: Stored) -> Self {
        Self {
            id,
            name: stored.name,
            is_confidential: stored.secret_sha256.is_some(),
            scopes: stored.scopes,
            code_life: Duration::from_millis(stored.code_millis),
            token_life: Duration::from_millis(stored.token_millis),
            created_at: Timestamp::from_unix_millis(stored.created_at),
        }
    }
}

impl<S: Store> AppDeviceAuth<S> {
    /// Registers a client of the application.
    pub async fn register(&self, new: NewClient) -> Result<Registered, DeviceAuthError> {
        new.check()?;
        let shared = &*self.shared;
        let _alone = shared.registering.lock().await;
        self.room_for_a_client().await?;
        let drawn = || format!("{:08x}-{:016x}", self.app.0, shared.clock.random_u64()).parse();
        let id = new.id.map_or_else(drawn, Ok)?;
        let secret = new.is_confidential.then(|| ClientSecret::draw(&*shared.clock));
        let stored = Stored {
            app: self.app.0,
            registration: shared.clock.random_u64(),
            name: new.name,
            secret_sha256: secret.as_ref().map(|secret| secret_hash(secret.reveal())),
            scopes: new.scopes,
            code_millis: new.code_life.as_millis() as u64,
            token_millis: new.token_life.as_millis() as u64,
            created_at: shared.clock.now().as_unix_millis(),
            more: Map::new(),
        };
        let entry = Entry { key: place::client_entry(self.app, &id)?, of: stored.registration };
        self.put_entry(&entry).await?;
        self.insert_client(&id, &stored, &entry).await?;
        Ok(Registered { client: stored.client(id), secret })
    }

    async fn put_entry(&self, entry: &Entry) -> Result<(), DeviceAuthError> {
        let store = &self.shared.store;
        match store.put(&entry.key, entry.write()?).await {
            // Without a fence a put is refused by nothing.
            Ok(_) => Ok(()),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&entry.key).await {
                Ok(Some(found)) if found.value == entry.value()? => Ok(()),
                Ok(_) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn insert_client(
        &self,
        id: &ClientId,
        stored: &Stored,
        entry: &Entry,
    ) -> Result<(), DeviceAuthError> {
        let (key, write, store) = (place::client(id)?, stored.write()?, &self.shared.store);
        let value = write.value.clone();
        match store.insert_if_not_exists(&key, write).await {
            Ok(Outcome::Applied { .. }) => Ok(()),
            Ok(Outcome::Refused { current }) => {
                self.take_back(entry, current).await?;
                Err(DeviceAuthError::ClientExists)
            }
            // Its number is random: who finds the record there has written it.
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                Ok(Some(found)) if found.value == value => Ok(()),
                Ok(_) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The id is taken. Where the application itself has it, the entry becomes that client's again.
    async fn take_back(
        &self,
        entry: &Entry,
        current: Option<Record>,
    ) -> Result<(), DeviceAuthError> {
        let stored = current.map(|record| Stored::read(&record.value)).transpose()?;
        let own = stored.filter(|stored| stored.app == self.app.0);
        let (store, ours) = (&self.shared.store, entry.value()?);
        // One that stays as it is lists the same client, or none.
        match own.map(|stored| Entry { key: entry.key.clone(), of: stored.registration }) {
            Some(theirs) => {
                drop(store.compare_and_swap(&entry.key, &ours, theirs.write()?).await);
            }
            None => drop(store.compare_and_delete(&entry.key, &ours, Fence::NONE).await),
        }
        Ok(())
    }

    /// Gives a confidential client another secret, which nobody can tell it again; the one before
    /// is wrong from then on. `None` where there is no such client.
    pub async fn rotate_secret(
        &self,
        id: &ClientId,
    ) -> Result<Option<ClientSecret>, DeviceAuthError> {
        let Some((record, stored)) = self.stored(id).await? else { return Ok(None) };
        if stored.secret_sha256.is_none() {
            return Err(DeviceAuthError::PublicClient);
        }
        let secret = ClientSecret::draw(&*self.shared.clock);
        let secret_sha256 = Some(secret_hash(secret.reveal()));
        let write = Stored { secret_sha256, ..stored }.write()?;
        let (key, store, next) = (place::client(id)?, &self.shared.store, write.value.clone());
        match store.compare_and_swap(&key, &record.value, write).await {
            Ok(Outcome::Applied { .. }) => Ok(Some(secret)),
            Ok(Outcome::Refused { current: None }) => Ok(None),
            Ok(Outcome::Refused { current: Some(_) }) => Err(DeviceAuthError::Contended),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                Ok(Some(found)) if found.value == next => Ok(Some(secret)),
                Ok(_) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a client; says whether there was one. It starts nothing any more and can redeem
    /// nothing, and the tokens of devices that it linked are not good any more.
    pub async fn unregister(&self, id: &ClientId) -> Result<bool, DeviceAuthError> {
        let Some((record, stored)) = self.stored(id).await? else { return Ok(false) };
        let (key, store) = (place::client(id)?, &self.shared.store);
        match store.compare_and_delete(&key, &record.value, Fence::NONE).await {
            Ok(Outcome::Applied { .. }) => {}
            Ok(Outcome::Refused { current: None }) => return Ok(false),
            Ok(Outcome::Refused { current: Some(_) }) => return Err(DeviceAuthError::Contended),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return Err(unknown.into()),
            },
            Err(error) => return Err(error.into()),
        }
        let entry = Entry { key: place::client_entry(self.app, id)?, of: stored.registration };
        drop(store.compare_and_delete(&entry.key, &entry.value()?, Fence::NONE).await);
        Ok(true)
    }

    /// What is known of a client of the application.
    pub async fn client(&self, id: &ClientId) -> Result<Option<ClientInfo>, DeviceAuthError> {
        let found = self.stored(id).await?;
        Ok(found.map(|(_, stored)| ClientInfo::of(id.clone(), stored)))
    }

    /// The clients of the application, from the first one after `after` on.
    pub async fn clients(
        &self,
        after: Option<&ClientId>,
        limit: PageLimit,
    ) -> Result<ClientPage, DeviceAuthError> {
        let (partition, all) = place::client_entries(self.app)?;
        let mut rest = match after {
            Some(id) => all.after(place::client_entry(self.app, id)?.clustering()),
            None => Some(all),
        };
        let mut page = ClientPage { clients: Vec::new(), next: None };
        while let Some(range) = rest.take() {
            let ids;
            (ids, rest) = self.entries(&partition, &range, limit).await?;
            if let Some(last) = ids.last() {
                page.next = rest.is_some().then(|| last.clone());
                page.clients = self.living(ids).await?;
                break;
            }
        }
        Ok(page)
    }

    /// The ids of a page of entries, and what is left after them.
    async fn entries(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<(Vec<ClientId>, Option<ClusteringRange>), DeviceAuthError> {
        let page = self.shared.store.read(partition, range, limit).await?;
        let broken = || DeviceAuthError::Broken { reason: "an entry names no client".into() };
        let id = |key: &Key| place::listed_client(key).ok_or_else(broken);
        let ids: Result<Vec<ClientId>, _> = page.rows.iter().map(|row| id(&row.key)).collect();
        Ok((ids?, page.rest))
    }

    /// Those that are clients of the application.
    async fn living(&self, ids: Vec<ClientId>) -> Result<Vec<ClientInfo>, DeviceAuthError> {
        let keys: Result<Vec<_>, _> = ids.iter().map(place::client).collect();
        let records = self.shared.store.get_batch(&keys?).await?;
        let mut living = Vec::with_capacity(ids.len());
        for (id, record) in ids.into_iter().zip(records) {
            let stored = record.map(|record| Stored::read(&record.value)).transpose()?;
            let own = stored.filter(|stored| stored.app == self.app.0);
            living.extend(own.map(|stored| ClientInfo::of(id, stored)));
        }
        Ok(living)
    }

    /// Entries are counted first, and clients only where there seem to be too many.
    async fn room_for_a_client(&self) -> Result<(), DeviceAuthError> {
        let most = self.shared.settings.clients_per_app;
        let (partition, all) = place::client_entries(self.app)?;
        let (mut listed, mut rest) = (Vec::new(), Some(all));
        while let Some(range) = rest {
            let ids;
            (ids, rest) = self.entries(&partition, &range, PageLimit::MAX).await?;
            listed.extend(ids);
        }
        if listed.len() < most || self.living(listed).await?.len() < most {
            return Ok(());
        }
        let reason = format!("the application has {most}, the most it may have; remove one first");
        Err(DeviceAuthError::Invalid { field: "clients", reason })
    }

    /// Which of the grants were started by clients that are still there.
    pub(super) async fn have_clients(
        &self,
        grants: &[&Grant],
    ) -> Result<Vec<bool>, DeviceAuthError> {
        let keys: Result<Vec<_>, _> =
            grants.iter().map(|grant| place::client(&grant.client)).collect();
        let records = self.shared.store.get_batch(&keys?).await?;
        let is_there = |(grant, record): (&&Grant, Option<Record>)| {
            let Some(record) = record else { return Ok(false) };
            let stored = Stored::read(&record.value)?;
            Ok(stored.app == self.app.0 && stored.registration == grant.registration)
        };
        grants.iter().zip(records).map(is_there).collect()
    }
}

/// What lists a client, and the registration that it is of.
struct Entry {
    key: Key,
    of: u64,
}

impl Entry {
    fn value(&self) -> Result<Value, StoreError> {
        Value::copy_from_slice(&self.of.to_be_bytes())
    }

    fn write(&self) -> Result<Write, StoreError> {
        Ok(Write::new(self.value()?, Life::Permanent))
    }
}
