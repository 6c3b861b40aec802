//! Where the people of an application sign in, before they approve a device on the page.
//!
//! One record per application: an OpenID Connect issuer, or a page of the application's own that
//! hands people back with a signed assertion. The last write wins.
//!
//! Both secrets are needed as they are, to prove who we are or to check who signed; so they are in
//! the store as they are, and in no `Debug` and no error.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use subtle::ConstantTimeEq;

use super::secret::{drawn, encoded, hmac};
use super::{AppDeviceAuth, DeviceAuthError, checked_text, place};
use crate::store::{Fence, Life, Outcome, Store, StoreError, Value, Write};

/// The longest URL, client id or secret, in bytes.
const LONGEST: usize = 1_024;

/// How often a removal tries again when somebody else was faster.
const ATTEMPTS: usize = 8;

/// What an application proves to its issuer who it is with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OidcSecret(String);

impl OidcSecret {
    /// The secret that the issuer gave.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret as it is presented.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OidcSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OidcSecret(..)")
    }
}

/// What an application signs its assertions with: 43 characters, drawn here.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AssertionSecret(String);

impl AssertionSecret {
    /// The secret as it is handed out, once. Its bytes as they are here are the key.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The HMAC-SHA256 of a message.
    pub fn mac(&self, message: &[u8]) -> [u8; 32] {
        hmac(self.0.as_bytes(), &[message])
    }

    /// Whether this is that mac, in a time that does not depend on either.
    pub fn is_mac(&self, presented: &[u8], message: &[u8]) -> bool {
        self.mac(message).ct_eq(presented).into()
    }
}

impl fmt::Debug for AssertionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssertionSecret(..)")
    }
}

/// Where the people of an application sign in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SignIn {
    /// At an OpenID Connect issuer, to which we are a client.
    Oidc {
        /// The issuer's URL, from which everything else about it is found.
        issuer: String,
        /// Who we are there.
        client_id: String,
        /// How we prove it; `None` for a public client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_secret: Option<OidcSecret>,
    },
    /// At the application's own page, which hands people back with an assertion.
    Assertion {
        /// Where that page is.
        url: String,
        /// What it signs with.
        secret: AssertionSecret,
    },
}

/// What is set as the sign-in of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewSignIn {
    /// As [`SignIn::Oidc`].
    Oidc {
        /// The issuer's URL.
        issuer: String,
        /// Who we are there.
        client_id: String,
        /// How we prove it.
        client_secret: Option<OidcSecret>,
    },
    /// As [`SignIn::Assertion`], with a secret that is drawn.
    Assertion {
        /// Where the application's page is.
        url: String,
    },
}

impl NewSignIn {
    fn check(&self) -> Result<(), DeviceAuthError> {
        match self {
            Self::Oidc { issuer, client_id, client_secret } => {
                checked_url("issuer", issuer)?;
                if issuer.contains('?') {
                    let reason = "an issuer has no query".into();
                    return Err(DeviceAuthError::Invalid { field: "issuer", reason });
                }
                checked_text("clientId", client_id, LONGEST)?;
                client_secret
                    .as_ref()
                    .map_or(Ok(()), |it| checked_text("clientSecret", it.reveal(), LONGEST))
            }
            Self::Assertion { url } => checked_url("url", url),
        }
    }
}

/// People are sent there and secrets too: `https`, or to this machine.
fn checked_url(field: &'static str, url: &str) -> Result<(), DeviceAuthError> {
    checked_text(field, url, LONGEST)?;
    let is_plain = url.bytes().all(|byte| matches!(byte, 0x21..=0x7E))
        && !url.contains(['#', '@', '\\', '"', '<', '>']);
    if is_plain && is_safe_to_call(url) {
        return Ok(());
    }
    let reason = "give an https:// URL without user and fragment; http:// is for 127.0.0.1, [::1] \
                  and localhost only";
    Err(DeviceAuthError::Invalid { field, reason: reason.into() })
}

/// Whether what is sent to this URL is read by its host alone: it is `https`, or of this machine.
pub(super) fn is_safe_to_call(url: &str) -> bool {
    let host_of = |rest: &str| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default().to_owned();
        let without_port = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
            Some(_) | None => authority,
        };
        without_port.to_ascii_lowercase()
    };
    if let Some(rest) = url.strip_prefix("https://") {
        return !host_of(rest).is_empty();
    }
    let host = url.strip_prefix("http://").map(host_of);
    host.is_some_and(|host| matches!(&*host, "127.0.0.1" | "[::1]" | "localhost"))
}

impl SignIn {
    /// Whether this URL may be called or sent people to: it is `https`, or of this machine.
    pub fn is_safe(url: &str) -> bool {
        is_safe_to_call(url)
    }
}

/// What the record says.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(rename = "signIn")]
    sign_in: SignIn,
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Stored {
    fn read(value: &[u8]) -> Result<Self, DeviceAuthError> {
        // The error names a place in the record, never what stands there.
        let broken = |error: serde_json::Error| DeviceAuthError::Broken {
            reason: format!("a sign-in, at byte {}", error.column()),
        };
        serde_json::from_slice(value).map_err(broken)
    }
}

impl<S: Store> AppDeviceAuth<S> {
    /// Sets where the people of the application sign in, in place of what was set before.
    pub async fn set_sign_in(&self, new: NewSignIn) -> Result<SignIn, DeviceAuthError> {
        new.check()?;
        let sign_in = match new {
            NewSignIn::Oidc { issuer, client_id, client_secret } => {
                SignIn::Oidc { issuer, client_id, client_secret }
            }
            NewSignIn::Assertion { url } => {
                let secret = AssertionSecret(encoded(&drawn(&*self.shared.clock)));
                SignIn::Assertion { url, secret }
            }
        };
        let stored = Stored { sign_in, more: Map::new() };
        let json = serde_json::to_vec(&stored);
        let json = json.map_err(|error| DeviceAuthError::Broken { reason: error.to_string() })?;
        let write = Write::new(Value::new(json)?, Life::Permanent);
        match self.shared.store.put(&place::sign_in(self.app)?, write).await? {
            Outcome::Applied { .. } => Ok(stored.sign_in),
            // Only a fence is in the way of a put, and nobody fences this record.
            Outcome::Refused { .. } => Err(DeviceAuthError::Contended),
        }
    }

    /// Where the people of the application sign in; `None` where nobody said.
    pub async fn sign_in(&self) -> Result<Option<SignIn>, DeviceAuthError> {
        let record = self.shared.store.get(&place::sign_in(self.app)?).await?;
        let stored = record.map(|record| Stored::read(&record.value)).transpose()?;
        Ok(stored.map(|stored| stored.sign_in))
    }

    /// Forgets where they sign in; says whether it was known.
    pub async fn remove_sign_in(&self) -> Result<bool, DeviceAuthError> {
        let (key, store) = (place::sign_in(self.app)?, &self.shared.store);
        for _ in 0..ATTEMPTS {
            let Some(record) = store.get(&key).await? else { return Ok(false) };
            match store.compare_and_delete(&key, &record.value, Fence::NONE).await {
                Ok(Outcome::Applied { .. }) => return Ok(true),
                Ok(Outcome::Refused { current: None }) => return Ok(false),
                Ok(Outcome::Refused { current: Some(_) }) => {}
                Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                    Ok(None) => return Ok(true),
                    Ok(Some(_)) | Err(_) => return Err(unknown.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
        Err(DeviceAuthError::Contended)
    }
}

#[cfg(test)]
mod tests;
