//! Server-sent events: bytes in, events out, wherever the network cuts them.
//!
//! As the HTML standard reads them. An event that grows past the limit ends the stream: memory is
//! bounded whatever the server sends.

use std::collections::VecDeque;
use std::time::Duration;

/// The longest event. The longest value in the least favourable escapes fits.
const LONGEST: usize = 1 << 20;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerSent {
    pub(super) kind: String,
    pub(super) data: String,
    /// The last id that the stream gave, with this event or before.
    pub(super) id: Option<String>,
}

/// What makes a stream unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamError {
    #[error("an event is longer than {LONGEST} bytes")]
    TooLong,
    #[error("an event is not UTF-8")]
    NotUtf8,
}

/// A stream of events as it arrives.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    line: Vec<u8>,
    /// Whether a line feed belongs to the carriage return before it.
    after_return: bool,
    is_begun: bool,
    kind: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
    ready: VecDeque<ServerSent>,
}

impl EventStream {
    /// A stream that goes on after an event that another one ended with.
    pub(super) fn after(last_id: Option<String>) -> Self {
        Self { id: last_id.clone(), last_id, ..Self::default() }
    }

    /// Where to resume.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long the server asks to wait before connecting again.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The next whole event.
    pub(super) fn pop(&mut self) -> Option<ServerSent> {
        self.ready.pop_front()
    }

    /// Takes in what arrived.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        for &byte in bytes {
            let ends_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if ends_return => {}
                b'\r' | b'\n' => self.end_line()?,
                _ if self.line.len() + self.data.len() >= LONGEST => {
                    return Err(StreamError::TooLong);
                }
                _ => self.line.push(byte),
            }
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), StreamError> {
        let line = String::from_utf8(std::mem::take(&mut self.line));
        let line = line.map_err(|_| StreamError::NotUtf8)?;
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let line = if is_first { line.trim_start_matches('\u{feff}') } else { &line };
        if line.is_empty() {
            self.end_event();
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.take_field(field, value.strip_prefix(' ').unwrap_or(value));
        Ok(())
    }

    fn take_field(&mut self, field: &str, value: &str) {
        match field {
            "event" => self.kind = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "id" if !value.contains('\0') => {
                self.id = Some(value.to_owned()).filter(|id| !id.is_empty());
            }
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis);
            }
            // A comment, or what a later server may say.
            _ => {}
        }
    }

    fn end_event(&mut self) {
        self.last_id = self.id.clone();
        let kind = std::mem::take(&mut self.kind);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            let kind = if kind.is_empty() { "message".into() } else { kind };
            self.ready.push_back(ServerSent { kind, data, id: self.last_id.clone() });
        }
    }
}
