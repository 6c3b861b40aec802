//! Signing in at an OpenID Connect issuer: authorization code with PKCE, state and nonce.
//!
//! The protocol is `openidconnect`'s; HTTP, time and randomness are ours. What an issuer says of
//! itself, and its keys, are kept for a few minutes, for a bounded number of issuers. A signature
//! that the kept keys do not explain is tried once more with new ones, for issuers change keys.
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
use wane::clock::SharedClock;
use wane::services::device_auth::{OidcSecret, SignIn};

use super::fetch::{FetchError, Fetcher};
use super::session::Person;

/// How long what an issuer says of itself is kept.
const KEPT: Duration = Duration::from_secs(300);

/// How soon keys are fetched again for a signature that they do not explain.
const AGAIN: Duration = Duration::from_secs(10);

/// Issuers that are kept; beyond, all are asked anew.
const MOST: usize = 64;

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
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    metadata: Arc<Metadata>,
    asked_at: Duration,
}

impl Issuers {
    pub(super) fn new(clock: &SharedClock) -> Self {
        let fetcher = Fetcher::new(Arc::clone(clock));
        Self { clock: Arc::clone(clock), fetcher, known: Mutex::default() }
    }

    /// Where to send somebody who wants to sign in.
    pub(super) async fn authorization_url(
        &self,
        party: &Party<'_>,
        drawn: &Drawn,
        as_another: bool,
    ) -> Result<String, OidcError> {
        let known = self.about(party.issuer, KEPT).await?;
        let endpoint = known.metadata.authorization_endpoint().as_str();
        if !SignIn::is_safe(endpoint) {
            let reason = "its authorization endpoint is not to be reached over https".into();
            return Err(OidcError::Unanswered(reason));
        }
        let client = party.client(&known.metadata)?;
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

    /// Who came back. A code of another issuer is told to nobody.
    pub(super) async fn redeem(
        &self,
        party: &Party<'_>,
        brought: Brought<'_>,
        drawn: &Drawn,
    ) -> Result<Person, OidcError> {
        let known = self.about(party.issuer, KEPT).await?;
        let names_itself = known.metadata.additional_metadata().names_itself;
        if brought.iss.map_or(names_itself, |iss| iss != party.issuer) {
            return Err(OidcError::OfAnother);
        }
        let client = party.client(&known.metadata)?;
        let exchange = client
            .exchange_code(AuthorizationCode::new(brought.code.to_owned()))
            .map_err(|_| OidcError::Unanswered("it names no token endpoint".into()))?
            .set_pkce_verifier(PkceCodeVerifier::new(drawn.verifier.clone()));
        let answer = exchange.request_async(&self.fetcher).await.map_err(|error| match error {
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
                let known = self.about(party.issuer, AGAIN).await?;
                let client = party.client(&known.metadata)?;
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
        let now = self.clock.now().as_unix_millis().saturating_sub(DRIFT.as_millis() as u64);
        let now = i64::try_from(now).ok().and_then(DateTime::from_timestamp_millis);
        let verifier = client
            .id_token_verifier()
            .set_allowed_algs(SIGNATURES)
            .set_time_fn(move || now.unwrap_or(DateTime::UNIX_EPOCH));
        let claims = token.claims(&verifier, &Nonce::new(drawn.nonce.clone()))?;
        let named = claims.name().and_then(|names| names.get(None)).map(|name| name.to_string());
        let name = claims.preferred_username().map(|name| name.to_string()).or(named);
        Ok(Person { subject: claims.subject().to_string(), name })
    }

    /// What an issuer says of itself, not older than this.
    async fn about(&self, issuer: &str, age: Duration) -> Result<Known, OidcError> {
        let now = self.clock.monotonic();
        let known = self.known.lock().get(issuer).cloned();
        if let Some(known) = known.filter(|known| now.saturating_sub(known.asked_at) < age) {
            return Ok(known);
        }
        let url = IssuerUrl::new(issuer.to_owned())
            .map_err(|_| OidcError::Unanswered("it is not a URL".into()))?;
        let metadata = Metadata::discover_async(url, &self.fetcher).await;
        let metadata = Arc::new(metadata.map_err(undiscovered)?);
        let known = Known { metadata, asked_at: now };
        let mut all = self.known.lock();
        if all.len() >= MOST && !all.contains_key(issuer) {
            all.clear();
        }
        all.insert(issuer.to_owned(), known.clone());
        Ok(known)
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

fn undiscovered(error: DiscoveryError<FetchError>) -> OidcError {
    OidcError::Unanswered(match error {
        DiscoveryError::Request(error) => error.to_string(),
        DiscoveryError::Response(status, ..) => {
            format!("its discovery document or its keys are not to be had: HTTP {status}")
        }
        DiscoveryError::Validation(_) => "its discovery document names another issuer".into(),
        DiscoveryError::Parse(_) => "its discovery document or its keys cannot be read".into(),
        DiscoveryError::UrlParse(_) | DiscoveryError::Other(_) | _ => "its URL is not one".into(),
    })
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
