//! What the head of an upload says of it.

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use wane::services::blobs::NewBlob;

use super::digest::{self, Sha512Check};
use super::naming;
use crate::http::header;
use crate::http::problem::{Code, Problem};

const TTL: &str = "TTL";
const DOWNLOADS: &str = "Blob-Downloads";

/// A BLOB that is about to come, in the body of the same request.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) blob: NewBlob,
    pub(super) sha512: Option<Sha512Check>,
}

impl Announced {
    /// Reads the head; `length` is that of the body, where it is known.
    pub(super) fn of(headers: &HeaderMap, length: Option<u64>) -> Result<Self, Problem> {
        let sums = digest::Announced::of(headers)?;
        let mut blob = NewBlob { length, sha256: sums.sha256, ..lasting(headers)? };
        if let Some(name) = naming::given(headers)? {
            blob.name = name;
        }
        if let Some(content_type) = content_type(headers)? {
            blob.content_type = content_type;
        }
        Ok(Self { blob, sha512: sums.sha512.map(Sha512Check::new) })
    }
}

/// How long a BLOB lives and how often it can be had: for every kind of upload.
pub(super) fn lasting(headers: &HeaderMap) -> Result<NewBlob, Problem> {
    let mut blob = NewBlob::default();
    if let Some(ttl) = header::text(headers, TTL)? {
        blob.ttl = ttl.parse()?;
    }
    blob.downloads = header::number(headers, DOWNLOADS)?;
    Ok(blob)
}

/// The media type; bytes in a coding are not the bytes that come back.
fn content_type(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if headers.contains_key(CONTENT_ENCODING) {
        let detail = "send the bytes as they are, without Content-Encoding";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let given = header::once(headers, CONTENT_TYPE.as_str())?;
    let text = given.map(HeaderValue::to_str).transpose().map_err(|_| {
        Problem::new(Code::UnsupportedMediaType, "give a media type like image/png, in ASCII")
    })?;
    Ok(text.map(str::to_owned))
}
