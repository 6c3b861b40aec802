//! Messages as they come in: bytes that are kept untouched, one to ten of them at a time.

use bytes::Bytes;

use super::PullStreamError;

/// The longest message, in bytes: 200 KiB.
pub const MAX_MESSAGE: usize = 200 * 1_024;

/// The most messages in a batch, in and out.
pub const MAX_BATCH: usize = 10;

/// One message. Its bytes are served as they came: a signature spans them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Bytes);

impl Message {
    /// Takes the bytes as a message, or says which limit they break.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, PullStreamError> {
        let bytes = bytes.into();
        let reason = match bytes.len() {
            0 => "it is empty; send one XML document".into(),
            len if len > MAX_MESSAGE => format!("it has {len} bytes, the limit is {MAX_MESSAGE}"),
            _ => return Ok(Self(bytes)),
        };
        Err(PullStreamError::Invalid { field: "message", reason })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One to ten messages that are taken in together, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch(Vec<Message>);

impl Batch {
    /// Takes the messages as a batch, or says that they are too many or none.
    pub fn new(messages: Vec<Message>) -> Result<Self, PullStreamError> {
        if (1..=MAX_BATCH).contains(&messages.len()) {
            return Ok(Self(messages));
        }
        let reason = format!("{} messages are outside of 1 to {MAX_BATCH}", messages.len());
        Err(PullStreamError::Invalid { field: "batch", reason })
    }

    /// The messages, in order.
    pub fn messages(&self) -> &[Message] {
        &self.0
    }

    pub(super) fn into_messages(self) -> Vec<Message> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(count: usize) -> Vec<Message> {
        (0..count).map(|_| Message::new("<m/>").unwrap()).collect()
    }

    #[test]
    fn a_message_has_one_byte_to_200_kib() {
        assert!(Message::new("").is_err());
        assert!(Message::new("x").is_ok());
        assert!(Message::new(vec![0xFF; 204_800]).is_ok(), "bytes of any kind");
        assert!(Message::new(vec![0xFF; 204_801]).is_err());
    }

    #[test]
    fn a_batch_has_one_to_ten_messages() {
        for (count, legal) in [(0, false), (1, true), (10, true), (11, false)] {
            assert_eq!(Batch::new(messages(count)).is_ok(), legal, "{count}");
        }
    }
}
