//! Uploads that can be resumed, by tus 1.0: pieces with their SHA-256, over lost connections.
//!
//! A piece gets in whole or not at all. Whenever it is unclear what became of one, the server is
//! asked where it stands, and the upload goes on from there. Pieces get smaller while connections
//! break, so that some get through, and grow again afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use wane::services::blobs::{CHUNK, NewBlob, Sha256Sum, Suuid};

use super::{
    ATTEMPTS, Blobs, DELETE_SECRET, UploadedBlob, described, details, pause_for, sendable,
};
use crate::client::events::may_pass;
use crate::client::exchange::{Answer, Call, Effect};
use crate::client::{ClientError, Source};

/// The longest piece: whole chunks of the server, which then writes none of them twice.
const LONGEST: usize = 40 * CHUNK;

/// The shortest one, apart from the last.
const SHORTEST: usize = CHUNK;

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");

/// Hears how many bytes of an upload were handed over.
pub(super) type Heard = Arc<dyn Fn(u64) + Send + Sync>;

/// An upload that is under way.
#[derive(Debug)]
pub struct ResumableUpload {
    blobs: Blobs,
    id: Suuid,
    length: u64,
    offset: u64,
    /// The furthest that it has been.
    furthest: u64,
    stride: usize,
    /// Attempts since it last got further.
    attempts: u32,
}

impl Blobs {
    /// Creates an upload of `blob.length` bytes that can be resumed.
    pub async fn create(
        &self,
        blob: &NewBlob,
    ) -> Result<(UploadedBlob, ResumableUpload), ClientError> {
        let length = blob.length.unwrap_or_default();
        let call = self.tus(Method::POST, None, Effect::Write);
        let mut call = described(call, blob)?.header(UPLOAD_LENGTH, HeaderValue::from(length));
        let metadata = metadata(blob);
        call = call.header(UPLOAD_METADATA, sendable("metadata", &metadata)?);
        let answer = self.client.exchange(call).await?;
        let created = created(&answer).ok_or_else(|| ClientError::UnknownOutcome {
            source: "the answer is not right".into(),
        })?;
        let upload = ResumableUpload::at(self.clone(), created.id, (0, length));
        Ok((created, upload))
    }

    /// Goes on with an upload where the server stands.
    pub async fn resume(&self, id: Suuid) -> Result<ResumableUpload, ClientError> {
        let progress = self.progress(id).await?;
        Ok(ResumableUpload::at(self.clone(), id, progress))
    }

    /// Removes an upload, or the BLOB that it became.
    pub async fn terminate(&self, id: Suuid) -> Result<(), ClientError> {
        let call = self.tus(Method::DELETE, Some(id), Effect::Write);
        self.client.exchange(call).await.map(drop)
    }

    /// How many bytes of an upload are kept, and how many it will have.
    async fn progress(&self, id: Suuid) -> Result<(u64, u64), ClientError> {
        let call = self.tus(Method::HEAD, Some(id), Effect::Read);
        let answer = self.client.exchange(call).await?;
        let number = |name| details::text(&answer.headers, &name)?.parse().ok();
        match (number(UPLOAD_OFFSET), number(UPLOAD_LENGTH)) {
            (Some(offset), Some(length)) if offset <= length => Ok((offset, length)),
            _ => Err(ClientError::Protocol { reason: "it is not said how far it came".into() }),
        }
    }

    fn tus(&self, method: Method, id: Option<Suuid>, effect: Effect) -> Call {
        let path = match id {
            Some(id) => format!("{}-tus/{id}", self.path),
            None => format!("{}-tus", self.path),
        };
        Call::new(method, path, effect).header(TUS_RESUMABLE, HeaderValue::from_static("1.0.0"))
    }
}

impl ResumableUpload {
    fn at(blobs: Blobs, id: Suuid, (offset, length): (u64, u64)) -> Self {
        Self { blobs, id, length, offset, furthest: offset, stride: LONGEST, attempts: 0 }
    }

    /// The id of the upload, and of the BLOB that it becomes.
    pub fn id(&self) -> Suuid {
        self.id
    }

    /// Where the server stands: the next piece begins there.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes the BLOB will have.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether every byte is there and it is a BLOB.
    pub fn is_complete(&self) -> bool {
        self.offset == self.length
    }

    /// How many bytes the next piece should have.
    pub fn stride(&self) -> usize {
        let missing = self.length - self.offset;
        self.stride.min(usize::try_from(missing).unwrap_or(usize::MAX))
    }

    /// Sends the piece that begins at [`offset`](Self::offset), or finds out where the server
    /// stands otherwise: read the next piece from the offset afterwards, which may be the same.
    /// `heard` hears how many bytes of the upload were handed over.
    pub async fn append(
        &mut self,
        piece: Bytes,
        heard: Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<(), ClientError> {
        let end = self.offset + piece.len() as u64;
        match self.send(piece, heard).await {
            Ok(offset) if offset == end => {
                self.stride = (self.stride * 2).min(LONGEST);
                self.stands_at(offset);
                Ok(())
            }
            Ok(_) => {
                Err(ClientError::Protocol { reason: "it kept another number of bytes".into() })
            }
            Err(error) if is_unclear(&error) => {
                self.stride = (self.stride / 2).max(SHORTEST);
                self.find_out(error).await
            }
            Err(error) => Err(error),
        }
    }

    async fn send(&self, piece: Bytes, heard: Heard) -> Result<u64, ClientError> {
        let Sha256Sum(sum) = Sha256Sum::of(&piece);
        let checksum = format!("sha256 {}", STANDARD.encode(sum));
        let call = self
            .blobs
            .tus(Method::PATCH, Some(self.id), Effect::Write)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/offset+octet-stream"))
            .header(UPLOAD_OFFSET, HeaderValue::from(self.offset))
            .header(UPLOAD_CHECKSUM, sendable("checksum", &checksum)?);
        let handed_over = AtomicU64::new(self.offset);
        let source = Source::bytes(piece).heard_by(move |bytes| {
            heard(handed_over.fetch_add(bytes, Ordering::Relaxed) + bytes);
        });
        let answer = self.blobs.client.exchange_streamed(call, source).await?;
        let offset = details::text(&answer.headers, &UPLOAD_OFFSET);
        offset.and_then(|offset| offset.parse().ok()).ok_or_else(|| ClientError::UnknownOutcome {
            source: "the answer does not say how much was kept".into(),
        })
    }

    /// Asks where the server stands, as often as it may help; where it does not, the answer is
    /// `unclear`, for which it was asked.
    async fn find_out(&mut self, unclear: ClientError) -> Result<(), ClientError> {
        let mut pause = None;
        loop {
            self.attempts += 1;
            let next = pause.take().unwrap_or_else(|| pause_for(self.attempts, &unclear));
            let (Some(next), true) = (next, self.attempts <= ATTEMPTS) else { return Err(unclear) };
            self.blobs.client.shared.clock.sleep(next).await;
            match self.blobs.progress(self.id).await {
                Ok((_, length)) if length != self.length => {
                    return Err(ClientError::Protocol { reason: "its length has changed".into() });
                }
                Ok((offset, _)) => {
                    self.stands_at(offset);
                    return Ok(());
                }
                Err(error) if may_pass(&error) => {
                    pause = Some(pause_for(self.attempts + 1, &error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn stands_at(&mut self, offset: u64) {
        self.offset = offset;
        if offset > self.furthest {
            (self.furthest, self.attempts) = (offset, 0);
        }
    }
}

/// Whether the server may stand elsewhere, or answer otherwise in a moment.
fn is_unclear(error: &ClientError) -> bool {
    match error {
        ClientError::UnknownOutcome { .. } | ClientError::Refused { .. } => true,
        // The offset was another, or the bytes were damaged on the way.
        ClientError::Problem { status: 408 | 409 | 460, .. } => true,
        // The piece came too slowly, or broke off: the server names the field that is wrong.
        ClientError::Problem { status: 400, detail, .. } => detail.starts_with("body:"),
        ClientError::Problem { .. }
        | ClientError::Unreachable { .. }
        | ClientError::Contested { .. }
        | ClientError::Absent
        | ClientError::Protocol { .. }
        | ClientError::Source { .. }
        | ClientError::DigestMismatch { .. }
        | ClientError::Spent { .. } => may_pass(error),
    }
}

/// Name and type, as tus has them.
fn metadata(blob: &NewBlob) -> String {
    let mut pairs = Vec::new();
    for (key, value) in [("filename", &blob.name), ("filetype", &blob.content_type)] {
        if !value.is_empty() {
            pairs.push(format!("{key} {}", STANDARD.encode(value)));
        }
    }
    pairs.join(",")
}

/// The id is all that is taken from the address: requests go to the server that was asked.
fn created(answer: &Answer) -> Option<UploadedBlob> {
    let text = |name| details::text(&answer.headers, &name);
    Some(UploadedBlob {
        id: text(LOCATION)?.rsplit('/').next()?.parse().ok()?,
        delete_secret: text(DELETE_SECRET)?.parse().ok()?,
        expires_at: details::instant(text(UPLOAD_EXPIRES)?)?,
    })
}
