//! Streams of server-sent events, across lost connections.
//!
//! A connection that is lost is made anew with the id of the last event, so that the server goes
//! on where it stopped or says that it cannot. Where no id is known, whoever listens is told.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::exchange::{Call, Effect};
use super::server_sent::{EventStream, ServerSent};
use super::{Client, ClientError};

/// A stream that says nothing for so long, not even a comment, is taken for lost.
const SILENCE: Duration = Duration::from_secs(60);

/// The pause before the first attempt to connect again; it doubles up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Attempts to connect again before the stream ends: about half a minute.
const ATTEMPTS: u32 = 10;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a stream hears next.
#[derive(Debug)]
pub(super) enum Heard {
    /// The next event.
    Event(ServerSent),
    /// The connection was made anew, and nobody knows what was missed.
    Anew,
}

/// A stream of events. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Stream {
    client: Client,
    path: String,
    events: EventStream,
    body: Option<Incoming>,
}

impl Stream {
    /// The stream at `path`, on from the event `after` if one is given.
    pub(super) async fn open(
        client: &Client,
        path: String,
        after: Option<String>,
    ) -> Result<Self, ClientError> {
        let events = EventStream::after(after);
        let mut stream = Self { client: client.clone(), path, events, body: None };
        stream.connect().await?;
        Ok(stream)
    }

    /// Waits for what is next. After an error the stream has ended.
    pub(super) async fn next(&mut self) -> Result<Heard, ClientError> {
        loop {
            if let Some(event) = self.events.pop() {
                return Ok(Heard::Event(event));
            }
            if self.body.is_none() {
                let knows_where = self.events.last_id().is_some();
                self.connect_again().await?;
                if !knows_where {
                    return Ok(Heard::Anew);
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
pub(super) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Problem { status, .. } => matches!(status, 429 | 503),
        ClientError::Refused { .. }
        | ClientError::Contested { .. }
        | ClientError::Absent
        | ClientError::UnknownOutcome { .. }
        | ClientError::Protocol { .. }
        | ClientError::Source { .. }
        | ClientError::DigestMismatch { .. }
        | ClientError::Spent { .. } => false,
    }
}
