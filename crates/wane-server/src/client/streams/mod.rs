//! Calls of pull streams: messages to an institution, and batches out of its stream.
//!
//! Asking for the next batch acknowledges the last one, so that every call can be made again with
//! the same token: until the next token is used it is answered the same. [`Reading`] keeps the
//! tokens of a reader, and [`Remedy`] says what a reader does about a call that failed.
//!
//! Bytes of messages are not touched. Tokens are in no `Debug`, and in no error.
//!
//! Flow: `push` -> `body` (one message, or a part each) -> compressed if it is to be, and the way
//! back for batches.

mod body;
mod reading;

pub use reading::{Ending, Reading, Remedy};

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use wane::services::pull_stream::{
    Batch, Client as Named, Delivered, Ispb, MAX_BATCH, MAX_MESSAGE, Reader, ResourceId,
};

use super::exchange::{Answer, Call, Effect};
use super::{Client, ClientError, Source};
use crate::gzip;

const RESOURCE_ID: HeaderName = HeaderName::from_static("pi-resourceid");
const PULL_NEXT: HeaderName = HeaderName::from_static("pi-pull-next");
const CLIENT_ID: HeaderName = HeaderName::from_static("pi-client-id");

/// The longest batch: ten of the longest messages and what stands between them.
const LONGEST: usize = MAX_BATCH * (MAX_MESSAGE + 4 * 1_024);

/// How long a call for messages may take at least: longer than servers hold it, and than proxies
/// between them and us do, which is a minute.
const HELD: Duration = Duration::from_secs(75);

/// The pull stream of one institution, over HTTP.
#[derive(Debug, Clone)]
pub struct PullStream {
    client: Client,
    ispb: Ispb,
}

/// What acknowledges a batch and asks for the next one.
#[derive(Clone, PartialEq, Eq)]
pub struct PullToken(String);

impl fmt::Debug for PullToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullToken(***)")
    }
}

/// What a reader is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The messages; none where none came while the call was held.
    pub messages: Vec<Delivered>,
    /// What acknowledges them and asks for more.
    pub next: PullToken,
}

impl PullStream {
    pub(super) fn new(client: Client, ispb: Ispb) -> Self {
        Self { client, ispb }
    }

    /// Whose stream it is.
    pub fn ispb(&self) -> Ispb {
        self.ispb
    }

    /// Sends messages to the institution, and returns their ids in the same order.
    ///
    /// After [`ClientError::UnknownOutcome`] all of them, or the first of them, may be in the
    /// stream. After any other error none is.
    pub async fn push(
        &self,
        batch: &Batch,
        is_gzipped: bool,
    ) -> Result<Vec<ResourceId>, ClientError> {
        let (media_type, mut body) = body::of_batch(batch, &*self.client.shared.clock);
        let path = format!("/api/v1/in/{}/msgs", self.ispb);
        let mut call = Call::new(Method::POST, path, Effect::Write);
        call = call.header(CONTENT_TYPE, sendable("type", &media_type)?);
        if is_gzipped {
            body = gzip::compress(&body);
            call = call.header(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let answer = self.client.exchange_streamed(call, Source::bytes(body.into())).await?;
        let ids = ids(&answer.headers).filter(|ids| ids.len() == batch.messages().len());
        ids.ok_or_else(|| ClientError::UnknownOutcome {
            source: "the answer does not name each message".into(),
        })
    }

    /// Takes a reader's slot, and waits for a first batch. A slot whose answer was lost is free
    /// again once its lease has ended.
    pub async fn start(&self, reader: &Reader) -> Result<Pulled, ClientError> {
        self.pull("stream", "start", reader).await
    }

    /// Acknowledges what came with the token, and waits for what comes next.
    pub async fn next(&self, token: &PullToken, reader: &Reader) -> Result<Pulled, ClientError> {
        self.pull("stream", &token.0, reader).await
    }

    /// Reads on in a replay; no messages and the same token again at its end.
    pub async fn replay_next(
        &self,
        token: &PullToken,
        reader: &Reader,
    ) -> Result<Pulled, ClientError> {
        self.pull("replay", &token.0, reader).await
    }

    /// The token at the end of the path of a replay; `None` where it is the path of something else.
    pub fn replay_token(&self, path: &str) -> Option<PullToken> {
        self.token("replay", path)
    }

    /// The path that a replay is read on at.
    pub fn replay_path(&self, token: &PullToken) -> String {
        self.at("replay", &token.0)
    }

    /// Acknowledges what came with the token, and gives the slot back. The token before the last
    /// one acknowledges nothing: what came last is then there for others at once.
    pub async fn end(&self, token: &PullToken, client: &Named) -> Result<(), ClientError> {
        let path = self.at("stream", &token.0);
        let call = Call::new(Method::DELETE, path, Effect::Write).accept("*/*");
        self.client.exchange(named(call, client)?).await.map(drop)
    }

    async fn pull(&self, kind: &str, place: &str, reader: &Reader) -> Result<Pulled, ClientError> {
        let form = if reader.form.multipart { "multipart/mixed" } else { "application/xml" };
        // Asking acknowledges. What becomes of a call that was lost is told when it is made again.
        let mut call = Call::get(self.at(kind, place), Effect::Write).accept(form).up_to(LONGEST);
        if reader.form.gzip {
            call = call.header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let patient = self.client.clone().with_deadline(self.client.deadline.max(HELD));
        let answer = patient.exchange(named(call, &reader.client)?).await?;
        self.pulled(kind, &answer).map_err(|reason| ClientError::Protocol { reason })
    }

    fn pulled(&self, kind: &str, answer: &Answer) -> Result<Pulled, String> {
        let next = text(&answer.headers, &PULL_NEXT).and_then(|path| self.token(kind, path));
        let next = next.ok_or("it does not say how to go on")?;
        if answer.body.is_empty() {
            return Ok(Pulled { messages: Vec::new(), next });
        }
        let plain = plain(answer)?;
        let media_type = text(&answer.headers, &CONTENT_TYPE).unwrap_or_default();
        let messages = match body::boundary(media_type)? {
            Some(boundary) => body::parts(&plain, &boundary)?,
            None => {
                let id = text(&answer.headers, &RESOURCE_ID).and_then(|id| id.parse().ok());
                vec![Delivered { id: id.ok_or("the message has no id")?, bytes: plain }]
            }
        };
        Ok(Pulled { messages, next })
    }

    /// The token at the end of a path. A path that leads elsewhere has none for us.
    fn token(&self, kind: &str, path: &str) -> Option<PullToken> {
        let token = path.strip_prefix(&self.at(kind, ""))?;
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_one = !token.is_empty() && token.bytes().all(is_plain);
        is_one.then(|| PullToken(token.to_owned()))
    }

    /// A place of the stream or of a replay.
    fn at(&self, kind: &str, place: &str) -> String {
        format!("/api/v1/out/{}/{kind}/{place}", self.ispb)
    }
}

/// The body of an answer as it was before it was compressed.
fn plain(answer: &Answer) -> Result<Bytes, String> {
    match text(&answer.headers, &CONTENT_ENCODING) {
        None | Some("identity") => Ok(answer.body.clone()),
        Some("gzip") => {
            let plain = gzip::decompress(&answer.body, LONGEST);
            plain.map(Into::into).map_err(|error| error.to_string())
        }
        Some(_) => Err("it is compressed otherwise than by gzip".into()),
    }
}

/// Every id of a list; `None` where one of them is none.
fn ids(headers: &HeaderMap) -> Option<Vec<ResourceId>> {
    let lists: Option<Vec<_>> =
        headers.get_all(RESOURCE_ID).iter().map(|list| list.to_str().ok()).collect();
    let ids = lists?;
    ids.iter().flat_map(|list| list.split(',')).map(|id| id.trim().parse().ok()).collect()
}

fn named(call: Call, client: &Named) -> Result<Call, ClientError> {
    match client.as_str() {
        "" => Ok(call),
        name => Ok(call.header(CLIENT_ID, sendable("name of the client", name)?)),
    }
}

fn sendable(what: &str, text: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(text).map_err(|_| ClientError::Protocol {
        reason: format!("the {what} has characters that no header has"),
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
