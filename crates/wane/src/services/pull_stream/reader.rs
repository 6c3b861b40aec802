//! Who reads, and in which form it wants what it reads.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PullStreamError;
use super::message::MAX_BATCH;

/// The longest name of a client, in bytes.
const MAX_CLIENT: usize = 64;

/// In which form a batch is delivered. It is kept with the batch, so that a retry is given the same
/// bytes whatever it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// Up to ten messages, one part each; else one message as it is.
    pub multipart: bool,
    /// Compressed.
    pub gzip: bool,
}

impl Form {
    /// One message, as it is.
    pub const SINGLE: Self = Self { multipart: false, gzip: false };

    /// Up to ten messages.
    pub const MULTIPART: Self = Self { multipart: true, gzip: false };

    /// How many messages fit in.
    pub(super) fn capacity(self) -> usize {
        if self.multipart { MAX_BATCH } else { 1 }
    }
}

/// Whoever makes a call, as the audit tells it: up to 64 bytes of visible ASCII and spaces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Client(String);

impl Client {
    /// Takes the text as a name, or says what would be legal.
    pub fn new(text: &str) -> Result<Self, PullStreamError> {
        let is_legal = |byte| matches!(byte, b' '..=b'~');
        if text.len() <= MAX_CLIENT && text.bytes().all(is_legal) {
            return Ok(Self(text.to_owned()));
        }
        let reason = format!("give up to {MAX_CLIENT} bytes of visible ASCII");
        Err(PullStreamError::Invalid { field: "PI-Client-Id", reason })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reader: who it is, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reader {
    /// Who it says it is.
    pub client: Client,
    /// The form that it asks for.
    pub form: Form,
}
