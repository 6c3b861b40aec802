//! Where everything lies: keyspace 6, and the kind of a row as the first byte of its clustering.
//!
//! | partition | clustering | value |
//! |---|---|---|
//! | app 0 | `a`, keyed hash of the user code | application and grant |
//! | app 0 | `c`, client id | the client; so ids are unique across applications |
//! | app | `r`, client id | the number of its registration: it lists a client |
//! | app | `g`, hash of the device code | the grant, and later the linked device |
//! | app | `t`, hash of the link token | the grant |
//! | app | `p`, hash of the device code | an application's payload, until it was surely received |
//! | app | `l`, hash of the subject, grant | nothing: it lists a linked device |
//! | app | `s` | where the people of the application sign in |
//!
//! A grant decides, and a client does; the rows that point to them mean nothing without them.

use std::fmt;
use std::str::FromStr;

use super::DeviceAuthError;
use super::client::ClientId;
use super::secret::{Hash, decoded, encoded, hash};
use crate::services::ClusterAppId;
use crate::store::{ClusteringRange, Key, Keyspace, Partition, Record, StoreError, Value};

/// The name of a grant and of the device that it links. It opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(GrantId);

impl DeviceId {
    pub(super) fn new(grant: GrantId) -> Self {
        Self(grant)
    }

    pub(super) fn grant(self) -> GrantId {
        self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoded(&self.0.0))
    }
}

impl FromStr for DeviceId {
    type Err = DeviceAuthError;

    fn from_str(text: &str) -> Result<Self, DeviceAuthError> {
        let id = decoded(text).map(GrantId).map(Self);
        let reason = || "give the 43 characters that the approval answered".to_owned();
        id.ok_or_else(|| DeviceAuthError::Invalid { field: "deviceId", reason: reason() })
    }
}

/// Which grant: the hash of its device code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GrantId(Hash);

impl GrantId {
    pub(super) fn of_hash(hash: Hash) -> Self {
        Self(hash)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The grant that a row of a token points to.
    pub(super) fn pointed_to(record: &Record) -> Option<Self> {
        record.value[..].try_into().ok().map(Self)
    }

    pub(super) fn pointer(&self) -> Result<Value, StoreError> {
        Value::copy_from_slice(&self.0)
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", &encoded(&self.0)[..6])
    }
}

/// What a user code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) app: ClusterAppId,
    pub(super) grant: GrantId,
}

impl Reference {
    pub(super) fn value(&self) -> Result<Value, StoreError> {
        Value::new([&self.app.0.to_be_bytes(), self.grant.as_bytes()].concat())
    }

    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (app, grant) = value.split_first_chunk()?;
        let grant = GrantId(grant.try_into().ok()?);
        Some(Self { app: ClusterAppId(u32::from_be_bytes(*app)), grant })
    }
}

pub(super) fn user_code(hash: &Hash) -> Result<Key, StoreError> {
    key(ClusterAppId::NONE, b'a', &[hash])
}

/// Every live user code.
pub(super) fn user_codes() -> Result<(Partition, ClusteringRange), StoreError> {
    rows(ClusterAppId::NONE, b"a")
}

pub(super) fn client(id: &ClientId) -> Result<Key, StoreError> {
    key(ClusterAppId::NONE, b'c', &[id.as_str().as_bytes()])
}

pub(super) fn client_entry(app: ClusterAppId, id: &ClientId) -> Result<Key, StoreError> {
    key(app, b'r', &[id.as_str().as_bytes()])
}

pub(super) fn client_entries(
    app: ClusterAppId,
) -> Result<(Partition, ClusteringRange), StoreError> {
    rows(app, b"r")
}

/// The client that an entry lists.
pub(super) fn listed_client(key: &Key) -> Option<ClientId> {
    let id = key.clustering().strip_prefix(b"r")?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

pub(super) fn grant(app: ClusterAppId, id: GrantId) -> Result<Key, StoreError> {
    key(app, b'g', &[&id.0])
}

pub(super) fn token(app: ClusterAppId, hash: &Hash) -> Result<Key, StoreError> {
    key(app, b't', &[hash])
}

pub(super) fn payload(app: ClusterAppId, id: GrantId) -> Result<Key, StoreError> {
    key(app, b'p', &[&id.0])
}

pub(super) fn sign_in(app: ClusterAppId) -> Result<Key, StoreError> {
    key(app, b's', &[])
}

pub(super) fn listing(app: ClusterAppId, subject: &str, id: GrantId) -> Result<Key, StoreError> {
    key(app, b'l', &[&subject_hash(subject), &id.0])
}

/// The listed devices of a subject, or of everybody, beyond one that was listed before.
pub(super) fn listings(
    app: ClusterAppId,
    subject: Option<&str>,
) -> Result<(Partition, ClusteringRange), StoreError> {
    let mut prefix = vec![b'l'];
    prefix.extend(subject.map(subject_hash).iter().flatten());
    rows(app, &prefix)
}

/// The grant that a row lists.
pub(super) fn listed(key: &Key) -> Option<GrantId> {
    key.clustering().last_chunk().copied().map(GrantId)
}

fn subject_hash(subject: &str) -> Hash {
    hash(&[b"subject\0", subject.as_bytes()])
}

fn key(app: ClusterAppId, kind: u8, parts: &[&[u8]]) -> Result<Key, StoreError> {
    let clustering = [&[kind][..], &parts.concat()].concat();
    Key::new(&app.partition(Keyspace::DeviceAuth), &clustering)
}

fn rows(app: ClusterAppId, prefix: &[u8]) -> Result<(Partition, ClusteringRange), StoreError> {
    let partition = Partition::new(app.partition(Keyspace::DeviceAuth).to_vec())?;
    Ok((partition, ClusteringRange::prefix(prefix.to_vec())?))
}
