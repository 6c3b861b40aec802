//! Downloads: the bytes of a BLOB as they arrive, across lost connections.
//!
//! A connection that is lost is made anew for what is missing (`Range`), on the condition that it
//! is still the same content (`If-Range`). When the last byte is there, the SHA-256 of all of them
//! is compared with the server's: a download is whole once [`Download::chunk`] returned `None`.
//!
//! A BLOB with a number of downloads is not resumed: its transfer took one before the first byte,
//! and another request would take another.

use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, IF_RANGE, RANGE};
use hyper::{Response, StatusCode};
use sha2::{Digest as _, Sha256};
use wane::services::blobs::{Sha256Sum, Suuid};

use super::{ATTEMPTS, BlobDetails, Blobs, details, pause_after, pause_for, sendable};
use crate::client::events::may_pass;
use crate::client::exchange::{Call, Effect};
use crate::client::{ClientError, error::BoxError};

/// A download that brings nothing for so long is taken for lost.
const SILENCE: Duration = Duration::from_secs(60);

/// The first bytes of a BLOB, as far as they are here: how many, and their sum so far.
#[derive(Debug, Clone, Default)]
pub struct Received {
    hash: Sha256,
    length: u64,
}

impl Received {
    /// Counts the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The sum of all of them.
    pub fn sum(&self) -> Sha256Sum {
        Sha256Sum(self.hash.clone().finalize().into())
    }
}

/// A BLOB as it arrives.
#[derive(Debug)]
pub struct Download {
    blobs: Blobs,
    details: BlobDetails,
    received: Received,
    /// `None` where a connection must be made.
    body: Option<Incoming>,
    /// Bytes of the body that are here already.
    surplus: u64,
    /// Attempts since the last byte.
    attempts: u32,
}

impl Download {
    pub(super) async fn begin(blobs: Blobs, id: Suuid) -> Result<Self, ClientError> {
        let call = Call::get(blobs.at(id), Effect::Read).accept("*/*");
        let response = blobs.client.open(call).await?;
        let details = read(id, &response)?;
        let (received, body) = (Received::default(), Some(response.into_body()));
        Ok(Self { blobs, details, received, body, surplus: 0, attempts: 0 })
    }

    pub(super) fn go_on(blobs: Blobs, details: BlobDetails, received: Received) -> Self {
        Self { blobs, details, received, body: None, surplus: 0, attempts: 0 }
    }

    /// What the BLOB is.
    pub fn details(&self) -> &BlobDetails {
        &self.details
    }

    /// The next bytes; `None` once all are here and are those that were uploaded. Until then they
    /// may yet turn out not to be.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            if self.received.length >= self.details.size {
                return self.compare().map(|()| None);
            }
            if self.body.is_none() {
                self.connect().await?;
                continue;
            }
            match self.hear().await {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.received.add(&bytes);
                    self.attempts = 0;
                    return Ok(Some(bytes));
                }
                Err(source) => self.lose(source)?,
            }
        }
    }

    fn compare(&self) -> Result<(), ClientError> {
        let (expected, got) = (self.details.sha256, self.received.sum());
        let is_whole = self.received.length == self.details.size && expected == got;
        if is_whole { Ok(()) } else { Err(ClientError::DigestMismatch { expected, got }) }
    }

    /// What arrives next and is not here yet.
    async fn hear(&mut self) -> Result<Bytes, BoxError> {
        let Some(body) = &mut self.body else { return Ok(Bytes::new()) };
        let silence = self.blobs.client.shared.clock.sleep(SILENCE);
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = silence => {
                return Err(format!("nothing more within {} s", SILENCE.as_secs()).into());
            }
        };
        let frame = frame.ok_or("the answer ended too early")??;
        let mut bytes = frame.into_data().unwrap_or_default();
        let surplus = self.surplus.min(bytes.len() as u64);
        bytes.advance(surplus as usize);
        self.surplus -= surplus;
        let missing = self.details.size - self.received.length;
        if bytes.len() as u64 > missing {
            return Err("more bytes came than it has".into());
        }
        Ok(bytes)
    }

    /// Leaves the connection to be made anew, unless that would be another download.
    fn lose(&mut self, source: BoxError) -> Result<(), ClientError> {
        self.body = None;
        match self.details.downloads_left {
            Some(left) => Err(ClientError::Spent { left, source }),
            None if self.attempts >= ATTEMPTS => Err(self.blobs.client.unreachable(source)),
            None => Ok(()),
        }
    }

    /// Asks for what is missing, as often as it may help.
    async fn connect(&mut self) -> Result<(), ClientError> {
        let mut pause = (self.attempts > 0).then(|| pause_after(self.attempts));
        loop {
            if let Some(pause) = pause {
                self.blobs.client.shared.clock.sleep(pause).await;
            }
            self.attempts += 1;
            let error = match self.ask().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            pause = pause_for(self.attempts, &error).filter(|_| may_pass(&error));
            if pause.is_none() || self.attempts >= ATTEMPTS {
                return Err(error);
            }
        }
    }

    async fn ask(&mut self) -> Result<(), ClientError> {
        let call = Call::get(self.blobs.at(self.details.id), Effect::Read).accept("*/*");
        let range = format!("bytes={}-", self.received.length);
        let call = call
            .header(RANGE, sendable("range", &range)?)
            .header(IF_RANGE, HeaderValue::from_str(&self.details.entity_tag()).map_err(no_tag)?);
        let response = self.blobs.client.open(call).await?;
        let protocol = |reason: &str| Err(ClientError::Protocol { reason: reason.to_owned() });
        let found = read(self.details.id, &response)?;
        if (found.sha256, found.size) != (self.details.sha256, self.details.size) {
            return protocol("the BLOB has other bytes than before");
        }
        let begin = match response.status() {
            StatusCode::PARTIAL_CONTENT => details::first_byte(response.headers()),
            _ => Some(0),
        };
        match begin {
            Some(begin) if begin <= self.received.length => {
                self.surplus = self.received.length - begin;
                self.body = Some(response.into_body());
                Ok(())
            }
            _ => protocol("the answer does not begin where it was asked to"),
        }
    }
}

fn read(id: Suuid, response: &Response<Incoming>) -> Result<BlobDetails, ClientError> {
    BlobDetails::read(id, response.headers()).map_err(|reason| ClientError::Protocol { reason })
}

fn no_tag<E>(_: E) -> ClientError {
    ClientError::Protocol { reason: "the sum of the BLOB cannot be sent back".into() }
}
