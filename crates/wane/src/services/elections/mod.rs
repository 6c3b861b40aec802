//! Leader elections: at most one holder per name, and a token that outlives every lease.
//!
//! One permanent record per election holds the token, the lease and its end. A candidate wins by
//! swapping an ended lease for its own with the next token, stays leader by swapping the end before
//! it comes, and resigns by swapping it away. Each step is one conditional write, so no race makes
//! two winners, and the token grows for ever: across expiry, resignation and restart.
//!
//! Losing is an answer, not an error. Steps are compared by token and lease id, never by the
//! holder's name, which two nodes may share.
//!
//! Invariant: what a holder may believe ends on its own clock before the lease can end at the
//! store, by the margin of [`LeaseRules`]. Clocks whose rates differ by more, and machines that are
//! suspended, leave the token as the only protection: hand it to whatever you protect.
//!
//! Flow: `campaign` takes; [`Leader`] keeps, by the task in `renewal`, what `right` measures;
//! `watch` tells followers; `guard` turns a token into the fence of a write.
//! Not here: writes to other resources, which must refuse lower tokens themselves.

mod guard;
mod leader;
mod record;
mod renewal;
mod right;
mod rules;
mod watch;

pub use super::names::MAX_NAME;
pub use guard::Guard;
pub use leader::{Ballot, Leader, Loss};
pub(crate) use record::restored;
pub use record::{LeaseId, Token};
pub use renewal::ReleaseError;
pub use rules::LeaseRules;
pub use watch::ElectionWatch;

use std::sync::Arc;
use std::time::Duration;

use self::record::{Stored, checked_name};
use super::names::{Names, Room};
use super::{ClusterAppId, MAX_NAMES};
use crate::clock::SharedClock;
use crate::store::{Key, Keyspace, Outcome, Record, Store, StoreError, Timestamp, WatchedStore};

/// How often a step tries again when somebody else was faster.
const ATTEMPTS: usize = 16;

/// Why a step of an election failed. Nothing was changed, unless the store does not know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum ElectionsError {
    /// A field breaks a rule. Nothing was touched.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// The lease is too short or too long. Nothing was touched.
    #[error("{reason}")]
    InvalidTtl { reason: String },

    /// A guarded write carries a token that is not the newest of its election. Stop acting as the
    /// leader: somebody else was elected since.
    #[error("token {token} is not the newest of the election {election}; stop, and campaign anew")]
    StaleToken { election: String, token: Token },

    /// The application has as many elections as it may. Nothing was changed; use one that is there.
    #[error("the application has {MAX_NAMES} elections already; use one of them")]
    TooMany,

    /// The election has given out every token there is.
    #[error("the election has no tokens left; use another name")]
    Exhausted,

    /// Others kept changing the election. Nothing was changed; try again.
    #[error("the election kept changing under the step; try again")]
    Contended,

    /// The store reports no more changes: this process is ending.
    #[error("the store was closed")]
    Closed,

    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A lease that was won or renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who it is: drawn anew for each campaign, known to its winner only.
    pub id: LeaseId,
    /// The fencing token.
    pub token: Token,
    /// When it ends at the store.
    pub expires_at: Timestamp,
    /// How long it was asked for.
    pub ttl: Duration,
    /// How long its holder may act on it, counted from when the request for it was sent.
    pub right: Duration,
}

/// Where an election stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Who holds it; `None` where the lease has ended.
    pub holder: Option<String>,
    /// The newest token.
    pub token: Token,
    /// What is left of the lease; zero where it has ended.
    pub remaining: Duration,
}

/// What became of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Campaigned {
    /// The candidate holds the election.
    Won(Lease),
    /// Somebody else does.
    Held(Standing),
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// The lease goes on.
    Renewed(Lease),
    /// The lease has ended; where the election stands now, if there was ever one.
    Lost(Option<Standing>),
}

/// What became of a resignation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resigned {
    /// The lease has ended, now or by an earlier call.
    Resigned,
    /// Somebody else holds the election, or nobody ever did.
    Lost(Option<Standing>),
}

/// The elections of all applications. A clone is a second handle.
#[derive(Debug)]
pub struct Elections<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    store: WatchedStore<S>,
    clock: SharedClock,
    rules: LeaseRules,
    names: Names,
}

impl<S> Clone for Elections<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> Elections<S> {
    /// Elections in a store. `clock` must be the one that it expires by.
    pub fn new(store: WatchedStore<S>, clock: SharedClock, rules: LeaseRules) -> Self {
        Self { shared: Arc::new(Shared { store, clock, rules, names: Names::default() }) }
    }

    /// The elections of one application.
    pub fn of(&self, app: ClusterAppId) -> AppElections<S> {
        AppElections { shared: Arc::clone(&self.shared), app }
    }
}

/// The elections of one application.
#[derive(Debug)]
pub struct AppElections<S> {
    shared: Arc<Shared<S>>,
    app: ClusterAppId,
}

impl<S> Clone for AppElections<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), app: self.app }
    }
}

impl<S: Store> AppElections<S> {
    /// Takes the election for `holder` where nobody holds it.
    ///
    /// The lease is the caller's own: a second campaign under the same name is held by the first.
    pub async fn campaign(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
    ) -> Result<Campaigned, ElectionsError> {
        self.campaign_as(name, holder, ttl, LeaseId::draw(&*self.shared.clock)).await
    }

    /// Campaigns for the lease `id`, which may be held already by an earlier campaign that nobody
    /// confirmed.
    async fn campaign_as(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        id: LeaseId,
    ) -> Result<Campaigned, ElectionsError> {
        let (key, ttl) = (self.key(name)?, self.shared.rules.checked_ttl(ttl)?);
        record::checked_holder(holder)?;
        let mut current = self.read(&key).await?;
        for _ in 0..ATTEMPTS {
            let now = self.shared.clock.now();
            let before = current.as_ref().map(|(_, stored)| stored);
            let won = match before.filter(|stored| stored.is_held(now)) {
                Some(stored) if stored.lease_id == id => stored.renewed(now),
                Some(stored) => return Ok(Campaigned::Held(stored.standing(now))),
                None => Stored::won(before, id, holder, ttl, now)?,
            };
            if before.is_none() {
                self.add_name(&key).await?;
            }
            match self.write(&key, current.as_ref(), &won).await? {
                None => return Ok(Campaigned::Won(self.lease(&won))),
                Some(other) => current = other,
            }
        }
        Err(ElectionsError::Contended)
    }

    /// Moves the end of a lease that has not ended.
    pub async fn renew(
        &self,
        name: &str,
        id: LeaseId,
        token: Token,
    ) -> Result<Renewed, ElectionsError> {
        let key = self.key(name)?;
        let mut current = self.read(&key).await?;
        for _ in 0..ATTEMPTS {
            let now = self.shared.clock.now();
            let held = current.as_ref().filter(|(_, stored)| stored.is_lease(id, token));
            let Some((_, stored)) = held.filter(|(_, stored)| stored.is_held(now)) else {
                return Ok(Renewed::Lost(current.map(|(_, stored)| stored.standing(now))));
            };
            let renewed = stored.renewed(now);
            match self.write(&key, current.as_ref(), &renewed).await? {
                None => return Ok(Renewed::Renewed(self.lease(&renewed))),
                Some(other) => current = other,
            }
        }
        Err(ElectionsError::Contended)
    }

    /// Ends a lease. Give up acting on it before you call this.
    pub async fn resign(
        &self,
        name: &str,
        id: LeaseId,
        token: Token,
    ) -> Result<Resigned, ElectionsError> {
        let key = self.key(name)?;
        let mut current = self.read(&key).await?;
        for _ in 0..ATTEMPTS {
            let now = self.shared.clock.now();
            let Some((_, stored)) = current.as_ref().filter(|(_, it)| it.is_lease(id, token))
            else {
                return Ok(Resigned::Lost(current.map(|(_, stored)| stored.standing(now))));
            };
            if !stored.is_held(now) {
                return Ok(Resigned::Resigned);
            }
            match self.write(&key, current.as_ref(), &stored.resigned()).await? {
                None => return Ok(Resigned::Resigned),
                Some(other) => current = other,
            }
        }
        Err(ElectionsError::Contended)
    }

    /// Where the election stands; `None` where nobody ever campaigned.
    pub async fn observe(&self, name: &str) -> Result<Option<Standing>, ElectionsError> {
        let current = self.read(&self.key(name)?).await?;
        Ok(current.map(|(_, stored)| stored.standing(self.shared.clock.now())))
    }

    async fn add_name(&self, key: &Key) -> Result<(), ElectionsError> {
        let Shared { names, store, clock, .. } = &*self.shared;
        match names.add(key, store, clock).await? {
            Room::Left => Ok(()),
            Room::None => Err(ElectionsError::TooMany),
        }
    }

    /// What the store holds, and what that means.
    async fn read(&self, key: &Key) -> Result<Option<(Record, Stored)>, StoreError> {
        decoded(key, self.shared.store.get(key).await?)
    }

    /// Puts `next` in the place of `current`. `None` is done; else what stands there instead.
    ///
    /// Where the store does not know, the record tells: the lease's id is in it, so that nobody else
    /// writes the same.
    async fn write(
        &self,
        key: &Key,
        current: Option<&(Record, Stored)>,
        next: &Stored,
    ) -> Result<Option<Option<(Record, Stored)>>, StoreError> {
        let (store, write) = (&self.shared.store, next.write()?);
        let outcome = match current {
            None => store.insert_if_not_exists(key, write).await,
            Some((record, _)) => store.compare_and_swap(key, &record.value, write).await,
        };
        match outcome {
            Ok(Outcome::Applied { .. }) => Ok(None),
            Ok(Outcome::Refused { current }) => Ok(Some(decoded(key, current)?)),
            Err(unknown @ StoreError::Unknown { .. }) => match self.read(key).await {
                Ok(Some((_, stored))) if stored == *next => Ok(None),
                Ok(_) | Err(_) => Err(unknown),
            },
            Err(error) => Err(error),
        }
    }

    fn lease(&self, stored: &Stored) -> Lease {
        Lease {
            id: stored.lease_id,
            token: stored.token,
            expires_at: stored.end(),
            ttl: stored.ttl(),
            right: self.shared.rules.right(stored.ttl()),
        }
    }

    fn key(&self, name: &str) -> Result<Key, ElectionsError> {
        checked_name(name)?;
        Ok(Key::new(&self.app.partition(Keyspace::Elections), name.as_bytes())?)
    }
}

fn decoded(key: &Key, record: Option<Record>) -> Result<Option<(Record, Stored)>, StoreError> {
    record.map(|record| Stored::read(key, &record.value).map(|stored| (record, stored))).transpose()
}
