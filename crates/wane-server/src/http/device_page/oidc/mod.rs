//! Signing in at an OpenID Connect issuer: authorization code with PKCE, state and nonce.
//!
//! `about` is what an issuer says of itself, `code` what is said to it, `keys` checks signatures and
//! `id_token` what is signed; here is who may be at an issuer. What an issuer says of itself is kept
//! for a few minutes, for a bounded number of issuers. A signature that the kept keys do not explain is
//! tried once more with new ones, for issuers change keys.
//!
//! Visitors cannot have us call issuers without bound. Of many who need to know about an issuer one
//! asks, and that it failed is kept for a few seconds; so many may be at one issuer at once, and so
//! many at all; and each has to be done within [`DEADLINE`].

mod about;
mod code;
mod id_token;
mod keys;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use wane::clock::SharedClock;
use wane::services::device_auth::OidcSecret;

use self::about::About;
use self::id_token::{Expected, Flaw};
use super::fetch::Fetcher;
use super::session::Person;

/// How long what an issuer says of itself is kept.
const KEPT: Duration = Duration::from_secs(300);

/// How soon keys are fetched again for a signature that they do not explain.
const AGAIN: Duration = Duration::from_secs(10);

/// How long an issuer that failed is not asked again.
const FAILED: Duration = Duration::from_secs(5);

/// Issuers that are kept; beyond, all that nobody is at are asked anew.
const MOST: usize = 64;

/// How many visitors may be at one issuer at once.
const AT_ONE: usize = 8;

/// How many may be at all of them.
const AT_ALL: usize = 32;

/// How long a visitor may be at an issuer.
const DEADLINE: Duration = Duration::from_secs(15);

/// Why nobody is signed in. For the log: neither codes, tokens nor secrets are in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum OidcError {
    /// The issuer cannot be asked now.
    #[error("the issuer does not answer as it should: {0}")]
    Unanswered(String),
    /// The issuer does not take the code, or us.
    #[error("the issuer does not give a token: {0}")]
    Refused(String),
    /// What it says of the visitor is not to be believed.
    #[error("the ID token is not good: {0}")]
    NotGood(#[from] Flaw),
    /// RFC 9207: the answer is of another issuer, or hides of which.
    #[error("the answer that came back does not name the issuer that it should be of")]
    OfAnother,
    /// As many visitors as may be are at the issuer.
    #[error("too many sign in at once")]
    Busy,
}

/// What was drawn for one visitor who signs in.
#[derive(Clone)]
pub(super) struct Drawn {
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) verifier: String,
}

impl std::fmt::Debug for Drawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drawn(..)")
    }
}

/// The application at its issuer.
#[derive(Debug)]
pub(super) struct Party<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) client_secret: Option<&'a OidcSecret>,
    /// Where the issuer sends people back to.
    pub(super) redirect_uri: String,
}

/// What somebody came back with.
#[derive(Clone, Copy)]
pub(super) struct Brought<'a> {
    pub(super) code: &'a str,
    /// The issuer that the answer names.
    pub(super) iss: Option<&'a str>,
}

/// The issuers that were asked lately.
#[derive(Debug)]
pub(super) struct Issuers {
    clock: SharedClock,
    fetcher: Fetcher,
    visitors: Semaphore,
    known: Mutex<HashMap<String, Arc<Known>>>,
}

#[derive(Debug)]
struct Known {
    visitors: Semaphore,
    /// Whoever asks holds it, so that others wait for the answer and do not ask as well.
    told: tokio::sync::Mutex<Option<Told>>,
}

/// What an issuer said of itself, or why it did not.
#[derive(Debug)]
struct Told {
    about: Result<Arc<About>, String>,
    asked_at: Duration,
}

impl Issuers {
    pub(super) fn new(clock: &SharedClock) -> Self {
        let fetcher = Fetcher::new(Arc::clone(clock));
        let visitors = Semaphore::new(AT_ALL);
        Self { clock: Arc::clone(clock), fetcher, visitors, known: Mutex::default() }
    }

    /// Where to send somebody who wants to sign in.
    pub(super) async fn authorization_url(
        &self,
        party: &Party<'_>,
        drawn: &Drawn,
        as_another: bool,
    ) -> Result<String, OidcError> {
        let known = self.known(party.issuer);
        let _admitted = self.admitted(&known)?;
        self.in_time(self.asked_for_url(&known, party, drawn, as_another)).await
    }

    /// Who came back. A code of another issuer is told to nobody.
    pub(super) async fn redeem(
        &self,
        party: &Party<'_>,
        brought: Brought<'_>,
        drawn: &Drawn,
    ) -> Result<Person, OidcError> {
        if brought.code.is_empty() {
            return Err(OidcError::Refused("there is no code".into()));
        }
        let known = self.known(party.issuer);
        let _admitted = self.admitted(&known)?;
        self.in_time(self.redeemed(&known, party, brought, drawn)).await
    }

    fn known(&self, issuer: &str) -> Arc<Known> {
        let mut all = self.known.lock();
        if all.len() >= MOST && !all.contains_key(issuer) {
            all.retain(|_, known| Arc::strong_count(known) > 1);
        }
        let new =
            || Known { visitors: Semaphore::new(AT_ONE), told: tokio::sync::Mutex::default() };
        Arc::clone(all.entry(issuer.to_owned()).or_insert_with(|| Arc::new(new())))
    }

    fn admitted<'a>(&'a self, known: &'a Known) -> Result<[SemaphorePermit<'a>; 2], OidcError> {
        let busy = |_| OidcError::Busy;
        let at_one = known.visitors.try_acquire().map_err(busy)?;
        Ok([at_one, self.visitors.try_acquire().map_err(busy)?])
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<T, OidcError> {
        tokio::select! {
            done = Box::pin(work) => done,
            () = self.clock.sleep(DEADLINE) => {
                let seconds = DEADLINE.as_secs();
                Err(OidcError::Unanswered(format!("it was not done within {seconds} s")))
            }
        }
    }

    async fn asked_for_url(
        &self,
        known: &Known,
        party: &Party<'_>,
        drawn: &Drawn,
        as_another: bool,
    ) -> Result<String, OidcError> {
        let about = self.about(known, party.issuer, KEPT).await?;
        Ok(code::authorization_url(&about, party, drawn, as_another))
    }

    async fn redeemed(
        &self,
        known: &Known,
        party: &Party<'_>,
        brought: Brought<'_>,
        drawn: &Drawn,
    ) -> Result<Person, OidcError> {
        let about = self.about(known, party.issuer, KEPT).await?;
        if brought.iss.map_or(about.names_itself, |iss| iss != party.issuer) {
            return Err(OidcError::OfAnother);
        }
        let request = code::token_request(&about, party, brought.code, drawn)?;
        let answer = self.fetcher.fetch(request, party.issuer).await;
        let answer = answer.map_err(|error| OidcError::Unanswered(error.to_string()))?;
        let token = code::token_in(&answer)?;
        let Party { issuer, client_id, .. } = party;
        let expected = Expected { issuer, client_id, nonce: &drawn.nonce, now: self.clock.now() };
        let judged = id_token::check(&token, &about.keys, &expected);
        if !matches!(judged, Err(Flaw::Signature)) {
            return Ok(judged?);
        }
        let again = self.about(known, party.issuer, AGAIN).await?;
        // Keys that were asked for just now are not tried again.
        let is_new = !Arc::ptr_eq(&about, &again);
        Ok(if is_new { id_token::check(&token, &again.keys, &expected) } else { judged }?)
    }

    /// What an issuer says of itself, not older than this.
    async fn about(
        &self,
        known: &Known,
        issuer: &str,
        age: Duration,
    ) -> Result<Arc<About>, OidcError> {
        let mut told = known.told.lock().await;
        let now = self.clock.monotonic();
        let is_recent = |told: &Told| {
            let age = if told.about.is_ok() { age } else { FAILED };
            now.saturating_sub(told.asked_at) < age
        };
        if let Some(told) = told.as_ref().filter(|told| is_recent(told)) {
            return told.about.clone().map_err(OidcError::Unanswered);
        }
        let about = about::discovered(&self.fetcher, issuer).await.map(Arc::new);
        *told = Some(Told { about: about.clone(), asked_at: now });
        about.map_err(OidcError::Unanswered)
    }
}

/// A code of an error as it may stand in a log.
pub(super) fn plain(code: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    code.chars().filter(is_plain).take(64).collect()
}
