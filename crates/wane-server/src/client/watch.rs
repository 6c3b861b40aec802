//! Watches: changes of the entries with one prefix, across lost connections.
//!
//! A connection that is lost is made anew with the id of the last event, so that the server goes
//! on where it stopped or says that it cannot: [`Notice::Gap`]. Where no id is known yet, the gap
//! is said here.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use wane::store::Timestamp;

use super::app_ttl::{ItemForm, escaped};
use super::exchange::{Call, Effect};
use super::server_sent::{EventStream, ServerSent};
use super::{AppTtl, Client, ClientError, Item};

/// A stream that says nothing for so long, not even a comment, is taken for lost.
const SILENCE: Duration = Duration::from_secs(60);

/// The pause before the first attempt to connect again; it doubles up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Attempts to connect again before the watch ends: about half a minute.
const ATTEMPTS: u32 = 10;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was written where none was.
    Inserted,
    /// It was replaced, or given another life.
    Swapped,
    /// It was deleted.
    Deleted,
    /// It reached its expiry.
    Expired,
}

impl ChangeKind {
    /// The name of the event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Swapped => "swapped",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = [Self::Inserted, Self::Swapped, Self::Deleted, Self::Expired];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where a watch resumes after this event.
    pub id: Option<String>,
    /// What happened.
    pub kind: ChangeKind,
    /// The key.
    pub key: String,
    /// The value: the new one, or the last one.
    pub value: Bytes,
    /// The expiry of that value.
    pub expires_at: Option<Timestamp>,
}

/// What a watch hears next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The next change.
    Event(Event),
    /// Changes may have been missed: read the entries anew. The watch goes on after it.
    Gap,
}

/// A watch over the keys with one prefix. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    path: String,
    events: EventStream,
    body: Option<Incoming>,
}

impl AppTtl {
    /// Watches the keys that begin with `prefix`, from now on or on from the event `after`.
    pub async fn watch(&self, prefix: &str, after: Option<String>) -> Result<Watch, ClientError> {
        let path = format!("{}:watch?prefix={}", self.path, escaped(prefix));
        let events = EventStream::after(after);
        let mut watch = Watch { client: self.client.clone(), path, events, body: None };
        watch.connect().await?;
        Ok(watch)
    }
}

impl Watch {
    /// Waits for the next notice. After an error the watch has ended.
    pub async fn next(&mut self) -> Result<Notice, ClientError> {
        loop {
            while let Some(event) = self.events.pop() {
                if let Some(notice) = notice(event)? {
                    return Ok(notice);
                }
            }
            if self.body.is_none() {
                let knows_where = self.events.last_id().is_some();
                self.connect_again().await?;
                if !knows_where {
                    return Ok(Notice::Gap);
                }
            }
            self.hear().await?;
        }
    }

    /// Takes in what arrives next. The end of the stream leaves no body.
    async fn hear(&mut self) -> Result<(), ClientError> {
        let Some(body) = &mut self.body else { return Ok(()) };
        let silence = self.client.shared.clock.sleep(SILENCE);
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = silence => None,
        };
        let Some(Ok(frame)) = frame else {
            self.body = None;
            return Ok(());
        };
        let data = frame.into_data().unwrap_or_default();
        let protocol = |error| ClientError::Protocol { reason: format!("{error}") };
        self.events.feed(&data).map_err(protocol)
    }

    async fn connect_again(&mut self) -> Result<(), ClientError> {
        let mut pause = self.events.retry().unwrap_or(PAUSE).min(LONGEST_PAUSE);
        let mut attempt = 1;
        loop {
            self.client.shared.clock.sleep(pause).await;
            let error = match self.connect().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if attempt == ATTEMPTS || !may_pass(&error) {
                return Err(error);
            }
            attempt += 1;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let mut call = Call::get(self.path.clone(), Effect::Read).accept("text/event-stream");
        let last_id = self.events.last_id().map(str::to_owned);
        if let Some(id) = &last_id {
            let value = HeaderValue::from_str(id).map_err(|_| ClientError::Protocol {
                reason: "the id of an event cannot be sent back".into(),
            })?;
            call = call.header(LAST_EVENT_ID, value);
        }
        let response = self.client.open(call).await?;
        let media_type = response.headers().get(CONTENT_TYPE);
        if !media_type.is_some_and(|it| it.as_bytes().starts_with(b"text/event-stream")) {
            return Err(ClientError::Protocol { reason: "the answer is not of events".into() });
        }
        self.events = EventStream::after(last_id);
        self.body = Some(response.into_body());
        Ok(())
    }
}

/// Whether the server may answer otherwise in a moment.
fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Problem { status, .. } => matches!(status, 429 | 503),
        ClientError::Refused { .. }
        | ClientError::Absent
        | ClientError::UnknownOutcome { .. }
        | ClientError::Protocol { .. } => false,
    }
}

/// What an event means; `None` for one that later servers may send.
fn notice(event: ServerSent) -> Result<Option<Notice>, ClientError> {
    if event.kind == "gap" {
        return Ok(Some(Notice::Gap));
    }
    let Some(kind) = ChangeKind::named(&event.kind) else { return Ok(None) };
    let protocol = |reason| ClientError::Protocol { reason };
    let form: ItemForm =
        serde_json::from_str(&event.data).map_err(|error| protocol(error.to_string()))?;
    let Item { key, value, expires_at } = form.meaning().map_err(protocol)?;
    Ok(Some(Notice::Event(Event { id: event.id, kind, key, value, expires_at })))
}
