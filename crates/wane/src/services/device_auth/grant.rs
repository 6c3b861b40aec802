//! The one record of a grant: JSON, so that later versions read it.
//!
//! Invariant: no two decisions write the same record by chance, for each carries a `nonce` of its
//! own. So whoever finds its record in the store has written it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::client::{Client, ClientId};
use super::starting::Asking;
use super::{DeviceAuthError, GRACE};
use crate::store::{Life, Timestamp, Value, Write};

/// How far a grant has come, and by whom.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum State {
    Pending,
    Denied {
        nonce: u64,
    },
    Approved {
        nonce: u64,
        subject: String,
        /// What the application gave for the device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<String>,
    },
    Issued {
        subject: String,
        issued_at: u64,
        token_expires_at: u64,
        /// The hash of the token; none where the application gave its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
}

impl std::fmt::Debug for State {
    /// Without what an application gave.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pending => "Pending",
            Self::Denied { .. } => "Denied",
            Self::Approved { .. } => "Approved",
            Self::Issued { .. } => "Issued",
        })
    }
}

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Grant {
    pub(super) client: ClientId,
    /// Which registration of that id: another one is another client.
    #[serde(default)]
    pub(super) registration: u64,
    pub(super) client_name: String,
    pub(super) scope: Vec<String>,
    started_at: u64,
    /// When the codes expire, in Unix milliseconds. The record lives on for a grace.
    expires_at: u64,
    token_millis: u64,
    pub(super) asking: Asking,
    pub(super) state: State,
    /// What a later version wrote beside it, kept while nodes of both serve.
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Grant {
    pub(super) fn pending(
        client: &Client,
        scope: Vec<String>,
        asking: Asking,
        now: Timestamp,
    ) -> Self {
        Self {
            client: client.id.clone(),
            registration: client.registration,
            client_name: client.name.clone(),
            scope,
            started_at: now.as_unix_millis(),
            expires_at: later(now, client.code_life).as_unix_millis(),
            token_millis: client.token_life.as_millis() as u64,
            asking,
            state: State::Pending,
            more: Map::new(),
        }
    }

    pub(super) fn read(value: &[u8]) -> Result<Self, DeviceAuthError> {
        // The error names a place in the record, never what stands there.
        let broken = |error: serde_json::Error| DeviceAuthError::Broken {
            reason: format!("a grant, at byte {}", error.column()),
        };
        serde_json::from_slice(value).map_err(broken)
    }

    pub(super) fn value(&self) -> Result<Value, DeviceAuthError> {
        let json = serde_json::to_vec(self);
        let json = json.map_err(|error| DeviceAuthError::Broken { reason: error.to_string() })?;
        Ok(Value::new(json)?)
    }

    /// The write of a grant that was just started.
    pub(super) fn first_write(&self) -> Result<Write, DeviceAuthError> {
        Ok(Write::new(self.value()?, Life::Until(later(self.expires_at(), GRACE))))
    }

    /// The write of a decision: it keeps the expiry.
    pub(super) fn decided(&self, state: State) -> Result<Write, DeviceAuthError> {
        let decided = Self { state, ..self.clone() };
        Ok(Write::new(decided.value()?, Life::Keep))
    }

    /// The same grant, issued.
    pub(super) fn issued(
        &self,
        subject: &str,
        token: Option<String>,
        at: Timestamp,
        expires_at: Timestamp,
    ) -> Self {
        let state = State::Issued {
            subject: subject.to_owned(),
            issued_at: at.as_unix_millis(),
            token_expires_at: expires_at.as_unix_millis(),
            token,
        };
        Self { state, ..self.clone() }
    }

    /// The write of an issued grant: it lives as long as its token.
    pub(super) fn until(&self, expires_at: Timestamp) -> Result<Write, DeviceAuthError> {
        Ok(Write::new(self.value()?, Life::Until(expires_at)))
    }

    /// Whether this client started it.
    pub(super) fn is_of(&self, client: &Client) -> bool {
        self.client == client.id && self.registration == client.registration
    }

    /// When the token of a grant that is issued now would expire.
    pub(super) fn token_expiry(&self, now: Timestamp) -> Timestamp {
        later(now, Duration::from_millis(self.token_millis))
    }

    pub(super) fn started_at(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.started_at)
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.expires_at)
    }

    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at()
    }
}

pub(super) fn later(now: Timestamp, by: Duration) -> Timestamp {
    let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_unix_millis(now.as_unix_millis().saturating_add(by))
}
