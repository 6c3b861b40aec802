//! Clients: who may ask for codes, in the name of which application.
//!
//! A client is one record under its id, which no two applications share. A confidential client
//! proves with a secret that it is the one; of a public client, a television say, everybody can
//! take the secret out, so it has none.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::secret::{ClientSecret, is_secret, secret_hash};
use super::{AppDeviceAuth, DeviceAuth, DeviceAuthError, checked_text, place};
use crate::services::ClusterAppId;
use crate::store::{Fence, Life, Outcome, Store, StoreError, Value, Write};

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

/// The id of a client: 1 to 64 letters, digits, `.`, `_` and `-`.
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
        if (1..=64).contains(&text.len()) && text.bytes().all(is_legal) {
            return Ok(Self(text.to_owned()));
        }
        let reason = "give 1 to 64 ASCII letters, digits, '.', '_' or '-'".into();
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
    fn check(&self) -> Result<(), DeviceAuthError> {
        let invalid = |field, reason: String| Err(DeviceAuthError::Invalid { field, reason });
        checked_text("name", &self.name, LONGEST_NAME)?;
        if self.scopes.len() > MOST_SCOPES || !self.scopes.iter().all(|scope| is_scope(scope)) {
            let reason = format!(
                "give up to {MOST_SCOPES} of 1 to {LONGEST_SCOPE} printable ASCII characters, \
                 without blanks, quotes and backslashes"
            );
            return invalid("scopes", reason);
        }
        if !(MINUTE..=LONGEST_CODE).contains(&self.code_life) {
            return invalid("codeLife", "give 60 to 1800 seconds".into());
        }
        if !(MINUTE..=LONGEST_TOKEN).contains(&self.token_life) {
            return invalid("tokenLife", "give one minute to 360 days".into());
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
}

impl Client {
    /// What the client gets where it asks for `scope`: exactly that, in its order.
    pub(super) fn granted(&self, asked: Option<&str>) -> Result<Vec<String>, DeviceAuthError> {
        let mut granted: Vec<String> = Vec::new();
        for scope in asked.unwrap_or_default().split(' ').filter(|scope| !scope.is_empty()) {
            if !self.scopes.iter().any(|own| own == scope) {
                let own = self.scopes.join(" ");
                let reason = format!("ask for some of {own:?}, or for none to get all of them");
                return Err(DeviceAuthError::InvalidScope { reason });
            }
            if !granted.iter().any(|before| before == scope) {
                granted.push(scope.to_owned());
            }
        }
        Ok(if granted.is_empty() { self.scopes.clone() } else { granted })
    }
}

/// What the record says.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    app: u32,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret_sha256: Option<String>,
    scopes: Vec<String>,
    code_millis: u64,
    token_millis: u64,
    created_at: u64,
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Stored {
    fn read(value: &[u8]) -> Result<Self, DeviceAuthError> {
        let broken = |error: serde_json::Error| DeviceAuthError::Broken {
            reason: format!("a client, at byte {}", error.column()),
        };
        serde_json::from_slice(value).map_err(broken)
    }

    fn write(&self) -> Result<Write, DeviceAuthError> {
        let json = serde_json::to_vec(self);
        let json = json.map_err(|error| DeviceAuthError::Broken { reason: error.to_string() })?;
        Ok(Write::new(Value::new(json)?, Life::Permanent))
    }

    fn client(self, id: ClientId) -> Client {
        Client {
            id,
            name: self.name,
            is_confidential: self.secret_sha256.is_some(),
            scopes: self.scopes,
            code_life: Duration::from_millis(self.code_millis),
            token_life: Duration::from_millis(self.token_millis),
            app: ClusterAppId(self.app),
        }
    }
}

impl<S: Store> DeviceAuth<S> {
    /// The application that a client of this id belongs to, or none. It proves nothing.
    pub async fn app_of_client(&self, id: &str) -> Result<ClusterAppId, DeviceAuthError> {
        let Ok(id) = id.parse::<ClientId>() else { return Ok(ClusterAppId::NONE) };
        let record = self.shared.store.get(&place::client(&id)?).await?;
        let stored = record.map(|record| Stored::read(&record.value)).transpose()?;
        Ok(stored.map_or(ClusterAppId::NONE, |stored| ClusterAppId(stored.app)))
    }
}

impl<S: Store> AppDeviceAuth<S> {
    /// Registers a client of the application.
    pub async fn register(&self, new: NewClient) -> Result<Registered, DeviceAuthError> {
        new.check()?;
        let clock = &*self.shared.clock;
        let drawn = || format!("{:08x}-{:016x}", self.app.0, clock.random_u64()).parse();
        let id = new.id.map_or_else(drawn, Ok)?;
        let secret = new.is_confidential.then(|| ClientSecret::draw(clock));
        let stored = Stored {
            app: self.app.0,
            name: new.name,
            secret_sha256: secret.as_ref().map(|secret| secret_hash(secret.reveal())),
            scopes: new.scopes,
            code_millis: new.code_life.as_millis() as u64,
            token_millis: new.token_life.as_millis() as u64,
            created_at: clock.now().as_unix_millis(),
            more: Map::new(),
        };
        let (key, write, store) = (place::client(&id)?, stored.write()?, &self.shared.store);
        let value = write.value.clone();
        match store.insert_if_not_exists(&key, write).await {
            Ok(Outcome::Applied { .. }) => {}
            Ok(Outcome::Refused { .. }) => return Err(DeviceAuthError::ClientExists),
            // A public client has nothing random in it: who finds it there has it there.
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                Ok(Some(found)) if found.value == value => {}
                Ok(_) | Err(_) => return Err(unknown.into()),
            },
            Err(error) => return Err(error.into()),
        }
        Ok(Registered { client: stored.client(id), secret })
    }

    /// Removes a client; says whether there was one. It starts nothing any more and can redeem
    /// nothing; devices that it linked stay linked.
    pub async fn unregister(&self, id: &ClientId) -> Result<bool, DeviceAuthError> {
        let (key, store) = (place::client(id)?, &self.shared.store);
        let Some(record) = store.get(&key).await? else { return Ok(false) };
        if Stored::read(&record.value)?.app != self.app.0 {
            return Ok(false);
        }
        match store.compare_and_delete(&key, &record.value, Fence::NONE).await {
            Ok(Outcome::Applied { .. }) => Ok(true),
            Ok(Outcome::Refused { current: None }) => Ok(false),
            Ok(Outcome::Refused { current: Some(_) }) => Err(DeviceAuthError::Contended),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                Ok(None) => Ok(true),
                Ok(Some(_)) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Which client this is. A confidential one gives its secret, a public one has none; an empty
    /// one is as good as none.
    pub async fn authenticate(
        &self,
        id: &str,
        secret: Option<&str>,
    ) -> Result<Client, DeviceAuthError> {
        const NOBODYS: &str = "0000000000000000000000000000000000000000000";
        let secret = secret.filter(|secret| !secret.is_empty());
        let id: Result<ClientId, _> = id.parse();
        let stored = match &id {
            Ok(id) => self.shared.store.get(&place::client(id)?).await?,
            Err(_) => None,
        };
        let stored = stored.map(|record| Stored::read(&record.value)).transpose()?;
        let stored = stored.filter(|stored| stored.app == self.app.0);
        let expected = stored.as_ref().and_then(|stored| stored.secret_sha256.as_deref());
        // The secret is hashed and compared either way: the time tells nothing of ids.
        let is_right = is_secret(secret.unwrap_or_default(), expected.unwrap_or(NOBODYS));
        let may_pass = if expected.is_some() { is_right } else { secret.is_none() };
        match (id, stored) {
            (Ok(id), Some(stored)) if may_pass => Ok(stored.client(id)),
            (Ok(_) | Err(_), Some(_) | None) => Err(DeviceAuthError::InvalidClient),
        }
    }
}
