//! What producers send: one message, or one to ten as parts of a multipart body, compressed or not.
//!
//! The type and the coding are looked at before a byte of the body is read. What is held of a body
//! is bounded, compressed or not, and so is how many are on their way into the store.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use bytes::Bytes;
use tokio::sync::SemaphorePermit;
use wane::services::pull_stream::{Batch, MAX_BATCH, MAX_MESSAGE, Message};

use super::multipart;
use crate::gzip::{self, GunzipError};
use crate::http::body::{self, is_type};
use crate::http::header;
use crate::http::problem::{Code, Problem};
use crate::wiring::Services;

/// The largest body: ten messages, each with a head.
const MAX_BODY: usize = MAX_BATCH * (MAX_MESSAGE + (8 << 10));

/// Batches that are read and stored at a time.
pub(crate) const MOST_ARRIVING: usize = 256;

/// How the messages lie in the body.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Single,
    Multipart { boundary: String },
}

/// The messages of a request, and their permit, to be kept until they are stored.
pub(super) async fn batch(
    request: Request,
    services: &Services,
) -> Result<(Batch, SemaphorePermit<'_>), Problem> {
    let (parts, body) = request.into_parts();
    let kind = kind(&parts.headers)?;
    let is_gzipped = is_gzipped(&parts.headers)?;
    let room = services.stream_arrivals.try_acquire();
    let room = room.map_err(|_| {
        Problem::limited(format!("{MOST_ARRIVING} batches are being read already"), 1)
    })?;
    let bytes = body::read(body, MAX_BODY, &services.clock).await?;
    let bytes = if is_gzipped { decompressed(bytes).await? } else { bytes };
    let messages = match kind {
        Kind::Single => vec![message(bytes)?],
        Kind::Multipart { boundary } => {
            let parts = multipart::parts(&bytes, &boundary, MAX_BATCH);
            let parts = parts.map_err(|error| Problem::invalid("body", error))?;
            parts.into_iter().map(message).collect::<Result<_, _>>()?
        }
    };
    Ok((Batch::new(messages)?, room))
}

fn message(bytes: Bytes) -> Result<Message, Problem> {
    if bytes.len() > MAX_MESSAGE {
        let detail = format!("a message may have {MAX_MESSAGE} bytes");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Ok(Message::new(bytes)?)
}

async fn decompressed(bytes: Bytes) -> Result<Bytes, Problem> {
    let plain = gzip::decompress_aside(bytes, MAX_BODY).await;
    plain.map(Bytes::from).map_err(|error| match error {
        GunzipError::Malformed => Problem::invalid("body", error),
        GunzipError::TooLarge { .. } => Problem::new(Code::TooLarge, format!("the body: {error}")),
    })
}

fn kind(headers: &HeaderMap) -> Result<Kind, Problem> {
    if is_type(headers, "application/xml") {
        return Ok(Kind::Single);
    }
    if !is_type(headers, "multipart/mixed") {
        let detail = "send application/xml, or multipart/mixed with a part for each message";
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let content_type = header::text(headers, CONTENT_TYPE.as_str())?.unwrap_or_default();
    let boundary = multipart::boundary(content_type);
    let boundary =
        boundary.map_err(|error| Problem::new(Code::InvalidRequest, error.to_string()))?;
    Ok(Kind::Multipart { boundary })
}

fn is_gzipped(headers: &HeaderMap) -> Result<bool, Problem> {
    let coding = header::text(headers, CONTENT_ENCODING.as_str())?.unwrap_or("identity");
    match &*coding.trim().to_ascii_lowercase() {
        "gzip" | "x-gzip" => Ok(true),
        "identity" => Ok(false),
        _ => {
            let detail = "send the body as it is, or with Content-Encoding: gzip";
            Err(Problem::new(Code::UnsupportedMediaType, detail))
        }
    }
}
