//! What the head of an answer says of a BLOB.

use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPIRES, HeaderName};
use percent_encoding::percent_decode_str;
use wane::services::blobs::{Sha256Sum, Suuid};
use wane::store::Timestamp;

use super::{NAME, REPR_DIGEST};

const DOWNLOADS_LEFT: HeaderName = HeaderName::from_static("blob-downloads-left");

/// What a BLOB is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobDetails {
    /// Its id.
    pub id: Suuid,
    /// Its name; may be empty.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    pub size: u64,
    /// Their sum.
    pub sha256: Sha256Sum,
    /// When it expires, to the second.
    pub expires_at: Timestamp,
    /// How often it can still be downloaded; `None` for any number of times.
    pub downloads_left: Option<u32>,
}

impl BlobDetails {
    /// What these headers say, or what is missing.
    pub(super) fn read(id: Suuid, headers: &HeaderMap) -> Result<Self, String> {
        let name = text(headers, &NAME).unwrap_or_default();
        let name = percent_decode_str(name).decode_utf8().map_err(|_| "Blob-Name is not UTF-8")?;
        let left = text(headers, &DOWNLOADS_LEFT).map(str::parse).transpose();
        let expires_at = text(headers, &EXPIRES).and_then(instant);
        Ok(Self {
            id,
            name: name.into_owned(),
            content_type: text(headers, &CONTENT_TYPE).unwrap_or_default().to_owned(),
            size: size(headers)?,
            sha256: digest(headers)?,
            expires_at: expires_at.ok_or("Expires is no date")?,
            downloads_left: left.map_err(|_| "Blob-Downloads-Left is no number")?,
        })
    }

    /// The tag that stands for these bytes and no others.
    pub(super) fn entity_tag(&self) -> String {
        format!("\"{}\"", String::from(self.sha256))
    }
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The instant of a date of HTTP, to the second.
pub(super) fn instant(date: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Timestamp::from_unix_millis)
}

/// The bytes of the whole.
fn size(headers: &HeaderMap) -> Result<u64, String> {
    let size = match text(headers, &CONTENT_RANGE) {
        Some(range) => range.rsplit_once('/').map(|(_, size)| size),
        None => text(headers, &CONTENT_LENGTH),
    };
    size.and_then(|size| size.parse().ok()).ok_or_else(|| "its size is missing".into())
}

/// Where the bytes of this answer begin, where it is a part.
pub(super) fn first_byte(headers: &HeaderMap) -> Option<u64> {
    let range = text(headers, &CONTENT_RANGE)?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.parse().ok()
}

/// The SHA-256 among the digests of RFC 9530.
fn digest(headers: &HeaderMap) -> Result<Sha256Sum, String> {
    let members = text(headers, &REPR_DIGEST).unwrap_or_default().split(',');
    let mut sums = members.filter_map(|member| {
        let coded = member.trim().strip_prefix("sha-256=:")?.strip_suffix(':')?;
        STANDARD.decode(coded).ok()?.try_into().ok().map(Sha256Sum)
    });
    sums.next().ok_or_else(|| "Repr-Digest has no sha-256".into())
}
