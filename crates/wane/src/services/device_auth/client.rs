//! Clients: who may ask for codes, in the name of which application, and how they prove it.
//!
//! A client is one record under its id, which no two applications share. A confidential client
//! proves with a secret that it is the one; of a public client, a television say, everybody can
//! take the secret out, so it has none.
//!
//! Invariant: each registration has a random number of its own, which its grants carry. Whoever is
//! registered under an id that was free again is another client.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::secret::{ClientSecret, is_secret};
use super::{AppDeviceAuth, DeviceAuthError, Shared, checked_text, place};
use crate::services::ClusterAppId;
use crate::store::{Life, Record, Store, Value, Write};

/// Scopes that a client may have.
const MOST_SCOPES: usize = 64;

/// The longest scope, in bytes.
const LONGEST_SCOPE: usize = 128;

/// The longest name of a client, in bytes.
const LONGEST_NAME: usize = 128;

/// The shortest life of codes and tokens.
const MINUTE: Duration = Duration::from_secs(60);

/// The longest life of codes: what the guess budget is made for.
const LONGEST_CODE: Duration = Duration::from_secs(1_800);

/// The longest life of tokens. A store takes 365 days by its own clock, which may be behind ours.
const LONGEST_TOKEN: Duration = Duration::from_secs(360 * 86_400);

/// The id of a client: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClientId(String);

impl ClientId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientId {
    type Err = DeviceAuthError;

    fn from_str(text: &str) -> Result<Self, DeviceAuthError> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        // An id of dots would mean another place in a URL.
        let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins_well && text.len() <= 64 && text.bytes().all(is_legal) {
            return Ok(Self(text.to_owned()));
        }
        let reason = "give 1 to 64 ASCII letters, digits, '.', '_' or '-', and begin with one of \
                      the first two";
        let reason = reason.to_owned();
        Err(DeviceAuthError::Invalid { field: "clientId", reason })
    }
}

impl TryFrom<String> for ClientId {
    type Error = DeviceAuthError;

    fn try_from(text: String) -> Result<Self, DeviceAuthError> {
        text.parse()
    }
}

impl From<ClientId> for String {
    fn from(id: ClientId) -> Self {
        id.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is registered as a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewClient {
    /// Its id; drawn where there is none.
    pub id: Option<ClientId>,
    /// What people are told is asking: text, whatever it looks like.
    pub name: String,
    /// Whether it has a secret.
    pub is_confidential: bool,
    /// What it may ask for, and gets where it asks for nothing.
    pub scopes: Vec<String>,
    /// How long its codes live: 60 to 1,800 seconds.
    pub code_life: Duration,
    /// How long its tokens live: one minute to 360 days.
    pub token_life: Duration,
}

impl Default for NewClient {
    fn default() -> Self {
        Self {
            id: None,
            name: "device".into(),
            is_confidential: false,
            scopes: Vec::new(),
            code_life: Duration::from_secs(900),
            token_life: Duration::from_secs(180 * 86_400),
        }
    }
}

impl NewClient {
    pub(super) fn check(&self) -> Result<(), DeviceAuthError> {
        let invalid = |field, reason: String| Err(DeviceAuthError::Invalid { field, reason });
        checked_text("name", &self.name, LONGEST_NAME)?;
        if self.scopes.len() > MOST_SCOPES || !self.scopes.iter().all(|scope| is_scope(scope)) {
            let reason = format!(
                "give up to {MOST_SCOPES} of 1 to {LONGEST_SCOPE} printable ASCII characters, \
                 without blanks, quotes and backslashes"
            );
            return invalid("scopes", reason);
        }
        let mut numbered = self.scopes.iter().enumerate();
        if numbered.any(|(at, scope)| self.scopes[..at].contains(scope)) {
            return invalid("scopes", "give each of them once".into());
        }
        if !(MINUTE..=LONGEST_CODE).contains(&self.code_life) {
            return invalid("codeLifeSeconds", "give 60 to 1800 seconds".into());
        }
        if !(MINUTE..=LONGEST_TOKEN).contains(&self.token_life) {
            return invalid("tokenLifeSeconds", "give one minute to 360 days".into());
        }
        Ok(())
    }
}

/// Whether RFC 6749 allows it as one scope.
fn is_scope(scope: &str) -> bool {
    let is_legal = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5B | 0x5D..=0x7E);
    (1..=LONGEST_SCOPE).contains(&scope.len()) && scope.bytes().all(is_legal)
}

/// A client that was registered.
#[derive(Debug)]
pub struct Registered {
    /// The client.
    pub client: Client,
    /// Its secret, which nobody can tell it again; `None` for a public client.
    pub secret: Option<ClientSecret>,
}

/// A client that is known to the application, and proved to be it where it can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its id.
    pub id: ClientId,
    /// What people are told is asking.
    pub name: String,
    /// Whether it has a secret, and proved that it knows it.
    pub is_confidential: bool,
    /// What it may ask for.
    pub scopes: Vec<String>,
    /// How long its codes live.
    pub code_life: Duration,
    /// How long its tokens live.
    pub token_life: Duration,
    pub(super) app: ClusterAppId,
    pub(super) registration: u64,
}

impl Client {
    /// What the client gets where it asks for `scope`: exactly that, in its order.
    pub(super) fn granted(&self, asked: Option<&str>) -> Result<Vec<String>, DeviceAuthError> {
        let mut granted: Vec<String> = Vec::new();
        for scope in asked.unwrap_or_default().split(' ').filter(|scope| !scope.is_empty()) {
            if !self.scopes.iter().any(|own| own == scope) {
                return Err(DeviceAuthError::InvalidScope { reason: self.scopes_to_ask_for() });
            }
            if !granted.iter().any(|before| before == scope) {
                granted.push(scope.to_owned());
            }
        }
        Ok(if granted.is_empty() { self.scopes.clone() } else { granted })
    }

    /// Without quotes, which an `error_description` may not have.
    fn scopes_to_ask_for(&self) -> String {
        if self.scopes.is_empty() {
            return "this client has none; ask without a scope".into();
        }
        format!("ask for some of ({}), or for none to get all of them", self.scopes.join(" "))
    }
}

/// What the record says.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
    pub(super) app: u32,
    #[serde(default)]
    pub(super) registration: u64,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret_sha256: Option<String>,
    pub(super) scopes: Vec<String>,
    pub(super) code_millis: u64,
    pub(super) token_millis: u64,
    pub(super) created_at: u64,
    #[serde(flatten)]
    pub(super) more: Map<String, Json>,
}

impl Stored {
    pub(super) fn read(value: &[u8]) -> Result<Self, DeviceAuthError> {
        let broken = |error: serde_json::Error| DeviceAuthError::Broken {
            reason: format!("a client, at byte {}", error.column()),
        };
        serde_json::from_slice(value).map_err(broken)
    }

    pub(super) fn write(&self) -> Result<Write, DeviceAuthError> {
        let json = serde_json::to_vec(self);
        let json = json.map_err(|error| DeviceAuthError::Broken { reason: error.to_string() })?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }

    pub(super) fn client(self, id: ClientId) -> Client {
        Client {
            id,
            name: self.name,
            is_confidential: self.secret_sha256.is_some(),
            scopes: self.scopes,
            code_life: Duration::from_millis(self.code_millis),
            token_life: Duration::from_millis(self.token_millis),
            app: ClusterAppId(self.app),
            registration: self.registration,
        }
    }
}

impl<S: Store> AppDeviceAuth<S> {
    /// Which client this is. A confidential one gives its secret, a public one has none; an empty
    /// one is as good as none.
    pub async fn authenticate(
        &self,
        id: &str,
        secret: Option<&str>,
    ) -> Result<Client, DeviceAuthError> {
        self.shared.authenticate(Some(self.app), id, secret).await
    }

    /// The record of a client of this application, and what it says.
    pub(super) async fn stored(
        &self,
        id: &ClientId,
    ) -> Result<Option<(Record, Stored)>, DeviceAuthError> {
        let found = self.shared.client(id).await?;
        Ok(found.filter(|(_, stored)| stored.app == self.app.0))
    }
}

impl<S: Store> Shared<S> {
    /// The client of this id and secret, of one application or of any.
    pub(super) async fn authenticate(
        &self,
        app: Option<ClusterAppId>,
        id: &str,
        secret: Option<&str>,
    ) -> Result<Client, DeviceAuthError> {
        const NOBODYS: &str = "0000000000000000000000000000000000000000000";
        let secret = secret.filter(|secret| !secret.is_empty());
        let id: Result<ClientId, _> = id.parse();
        let stored = match &id {
            Ok(id) => self.client(id).await?.map(|(_, stored)| stored),
            Err(_) => None,
        };
        let is_its = |stored: &Stored| app.is_none_or(|app| stored.app == app.0);
        let stored = stored.filter(is_its);
        let expected = stored.as_ref().and_then(|stored| stored.secret_sha256.as_deref());
        // The secret is hashed and compared either way: the time tells nothing of ids.
        let is_right = is_secret(secret.unwrap_or_default(), expected.unwrap_or(NOBODYS));
        let may_pass = if expected.is_some() { is_right } else { secret.is_none() };
        match (id, stored) {
            (Ok(id), Some(stored)) if may_pass => Ok(stored.client(id)),
            (Ok(_) | Err(_), Some(_) | None) => Err(DeviceAuthError::InvalidClient),
        }
    }

    pub(super) async fn app_of(&self, id: &str) -> Result<Option<ClusterAppId>, DeviceAuthError> {
        let Ok(id) = id.parse() else { return Ok(None) };
        Ok(self.client(&id).await?.map(|(_, stored)| ClusterAppId(stored.app)))
    }

    async fn client(&self, id: &ClientId) -> Result<Option<(Record, Stored)>, DeviceAuthError> {
        let Some(record) = self.store.get(&place::client(id)?).await? else { return Ok(None) };
        let stored = Stored::read(&record.value)?;
        Ok(Some((record, stored)))
    }
}
