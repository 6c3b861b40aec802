//! GET and HEAD: the bytes of a BLOB, or what it is.
//!
//! The first chunk is read before the answer begins, so that a store that is away is a status and
//! not a broken connection. What fails after that breaks it.

use std::ops::Range;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, EXPIRES, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use wane::services::blobs::{BlobInfo, BlobsError};

use super::conditions::{Verdict, verdict};
use super::digest::{self, CONTENT_DIGEST, REPR_DIGEST};
use super::naming::{self, BLOB_NAME};
use super::range::{self, Part};
use super::{InPath, etag, http_date, value};
use crate::http::caller::Caller;
use crate::http::described::{Matching, OfApp};
use crate::http::problem::{Code, Problem};
use crate::wiring::{BlobReading, Services};

const DOWNLOADS_LEFT: &str = "Blob-Downloads-Left";

/// Downloads a BLOB, or a part of it.
///
/// Of a BLOB with a number of downloads it takes one, before the first byte, and sends the whole.
/// HEAD says what the BLOB is, and takes none.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}",
    tag = "tblobs",
    params(("owner" = String, Path), ("app" = String, Path), ("wsid" = String, Path, pattern = "^(0|[1-9][0-9]{0,18})$"),
        ("suuid" = String, Path),
        ("Range" = Option<String>, Header, nullable = false, pattern = "^bytes=[0-9]{1,6}-$",
            description = "one range; several are answered with the whole"),
        ("If-Range" = Option<String>, Header, nullable = false, pattern = "^\"[!#-~]*\"$"),
        ("If-Match" = Option<String>, Header, nullable = false, pattern = "^\"[!#-~]*\"$"),
        ("If-None-Match" = Option<String>, Header, nullable = false, pattern = "^\"[!#-~]*\"$")),
    responses((status = 200, description = "all of it", content_type = "*/*", body = Vec<u8>),
        (status = 206, description = "the range of it", content_type = "*/*", body = Vec<u8>),
        OfApp, Matching))]
pub(in crate::http) async fn download(
    State(services): State<Services>,
    caller: Caller,
    InPath { workspace, id }: InPath,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let blobs = services.blobs(&caller);
    let found = blobs.find(workspace, id).await?.ok_or_else(Problem::absent)?;
    let info = found.info();
    let etag = etag(&info.sha256);
    match verdict(&headers, &etag) {
        Verdict::Go => {}
        Verdict::NotModified => return Ok(not_modified(info)),
        Verdict::Failed => return Err(another()),
    }
    if method == Method::HEAD {
        let length = [(CONTENT_LENGTH, HeaderValue::from(info.size))];
        return Ok((described(info), length, Body::empty()).into_response());
    }
    let is_numbered = info.downloads_left.is_some();
    let part = if is_numbered { Part::Whole } else { range::asked(&headers, info.size, &etag) };
    let range = match part {
        Part::Outside => return Err(outside(info.size)),
        Part::Whole => None,
        Part::Bytes(range) => Some(range),
    };
    let blob = blobs.open_found(found).await?.ok_or_else(Problem::absent)?;
    let info = blob.info().clone();
    let reading = match range.clone() {
        None => blob.read_all(),
        Some(range) => blob.read(range)?,
    };
    let body = match sent(reading).await {
        Ok(body) => body,
        Err(error) => {
            let is_there = blobs.info(workspace, id).await?.is_some();
            return Err(not_begun(error, is_numbered, is_there));
        }
    };
    Ok(match range {
        None => whole(&info, body),
        Some(range) => partial(&info, &range, body),
    })
}

/// The answer where not even the first bytes can be had.
fn not_begun(error: BlobsError, is_numbered: bool, is_there: bool) -> Problem {
    if is_numbered {
        let detail = "a download was taken, and its bytes could not be had";
        return Problem::new(Code::UnknownOutcome, detail);
    }
    // What expired or was removed meanwhile is as absent as if it had been before.
    if is_there { error.into() } else { Problem::absent() }
}

/// The bytes as a body: the first ones are there when this returns.
async fn sent(mut reading: BlobReading) -> Result<Body, BlobsError> {
    let Some(first) = reading.next().await? else { return Ok(Body::empty()) };
    Ok(Body::from_stream(pieces(first, reading)))
}

fn pieces(first: Bytes, reading: BlobReading) -> impl Stream<Item = Result<Bytes, BlobsError>> {
    stream::unfold((Some(first), reading), |(first, mut reading)| async move {
        if let Some(first) = first {
            return Some((Ok(first), (None, reading)));
        }
        let piece = reading.next().await.inspect_err(|error| {
            tracing::warn!(%error, "a download was broken off");
        });
        piece.transpose().map(|piece| (piece, (None, reading)))
    })
}

fn whole(info: &BlobInfo, body: Body) -> Response {
    let sum = value(digest::written(&info.sha256));
    let length = HeaderValue::from(info.size);
    let mut response = (described(info), body).into_response();
    response.headers_mut().insert(CONTENT_DIGEST, sum);
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

fn partial(info: &BlobInfo, range: &Range<u64>, body: Body) -> Response {
    let (from, last, length) = (range.start, range.end - 1, range.end - range.start);
    let range = value(format!("bytes {from}-{last}/{}", info.size));
    let more = [(CONTENT_RANGE, range), (CONTENT_LENGTH, length.into())];
    (StatusCode::PARTIAL_CONTENT, described(info), more, body).into_response()
}

/// What a client that has the bytes needs to go on using them.
fn not_modified(info: &BlobInfo) -> Response {
    let mut headers = described(info);
    for name in [CONTENT_TYPE, CONTENT_DISPOSITION] {
        headers.remove(name);
    }
    (StatusCode::NOT_MODIFIED, headers).into_response()
}

/// The headers that every answer about a BLOB has.
fn described(info: &BlobInfo) -> HeaderMap {
    let is_numbered = info.downloads_left.is_some();
    let (ranges, caching) = match is_numbered {
        true => ("none", "no-store"),
        // It may be removed at any time: who has it asks whether it is still there.
        false => ("bytes", "private, no-cache"),
    };
    let mut headers: HeaderMap = [
        (CONTENT_TYPE, value(&info.content_type)),
        (CONTENT_DISPOSITION, value(naming::disposition(&info.name))),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (ETAG, value(etag(&info.sha256))),
        (ACCEPT_RANGES, HeaderValue::from_static(ranges)),
        (CACHE_CONTROL, HeaderValue::from_static(caching)),
        (EXPIRES, value(http_date(info.expires_at))),
    ]
    .into_iter()
    .collect();
    headers.insert(REPR_DIGEST, value(digest::written(&info.sha256)));
    if !info.name.is_empty() {
        headers.insert(BLOB_NAME, value(naming::encoded(&info.name)));
    }
    if let Some(left) = info.downloads_left {
        headers.insert(DOWNLOADS_LEFT, left.into());
    }
    headers
}

fn outside(size: u64) -> Problem {
    let detail = format!("the BLOB has {size} bytes; ask for some of them");
    Problem::new(Code::RangeNotSatisfiable, detail)
        .with_header(CONTENT_RANGE, value(format!("bytes */{size}")))
}

fn another() -> Problem {
    Problem::new(Code::Refused, "the BLOB is another one than If-Match names")
        .answered(StatusCode::PRECONDITION_FAILED)
}
