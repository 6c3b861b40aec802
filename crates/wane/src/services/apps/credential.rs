//! Credentials: `id.secret`, of which the store keeps the id and a hash.
//!
//! The id begins with the number of its application in hex, so that looking it up is one read. The
//! secret is 256 random bits: a fast hash is enough, there is nothing to guess.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, AppKey, AppsError};
use crate::clock::Clock;
use crate::services::ClusterAppId;

/// What a credential opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading what the application holds.
    Read,
    /// Changing what the application holds.
    Write,
    /// Approving and listing devices.
    Device,
    /// Sending messages into pull streams.
    Produce,
    /// Reading the pull stream of one institution.
    Pull,
    /// Everything on the admin listener.
    Admin,
}

impl Scope {
    /// What a key of an application can open.
    pub const OF_APPS: [Self; 3] = [Self::Read, Self::Write, Self::Device];

    /// Every scope.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Device, Self::Produce, Self::Pull, Self::Admin];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Device => "device",
            Self::Produce => "produce",
            Self::Pull => "pull",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = AppsError;

    fn from_str(name: &str) -> Result<Self, AppsError> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == name);
        found.ok_or_else(|| {
            let legal = Self::ALL.map(Self::name).join(", ");
            let reason = format!("there is no scope {name:?}; there are {legal}");
            AppsError::Invalid { field: "scopes", reason }
        })
    }
}

/// A credential that was presented and is right. A clone is a reference count.
#[derive(Debug, Clone)]
pub struct Credential {
    holder: Arc<App>,
    /// Which of the holder's keys it is.
    place: usize,
}

impl Credential {
    pub(super) fn new(holder: Arc<App>, place: usize) -> Self {
        Self { holder, place }
    }

    /// The application; `None` for a credential of none.
    pub fn app(&self) -> Option<&Arc<App>> {
        Some(&self.holder).filter(|app| app.id != ClusterAppId::NONE)
    }

    /// The part before the dot.
    pub fn id(&self) -> &str {
        &self.key().id
    }

    /// What it opens.
    pub fn scopes(&self) -> &[Scope] {
        &self.key().scopes
    }

    /// The institution whose messages it may pull.
    pub fn ispb(&self) -> Option<&str> {
        self.key().ispb.as_deref()
    }

    fn key(&self) -> &AppKey {
        &self.holder.keys[self.place]
    }
}

/// A key that was just made. The store does not know its secret.
pub struct NewKey {
    /// The part before the dot.
    pub id: String,
    secret: String,
}

impl NewKey {
    /// The credential as it is presented.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    pub(super) fn make(
        clock: &dyn Clock,
        app: ClusterAppId,
        scopes: &[Scope],
        ispb: Option<&str>,
    ) -> (Self, AppKey) {
        let mut secret = [0; 32];
        clock.fill_random(&mut secret);
        let id = format!("{:x}-{:016x}", app.0, clock.random_u64());
        let secret = text(hex(&secret));
        let stored = AppKey {
            id: id.clone(),
            secret_sha256: text(secret_hash(&secret)),
            scopes: scopes.to_vec(),
            created_at: clock.now().as_unix_millis(),
            node: false,
            ispb: ispb.map(str::to_owned),
        };
        (Self { id, secret }, stored)
    }
}

impl fmt::Debug for NewKey {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What somebody presented as a credential.
pub(super) struct Presented<'a> {
    id: &'a str,
    secret: &'a str,
}

impl<'a> Presented<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let (id, secret) = text.split_once('.').unwrap_or_default();
        Self { id, secret }
    }

    /// The application that the id claims.
    pub(super) fn app(&self) -> Option<ClusterAppId> {
        let (app, _) = self.id.split_once('-')?;
        u32::from_str_radix(app, 16).ok().map(ClusterAppId)
    }

    pub(super) fn names(&self, key: &AppKey) -> bool {
        self.id == key.id
    }
}

/// Whether the secret is the key's, in a time that does not depend on either.
pub(super) fn matches(presented: &Presented<'_>, key: Option<&AppKey>) -> bool {
    const NOBODYS: [u8; 64] = [b'0'; 64];
    let expected = key.map_or(Some(&NOBODYS), |key| key.secret_sha256.as_bytes().as_array());
    let hash = words(&secret_hash(presented.secret));
    // A hash of another length is nobody's either.
    let is_equal = hash.ct_eq(&words(expected.unwrap_or(&NOBODYS)));
    bool::from(is_equal) && expected.is_some() && key.is_some()
}

/// The digits in a few words, as each comparison that takes the same time for all costs a while.
fn words(digits: &[u8; 64]) -> [u64; 8] {
    let (words, _) = digits.as_chunks();
    std::array::from_fn(|at| u64::from_ne_bytes(words[at]))
}

/// Says which scopes a credential of no application can have.
pub(super) fn check_system(scopes: &[Scope], ispb: Option<&str>) -> Result<(), AppsError> {
    let invalid = |field, reason: &str| Err(AppsError::Invalid { field, reason: reason.into() });
    if scopes.is_empty() {
        return invalid("scopes", "give at least one: read, produce, pull or admin");
    }
    if scopes.iter().any(|scope| matches!(scope, Scope::Write | Scope::Device)) {
        return invalid("scopes", "write and device belong to an app; make a key of the app");
    }
    match (scopes.contains(&Scope::Pull), ispb) {
        (true, None) => invalid("ispb", "scope pull needs the 8 digits of an institution"),
        (false, Some(_)) => invalid("ispb", "only scope pull has one"),
        (true, Some(ispb)) if ispb.len() != 8 || !ispb.bytes().all(|b| b.is_ascii_digit()) => {
            invalid("ispb", "give 8 digits")
        }
        (true, Some(_)) | (false, None) => Ok(()),
    }
}

/// The hash of a secret as the store keeps it. Every request asks for one: it takes no memory.
fn secret_hash(secret: &str) -> [u8; 64] {
    hex(&Sha256::digest(secret).into())
}

fn hex(bytes: &[u8; 32]) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 64];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digits
}

fn text(digits: [u8; 64]) -> String {
    digits.map(char::from).iter().collect()
}
