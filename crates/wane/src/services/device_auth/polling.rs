//! Polling (`ACPollToken`): what a device is told, and the redemption of an approved grant.
//!
//! The expiry is looked at first, then the state. Only pending polls are throttled. An approved
//! grant is redeemed in this order: the rows that point to it are put, which is the same however
//! often and by whomever it is done; the expiry is looked at once more, for the store may have taken
//! its time; then the grant is swapped from approved to issued, which one poll does. Every other
//! poll of the code finds it issued and, within the window, derives the same token.
//!
//! A code that was issued answers with its token until the window closes, even where its own expiry
//! falls into it: nothing new is granted by telling again what was told.

use std::time::Duration;

use super::grant::{Grant, State, later};
use super::place::{self, DeviceId, GrantId};
use super::secret::{DeviceCode, LinkToken, encoded};
use super::throttle::Judgement;
use super::{AppDeviceAuth, Client, DeviceAuthError, GRACE, REDEEM_WINDOW};
use crate::store::{Life, Outcome, Store, StoreError, Timestamp, Value, Write};

/// How much longer than the window an application's payload is kept, for slow stores and clocks.
const PAYLOAD_SLACK: Duration = Duration::from_secs(50);

/// What a poll is told.
#[derive(Debug)]
pub enum Polled {
    /// `authorization_pending`: nothing is decided yet.
    Pending,
    /// `slow_down`: nothing is decided yet, and the poll came early.
    SlowDown {
        /// How often the device may poll from now on.
        interval: Duration,
    },
    /// `access_denied`: somebody said no.
    Denied,
    /// `expired_token`: nobody approved in time, or the device did not ask in time.
    Expired,
    /// `invalid_grant`: no code, another client's, or one that was used.
    Invalid,
    /// The device is linked.
    Issued(Issued),
}

/// What a device gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The link token.
    pub token: LinkToken,
    /// How long it is good for; `None` for an application's own payload, of which only that knows.
    pub expires_in: Option<Duration>,
    /// What was granted: exactly what was asked for, in that order.
    pub scope: Vec<String>,
    /// The device.
    pub device: DeviceId,
}

impl<S: Store> AppDeviceAuth<S> {
    /// Tells a device what became of its code, and redeems it once it is approved.
    pub async fn poll(
        &self,
        client: &Client,
        device_code: &str,
    ) -> Result<Polled, DeviceAuthError> {
        self.checked_client(client)?;
        let Some(code) = DeviceCode::parse(device_code) else { return Ok(Polled::Invalid) };
        let found = self.grant(code.grant()).await?;
        let Some((value, grant)) = found.filter(|(_, grant)| grant.is_of(client)) else {
            return Ok(Polled::Invalid);
        };
        let now = self.shared.clock.now();
        match &grant.state {
            State::Issued { .. } => self.repeat(&code, &grant).await,
            State::Pending | State::Denied { .. } | State::Approved { .. }
                if grant.has_expired(now) =>
            {
                Ok(Polled::Expired)
            }
            State::Denied { .. } => Ok(Polled::Denied),
            State::Pending => {
                let left = now.until(grant.expires_at());
                let judged = self.shared.throttle.judge(DeviceId::new(code.grant()), left);
                Ok(match judged {
                    Judgement::Pending => Polled::Pending,
                    Judgement::SlowDown(interval) => Polled::SlowDown { interval },
                })
            }
            State::Approved { subject, payload, .. } => {
                let approved = Approved { code: &code, value: &value, grant: &grant, subject };
                self.redeem(approved, payload.as_deref(), now).await
            }
        }
    }

    async fn redeem(
        &self,
        approved: Approved<'_>,
        payload: Option<&str>,
        now: Timestamp,
    ) -> Result<Polled, DeviceAuthError> {
        let Approved { code, value, grant, subject } = approved;
        let (id, store) = (code.grant(), &self.shared.store);
        let expires_at = grant.token_expiry(now);
        // Longer than the grant, which decides: a slower poll puts them again with its own times.
        let pointing = Life::Until(later(expires_at, GRACE));
        let (token, hash, leading) = match payload {
            Some(payload) => {
                let life = Life::Until(later(now, REDEEM_WINDOW + PAYLOAD_SLACK));
                let kept = Write::new(Value::new(payload.to_owned())?, life);
                (LinkToken::payload(payload)?, None, (place::payload(self.app, id)?, kept))
            }
            None => {
                let token = self.shared.key.link_token(id, code);
                let hash = token.hash();
                let leads = Write::new(id.pointer()?, pointing);
                (token, Some(encoded(&hash)), (place::token(self.app, &hash)?, leads))
            }
        };
        let listing = place::listing(self.app, subject, id)?;
        let listed = (listing, Write::new(Value::default(), pointing));
        // Without fences a put is refused by nothing.
        let _applied = store.put_batch(vec![leading, listed]).await?;
        let issued_at = self.shared.clock.now();
        if grant.has_expired(issued_at) {
            return Ok(Polled::Expired);
        }
        let issued = grant.issued(subject, hash, issued_at, expires_at);
        let (key, write) = (place::grant(self.app, id)?, issued.until(expires_at)?);
        match store.compare_and_swap(&key, value, write).await {
            Ok(Outcome::Applied { .. }) => Ok(self.told(token, id, &issued)),
            Ok(Outcome::Refused { current: None }) => Ok(Polled::Invalid),
            Ok(Outcome::Refused { current: Some(record) }) => {
                self.overtaken(code, &Grant::read(&record.value)?).await
            }
            // Whoever issued it, the token is the same.
            Err(unknown @ StoreError::Unknown { .. }) => match self.grant(id).await {
                Ok(Some((_, grant))) if matches!(grant.state, State::Issued { .. }) => {
                    Ok(self.told(token, id, &grant))
                }
                Ok(_) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Another poll of the same code was faster, or the approval was taken back as too late.
    async fn overtaken(&self, code: &DeviceCode, grant: &Grant) -> Result<Polled, DeviceAuthError> {
        match grant.state {
            State::Issued { .. } => self.repeat(code, grant).await,
            State::Denied { .. } if grant.has_expired(self.shared.clock.now()) => {
                Ok(Polled::Expired)
            }
            State::Denied { .. } => Ok(Polled::Denied),
            State::Pending | State::Approved { .. } => Err(DeviceAuthError::Contended),
        }
    }

    /// What an issued grant answers: its token for a while, then nothing.
    async fn repeat(&self, code: &DeviceCode, grant: &Grant) -> Result<Polled, DeviceAuthError> {
        let State::Issued { issued_at, token, .. } = &grant.state else {
            return Ok(Polled::Invalid);
        };
        let (id, now) = (code.grant(), self.shared.clock.now());
        if now >= later(Timestamp::from_unix_millis(*issued_at), REDEEM_WINDOW) {
            return Ok(Polled::Invalid);
        }
        let token = match token {
            // With another key it would be another token, which is good for nothing.
            Some(hash) => Some(self.shared.key.link_token(id, code))
                .filter(|token| encoded(&token.hash()) == *hash),
            None => self.payload(id).await?,
        };
        Ok(token.map_or(Polled::Invalid, |token| self.told(token, id, grant)))
    }

    fn told(&self, token: LinkToken, id: GrantId, grant: &Grant) -> Polled {
        let State::Issued { token_expires_at, token: own, .. } = &grant.state else {
            return Polled::Invalid;
        };
        let expires_at = Timestamp::from_unix_millis(*token_expires_at);
        let left = || self.shared.clock.now().until(expires_at);
        Polled::Issued(Issued {
            token,
            expires_in: own.as_ref().map(|_| left()),
            scope: grant.scope.clone(),
            device: DeviceId::new(id),
        })
    }

    async fn payload(&self, id: GrantId) -> Result<Option<LinkToken>, DeviceAuthError> {
        let Some(record) = self.shared.store.get(&place::payload(self.app, id)?).await? else {
            return Ok(None);
        };
        let broken = |_| DeviceAuthError::Broken { reason: "a payload is not text".into() };
        let text = std::str::from_utf8(&record.value).map_err(broken)?;
        LinkToken::payload(text).map(Some)
    }
}

/// A grant that may be redeemed, as it was read.
#[derive(Debug, Clone, Copy)]
struct Approved<'a> {
    code: &'a DeviceCode,
    value: &'a Value,
    grant: &'a Grant,
    subject: &'a str,
}
