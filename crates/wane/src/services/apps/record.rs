//! The record of an application, and the rules of its name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{AppsError, Limits, Scope};
use crate::services::ClusterAppId;
use crate::store::{Key, StoreError, Timestamp, Value};

/// The longest part of a name.
const MAX_PART: usize = 64;

/// The name of an application: `owner/app`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AppName {
    owner: String,
    app: String,
}

impl AppName {
    /// A name, or which part of it breaks the rule: 1 to 64 letters, digits, `.`, `_` and `-`.
    pub fn new(owner: &str, app: &str) -> Result<Self, AppsError> {
        check_part("owner", owner)?;
        check_part("app", app)?;
        Ok(Self { owner: owner.to_owned(), app: app.to_owned() })
    }

    /// The name of what belongs to no application.
    pub(super) fn system() -> Self {
        Self { owner: "wane".into(), app: "system".into() }
    }

    /// The part before the slash.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The part after the slash.
    pub fn app(&self) -> &str {
        &self.app
    }
}

fn check_part(field: &'static str, part: &str) -> Result<(), AppsError> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_dots = part.bytes().all(|byte| byte == b'.');
    if (1..=MAX_PART).contains(&part.len()) && part.bytes().all(is_legal) && !is_dots {
        return Ok(());
    }
    let reason = format!("give 1 to {MAX_PART} ASCII letters, digits, '.', '_' or '-'");
    Err(AppsError::Invalid { field, reason })
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.app)
    }
}

impl FromStr for AppName {
    type Err = AppsError;

    fn from_str(name: &str) -> Result<Self, AppsError> {
        let Some((owner, app)) = name.split_once('/') else {
            let reason = "there is no slash; give owner/app".into();
            return Err(AppsError::Invalid { field: "app", reason });
        };
        Self::new(owner, app)
    }
}

impl TryFrom<String> for AppName {
    type Error = AppsError;

    fn try_from(name: String) -> Result<Self, AppsError> {
        name.parse()
    }
}

impl From<AppName> for String {
    fn from(name: AppName) -> Self {
        name.to_string()
    }
}

/// An application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// Its number; in the store it is the key of the record.
    #[serde(skip, default = "none")]
    pub id: ClusterAppId,
    /// Its name.
    pub name: AppName,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// What it may use.
    pub limits: Limits,
    /// Its live keys, their secrets hashed.
    pub keys: Vec<AppKey>,
}

fn none() -> ClusterAppId {
    ClusterAppId::NONE
}

/// A live key of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppKey {
    /// The part before the dot.
    pub id: String,
    /// SHA-256 of the part after the dot, in hex.
    pub secret_sha256: String,
    /// What it opens.
    pub scopes: Vec<Scope>,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// Whether it belongs to a node and is not counted.
    #[serde(default)]
    pub node: bool,
    /// The institution whose messages it may pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ispb: Option<String>,
}

impl App {
    pub(super) fn new(
        id: ClusterAppId,
        name: AppName,
        created_at: Timestamp,
        keys: Vec<AppKey>,
    ) -> Self {
        let created_at = created_at.as_unix_millis();
        Self { id, name, created_at, limits: Limits::default(), keys }
    }

    pub(super) fn encode(&self) -> Result<Value, AppsError> {
        let invalid = |error: serde_json::Error| AppsError::Invalid {
            field: "app",
            reason: error.to_string(),
        };
        Ok(Value::new(serde_json::to_vec(self).map_err(invalid)?)?)
    }

    pub(super) fn decode(id: ClusterAppId, key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let corrupt = |error: serde_json::Error| StoreError::Corrupt {
            key: key.clone(),
            reason: error.to_string(),
        };
        let app: Self = serde_json::from_slice(value).map_err(corrupt)?;
        Ok(Self { id, ..app })
    }
}
