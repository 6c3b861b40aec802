//! One request's bytes on their way into an upload.
//!
//! The bytes are taken by a task of its own: where the client goes away, whoever answered it is
//! dropped with the connection, and what came of the bytes is still to be kept.

use axum::http::HeaderMap;
use wane::services::blobs::{BlobsError, Keeping, UploadProgress};

use super::checksum::Checksum;
use super::{InPath, UPLOAD_OFFSET};
use crate::http::blobs::arriving::Arriving;
use crate::http::problem::{Code, Problem};
use crate::wiring::{AppBlobs, BlobAppend};

/// Bytes that an upload shall go on with, as the head of their request describes them.
#[derive(Debug)]
pub(super) struct Appending {
    offset: u64,
    checksum: Option<Checksum>,
    arriving: Arriving,
}

/// Reads the head.
pub(super) fn appending(
    headers: &HeaderMap,
    offset: u64,
    arriving: Arriving,
) -> Result<Appending, Problem> {
    Ok(Appending { offset, checksum: Checksum::of(headers)?, arriving })
}

/// Goes on with the upload, and says how far it came.
pub(super) async fn append(
    blobs: &AppBlobs,
    at: InPath,
    appending: Appending,
) -> Result<UploadProgress, Problem> {
    let keeping = match appending.checksum {
        Some(_) => Keeping::AllOrNothing,
        None => Keeping::AsItComes,
    };
    let begun = blobs.append(at.workspace, at.id, appending.offset, keeping).await;
    let Some(append) = begun.map_err(refused)? else {
        return already_complete(blobs, at, appending).await;
    };
    let task = tokio::spawn(taken(append, appending));
    task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "an append ended without an answer");
        Err(Problem::new(Code::Unavailable, "the append failed; ask where the upload stands"))
    })
}

/// The answer about an upload that has all its bytes: nothing more can be sent.
async fn already_complete(
    blobs: &AppBlobs,
    at: InPath,
    mut appending: Appending,
) -> Result<UploadProgress, Problem> {
    let progress = blobs.resume(at.workspace, at.id).await?.ok_or_else(Problem::absent)?;
    if appending.offset == progress.offset && appending.arriving.is_empty().await? {
        return Ok(progress);
    }
    Err(refused(BlobsError::OffsetMismatch { offset: progress.offset }))
}

async fn taken(append: BlobAppend, appending: Appending) -> Result<UploadProgress, Problem> {
    let Appending { mut checksum, mut arriving, .. } = appending;
    let mut append = append;
    let broke_off = loop {
        match arriving.next().await {
            Err(problem) => break Some(problem),
            Ok(None) => break None,
            Ok(Some(piece)) => {
                if let Some(checksum) = &mut checksum {
                    checksum.update(&piece);
                }
                append.write(&piece).await.map_err(refused)?;
            }
        }
    };
    match (checksum, broke_off) {
        // Only good together: what has come is dropped.
        (Some(_), Some(problem)) => return Err(problem),
        (Some(checksum), None) => checksum.finish()?,
        (None, Some(problem)) => {
            append.keep().await.map_err(refused)?;
            return Err(problem);
        }
        (None, None) => {}
    }
    append.keep().await.map_err(refused)
}

/// A wrong offset is answered with the right one.
fn refused(error: BlobsError) -> Problem {
    if let BlobsError::OffsetMismatch { offset } = error {
        return Problem::from(error).with_header(UPLOAD_OFFSET, offset);
    }
    error.into()
}
