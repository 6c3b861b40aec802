//! tus 1.0: uploads that can be resumed, at `../tblobs-tus`.
//!
//! Core, and the extensions creation, creation-with-upload, checksum, expiration and termination.
//! An upload has the id of the BLOB that it becomes with its last byte. Bytes are kept as they come,
//! also when the connection breaks, unless they carry a checksum: those are kept whole or not at
//! all. A second PATCH takes the upload from a first one that is still under way.

mod appending;
mod checksum;
mod metadata;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use wane::services::blobs::{NewBlob, UploadProgress};

pub(in crate::http) use self::checksum::MISMATCH;

use self::appending::{append, appending};
use self::metadata::UPLOAD_METADATA;
use super::announced::lasting;
use super::arriving::Arriving;
use super::{InPath, InWorkspace, http_date, value};
use crate::http::caller::Caller;
use crate::http::described::{OfApp, Outliving, Resumable};
use crate::http::header;
use crate::http::problem::{Code, Problem};
use crate::wiring::Services;

const VERSION: &str = "1.0.0";
const EXTENSIONS: &str = "creation,creation-with-upload,checksum,expiration,termination";

/// The media type of bytes that an upload goes on with.
const OFFSET_BYTES: &str = "application/offset+octet-stream";

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const METHOD_OVERRIDE: &str = "X-HTTP-Method-Override";

/// Says what of tus is spoken here.
#[utoipa::path(options, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus",
    tag = "tblobs-tus",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$")),
    responses((status = 204, description = "versions and extensions, in the headers"), OfApp))]
pub(in crate::http) async fn capabilities(caller: Caller, _: InWorkspace) -> Response {
    let headers = [
        (TUS_VERSION, HeaderValue::from_static(VERSION)),
        (HeaderName::from_static("tus-extension"), HeaderValue::from_static(EXTENSIONS)),
        (
            HeaderName::from_static("tus-checksum-algorithm"),
            HeaderValue::from_static(checksum::ALGORITHMS),
        ),
        (HeaderName::from_static("tus-max-size"), caller.app.limits.max_blob_bytes().into()),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Creates an upload, with its first bytes where the request has some.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus",
    tag = "tblobs-tus",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("Tus-Resumable" = String, Header, pattern = "^1\\.0\\.0$"),
        ("Upload-Length" = u64, Header, maximum = 67_108_864),
        ("Upload-Metadata" = Option<String>, Header, nullable = false,
            pattern = "^filename [A-Za-z0-9+/]{4}$",
            description = "`filename` and `filetype` become name and type of the BLOB"),
        ("TTL" = Option<String>, Header, nullable = false, pattern = "^[1-9][0-9]?[smh]$|^1d$"),
        ("Blob-Downloads" = Option<u32>, Header, nullable = false, minimum = 1)),
    responses((status = 201, description = "it can be sent", headers(
            ("Location" = String, description = "where"),
            ("Blob-Delete-Secret" = String, description = "removes the BLOB without a credential"),
            ("Upload-Expires" = String, description = "when it is gone, complete or not"))),
        OfApp, Resumable, Outliving))]
pub(in crate::http) async fn create(
    State(services): State<Services>,
    caller: Caller,
    InWorkspace(workspace): InWorkspace,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    check_version(&parts.headers)?;
    let blob = announced(&parts.headers)?;
    let arriving = first_bytes(&parts, Arriving::of(body)).await?;
    let appending = arriving.map(|arriving| appending(&parts.headers, 0, arriving)).transpose()?;
    let blobs = services.blobs(&caller);
    // Until its address is in an answer nobody can go on with it.
    let (created, untold) = blobs.create_untold(workspace, blob).await?;
    let mut offset = 0;
    if let Some(appending) = appending {
        let at = InPath { workspace, id: created.id };
        offset = append(&blobs, at, appending).await?.offset;
    }
    untold.told();
    let headers = [
        (LOCATION, value(format!("{}/{}", parts.uri.path(), created.id))),
        (UPLOAD_OFFSET, offset.into()),
        (UPLOAD_EXPIRES, value(http_date(created.expires_at))),
    ];
    let secret = [(super::DELETE_SECRET, created.delete_secret.reveal())];
    Ok((StatusCode::CREATED, headers, secret).into_response())
}

/// What the head of a creation says of the BLOB.
fn announced(headers: &HeaderMap) -> Result<NewBlob, Problem> {
    // Else the parts of a concatenation would each become a BLOB, and only their end be refused.
    if headers.contains_key("Upload-Concat") {
        return Err(Problem::invalid("Upload-Concat", "send the upload as one, not in parallel"));
    }
    if headers.contains_key("Upload-Defer-Length") {
        return Err(Problem::invalid("Upload-Defer-Length", "give Upload-Length instead"));
    }
    let length = header::number(headers, "Upload-Length")?;
    let length = length.ok_or_else(|| Problem::invalid("Upload-Length", "give it, in bytes"))?;
    let mut blob = NewBlob { length: Some(length), ..lasting(headers)? };
    metadata::describe(&mut blob, headers)?;
    Ok(blob)
}

/// The body of a creation, where it is the upload's first bytes.
async fn first_bytes(parts: &Parts, mut arriving: Arriving) -> Result<Option<Arriving>, Problem> {
    if arriving.is_empty().await? {
        return Ok(None);
    }
    let is_right = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == OFFSET_BYTES);
    if is_right { Ok(Some(arriving)) } else { Err(wrong_type()) }
}

fn wrong_type() -> Problem {
    let detail = format!("send bytes with Content-Type: {OFFSET_BYTES}");
    Problem::new(Code::UnsupportedMediaType, detail)
}

/// Says how far an upload has come.
#[utoipa::path(head, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}",
    tag = "tblobs-tus",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("suuid" = String, Path), ("Tus-Resumable" = String, Header, pattern = "^1\\.0\\.0$")),
    responses((status = 200, description = "how far, in the headers", headers(
            ("Upload-Offset" = u64, description = "bytes that are kept"),
            ("Upload-Length" = u64, description = "bytes that it will have"))),
        OfApp, Resumable))]
pub(in crate::http) async fn progress(
    State(services): State<Services>,
    caller: Caller,
    at: InPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    check_version(&headers)?;
    asked(&services, &caller, at).await
}

async fn asked(services: &Services, caller: &Caller, at: InPath) -> Result<Response, Problem> {
    let progress = services.blobs(caller).resume(at.workspace, at.id).await?;
    let progress = progress.ok_or_else(Problem::absent)?;
    let more = [
        (UPLOAD_LENGTH, HeaderValue::from(progress.length)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let mut response = (reached(&progress), more).into_response();
    if !progress.note.is_empty() {
        response.headers_mut().insert(UPLOAD_METADATA, value(&progress.note));
    }
    Ok(response)
}

fn reached(progress: &UploadProgress) -> [(HeaderName, HeaderValue); 2] {
    [
        (UPLOAD_OFFSET, progress.offset.into()),
        (UPLOAD_EXPIRES, value(http_date(progress.expires_at))),
    ]
}

/// Goes on with an upload.
#[utoipa::path(patch, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}",
    tag = "tblobs-tus",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("suuid" = String, Path), ("Tus-Resumable" = String, Header, pattern = "^1\\.0\\.0$"),
        ("Upload-Offset" = u64, Header, description = "where it stands"),
        ("Upload-Checksum" = Option<String>, Header, nullable = false,
            pattern = "^sha1 [A-Za-z0-9+/]{26}[AEIMQUYcgkosw048]=$",
            description = "a sum of these bytes: `sha1`, `sha256` or `sha512`, and base64")),
    request_body(content_type = "application/offset+octet-stream", content = Vec<u8>),
    responses((status = 204, description = "kept; a BLOB once the last byte is there", headers(
            ("Upload-Offset" = u64, description = "bytes that are kept"))),
        OfApp, Resumable, Outliving))]
pub(in crate::http) async fn go_on(
    State(services): State<Services>,
    caller: Caller,
    at: InPath,
    request: Request,
) -> Result<Response, Problem> {
    check_version(request.headers())?;
    patched(&services, &caller, at, request).await
}

async fn patched(
    services: &Services,
    caller: &Caller,
    at: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    if parts.headers.get(CONTENT_TYPE).is_none_or(|kind| kind != OFFSET_BYTES) {
        return Err(wrong_type());
    }
    let offset = header::number(&parts.headers, "Upload-Offset")?;
    let offset = offset.ok_or_else(|| Problem::invalid("Upload-Offset", "say where it stands"))?;
    let appending = appending(&parts.headers, offset, Arriving::of(body))?;
    let progress = append(&services.blobs(caller), at, appending).await?;
    Ok((StatusCode::NO_CONTENT, reached(&progress)).into_response())
}

/// Removes an upload, or the BLOB that it became.
#[utoipa::path(delete, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}",
    tag = "tblobs-tus",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("suuid" = String, Path), ("Tus-Resumable" = String, Header, pattern = "^1\\.0\\.0$")),
    responses((status = 204, description = "it was there and is removed"), OfApp, Resumable))]
pub(in crate::http) async fn terminate(
    State(services): State<Services>,
    caller: Caller,
    at: InPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    check_version(&headers)?;
    terminated(&services, &caller, at).await
}

async fn terminated(services: &Services, caller: &Caller, at: InPath) -> Result<Response, Problem> {
    let removed = services.blobs(caller).terminate(at.workspace, at.id).await?;
    if removed { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(Problem::absent()) }
}

/// Another method in the place of POST: for clients whose way lets no other one through.
#[utoipa::path(post, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}",
    tag = "tblobs-tus",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("suuid" = String, Path), ("Tus-Resumable" = String, Header, pattern = "^1\\.0\\.0$"),
        ("X-HTTP-Method-Override" = String, Header, pattern = "^(HEAD|DELETE)$",
            description = "`PATCH`, `HEAD` or `DELETE`")),
    responses((status = 200, description = "as HEAD answers"),
        (status = 204, description = "as PATCH and DELETE answer"),
        OfApp, Resumable, Outliving))]
pub(in crate::http) async fn overridden(
    State(services): State<Services>,
    caller: Caller,
    at: InPath,
    request: Request,
) -> Result<Response, Problem> {
    check_version(request.headers())?;
    let meant = header::text(request.headers(), METHOD_OVERRIDE)?;
    match meant.and_then(|method| method.parse().ok()) {
        Some(Method::PATCH) => patched(&services, &caller, at, request).await,
        Some(Method::HEAD) => asked(&services, &caller, at).await,
        Some(Method::DELETE) => terminated(&services, &caller, at).await,
        _ => Err(Problem::invalid(METHOD_OVERRIDE, "give PATCH, HEAD or DELETE")),
    }
}

/// What every answer of these routes says, whoever gives it.
pub(in crate::http) fn introduce(route: &str, response: &mut Response) {
    if route.contains("/tblobs-tus") {
        response.headers_mut().insert(TUS_RESUMABLE, HeaderValue::from_static(VERSION));
    }
}

/// Refuses a client that speaks another version.
fn check_version(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(&TUS_RESUMABLE).is_some_and(|version| version == VERSION) {
        return Ok(());
    }
    let problem = Problem::invalid("Tus-Resumable", format!("give {VERSION}"));
    let problem = problem.answered(StatusCode::PRECONDITION_FAILED);
    Err(problem.with_header(TUS_VERSION, HeaderValue::from_static(VERSION)))
}
