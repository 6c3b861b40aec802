//! Calls of temporary BLOBs: one workspace of an application, bytes in bounded memory both ways.
//!
//! A call that transfers bytes takes as long as they move. [`Blobs::upload`] sends a source in one
//! request, [`ResumableUpload`] in several that go on where the server stands, over lost
//! connections. A [`Download`] goes on by itself too, and is whole once its SHA-256 was compared.

mod details;
mod download;
mod resumable;

pub use details::BlobDetails;
pub use download::{Download, Received};
pub use resumable::ResumableUpload;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::Deserialize;
use wane::services::apps::AppName;
use wane::services::blobs::{DeleteSecret, NewBlob, Sha256Sum, Suuid};
use wane::services::sequencer::WorkspaceId;
use wane::store::Timestamp;

use super::app_ttl::escaped;
use super::exchange::{Call, Effect};
use super::{Client, ClientError, Source};

/// The pause before the first attempt to go on; it doubles up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Attempts to go on that bring nothing, before a transfer fails: about half a minute.
const ATTEMPTS: u32 = 10;

const NAME: HeaderName = HeaderName::from_static("blob-name");
const TTL: HeaderName = HeaderName::from_static("ttl");
const DOWNLOADS: HeaderName = HeaderName::from_static("blob-downloads");
const DELETE_SECRET: HeaderName = HeaderName::from_static("blob-delete-secret");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The BLOBs of one workspace, over HTTP.
#[derive(Debug, Clone)]
pub struct Blobs {
    client: Client,
    path: String,
}

/// A BLOB, or an upload, that was just made.
#[derive(Debug, Clone)]
pub struct UploadedBlob {
    /// Its id.
    pub id: Suuid,
    /// What removes it without a credential, told this once.
    pub delete_secret: DeleteSecret,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Blobs {
    pub(super) fn new(client: Client, app: &AppName, workspace: WorkspaceId) -> Self {
        let (owner, app, workspace) = (app.owner(), app.app(), workspace.0);
        Self { client, path: format!("/api/v2/apps/{owner}/{app}/workspaces/{workspace}/tblobs") }
    }

    /// Where they are.
    pub fn url(&self) -> String {
        format!("{}{}", self.client.url(), self.path)
    }

    /// Uploads a source in one go. What fails before its end leaves nothing.
    pub async fn upload(
        &self,
        blob: &NewBlob,
        source: Source,
    ) -> Result<UploadedBlob, ClientError> {
        let mut call = described(Call::new(Method::POST, &*self.path, Effect::Write), blob)?;
        call = call.header(CONTENT_TYPE, sendable("content type", &blob.content_type)?);
        if !blob.name.is_empty() {
            call = call.header(NAME, sendable("name", &escaped(&blob.name))?);
        }
        if let Some(Sha256Sum(sum)) = blob.sha256 {
            let digest = format!("sha-256=:{}:", STANDARD.encode(sum));
            call = call.header(REPR_DIGEST, sendable("digest", &digest)?);
        }
        let source = match blob.length {
            Some(length) => source.with_length(length),
            None => source,
        };
        let answer = self.client.exchange_streamed(call, source).await?;
        answer.read_as(UploadedForm::meaning)
    }

    /// What a BLOB is. Takes no download.
    pub async fn info(&self, id: Suuid) -> Result<BlobDetails, ClientError> {
        let call = Call::new(Method::HEAD, self.at(id), Effect::Read).accept("*/*");
        let answer = self.client.exchange(call).await?;
        BlobDetails::read(id, &answer.headers).map_err(|reason| ClientError::Protocol { reason })
    }

    /// Begins to download a BLOB. After an error a download may have been taken, where they are
    /// numbered.
    pub async fn download(&self, id: Suuid) -> Result<Download, ClientError> {
        Download::begin(self.clone(), id).await
    }

    /// Goes on with the download of a BLOB, of which the first bytes are here already.
    pub fn download_on(&self, details: BlobDetails, received: Received) -> Download {
        Download::go_on(self.clone(), details, received)
    }

    /// Removes a BLOB.
    pub async fn delete(&self, id: Suuid) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, self.at(id), Effect::Write);
        self.client.exchange(call).await.map(drop)
    }

    /// Removes a BLOB by its delete secret. No credential is sent.
    pub async fn delete_with(&self, id: Suuid, secret: &DeleteSecret) -> Result<(), ClientError> {
        let mut value = sendable("delete secret", &secret.reveal())?;
        value.set_sensitive(true);
        let call = Call::new(Method::DELETE, self.at(id), Effect::Write);
        let call = call.anonymous().header(DELETE_SECRET, value);
        self.client.exchange(call).await.map(drop)
    }

    fn at(&self, id: Suuid) -> String {
        format!("{}/{id}", self.path)
    }
}

/// What every kind of upload says of a BLOB by headers.
fn described(call: Call, blob: &NewBlob) -> Result<Call, ClientError> {
    let mut call = call.header(TTL, sendable("life", &blob.ttl.to_string())?);
    if let Some(downloads) = blob.downloads {
        call = call.header(DOWNLOADS, HeaderValue::from(downloads));
    }
    Ok(call)
}

/// A header, or that the text cannot be one.
fn sendable(what: &str, text: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(text).map_err(|_| ClientError::Problem {
        code: "invalid_request".into(),
        status: 400,
        detail: format!("the {what} has characters that no header has"),
        retry_after: None,
    })
}

/// How long to wait after so many attempts.
fn pause_after(attempts: u32) -> Duration {
    (PAUSE * 2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST_PAUSE)
}

/// The same, after this error; `None` where the server wants a longer pause than a transfer makes.
fn pause_for(attempts: u32, error: &ClientError) -> Option<Duration> {
    let pause = pause_after(attempts);
    let ClientError::Problem { retry_after: Some(wanted), .. } = error else { return Some(pause) };
    (*wanted <= LONGEST_PAUSE).then(|| pause.max(*wanted))
}

/// The answer to an upload.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UploadedForm {
    #[serde(rename = "blobSUUID")]
    id: String,
    delete_secret: String,
    expires_at: u64,
}

impl UploadedForm {
    fn meaning(self) -> Result<UploadedBlob, String> {
        Ok(UploadedBlob {
            id: self.id.parse().map_err(|_| "blobSUUID is none")?,
            delete_secret: self.delete_secret.parse().map_err(|_| "deleteSecret is none")?,
            expires_at: Timestamp::from_unix_millis(self.expires_at),
        })
    }
}
