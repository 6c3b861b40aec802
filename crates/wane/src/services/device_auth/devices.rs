//! Linked devices and their tokens: listed, introspected (RFC 7662), revoked (RFC 7009).
//!
//! The record of the issued grant is the device. A token leads to it and is good while it is
//! there, so that revoking is removing one record in one step. The rows that led to it are removed
//! after; what is left of them means nothing and expires. A device whose client was removed is not
//! linked any more either.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::grant::{Grant, State};
use super::place::{self, DeviceId, GrantId};
use super::secret::{LinkToken, decoded, encoded};
use super::starting::Asking;
use super::{AppDeviceAuth, Client, ClientId, DeviceAuthError};
use crate::store::{
    ClusteringRange, Fence, Outcome, PageLimit, Store, StoreError, Timestamp, Value,
};

/// How often a revocation looks again: a grant that is approved changes once.
const ATTEMPTS: usize = 4;

/// A device that is linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedDevice {
    /// Its name.
    pub id: DeviceId,
    /// Whom it is linked to.
    pub subject: String,
    /// The client that it is.
    pub client: ClientId,
    /// What that client was called.
    pub client_name: String,
    /// What it may do.
    pub scope: Vec<String>,
    /// Where it asked from.
    pub asking: Asking,
    /// When it was linked.
    pub linked_at: Timestamp,
    /// When its token expires, and it is no longer linked.
    pub expires_at: Timestamp,
}

/// Some of the linked devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePage {
    /// The devices. Only `next` tells the end: a page may be short.
    pub devices: Vec<LinkedDevice>,
    /// Where to go on, or `None` once all were listed.
    pub next: Option<DevicePlace>,
}

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlace(String);

impl DevicePlace {
    /// The place that [`DevicePlace::as_str`] gave.
    pub fn parse(text: &str) -> Result<Self, DeviceAuthError> {
        let bytes = URL_SAFE_NO_PAD.decode(text);
        if text.len() <= 128 && bytes.is_ok_and(|bytes| bytes.first() == Some(&b'l')) {
            return Ok(Self(text.to_owned()));
        }
        let reason = "give the place that the last page answered".into();
        Err(DeviceAuthError::Invalid { field: "after", reason })
    }

    /// The place as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of(range: &ClusteringRange) -> Self {
        Self(encoded(range.start()))
    }

    fn start(&self) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(&self.0).unwrap_or_default()
    }
}

/// A token that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveToken {
    /// The device that has it.
    pub device: DeviceId,
    /// The client that it was issued to.
    pub client: ClientId,
    /// Whom the device is linked to.
    pub subject: String,
    /// What it may do.
    pub scope: Vec<String>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl<S: Store> AppDeviceAuth<S> {
    /// The devices that are linked to a subject, or to anybody.
    pub async fn list(
        &self,
        subject: Option<&str>,
        after: Option<&DevicePlace>,
        limit: PageLimit,
    ) -> Result<DevicePage, DeviceAuthError> {
        let (partition, mut range) = place::listings(self.app, subject)?;
        if let Some(place) = after {
            let start = place.start();
            if !range.contains(&start) {
                let reason = "the place is of another list; begin anew".into();
                return Err(DeviceAuthError::Invalid { field: "after", reason });
            }
            range = range.starting_at(start);
        }
        let page = self.shared.store.read(&partition, &range, limit).await?;
        let ids: Vec<GrantId> =
            page.rows.iter().filter_map(|row| place::listed(&row.key)).collect();
        let keys: Result<Vec<_>, _> = ids.iter().map(|id| place::grant(self.app, *id)).collect();
        let records = self.shared.store.get_batch(&keys?).await?;
        let mut grants = Vec::with_capacity(ids.len());
        for (id, record) in ids.into_iter().zip(records) {
            let Some(record) = record else { continue };
            grants.push((id, Grant::read(&record.value)?));
        }
        let of_clients: Vec<&Grant> = grants.iter().map(|(_, grant)| grant).collect();
        let have_clients = self.have_clients(&of_clients).await?;
        let kept = grants.into_iter().zip(have_clients).filter(|(_, has_client)| *has_client);
        let devices = kept.filter_map(|((id, grant), _)| linked(id, grant)).collect();
        Ok(DevicePage { devices, next: page.rest.as_ref().map(DevicePlace::of) })
    }

    /// Unlinks a device, at once: its token is not good any more, and where it was approved and has
    /// not asked for its token yet, it gets none. Says whether there was such a device.
    pub async fn revoke(&self, device: DeviceId) -> Result<bool, DeviceAuthError> {
        let id = device.grant();
        for _ in 0..ATTEMPTS {
            let Some((value, grant)) = self.grant(id).await? else { return Ok(false) };
            match self.remove(id, &value, &grant).await? {
                Removal::Done => return Ok(true),
                Removal::Nothing => return Ok(false),
                Removal::Overtaken => {}
            }
        }
        Err(DeviceAuthError::Contended)
    }

    /// What is known of a token; `None` where it is not good.
    pub async fn introspect(&self, token: &str) -> Result<Option<ActiveToken>, DeviceAuthError> {
        let Some((id, _, grant)) = self.by_token(token).await? else { return Ok(None) };
        if self.have_clients(&[&grant]).await? != [true] {
            return Ok(None);
        }
        let now = self.shared.clock.now();
        let device = linked(id, grant).filter(|device| now < device.expires_at);
        Ok(device.map(|device| ActiveToken {
            device: device.id,
            client: device.client,
            subject: device.subject,
            scope: device.scope,
            issued_at: device.linked_at,
            expires_at: device.expires_at,
        }))
    }

    /// Ends a token of this client, and unlinks its device; says whether it was good. Another
    /// client's token looks like none.
    pub async fn revoke_token(
        &self,
        client: &Client,
        token: &str,
    ) -> Result<bool, DeviceAuthError> {
        self.checked_client(client)?;
        match self.by_token(token).await? {
            Some((id, value, grant)) if grant.is_of(client) => {
                match self.remove(id, &value, &grant).await? {
                    Removal::Done => Ok(true),
                    Removal::Nothing => Ok(false),
                    Removal::Overtaken => Err(DeviceAuthError::Contended),
                }
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The issued grant that a token leads to.
    async fn by_token(
        &self,
        token: &str,
    ) -> Result<Option<(GrantId, Value, Grant)>, DeviceAuthError> {
        let Some(hash) = LinkToken::presented(token).map(|token| token.hash()) else {
            return Ok(None);
        };
        let Some(row) = self.shared.store.get(&place::token(self.app, &hash)?).await? else {
            return Ok(None);
        };
        let broken = || DeviceAuthError::Broken { reason: "a token points nowhere".into() };
        let id = GrantId::pointed_to(&row).ok_or_else(broken)?;
        let hash = encoded(&hash);
        let is_its = |grant: &Grant| match &grant.state {
            State::Issued { token, .. } => token.as_ref() == Some(&hash),
            State::Pending | State::Denied { .. } | State::Approved { .. } => false,
        };
        let found = self.grant(id).await?.filter(|(_, grant)| is_its(grant));
        Ok(found.map(|(value, grant)| (id, value, grant)))
    }

    async fn remove(
        &self,
        id: GrantId,
        value: &Value,
        grant: &Grant,
    ) -> Result<Removal, DeviceAuthError> {
        let (subject, token) = match &grant.state {
            State::Issued { subject, token, .. } => (subject, token.as_deref()),
            State::Approved { subject, .. } => (subject, None),
            State::Pending | State::Denied { .. } => return Ok(Removal::Nothing),
        };
        let (key, store) = (place::grant(self.app, id)?, &self.shared.store);
        match store.compare_and_delete(&key, value, Fence::NONE).await {
            Ok(Outcome::Applied { .. }) => {}
            Ok(Outcome::Refused { current: None }) => return Ok(Removal::Nothing),
            Ok(Outcome::Refused { current: Some(_) }) => return Ok(Removal::Overtaken),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(&key).await {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return Err(unknown.into()),
            },
            Err(error) => return Err(error.into()),
        }
        // The device is unlinked. A row that stays leads nowhere and expires.
        let listing = place::listing(self.app, subject, id)?;
        drop(store.compare_and_delete(&listing, &[], Fence::NONE).await);
        if let Some(hash) = token.and_then(decoded) {
            let key = place::token(self.app, &hash)?;
            drop(store.compare_and_delete(&key, id.as_bytes(), Fence::NONE).await);
        }
        Ok(Removal::Done)
    }
}

/// What became of a removal.
enum Removal {
    Done,
    /// There was nothing to remove, or somebody else has removed it.
    Nothing,
    /// An approved grant was issued meanwhile.
    Overtaken,
}

/// The device of a grant that was issued.
fn linked(id: GrantId, grant: Grant) -> Option<LinkedDevice> {
    let State::Issued { subject, issued_at, token_expires_at, .. } = grant.state else {
        return None;
    };
    Some(LinkedDevice {
        id: DeviceId::new(id),
        subject,
        client: grant.client,
        client_name: grant.client_name,
        scope: grant.scope,
        asking: grant.asking,
        linked_at: Timestamp::from_unix_millis(issued_at),
        expires_at: Timestamp::from_unix_millis(token_expires_at),
    })
}
