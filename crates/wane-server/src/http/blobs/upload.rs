//! POST: one body, one BLOB.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use wane::services::blobs::Uploaded;

use super::announced::Announced;
use super::arriving::Arriving;
use super::{InWorkspace, value};
use crate::http::caller::Caller;
use crate::http::described::{OfApp, Outliving, Reading};
use crate::http::problem::Problem;
use crate::wiring::Services;

/// A BLOB that was uploaded.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct UploadedBody {
    /// Its id, which nobody guesses.
    #[serde(rename = "blobSUUID")]
    blob_suuid: String,
    /// Removes it without a credential. It is shown here and nowhere else.
    delete_secret: String,
    /// When it is gone, in milliseconds since 1970.
    expires_at: u64,
}

/// Uploads a BLOB: the body, whatever it is.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs", tag = "tblobs",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("Blob-Name" = Option<String>, Header, nullable = false, max_length = 255,
            pattern = "^([ !-$&-~]|%[2-7][0-9A-Da-d])*$",
            description = "up to 255 bytes of UTF-8, percent-encoded"),
        ("TTL" = Option<String>, Header, nullable = false, pattern = "^[1-9][0-9]?[smh]$|^1d$",
            description = "`90s`, `15m`, `6h` or `1d`; a day unless given"),
        ("Blob-Downloads" = Option<u32>, Header, nullable = false, minimum = 1,
            description = "how often it can be downloaded before it is removed"),
        ("Repr-Digest" = Option<String>, Header, nullable = false,
            pattern = "^sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:$",
            description = "a sum of the bytes (RFC 9530), checked before the BLOB is there"),
        ("Content-Digest" = Option<String>, Header, nullable = false,
            pattern = "^sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:$",
            description = "the same")),
    request_body(content_type = "application/octet-stream", content = Vec<u8>),
    responses((status = 201, description = "it can be downloaded", body = UploadedBody,
            headers(("Location" = String, description = "where it is"))),
        OfApp, Reading, Outliving))]
pub(in crate::http) async fn upload(
    State(services): State<Services>,
    caller: Caller,
    InWorkspace(workspace): InWorkspace,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let mut arriving = Arriving::of(body);
    let Announced { blob, mut sha512 } = Announced::of(&parts.headers, arriving.length())?;
    let mut upload = services.blobs(&caller).begin(workspace, blob).await?;
    while let Some(piece) = arriving.next().await? {
        if let Some(check) = &mut sha512 {
            check.update(&piece);
        }
        upload.write(&piece).await?;
    }
    if let Some(Err(problem)) = sha512.map(|check| check.finish()) {
        upload.abort().await;
        return Err(problem);
    }
    let uploaded = upload.finish().await?;
    Ok(answer(parts.uri.path(), &uploaded))
}

fn answer(collection: &str, uploaded: &Uploaded) -> Response {
    let location = format!("{collection}/{}", uploaded.id);
    let body = UploadedBody {
        blob_suuid: uploaded.id.to_string(),
        delete_secret: uploaded.delete_secret.reveal(),
        expires_at: uploaded.expires_at.as_unix_millis(),
    };
    (StatusCode::CREATED, [(LOCATION, value(location))], Json(body)).into_response()
}
