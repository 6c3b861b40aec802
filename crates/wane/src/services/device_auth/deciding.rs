//! Deciding (`ACApproveDevice`): a person types a code, sees who asks, and says yes or no.
//!
//! Typed codes are normalised, then charged to the guess budget, then looked for. A code that does
//! not exist, has expired or belongs to another application is one answer, and each is a miss. What
//! cannot be a code is looked for nowhere and costs nothing.
//!
//! A decision is one swap of a pending record, and keeps its expiry. An approval whose answer comes
//! after the expiry is taken back by a second swap, unless the device used it in time: so what a
//! person is told is what became of it.

use super::grant::{Grant, State};
use super::guesses::{Attempt, Guesser, Source};
use super::place::{self, DeviceId, Reference};
use super::secret::LinkToken;
use super::starting::Asking;
use super::{AppDeviceAuth, ClientId, DeviceAuth, DeviceAuthError, Shared, UserCode, checked_text};
use crate::services::ClusterAppId;
use crate::store::{Key, Outcome, Record, Store, StoreError, Timestamp, Value};

/// The longest subject, in bytes.
const LONGEST_SUBJECT: usize = 255;

/// Who approves, and what the device gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Whom the device is linked to, as the application calls them: 1 to 255 bytes.
    pub subject: String,
    /// What the application wants the device to get; otherwise it gets a token that can be
    /// introspected and revoked.
    pub link_token: Option<LinkToken>,
}

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// It stands.
    Done(DeviceId),
    /// There is no such live code.
    NoSuchCode,
    /// Somebody has decided before.
    AlreadyDecided,
}

/// What a person is told before they decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The application: who approves must be known to it.
    pub app: ClusterAppId,
    /// The client.
    pub client: ClientId,
    /// Its name. Text, whatever it looks like.
    pub client_name: String,
    /// What it asks for.
    pub scope: Vec<String>,
    /// Where it asks from.
    pub asking: Asking,
    /// When it asked.
    pub started_at: Timestamp,
    /// When the code expires.
    pub expires_at: Timestamp,
    /// Whether somebody has decided before.
    pub is_decided: bool,
}

/// What was decided about a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet.
    Open,
    /// Yes, by this subject.
    Approved(String),
    /// No.
    Denied,
}

/// A grant that was found by its user code.
#[derive(Debug)]
struct Found {
    reference: Reference,
    value: Value,
    grant: Grant,
}

impl<S: Store> DeviceAuth<S> {
    /// Who asks with this code, of whichever application; `None` where there is no such live code.
    pub async fn look_up(
        &self,
        typed: &str,
        from: Source,
    ) -> Result<Option<Asked>, DeviceAuthError> {
        let found = self.shared.find(typed, None, Guesser::Address(from)).await?;
        Ok(found.map(Found::asked))
    }
}

impl<S: Store> AppDeviceAuth<S> {
    /// Who asks this application with the code; `None` where there is no such live code.
    pub async fn look_up(
        &self,
        typed: &str,
        by: Guesser,
    ) -> Result<Option<Asked>, DeviceAuthError> {
        let found = self.shared.find(typed, Some(self.app), by).await?;
        Ok(found.map(Found::asked))
    }

    /// What was decided about the code; `None` where there is no such live code.
    pub async fn standing(
        &self,
        typed: &str,
        by: Guesser,
    ) -> Result<Option<Standing>, DeviceAuthError> {
        let found = self.shared.find(typed, Some(self.app), by).await?;
        Ok(found.map(|found| match found.grant.state {
            State::Pending => Standing::Open,
            State::Denied { .. } => Standing::Denied,
            State::Approved { subject, .. } | State::Issued { subject, .. } => {
                Standing::Approved(subject)
            }
        }))
    }

    /// Links the device that shows this code, as soon as it polls.
    pub async fn approve(
        &self,
        typed: &str,
        approval: &Approval,
        by: Guesser,
    ) -> Result<Decided, DeviceAuthError> {
        checked_text("subject", &approval.subject, LONGEST_SUBJECT)?;
        let state = State::Approved {
            nonce: self.shared.clock.random_u64(),
            subject: approval.subject.clone(),
            payload: approval.link_token.as_ref().map(|token| token.reveal().to_owned()),
        };
        self.decide(typed, state, by).await
    }

    /// Refuses the device that shows this code.
    pub async fn deny(&self, typed: &str, by: Guesser) -> Result<Decided, DeviceAuthError> {
        self.decide(typed, State::Denied { nonce: self.shared.clock.random_u64() }, by).await
    }

    async fn decide(
        &self,
        typed: &str,
        state: State,
        by: Guesser,
    ) -> Result<Decided, DeviceAuthError> {
        let shared = &*self.shared;
        let Some(Found { reference, value, grant }) =
            shared.find(typed, Some(self.app), by).await?
        else {
            return Ok(Decided::NoSuchCode);
        };
        if grant.state != State::Pending {
            return Ok(Decided::AlreadyDecided);
        }
        let approves = matches!(state, State::Approved { .. });
        let (key, write) = (place::grant(self.app, reference.grant)?, grant.decided(state)?);
        let next = write.value.clone();
        let outcome = shared.store.compare_and_swap(&key, &value, write).await;
        if !self.stands(&key, outcome, &next).await? {
            return Ok(Decided::AlreadyDecided);
        }
        // The store may have taken its time.
        let is_late = grant.has_expired(shared.clock.now());
        if is_late && !(approves && self.was_used(&key, &next, &grant).await?) {
            return Ok(Decided::NoSuchCode);
        }
        Ok(Decided::Done(DeviceId::new(reference.grant)))
    }

    /// Takes back an approval that came too late; or says that the device was linked by it in time.
    async fn was_used(
        &self,
        key: &Key,
        approved: &Value,
        grant: &Grant,
    ) -> Result<bool, DeviceAuthError> {
        let store = &self.shared.store;
        let write = grant.decided(State::Denied { nonce: self.shared.clock.random_u64() })?;
        let is_issued = |record: &Record| {
            Grant::read(&record.value).map(|grant| matches!(grant.state, State::Issued { .. }))
        };
        match store.compare_and_swap(key, approved, write).await {
            Ok(Outcome::Applied { .. } | Outcome::Refused { current: None }) => Ok(false),
            Ok(Outcome::Refused { current: Some(record) }) => is_issued(&record),
            Err(unknown @ StoreError::Unknown { .. }) => match store.get(key).await {
                Ok(Some(record)) if record.value == *approved => Err(unknown.into()),
                Ok(Some(record)) => is_issued(&record),
                Ok(None) => Ok(false),
                Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a decision was taken by this swap. Its nonce tells where the store does not know.
    async fn stands(
        &self,
        key: &Key,
        outcome: Result<Outcome, StoreError>,
        next: &Value,
    ) -> Result<bool, DeviceAuthError> {
        match outcome {
            Ok(Outcome::Applied { .. }) => Ok(true),
            Ok(Outcome::Refused { current }) => match current {
                Some(record) if Grant::read(&record.value)?.state == State::Pending => {
                    Err(DeviceAuthError::Contended)
                }
                Some(_) | None => Ok(false),
            },
            Err(unknown @ StoreError::Unknown { .. }) => match self.shared.store.get(key).await {
                Ok(Some(record)) if record.value == *next => Ok(true),
                Ok(_) | Err(_) => Err(unknown.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

impl<S: Store> Shared<S> {
    /// The live grant of a code, within the guess budget.
    async fn find(
        &self,
        typed: &str,
        of: Option<ClusterAppId>,
        by: Guesser,
    ) -> Result<Option<Found>, DeviceAuthError> {
        let Some(code) = UserCode::parse(typed, self.settings.user_code) else { return Ok(None) };
        let hash = self.key.of_user_code(code.letters());
        let attempt = self.guesses.admit(by, of.unwrap_or(ClusterAppId::NONE), hash);
        let limited =
            |retry_after| DeviceAuthError::Limited { what: "wrong codes were tried", retry_after };
        let attempt: Attempt = attempt.map_err(limited)?;
        let found = self.found(&place::user_code(&hash)?, of).await;
        match &found {
            Ok(Some(_)) | Err(_) => attempt.forgive(),
            Ok(None) => drop(attempt),
        }
        found
    }

    async fn found(
        &self,
        key: &Key,
        of: Option<ClusterAppId>,
    ) -> Result<Option<Found>, DeviceAuthError> {
        let Some(record) = self.store.get(key).await? else { return Ok(None) };
        let broken = || DeviceAuthError::Broken { reason: "a user code points nowhere".into() };
        let reference = Reference::read(&record.value).ok_or_else(broken)?;
        if of.is_some_and(|app| app != reference.app) {
            return Ok(None);
        }
        let grant = self.grant(reference.app, reference.grant).await?;
        let live = grant.filter(|(_, grant)| !grant.has_expired(self.clock.now()));
        Ok(live.map(|(value, grant)| Found { reference, value, grant }))
    }
}

impl Found {
    fn asked(self) -> Asked {
        let Self { reference, grant, .. } = self;
        Asked {
            app: reference.app,
            started_at: grant.started_at(),
            expires_at: grant.expires_at(),
            is_decided: grant.state != State::Pending,
            client: grant.client,
            client_name: grant.client_name,
            scope: grant.scope,
            asking: grant.asking,
        }
    }
}
