//! Starting (`ACDeviceAuthorizationRequest`): a device asks, and is given its two codes.
//!
//! The user code is taken first, by an insert that nobody else's code survives: where one is there
//! already, another is drawn. Then the grant is written, and only then are the codes told. Where it
//! cannot be written the code is given back; what a crash in between leaves is a code that nobody
//! knows, and expires with the rest.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grant::Grant;
use super::place::{self, Reference};
use super::secret::{DeviceCode, Hash};
use super::{AppDeviceAuth, Client, DeviceAuthError, INTERVAL, Source, UserCode, steers};
use crate::store::{Fence, Key, Life, Outcome, Store, StoreError, Timestamp, Write};

/// How often a user code is drawn. With 10,000 live ones, two in a row are taken once in 1e18.
const DRAWS: usize = 8;

/// How much of what a device calls itself is kept, in bytes.
const AGENT: usize = 256;

/// Who asks, as the person who approves is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asking {
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// What the device calls itself. It is cut to 256 bytes and stripped of what controls lines
    /// and direction.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
}

impl Asking {
    fn kept(&self) -> Self {
        let mut agent: String = self.agent.chars().filter(|c| !steers(*c)).collect();
        let end = (0..=AGENT.min(agent.len())).rev().find(|at| agent.is_char_boundary(*at));
        agent.truncate(end.unwrap_or_default());
        Self { address: self.address, agent }
    }
}

/// The codes that a device was given.
#[derive(Debug)]
pub struct Started {
    /// What it polls with.
    pub device_code: DeviceCode,
    /// What it shows.
    pub user_code: UserCode,
    /// When both expire.
    pub expires_at: Timestamp,
    /// How long that is from now.
    pub expires_in: Duration,
    /// How often it may poll.
    pub interval: Duration,
    /// What it asks for, or would get if it asked for nothing.
    pub scope: Vec<String>,
}

impl<S: Store> AppDeviceAuth<S> {
    /// Gives a device its codes. `scope` is what it asks for, parted by blanks.
    pub async fn start(
        &self,
        client: &Client,
        scope: Option<&str>,
        asking: &Asking,
    ) -> Result<Started, DeviceAuthError> {
        self.checked_client(client)?;
        let scope = client.granted(scope)?;
        let shared = &*self.shared;
        self.pace(client, asking)?;
        shared.count_live().await?;
        let now = shared.clock.now();
        let device_code = DeviceCode::draw(&*shared.clock);
        let grant = Grant::pending(client, scope, asking.kept(), now);
        let expires_at = grant.expires_at();
        let reference = Reference { app: self.app, grant: device_code.grant() };
        let (user_code, hash) = self.take_user_code(&reference, expires_at).await?;
        let key = place::grant(self.app, reference.grant)?;
        let inserted = self.insert(&key, grant.first_write()?).await;
        if !matches!(inserted, Ok(true)) {
            self.give_back(&hash, &reference).await?;
            return Err(inserted.err().unwrap_or(DeviceAuthError::Contended));
        }
        Ok(Started {
            device_code,
            user_code,
            expires_at,
            expires_in: shared.clock.now().until(expires_at),
            interval: INTERVAL,
            scope: grant.scope,
        })
    }

    /// A client of another application is not known here.
    pub(super) fn checked_client(&self, client: &Client) -> Result<(), DeviceAuthError> {
        if client.app == self.app { Ok(()) } else { Err(DeviceAuthError::InvalidClient) }
    }

    fn pace(&self, client: &Client, asking: &Asking) -> Result<(), DeviceAuthError> {
        let now = self.shared.clock.monotonic();
        let limited = |what| move |retry_after| DeviceAuthError::Limited { what, retry_after };
        if let Some(source) = asking.address.map(Source::of) {
            if let Some(network) = source.network() {
                let of_network = self.shared.starts_per_network.admit(network, now);
                of_network.map_err(limited("codes were asked for from this network"))?;
            }
            let of_source = self.shared.starts_per_source.admit(source, now);
            of_source.map_err(limited("codes were asked for from this address"))?;
        }
        let of_client = self.shared.starts_per_client.admit(client.id.clone(), now);
        of_client.map_err(limited("codes were asked for by this client"))
    }

    async fn take_user_code(
        &self,
        reference: &Reference,
        expires_at: Timestamp,
    ) -> Result<(UserCode, Hash), DeviceAuthError> {
        let shared = &*self.shared;
        let bounds = (shared.settings.codes_per_app, shared.settings.codes_in_all);
        for _ in 0..DRAWS {
            let code = UserCode::draw(&*shared.clock, shared.settings.user_code);
            let hash = shared.key.of_user_code(code.letters());
            let limits = (shared.clock.now(), bounds.0, bounds.1);
            if !shared.live.reserve(hash, self.app, expires_at, limits)? {
                continue;
            }
            let write = Write::new(reference.value()?, Life::Until(expires_at));
            match self.insert(&place::user_code(&hash)?, write).await {
                Ok(true) => return Ok((code, hash)),
                // Somebody else's, which is counted as theirs when it is counted anew.
                Ok(false) => shared.live.release(&hash),
                Err(error) => {
                    // What may have been written stays counted.
                    if matches!(&error, DeviceAuthError::Store(StoreError::Unavailable { .. })) {
                        shared.live.release(&hash);
                    }
                    return Err(error);
                }
            }
        }
        Err(DeviceAuthError::Contended)
    }

    /// Removes a code that nobody was told. One that cannot be removed stays counted.
    async fn give_back(&self, hash: &Hash, reference: &Reference) -> Result<(), DeviceAuthError> {
        let (key, value) = (place::user_code(hash)?, reference.value()?);
        match self.shared.store.compare_and_delete(&key, &value, Fence::NONE).await {
            Ok(Outcome::Applied { .. } | Outcome::Refused { current: None }) => {
                self.shared.live.release(hash);
            }
            Ok(Outcome::Refused { current: Some(_) }) | Err(_) => {}
        }
        Ok(())
    }

    /// Inserts what is unlike every other record; `false` where something else stands there.
    async fn insert(&self, key: &Key, write: Write) -> Result<bool, DeviceAuthError> {
        let (store, value) = (&self.shared.store, write.value.clone());
        match store.insert_if_not_exists(key, write).await {
            Ok(Outcome::Applied { .. }) => Ok(true),
            Ok(Outcome::Refused { .. }) => Ok(false),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(key).await {
                Ok(Some(found)) if found.value == value => Ok(true),
                Ok(_) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}
