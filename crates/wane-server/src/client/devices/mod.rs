//! Calls of device login (RFC 8628): what a device asks, and what the application decides.
//!
//! A device needs no key of the server: it is a client of the application's, and proves it by a
//! secret where it has one. Deciding, listing and revoking take the application's key.
//!
//! Codes and tokens are in no `Debug`, and in no error.
//!
//! Flow: `start` -> show the code -> `wait` (see `waiting`), and meanwhile, elsewhere, `approve`.

mod waiting;

pub use waiting::Verdict;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use serde::Deserialize;
use wane::services::apps::AppName;
use wane::services::device_auth::{Asking, ClientId, DeviceId, LinkedDevice};
use wane::store::Timestamp;

use super::app_ttl::{Json, escaped};
use super::exchange::{Answer, Call, Effect, LONG, basic};
use super::{Client, ClientError, Secret};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What whoever approves is told that the device is.
const AGENT: &str = concat!("wane/", env!("CARGO_PKG_VERSION"));

/// How often a device polls where the server does not say (RFC 8628, section 3.2).
const INTERVAL: Duration = Duration::from_secs(5);

/// Who asks: a client that was registered for the application.
#[derive(Debug, Clone)]
pub struct OAuthClient {
    /// Its id.
    pub id: ClientId,
    /// Its secret, where it is a confidential one.
    pub secret: Option<Secret>,
}

/// What a device was told to show, and to poll with.
pub struct StartedDevice {
    /// What a person types.
    pub user_code: String,
    /// Where they type it.
    pub verification_uri: String,
    /// The same with the code in it, for a link or a QR code, where the server gives one.
    pub verification_uri_complete: Option<String>,
    /// How long the codes are good for.
    pub expires_in: Duration,
    /// How often the device may poll.
    pub interval: Duration,
    device_code: String,
    /// When the codes expire, by our monotonic clock.
    ends: Duration,
}

impl fmt::Debug for StartedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedDevice")
            .field("verification_uri", &self.verification_uri)
            .field("expires_in", &self.expires_in)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// What a linked device has.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkedToken {
    /// The token.
    pub access_token: String,
    /// What kind of token it is: `Bearer`.
    pub token_type: String,
    /// How long it is good for, where the server says.
    pub expires_in: Option<Duration>,
    /// What was granted.
    pub scope: String,
    /// The device, as the application lists and revokes it.
    pub device: Option<DeviceId>,
}

impl fmt::Debug for LinkedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkedToken")
            .field("expires_in", &self.expires_in)
            .field("scope", &self.scope)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// What one poll was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DevicePolled {
    /// Nothing is decided yet.
    Pending,
    /// Nothing is decided yet, and from now on the device polls five seconds less often.
    SlowDown,
    /// Somebody said no.
    Denied,
    /// The code has expired.
    Expired,
    /// The device is linked.
    Linked(LinkedToken),
}

/// Some of the linked devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicesPage {
    /// The devices. Only `next` tells the end: a page may be short.
    pub devices: Vec<LinkedDevice>,
    /// Where to go on; `None` on the last page.
    pub next: Option<String>,
}

/// The device login of one application, over HTTP.
#[derive(Debug, Clone)]
pub struct Devices {
    client: Client,
    oauth: String,
    path: String,
}

impl Devices {
    pub(super) fn new(client: Client, app: &AppName) -> Self {
        let oauth = format!("/oauth/{}/{}", app.owner(), app.app());
        let path = format!("/api/v2/apps/{}/{}/devices", app.owner(), app.app());
        Self { client, oauth, path }
    }

    /// Asks for codes. Without a scope the client gets all that it may have.
    pub async fn start(
        &self,
        who: &OAuthClient,
        scope: Option<&str>,
    ) -> Result<StartedDevice, ClientError> {
        let asked_at = self.client.shared.clock.monotonic();
        let scope = scope.map(|scope| ("scope", scope));
        // Codes that nobody was told are of no use and expire: asking again is safe.
        let answer = self.ask("device_authorization", who, scope.as_slice(), Effect::Read).await?;
        answer.read_as(|form: StartedForm| form.meaning(asked_at))
    }

    /// Asks once what became of the codes, and takes the token where there is one.
    pub async fn poll(
        &self,
        who: &OAuthClient,
        started: &StartedDevice,
    ) -> Result<DevicePolled, ClientError> {
        let words = [("grant_type", GRANT), ("device_code", &*started.device_code)];
        match self.ask("token", who, &words, Effect::Write).await {
            Ok(answer) => {
                let read = answer.read_as(TokenForm::meaning).map(DevicePolled::Linked);
                read.map_err(senseless)
            }
            Err(ClientError::Problem { code, status: 400, detail, retry_after }) => match &*code {
                "authorization_pending" => Ok(DevicePolled::Pending),
                "slow_down" => Ok(DevicePolled::SlowDown),
                "access_denied" => Ok(DevicePolled::Denied),
                "expired_token" => Ok(DevicePolled::Expired),
                _ => Err(ClientError::Problem { code, status: 400, detail, retry_after }),
            },
            Err(error) => Err(error),
        }
    }

    /// Links the device that shows this code to `subject`. It gets `link_token` where there is one,
    /// otherwise a token of the server's.
    pub async fn approve(
        &self,
        user_code: &str,
        subject: &str,
        link_token: Option<&str>,
    ) -> Result<DeviceId, ClientError> {
        let mut body = Json::from_iter([
            ("userCode".to_owned(), user_code.into()),
            ("subject".to_owned(), subject.into()),
        ]);
        if let Some(link_token) = link_token {
            body.insert("linkToken".into(), link_token.into());
        }
        let answer = self.decide("approve", body).await?;
        answer.read_as(|form: ApprovedForm| device_id(&form.device_id))
    }

    /// Turns the device that shows this code away.
    pub async fn deny(&self, user_code: &str) -> Result<(), ClientError> {
        let body = Json::from_iter([("userCode".to_owned(), user_code.into())]);
        self.decide("deny", body).await.map(drop)
    }

    /// A page of the devices that are linked to a subject, or to anybody.
    pub async fn list(
        &self,
        subject: Option<&str>,
        after: Option<&str>,
    ) -> Result<DevicesPage, ClientError> {
        let words = [("subject", subject), ("after", after)];
        let words = words.into_iter().filter_map(|(name, word)| Some((name, word?)));
        let query: Vec<_> = words.map(|(name, word)| format!("{name}={}", escaped(word))).collect();
        let path = match query.is_empty() {
            true => self.path.clone(),
            false => format!("{}?{}", self.path, query.join("&")),
        };
        let answer = self.client.exchange(Call::get(path, Effect::Read).up_to(LONG)).await?;
        answer.read_as(|form: DevicesForm| {
            let devices: Result<_, _> = form.items.into_iter().map(DeviceForm::meaning).collect();
            Ok(DevicesPage { devices: devices?, next: form.next })
        })
    }

    /// Unlinks a device. Its token stops working.
    pub async fn revoke(&self, device: DeviceId) -> Result<(), ClientError> {
        let path = format!("{}/{}", self.path, escaped(&device.to_string()));
        self.client.exchange(Call::new(Method::DELETE, path, Effect::Write)).await.map(drop)
    }

    async fn decide(&self, step: &str, body: Json) -> Result<Answer, ClientError> {
        let path = format!("{}/{step}", self.path);
        self.client.exchange(Call::new(Method::POST, path, Effect::Write).json(body)).await
    }

    /// Posts a form as the client, by HTTP Basic where it has a secret.
    async fn ask(
        &self,
        endpoint: &str,
        who: &OAuthClient,
        words: &[(&str, &str)],
        effect: Effect,
    ) -> Result<Answer, ClientError> {
        let path = format!("{}/{endpoint}", self.oauth);
        let mut all = vec![("client_id", who.id.as_str())];
        all.extend(words);
        let mut call = Call::new(Method::POST, path, effect).form(&all).anonymous();
        call = call.header(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(secret) = &who.secret {
            call = call.header(AUTHORIZATION, proof(&who.id, secret)?);
        }
        let asked = self.client.exchange(call).await;
        asked.map_err(|error| without(error, who.secret.as_ref()))
    }
}

/// Who the client is, and the proof of it.
fn proof(id: &ClientId, secret: &Secret) -> Result<HeaderValue, ClientError> {
    let value = HeaderValue::from_str(&basic(id.as_str(), secret.reveal()));
    let mut value = value.map_err(|_| ClientError::Problem {
        code: "invalid_client".into(),
        status: 401,
        detail: "the secret of the client is too long to be sent".into(),
        retry_after: None,
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The error without the secret, should the server repeat it.
fn without(error: ClientError, secret: Option<&Secret>) -> ClientError {
    match (error, secret) {
        (ClientError::Problem { code, status, detail, retry_after }, Some(secret)) => {
            ClientError::Problem { code, status, detail: secret.masked(&detail), retry_after }
        }
        (error, _) => error,
    }
}

/// An answer that was read and makes no sense will not make any when it is asked for again.
fn senseless(error: ClientError) -> ClientError {
    if let ClientError::UnknownOutcome { source } = error {
        return ClientError::Protocol { reason: source.to_string() };
    }
    error
}

fn device_id(text: &str) -> Result<DeviceId, String> {
    text.parse().map_err(|_| "deviceId is none".into())
}

#[derive(Deserialize)]
struct StartedForm {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl StartedForm {
    fn meaning(self, asked_at: Duration) -> Result<StartedDevice, String> {
        let expires_in = Duration::from_secs(self.expires_in);
        let interval = self.interval.map_or(INTERVAL, Duration::from_secs);
        Ok(StartedDevice {
            user_code: self.user_code,
            verification_uri: self.verification_uri,
            verification_uri_complete: self.verification_uri_complete,
            expires_in,
            interval: interval.max(Duration::from_secs(1)),
            device_code: self.device_code,
            ends: asked_at.checked_add(expires_in).ok_or("expires_in is none")?,
        })
    }
}

#[derive(Deserialize)]
struct TokenForm {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    #[serde(default)]
    scope: String,
    device_id: Option<String>,
}

impl TokenForm {
    fn meaning(self) -> Result<LinkedToken, String> {
        Ok(LinkedToken {
            access_token: self.access_token,
            token_type: self.token_type,
            expires_in: self.expires_in.map(Duration::from_secs),
            scope: self.scope,
            device: self.device_id.as_deref().map(device_id).transpose()?,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApprovedForm {
    device_id: String,
}

#[derive(Deserialize)]
struct DevicesForm {
    items: Vec<DeviceForm>,
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceForm {
    device_id: String,
    subject: String,
    client_id: String,
    client_name: String,
    #[serde(default)]
    scope: String,
    linked_at: u64,
    expires_at: u64,
    address: Option<IpAddr>,
    agent: Option<String>,
}

impl DeviceForm {
    fn meaning(self) -> Result<LinkedDevice, String> {
        Ok(LinkedDevice {
            id: device_id(&self.device_id)?,
            subject: self.subject,
            client: self.client_id.parse().map_err(|_| "clientId is none")?,
            client_name: self.client_name,
            scope: self.scope.split_whitespace().map(ToOwned::to_owned).collect(),
            asking: Asking { address: self.address, agent: self.agent.unwrap_or_default() },
            linked_at: Timestamp::from_unix_millis(self.linked_at),
            expires_at: Timestamp::from_unix_millis(self.expires_at),
        })
    }
}
