//! A typed client of a `wane` server over HTTP: what the command line and the tests call.
//!
//! Every call is one exchange within a deadline, with an answer of bounded size, over kept-alive
//! HTTP/1.1 connections. Nothing is sent twice and no redirect is followed: a credential goes to
//! the server that it was given for and to no other. Transfers of BLOBs, see [`Blobs`], take as long
//! as bytes move, and go on where a connection was lost. Pull streams wait for messages, see
//! [`PullStream`], and say what to do about a call that failed.
//!
//! What went wrong is said by what can be done about it, see [`ClientError`]. The line between
//! "cannot be reached" and "unknown outcome" is whether the request was handed to a connection.
//!
//! ```text
//! app_ttl, batch, watch, elections, sequences, blobs, devices, streams, admin, archives, audit, holds,
//! regions, oauth_clients -> exchange (deadline, bounds, what an answer means) -> wire (TCP, TLS)
//! ```
//!
//! Not here: where the address and the key come from. That is `cli::connection`.

mod admin;
mod app_ttl;
mod archives;
mod audit;
mod batch;
mod blobs;
mod devices;
mod elections;
mod error;
mod events;
mod exchange;
mod holds;
mod oauth_clients;
mod outgoing;
mod problem_xml;
mod regions;
mod secret;
mod sequences;
mod server_sent;
mod streams;
mod watch;
mod wire;

#[cfg(test)]
pub(crate) mod tests;

pub use admin::{Admin, AppSummary, AppsPage, Backup, CreatedApp, KeySummary, StartedReplay};
pub use app_ttl::{AppTtl, Entry, Item, ScanPage, ScanRange};
pub use archives::{ArchivedSegment, ArchivedSegments, Verified};
pub use audit::{AuditPage, AuditSpan, VerifiedChain};
pub use batch::{BatchAnswer, BatchOperation};
pub use blobs::{BlobDetails, Blobs, Download, Received, ResumableUpload, UploadedBlob};
pub use devices::{
    DevicePolled, Devices, DevicesPage, LinkedToken, OAuthClient, StartedDevice, Verdict,
};
pub use elections::{ElectionWatch, Elections, Seat};
pub use error::{ClientError, Current, EndpointError};
pub use holds::{ListedHold, PlacedHold};
pub use oauth_clients::{ListedClient, ListedClients, NewOAuthClient, RegisteredClient};
pub use outgoing::Source;
pub use secret::Secret;
pub use sequences::Sequences;
pub use streams::{Ending, PullStream, PullToken, Pulled, Reading, Remedy};
pub use watch::{ChangeKind, Event, Notice, Watch};

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use wane::clock::SharedClock;
use wane::services::apps::AppName;
use wane::services::pull_stream::Ispb;
use wane::services::sequencer::WorkspaceId;

use exchange::{Call, Effect};
pub(crate) use exchange::{basic, form};
use outgoing::Outgoing;
use wire::secured;
pub(crate) use wire::{Connector, trusting};

/// How long a call may take, unless told otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

/// Below what servers and proxies wait before they close an idle connection.
const IDLE: Duration = Duration::from_secs(15);

/// Whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The public certificate authorities.
    PublicRoots,
    /// Only the authorities in this PEM file.
    CaFile(PathBuf),
}

/// Who a client is to servers that ask for a certificate, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, and those up to the authority's.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub private_key: PathBuf,
}

/// A server and the way in.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `http://host:port` or `https://host:port`, a path before the server's own is kept.
    pub url: String,
    /// The credential `id.secret`.
    pub key: Option<Secret>,
    /// Whose certificates are believed, where the URL is `https`.
    pub trust: Trust,
}

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    deadline: Duration,
}

struct Shared {
    http: legacy::Client<Connector, Outgoing>,
    base: String,
    key: Option<Secret>,
    authorization: Option<HeaderValue>,
    clock: SharedClock,
}

impl Client {
    /// A client, or what is wrong with the endpoint. Nothing is sent yet.
    pub fn new(endpoint: &Endpoint, clock: SharedClock) -> Result<Self, EndpointError> {
        Self::made(endpoint, None, clock)
    }

    /// The same for servers that ask for a certificate. Over plain HTTP none is shown.
    pub fn presenting(
        endpoint: &Endpoint,
        identity: &Identity,
        clock: SharedClock,
    ) -> Result<Self, EndpointError> {
        Self::made(endpoint, Some(identity), clock)
    }

    fn made(
        endpoint: &Endpoint,
        identity: Option<&Identity>,
        clock: SharedClock,
    ) -> Result<Self, EndpointError> {
        let (base, is_https) = checked_url(&endpoint.url)?;
        let tls = is_https.then(|| secured(&endpoint.trust, identity)).transpose()?;
        let connector = Connector::new(tls, Arc::clone(&clock));
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .build::<_, Outgoing>(connector);
        let authorization = endpoint.key.as_ref().map(bearer).transpose()?;
        let key = endpoint.key.clone();
        let shared = Shared { http, base, key, authorization, clock };
        Ok(Self { shared: Arc::new(shared), deadline: DEADLINE })
    }

    /// The same client with another deadline for each call.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        &self.shared.base
    }

    /// The TTL storage of an application.
    pub fn app_ttl(&self, app: &AppName) -> AppTtl {
        AppTtl::new(self.clone(), app)
    }

    /// The elections of an application.
    pub fn elections(&self, app: &AppName) -> Elections {
        Elections::new(self.clone(), app)
    }

    /// The sequences of an application.
    pub fn sequences(&self, app: &AppName) -> Sequences {
        Sequences::new(self.clone(), app)
    }

    /// The BLOBs of a workspace of an application.
    pub fn blobs(&self, app: &AppName, workspace: WorkspaceId) -> Blobs {
        Blobs::new(self.clone(), app, workspace)
    }

    /// The device login of an application.
    pub fn devices(&self, app: &AppName) -> Devices {
        Devices::new(self.clone(), app)
    }

    /// The pull stream of an institution.
    pub fn pull_stream(&self, ispb: Ispb) -> PullStream {
        PullStream::new(self.clone(), ispb)
    }

    /// The operator's calls; they are answered on the admin listener.
    pub fn admin(&self) -> Admin {
        Admin::new(self.clone())
    }

    /// Succeeds where the process lives.
    pub async fn livez(&self) -> Result<(), ClientError> {
        self.exchange(Call::get("/livez", Effect::Read)).await.map(drop)
    }

    /// Succeeds where the server takes requests.
    pub async fn readyz(&self) -> Result<(), ClientError> {
        self.exchange(Call::get("/readyz", Effect::Read)).await.map(drop)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.shared.base)
            .field("key", &self.shared.key)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The URL without a slash at its end, and whether it is `https`.
fn checked_url(url: &str) -> Result<(String, bool), EndpointError> {
    let wrong = |reason: &'static str| Err(EndpointError::Url { reason });
    let Ok(uri) = url.parse::<Uri>() else { return wrong("it is not a URL") };
    let is_https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some(_) | None => return wrong("it does not begin with http:// or https://"),
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return wrong("it has a user or a password in it; give a key instead");
    }
    if uri.query().is_some() {
        return wrong("it has a query in it");
    }
    Ok((url.trim_end_matches('/').to_owned(), is_https))
}

fn bearer(key: &Secret) -> Result<HeaderValue, EndpointError> {
    let text = format!("Bearer {}", key.reveal());
    let mut value = HeaderValue::from_str(&text).map_err(|_| EndpointError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}
