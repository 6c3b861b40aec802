//! Signing in at an OpenID Connect issuer: authorization code with PKCE, state and nonce.
//!
//! The protocol is `openidconnect`'s; HTTP, time and randomness are ours. What an issuer says of
//! itself, and its keys, are kept for a few minutes, for a bounded number of issuers. A signature
//! that the kept keys do not explain is tried once more with new ones, for issuers change keys.
//!
//! Visitors cannot have us call issuers without bound. Of many who need to know about an issuer one
//! asks, and that it failed is kept for a few seconds; so many may be at one issuer at once, and so
//! many at all; and each has to be done within [`DEADLINE`].
//!
//! Only signatures that need the issuer's private key are taken: with a shared secret, whoever
//! knows it could sign for everybody.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreClaimName, CoreClaimType,
    CoreClient, CoreClientAuthMethod, CoreGrantType, CoreIdToken, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm,
    CoreJwsSigningAlgorithm as Algorithm, CoreResponseMode, CoreResponseType,
    CoreSubjectIdentifierType,
};
use openidconnect::{
    AdditionalProviderMetadata, AuthType, AuthorizationCode, ClaimsVerificationError, ClientId,
    ClientSecret, CsrfToken, DiscoveryError, EndpointMaybeSet, EndpointNotSet, EndpointSet,
    IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, ProviderMetadata, RedirectUrl,
    RequestTokenError, Scope, TokenResponse as _,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use wane::clock::SharedClock;
use wane::services::device_auth::OidcSecret;

use super::fetch::{Courier, FetchError, Fetcher, may_name};
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

/// How old an ID token may be.
const OLDEST: Duration = Duration::from_secs(600);

/// How far the clocks of issuer and server may differ.
const DRIFT: Duration = Duration::from_secs(60);

/// The longest subject, in bytes.
const LONGEST_SUBJECT: usize = 255;

const SIGNATURES: [Algorithm; 9] = [
    Algorithm::RsaSsaPkcs1V15Sha256,
    Algorithm::RsaSsaPkcs1V15Sha384,
    Algorithm::RsaSsaPkcs1V15Sha512,
    Algorithm::RsaSsaPssSha256,
    Algorithm::RsaSsaPssSha384,
    Algorithm::RsaSsaPssSha512,
    Algorithm::EcdsaP256Sha256,
    Algorithm::EcdsaP384Sha384,
    Algorithm::EdDsa,
];

type Ready = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// What an issuer says of itself beside what OpenID Connect has.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct More {
    /// RFC 9207: it names itself in each answer that it sends people back with.
    #[serde(default, rename = "authorization_response_iss_parameter_supported")]
    names_itself: bool,
}

impl AdditionalProviderMetadata for More {}

type Metadata = ProviderMetadata<
    More,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

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
    NotGood(&'static str),
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
    fetcher: Arc<Fetcher>,
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
    about: Result<Arc<Metadata>, String>,
    asked_at: Duration,
}

impl Issuers {
    pub(super) fn new(clock: &SharedClock) -> Self {
        let fetcher = Arc::new(Fetcher::new(Arc::clone(clock)));
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
        let metadata = self.about(known, party.issuer, KEPT).await?;
        let endpoint = metadata.authorization_endpoint().as_str();
        if !may_name(party.issuer, endpoint) {
            let reason = "its authorization endpoint is not to be reached over https".into();
            return Err(OidcError::Unanswered(reason));
        }
        let client = party.client(&metadata)?;
        let (state, nonce) = (drawn.state.clone(), drawn.nonce.clone());
        let verifier = PkceCodeVerifier::new(drawn.verifier.clone());
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let request = client
            .authorize_url(flow, || CsrfToken::new(state), || Nonce::new(nonce))
            .add_scope(Scope::new("profile".into()))
            .set_pkce_challenge(challenge);
        let request = if as_another { request.add_prompt(CoreAuthPrompt::Login) } else { request };
        Ok(request.url().0.into())
    }

    async fn redeemed(
        &self,
        known: &Known,
        party: &Party<'_>,
        brought: Brought<'_>,
        drawn: &Drawn,
    ) -> Result<Person, OidcError> {
        let metadata = self.about(known, party.issuer, KEPT).await?;
        let names_itself = metadata.additional_metadata().names_itself;
        if brought.iss.map_or(names_itself, |iss| iss != party.issuer) {
            return Err(OidcError::OfAnother);
        }
        let client = party.client(&metadata)?;
        let courier = Courier::of(&self.fetcher, party.issuer);
        let exchange = client
            .exchange_code(AuthorizationCode::new(brought.code.to_owned()))
            .map_err(|_| OidcError::Unanswered("it names no token endpoint".into()))?
            .set_pkce_verifier(PkceCodeVerifier::new(drawn.verifier.clone()));
        let answer = exchange.request_async(&courier).await.map_err(|error| match error {
            RequestTokenError::ServerResponse(answer) => {
                OidcError::Refused(plain(answer.error().as_ref()))
            }
            RequestTokenError::Request(error) => OidcError::Unanswered(error.to_string()),
            RequestTokenError::Parse(..) => {
                OidcError::Unanswered("its answer is not that of a token endpoint".into())
            }
            RequestTokenError::Other(_) => OidcError::Unanswered("its answer is empty".into()),
        })?;
        let token = answer.id_token().ok_or(OidcError::NotGood("there is none"))?;
        match self.vouched(&client, token, drawn) {
            Err(ClaimsVerificationError::SignatureVerification(_)) => {
                let metadata = self.about(known, party.issuer, AGAIN).await?;
                let client = party.client(&metadata)?;
                self.vouched(&client, token, drawn).map_err(|error| distrusted(&error))
            }
            judged => judged.map_err(|error| distrusted(&error)),
        }
        .and_then(checked)
    }

    /// Whom the token is about, if it is good.
    fn vouched(
        &self,
        client: &Ready,
        token: &CoreIdToken,
        drawn: &Drawn,
    ) -> Result<Person, ClaimsVerificationError> {
        let now = i64::try_from(self.clock.now().as_unix_millis()).unwrap_or(i64::MAX);
        let (drift, oldest) = (DRIFT.as_millis() as i64, OLDEST.as_millis() as i64);
        let earlier = DateTime::from_timestamp_millis(now.saturating_sub(drift));
        let issued = now.saturating_sub(oldest)..=now.saturating_add(drift);
        let verifier = client
            .id_token_verifier()
            .set_allowed_algs(SIGNATURES)
            .set_time_fn(move || earlier.unwrap_or(DateTime::UNIX_EPOCH))
            .set_issue_time_verifier_fn(move |iat| {
                let is_recent = issued.contains(&iat.timestamp_millis());
                is_recent.then_some(()).ok_or_else(|| "it was not issued just now".to_owned())
            });
        let claims = token.claims(&verifier, &Nonce::new(drawn.nonce.clone()))?;
        // The library leaves this one to its users.
        if claims.authorized_party().is_some_and(|azp| azp != client.client_id()) {
            return Err(ClaimsVerificationError::InvalidAudience("its azp is another".into()));
        }
        let named = claims.name().and_then(|names| names.get(None)).map(|name| name.to_string());
        let name = claims.preferred_username().map(|name| name.to_string()).or(named);
        Ok(Person { subject: claims.subject().to_string(), name })
    }

    /// What an issuer says of itself, not older than this.
    async fn about(
        &self,
        known: &Known,
        issuer: &str,
        age: Duration,
    ) -> Result<Arc<Metadata>, OidcError> {
        let mut told = known.told.lock().await;
        let now = self.clock.monotonic();
        let is_recent = |told: &Told| {
            let age = if told.about.is_ok() { age } else { FAILED };
            now.saturating_sub(told.asked_at) < age
        };
        if let Some(told) = told.as_ref().filter(|told| is_recent(told)) {
            return told.about.clone().map_err(OidcError::Unanswered);
        }
        let about = self.discovered(issuer).await.map(Arc::new);
        *told = Some(Told { about: about.clone(), asked_at: now });
        about.map_err(OidcError::Unanswered)
    }

    async fn discovered(&self, issuer: &str) -> Result<Metadata, String> {
        let url = IssuerUrl::new(issuer.to_owned()).map_err(|_| "it is not a URL".to_owned())?;
        let courier = Courier::of(&self.fetcher, issuer);
        Metadata::discover_async(url, &courier).await.map_err(undiscovered)
    }
}

impl Party<'_> {
    fn client(&self, metadata: &Metadata) -> Result<Ready, OidcError> {
        let redirect = RedirectUrl::new(self.redirect_uri.clone())
            .map_err(|_| OidcError::Unanswered("our own URL is not one".into()))?;
        let secret = self.client_secret.map(|it| ClientSecret::new(it.reveal().to_owned()));
        let id = ClientId::new(self.client_id.to_owned());
        let client = CoreClient::from_provider_metadata(metadata.clone(), id, secret);
        let methods = metadata.token_endpoint_auth_methods_supported();
        let is_offered = |method| methods.is_none_or(|methods| methods.contains(&method));
        // Basic is what an issuer offers that says nothing.
        let how = match is_offered(CoreClientAuthMethod::ClientSecretBasic) {
            true => AuthType::BasicAuth,
            false => AuthType::RequestBody,
        };
        Ok(client.set_redirect_uri(redirect).set_auth_type(how))
    }
}

fn undiscovered(error: DiscoveryError<FetchError>) -> String {
    match error {
        DiscoveryError::Request(error) => error.to_string(),
        DiscoveryError::Response(status, ..) => {
            format!("its discovery document or its keys are not to be had: HTTP {status}")
        }
        DiscoveryError::Validation(_) => "its discovery document names another issuer".into(),
        DiscoveryError::Parse(_) => "its discovery document or its keys cannot be read".into(),
        DiscoveryError::UrlParse(_) | DiscoveryError::Other(_) | _ => "its URL is not one".into(),
    }
}

/// Why a token is not good, without what is in it.
fn distrusted(error: &ClaimsVerificationError) -> OidcError {
    OidcError::NotGood(match error {
        ClaimsVerificationError::Expired(_) => "it has expired",
        ClaimsVerificationError::InvalidAudience(_) => "it is for somebody else",
        ClaimsVerificationError::InvalidIssuer(_) => "it is of another issuer",
        ClaimsVerificationError::InvalidNonce(_) => "its nonce is not ours",
        ClaimsVerificationError::SignatureVerification(_) => {
            "its signature is not the issuer's, or of a kind that is not taken"
        }
        ClaimsVerificationError::InvalidAuthContext(_)
        | ClaimsVerificationError::InvalidAuthTime(_)
        | ClaimsVerificationError::InvalidSubject(_)
        | ClaimsVerificationError::Other(_)
        | ClaimsVerificationError::Unsupported(_)
        | _ => "a claim is missing or wrong",
    })
}

fn checked(person: Person) -> Result<Person, OidcError> {
    let is_legal = (1..=LONGEST_SUBJECT).contains(&person.subject.len())
        && !person.subject.chars().any(char::is_control);
    if is_legal { Ok(person) } else { Err(OidcError::NotGood("its sub is empty or too long")) }
}

/// A code of an error as it may stand in a log.
pub(super) fn plain(code: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    code.chars().filter(is_plain).take(64).collect()
}
