//! Device authorization (RFC 8628): a television shows a code, a person types it on a phone, and
//! the television is linked. No race links it twice.
//!
//! One record per grant holds everything that is decided about it, and each step is one
//! conditional write on that record: pending, then approved or denied, then issued, then gone.
//! Of two racing clicks one wins. The record of an issued grant is the linked device, so removing
//! it is what ends its token.
//!
//! ```text
//! start -> pending --approve--> approved --poll--> issued --revoke--> gone
//!             |                    |
//!             +--deny--> denied    +-- at the expiry of the code: expired, whatever it was
//! ```
//!
//! Invariants:
//! - **One approval, one redemption.** A decision replaces a pending record only, a redemption an
//!   approved one only; both are terminal.
//! - **The token is derived** from the service's key and the device code. What points to it is
//!   written before the grant is issued, and means nothing until then: a crash in between strands
//!   nobody, and a poll that is repeated within [`REDEEM_WINDOW`] gets the same token.
//! - **Nothing after expiry.** The expiry is looked at before the state. Records outlive it by a
//!   grace, so that a device hears `expired` and not `invalid`.
//! - **A poll that finds nothing decided writes nothing.** How often a device polls is kept in
//!   memory: see `throttle`.
//! - **Codes and secrets are in the store as hashes**, and in no `Debug` and no error.
//!
//! ```
//! use wane::clock::SystemClock;
//! use wane::services::ClusterAppId;
//! use wane::services::device_auth::*;
//! use wane::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = SystemClock::shared();
//! let store = MemoryStore::new(clock.clone())?;
//! let key = DeviceKey::in_store(&store, &*clock).await?;
//! let app = DeviceAuth::new(store, clock, key, DeviceAuthSettings::default()).of(ClusterAppId(1));
//! let television = NewClient { name: "Television".into(), ..NewClient::default() };
//! let client = app.register(television).await?.client;
//!
//! let started = app.start(&client, None, &Asking::default()).await?;
//! assert!(matches!(app.poll(&client, &started.device_code.reveal()).await?, Polled::Pending));
//!
//! let approval = Approval { subject: "alice".into(), link_token: None };
//! let typed = started.user_code.reveal().to_lowercase();
//! assert!(matches!(app.approve(&typed, &approval, Guesser::App).await?, Decided::Done(_)));
//!
//! let Polled::Issued(issued) = app.poll(&client, &started.device_code.reveal()).await? else {
//!     panic!("it was approved");
//! };
//! let active = app.introspect(issued.token.reveal()).await?.expect("it is good for half a year");
//! assert_eq!(active.subject, "alice");
//! # Ok(())
//! # }
//! ```
//!
//! Flow: `registry` keeps who may ask and `client` knows them again; `starting` hands out codes, within `pace` and `live`;
//! `deciding` finds them again, within `guesses`, and approves or denies; `polling` tells the
//! device and redeems; `devices` lists, introspects and revokes. `place` says where everything
//! lies, `grant` what a grant says, `secret` and `user_code` what codes are made of.
//! Not here: HTTP, the page, and signing in.

mod client;
mod deciding;
mod devices;
mod fading;
mod grant;
mod guesses;
mod live;
mod pace;
mod place;
mod polling;
mod registry;
mod secret;
mod sign_in;
mod starting;
mod throttle;
mod user_code;

pub use client::{Client, ClientId, NewClient, Registered};
pub use deciding::{Approval, Asked, Decided, Standing};
pub use devices::{ActiveToken, DevicePage, DevicePlace, LinkedDevice};
pub use guesses::{Attempt, GuessLimiter, GuessSettings, Guesser, Person, Source};
pub use pace::Pace;
pub use place::DeviceId;
pub use polling::{Issued, Polled};
pub use registry::{ClientInfo, ClientPage};
pub use secret::{ClientSecret, DeviceCode, DeviceKey, LinkToken, PageKey};
pub use sign_in::{AssertionSecret, NewSignIn, OidcSecret, SignIn};
pub use starting::{Asking, Started};
pub use throttle::{Judgement, PollThrottle};
pub use user_code::{ALPHABET, UserCode, UserCodeLength};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use self::grant::Grant;
use self::guesses::NETWORK;
use self::live::LiveCodes;
use self::pace::Paces;
use self::place::GrantId;
use super::ClusterAppId;
use crate::clock::SharedClock;
use crate::store::{Store, StoreError, Value};

/// How long after its redemption a device code gives the same token again.
pub const REDEEM_WINDOW: Duration = Duration::from_secs(10);

/// How long a grant is remembered after its code has expired.
pub const GRACE: Duration = Duration::from_secs(600);

/// How often a device may poll unless it is told to slow down.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Why a call failed. Nothing was changed, unless the store does not know.
///
/// What a device or a person is told in the ordinary course is an answer: see [`Polled`] and
/// [`Decided`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum DeviceAuthError {
    /// A field breaks a rule. Nothing was touched.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },

    /// There is no such client in this application, or it did not prove to be it.
    #[error("the client is not registered here, or its secret is missing or wrong")]
    InvalidClient,

    /// The client asks for what it may not have.
    #[error("scope: {reason}")]
    InvalidScope { reason: String },

    /// The client's id is taken, perhaps by another application.
    #[error("the client id is taken; choose another one")]
    ClientExists,

    /// The client has no secret, and never will.
    #[error("the client is public; register a confidential one to have a secret")]
    PublicClient,

    /// Too much of something. Wait, and try again.
    #[error("too many {what}; try again in {} s", retry_after.as_millis().div_ceil(1_000))]
    Limited { what: &'static str, retry_after: Duration },

    /// Others kept changing what the call was about. Nothing was changed; try again.
    #[error("it kept changing under the call; try again")]
    Contended,

    /// What is stored cannot be read. An operator must look at the data.
    #[error("what is stored cannot be read: {reason}")]
    Broken { reason: String },

    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for DeviceAuthError {
    /// A key has the hash of a code in it, and errors are logged: they do not name it.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt { reason, .. } => Self::Broken { reason },
            error @ (StoreError::Invalid { .. }
            | StoreError::Unavailable { .. }
            | StoreError::Unknown { .. }) => Self::Store(error),
        }
    }
}

/// How the service works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAuthSettings {
    /// How many letters user codes have.
    pub user_code: UserCodeLength,
    /// How many wrong codes may be tried.
    pub guesses: GuessSettings,
    /// How often a client may start.
    pub starts_per_client: Pace,
    /// How often an address may; a /48 of IPv6 ten times as often.
    pub starts_per_source: Pace,
    /// Clients that an application may have.
    pub clients_per_app: usize,
    /// Live codes that an application may have.
    pub codes_per_app: usize,
    /// Live codes that all applications together may have: the number that the guess budget is
    /// made for.
    pub codes_in_all: usize,
    /// How often live codes are counted anew: for a store that others write to as well. `None` for
    /// one that this process has to itself.
    pub recount: Option<Duration>,
}

impl Default for DeviceAuthSettings {
    fn default() -> Self {
        Self {
            user_code: UserCodeLength::TEN,
            guesses: GuessSettings::default(),
            starts_per_client: Pace { burst: 200, every: Duration::from_millis(100) },
            starts_per_source: Pace { burst: 20, every: Duration::from_secs(5) },
            clients_per_app: 1_000,
            codes_per_app: 2_000,
            codes_in_all: 10_000,
            recount: None,
        }
    }
}

/// Device authorization of all applications. A clone is a second handle.
#[derive(Debug)]
pub struct DeviceAuth<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    store: S,
    clock: SharedClock,
    key: DeviceKey,
    settings: DeviceAuthSettings,
    guesses: GuessLimiter,
    throttle: PollThrottle,
    starts_per_client: Paces<ClientId>,
    starts_per_source: Paces<Source>,
    starts_per_network: Paces<Source>,
    live: LiveCodes,
    /// Held by the one who registers, so that no more are counted than there is room for.
    registering: AsyncMutex<()>,
}

impl<S> fmt::Debug for Shared<S> {
    /// Without the store, which may show what it holds, and without what is counted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<S> Clone for DeviceAuth<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> DeviceAuth<S> {
    /// Device authorization in a store. `clock` must be the one that it expires by; give the
    /// uncached store, for a cached record would revive a code that was used.
    pub fn new(store: S, clock: SharedClock, key: DeviceKey, settings: DeviceAuthSettings) -> Self {
        let shared = Shared {
            guesses: GuessLimiter::new(settings.guesses, Arc::clone(&clock)),
            throttle: PollThrottle::new(Arc::clone(&clock)),
            starts_per_client: Paces::new(settings.starts_per_client),
            starts_per_source: Paces::new(settings.starts_per_source),
            starts_per_network: Paces::new(settings.starts_per_source.times(NETWORK)),
            live: LiveCodes::default(),
            registering: AsyncMutex::new(()),
            store,
            clock,
            key,
            settings,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Which client this is, of whatever application: see [`AppDeviceAuth::authenticate`].
    pub async fn authenticate(
        &self,
        id: &str,
        secret: Option<&str>,
    ) -> Result<(ClusterAppId, Client), DeviceAuthError> {
        let client = self.shared.authenticate(None, id, secret).await?;
        Ok((client.app, client))
    }

    /// The application that a client is registered in: for requests that do not name it.
    pub async fn app_of(&self, client: &str) -> Result<Option<ClusterAppId>, DeviceAuthError> {
        self.shared.app_of(client).await
    }

    /// The clients, grants and devices of one application.
    pub fn of(&self, app: ClusterAppId) -> AppDeviceAuth<S> {
        AppDeviceAuth { shared: Arc::clone(&self.shared), app }
    }

    /// What was typed as a code of this service has it, whether there is such a code or not; `None`
    /// for what cannot be one. It is looked for nowhere and costs nothing.
    pub fn read_user_code(&self, typed: &str) -> Option<UserCode> {
        UserCode::parse(typed, self.shared.settings.user_code)
    }

    /// How many letters codes have.
    pub fn user_code_length(&self) -> UserCodeLength {
        self.shared.settings.user_code
    }

    /// What the page signs with.
    pub fn page_key(&self) -> PageKey {
        self.shared.key.for_pages()
    }
}

/// Device authorization of one application. What belongs to another one looks absent.
#[derive(Debug)]
pub struct AppDeviceAuth<S> {
    shared: Arc<Shared<S>>,
    app: ClusterAppId,
}

impl<S> Clone for AppDeviceAuth<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), app: self.app }
    }
}

impl<S: Store> AppDeviceAuth<S> {
    /// The live record of a grant, and what it says.
    async fn grant(&self, id: GrantId) -> Result<Option<(Value, Grant)>, DeviceAuthError> {
        self.shared.grant(self.app, id).await
    }
}

impl<S: Store> Shared<S> {
    async fn grant(
        &self,
        app: ClusterAppId,
        id: GrantId,
    ) -> Result<Option<(Value, Grant)>, DeviceAuthError> {
        let Some(record) = self.store.get(&place::grant(app, id)?).await? else { return Ok(None) };
        let grant = Grant::read(&record.value)?;
        Ok(Some((record.value, grant)))
    }
}

/// Says which text is legal where this one is not.
fn checked_text(field: &'static str, text: &str, most: usize) -> Result<(), DeviceAuthError> {
    if (1..=most).contains(&text.len()) && !text.chars().any(steers) {
        return Ok(());
    }
    let reason =
        format!("give 1 to {most} bytes of UTF-8 without what controls lines or direction");
    Err(DeviceAuthError::Invalid { field, reason })
}

/// Whether it makes other text look like something else: control characters, ends of lines, and
/// what turns the direction of writing around.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}
