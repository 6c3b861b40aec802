//! The operator's calls: applications, their limits and keys, credentials, pull streams, and the
//! backup.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value;
use wane::services::ClusterAppId;
use wane::services::apps::{AppName, Limits, LimitsChange, Scope};
use wane::services::pull_stream::{Ispb, StreamStatus};
use wane::store::Timestamp;

use super::app_ttl::{Json, escaped, instant};
use super::exchange::{Call, Effect, LONG};
use super::{Client, ClientError, Secret};

const ROOT: &str = "/api/v1/admin";

/// A backup that brings nothing for so long is taken for lost.
const SILENCE: Duration = Duration::from_secs(60);

/// The operator's calls.
#[derive(Debug, Clone)]
pub struct Admin(Client);

/// An application that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedApp {
    /// Its number.
    pub id: ClusterAppId,
    /// Its first key, told this once.
    pub key: Secret,
}

/// An application in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppSummary {
    /// Its name.
    pub name: AppName,
    /// Its number.
    pub id: ClusterAppId,
    /// When it was made, where the server says so.
    pub created_at: Option<Timestamp>,
    /// What it may use.
    pub limits: Limits,
    /// Its live keys.
    pub keys: Vec<KeySummary>,
}

/// A key of an application, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KeySummary {
    /// The part before the dot.
    pub id: String,
    /// What it opens.
    #[serde(default)]
    pub scopes: Vec<Scope>,
}

/// A replay that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedReplay {
    /// The path of its first batch.
    pub start: String,
    /// Until when it can be read.
    pub expires_at: Timestamp,
}

/// Applications in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppsPage {
    /// The applications.
    pub apps: Vec<AppSummary>,
    /// The name to go on after; `None` on the last page.
    pub next: Option<AppName>,
}

impl Admin {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Makes an application with a key of every scope that applications have.
    pub async fn create_app(&self, name: &AppName) -> Result<CreatedApp, ClientError> {
        let body = Json::from_iter([
            ("owner".to_owned(), name.owner().into()),
            ("app".to_owned(), name.app().into()),
        ]);
        let answer = self.write(Method::POST, "/apps", Some(body)).await?;
        answer.read_as(|form: CreatedForm| {
            Ok(CreatedApp { id: ClusterAppId(form.cluster_app_id), key: form.key.into() })
        })
    }

    /// A page of applications, after the name `after`.
    pub async fn list_apps(&self, after: Option<&AppName>) -> Result<AppsPage, ClientError> {
        let query = after.map(|after| format!("?after={}", escaped(&after.to_string())));
        self.read(&format!("/apps{}", query.unwrap_or_default())).await?.read_as(
            |form: AppsForm| {
                let apps: Result<_, _> = form.items.into_iter().map(AppForm::meaning).collect();
                Ok(AppsPage { apps: apps?, next: form.next })
            },
        )
    }

    /// Changes the limits that `change` names and returns all of them.
    pub async fn set_limits(
        &self,
        name: &AppName,
        change: &LimitsChange,
    ) -> Result<Limits, ClientError> {
        let path = format!("{}/limits", of_app(name));
        self.write(Method::PUT, &path, Some(limits_form(change))).await?.read()
    }

    /// Adds a key; with no scopes named it has all that applications have.
    pub async fn add_key(&self, name: &AppName, scopes: &[Scope]) -> Result<Secret, ClientError> {
        let mut body = Json::new();
        if !scopes.is_empty() {
            body.insert("scopes".into(), scope_names(scopes));
        }
        self.new_key(&format!("{}/keys", of_app(name)), body).await
    }

    /// Takes a key back. It opens nothing any more.
    pub async fn revoke_key(&self, name: &AppName, id: &str) -> Result<(), ClientError> {
        let path = format!("{}/keys/{}", of_app(name), escaped(id));
        self.write(Method::DELETE, &path, None).await.map(drop)
    }

    /// Makes a credential of no application: an operator's, a producer's or a reader's.
    pub async fn add_credential(
        &self,
        scopes: &[Scope],
        ispb: Option<&str>,
    ) -> Result<Secret, ClientError> {
        let mut body = Json::from_iter([("scopes".to_owned(), scope_names(scopes))]);
        if let Some(ispb) = ispb {
            body.insert("ispb".into(), ispb.into());
        }
        self.new_key("/credentials", body).await
    }

    /// How far the pull stream of an institution is.
    pub async fn stream_status(&self, ispb: Ispb) -> Result<StreamStatus, ClientError> {
        self.read(&format!("/streams/{ispb}")).await?.read_as(|form: StreamForm| {
            Ok(StreamStatus {
                live_readers: form.live_readers,
                in_flight: form.in_flight,
                requeued: form.requeued,
                head_row: form.head_row,
                tail_row: form.tail_row,
                lag: Duration::from_millis(form.lag_millis),
            })
        })
    }

    /// Makes what came in for an institution between two moments readable once more.
    pub async fn replay(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        reason: &str,
    ) -> Result<StartedReplay, ClientError> {
        let body = Json::from_iter([
            ("ispb".to_owned(), ispb.as_str().into()),
            ("from".to_owned(), times.start.as_unix_millis().into()),
            ("to".to_owned(), times.end.as_unix_millis().into()),
            ("reason".to_owned(), reason.into()),
        ]);
        let answer = self.write(Method::POST, "/replays", Some(body)).await?;
        answer.read_as(|form: ReplayForm| {
            let expires_at = Timestamp::from_unix_millis(form.expires_at);
            Ok(StartedReplay { start: form.start, expires_at })
        })
    }

    /// The whole store as a stream.
    pub async fn backup(&self) -> Result<Backup, ClientError> {
        let call = Call::get(format!("{ROOT}/backup"), Effect::Read).accept("*/*");
        let body = self.0.open(call).await?.into_body();
        Ok(Backup { client: self.0.clone(), body })
    }

    /// The same, for calls that take their time.
    pub(super) fn with_patience(&self, patience: Duration) -> Self {
        let deadline = self.0.deadline.max(patience);
        Self(self.0.clone().with_deadline(deadline))
    }

    async fn new_key(&self, path: &str, body: Json) -> Result<Secret, ClientError> {
        let answer = self.write(Method::POST, path, Some(body)).await?;
        answer.read_as(|form: KeyForm| Ok(form.key.into()))
    }

    pub(super) async fn read(&self, path: &str) -> Result<super::exchange::Answer, ClientError> {
        let call = Call::get(format!("{ROOT}{path}"), Effect::Read);
        self.0.exchange(call.up_to(LONG)).await
    }

    /// The same, for what the server takes its time with.
    pub(super) async fn read_within(
        &self,
        deadline: Duration,
        path: &str,
    ) -> Result<super::exchange::Answer, ClientError> {
        Self(self.0.clone().with_deadline(deadline)).read(path).await
    }

    pub(super) async fn write(
        &self,
        method: Method,
        path: &str,
        body: Option<Json>,
    ) -> Result<super::exchange::Answer, ClientError> {
        let call = Call::new(method, format!("{ROOT}{path}"), Effect::Write);
        let call = match body {
            Some(body) => call.json(body),
            None => call,
        };
        self.0.exchange(call).await
    }
}

/// A backup as it arrives. It is whole once [`chunk`](Backup::chunk) has returned `None`.
#[derive(Debug)]
pub struct Backup {
    client: Client,
    body: Incoming,
}

impl Backup {
    /// The next bytes; `None` at the end. A backup that was cut off ends with an error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let silence = self.client.shared.clock.sleep(SILENCE);
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = silence => {
                    let source = format!("nothing more within {} s", SILENCE.as_secs());
                    return Err(self.client.unreachable(source));
                }
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| self.client.unreachable(error))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

pub(super) fn of_app(name: &AppName) -> String {
    format!("/apps/{}/{}", name.owner(), name.app())
}

fn scope_names(scopes: &[Scope]) -> Value {
    scopes.iter().map(|scope| Value::from(scope.to_string())).collect()
}

/// Only what changes; `null` gives a limit its default again.
fn limits_form(change: &LimitsChange) -> Json {
    let wide = |limit: Option<Option<u32>>| limit.map(|limit| limit.map(u64::from));
    let limits = [
        ("maxKeys", change.max_keys),
        ("maxBytes", change.max_bytes),
        ("requestsPerSecond", wide(change.requests_per_second)),
        ("inFlight", wide(change.in_flight)),
        ("maxBlobBytes", change.max_blob_bytes),
        ("maxBlobTtlSeconds", change.max_blob_ttl_seconds),
        ("maxBlobs", change.max_blobs),
        ("maxBlobTotalBytes", change.max_blob_total_bytes),
        ("defaultTtlSeconds", change.default_ttl_seconds),
    ];
    let named = limits.into_iter().filter_map(|(name, limit)| Some((name, limit?)));
    named.map(|(name, limit)| (name.to_owned(), limit.into())).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedForm {
    cluster_app_id: u32,
    key: String,
}

#[derive(Deserialize)]
struct KeyForm {
    key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StreamForm {
    live_readers: usize,
    in_flight: usize,
    requeued: usize,
    head_row: u64,
    tail_row: u64,
    lag_millis: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplayForm {
    start: String,
    expires_at: u64,
}

#[derive(Deserialize)]
struct AppsForm {
    items: Vec<AppForm>,
    next: Option<AppName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AppForm {
    owner: String,
    app: String,
    cluster_app_id: u32,
    created_at: Option<u64>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    keys: Vec<KeySummary>,
}

impl AppForm {
    fn meaning(self) -> Result<AppSummary, String> {
        let name = AppName::new(&self.owner, &self.app).map_err(|error| error.to_string())?;
        let (id, created_at) = (ClusterAppId(self.cluster_app_id), instant(self.created_at));
        Ok(AppSummary { name, id, created_at, limits: self.limits, keys: self.keys })
    }
}
