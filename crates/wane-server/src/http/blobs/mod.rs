//! Temporary BLOBs over HTTP: `/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs`.
//!
//! Bytes stream through in both directions, a few chunks at a time. What can be refused by the head
//! of a request is refused before the first byte of its body is read, so that `Expect:
//! 100-continue` saves the transfer. Once the first byte of an answer is out, an error breaks the
//! connection: a client never takes a part for the whole.
//!
//! Flow: `announced` reads what the head of an upload says, `upload` takes the body; `conditions` and
//! `range` decide what a GET is answered with, `download` sends it; `naming` and `digest` are the
//! header forms of names and sums. `tus` is the protocol for uploads that can be resumed.

mod announced;
mod arriving;
mod conditions;
mod digest;
mod download;
mod naming;
mod range;
pub(super) mod tus;
mod upload;

#[cfg(test)]
pub(super) use download::__path_download;
pub(super) use download::download;
#[cfg(test)]
pub(super) use upload::__path_upload;
pub(super) use upload::upload;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use wane::services::apps::App;
use wane::services::blobs::{DeleteSecret, Sha256Sum, Suuid};
use wane::services::sequencer::WorkspaceId;
use wane::store::Timestamp;

use super::caller::{Caller, OwnerOrHolder};
use super::described::OfApp;
use super::header;
use super::problem::Problem;
use crate::wiring::{AppBlobs, Services};

/// The header that removes a BLOB without the owner's credential.
pub(super) const DELETE_SECRET: &str = "Blob-Delete-Secret";

impl Services {
    /// The BLOBs of the calling application.
    fn blobs(&self, caller: &Caller) -> AppBlobs {
        self.blobs_of(&caller.app)
    }

    fn blobs_of(&self, app: &App) -> AppBlobs {
        self.blobs.of(app.id, (&app.limits).into())
    }
}

/// Where `/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}` has the workspace.
const WORKSPACE: usize = 6;

/// The workspace in the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct InWorkspace(WorkspaceId);

impl<S: Send + Sync> FromRequestParts<S> for InWorkspace {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let given = segment(parts, WORKSPACE);
        // Another spelling of a number would be another address of the same BLOB.
        let id = given.parse::<u64>().ok().filter(|id| id.to_string() == given);
        let id = id.ok_or_else(|| Problem::invalid("wsid", "give a whole number of 64 bits"))?;
        Ok(Self(WorkspaceId(id)))
    }
}

/// The BLOB or the upload in the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct InPath {
    workspace: WorkspaceId,
    id: Suuid,
}

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Problem;

    /// What could not be an id is not there either.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let InWorkspace(workspace) = InWorkspace::from_request_parts(parts, state).await?;
        let id = segment(parts, WORKSPACE + 2).parse().map_err(|_| Problem::absent())?;
        Ok(Self { workspace, id })
    }
}

fn segment(parts: &Parts, at: usize) -> &str {
    parts.uri.path().trim_start_matches('/').split('/').nth(at).unwrap_or_default()
}

/// The strong validator of a BLOB: its sum.
fn etag(sum: &Sha256Sum) -> String {
    format!("\"{}\"", digest::base64url(&sum.0))
}

/// An instant as HTTP writes it, in whole seconds.
fn http_date(at: Timestamp) -> String {
    let since = std::time::Duration::from_millis(at.as_unix_millis());
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}

/// Text of ours as the value of a header. What is not ASCII was encoded before.
fn value(text: impl AsRef<str>) -> HeaderValue {
    HeaderValue::from_str(text.as_ref()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Removes a BLOB.
///
/// With a credential that may write, or, without any, with the delete secret that the upload
/// answered. A BLOB with another secret looks absent.
#[utoipa::path(delete, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}",
    tag = "tblobs",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("suuid" = String, Path),
        ("Blob-Delete-Secret" = Option<String>, Header, nullable = false,
            pattern = "^[A-Za-z0-9_-]{43}$")),
    responses((status = 204, description = "it was there and is removed"), OfApp))]
pub(super) async fn delete(
    State(services): State<Services>,
    whose: OwnerOrHolder,
    InPath { workspace, id }: InPath,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let secret = header::text(&headers, DELETE_SECRET)?;
    let secret = secret.map(str::parse::<DeleteSecret>).transpose()?;
    let blobs = services.blobs_of(whose.app()?);
    let removed = match secret {
        None => blobs.delete(workspace, id).await?,
        Some(secret) => blobs.delete_with(workspace, id, &secret).await?,
    };
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::absent()) }
}
