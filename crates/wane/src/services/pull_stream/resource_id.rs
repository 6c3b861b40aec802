//! [`ResourceId`]: the name of a message, which it keeps on every redelivery.
//!
//! "PI", 48 bits of Unix milliseconds, and a UUID of version 4: 24 bytes, 32 characters of base64.
//! The UUID is drawn here after the message came, so that nobody can put an id into a message.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::PullStreamError;
use crate::clock::Clock;
use crate::store::Timestamp;

/// Bytes of an id before they are encoded.
pub(super) const ID_BYTES: usize = 24;

const PREFIX: &[u8; 2] = b"PI";

/// The name of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId([u8; ID_BYTES]);

impl ResourceId {
    pub(super) fn draw(clock: &dyn Clock) -> Self {
        let mut bytes = [0; ID_BYTES];
        clock.fill_random(&mut bytes[8..]);
        bytes[..2].copy_from_slice(PREFIX);
        bytes[2..8].copy_from_slice(&clock.now().as_unix_millis().to_be_bytes()[2..]);
        // The version and the variant of RFC 9562.
        bytes[14] = (bytes[14] & 0x0F) | 0x40;
        bytes[16] = (bytes[16] & 0x3F) | 0x80;
        Self(bytes)
    }

    /// When the message was taken in.
    pub fn at(&self) -> Timestamp {
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&self.0[2..8]);
        Timestamp::from_unix_millis(u64::from_be_bytes(millis))
    }

    pub(super) fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }

    /// An id as it is stored; `None` where the bytes are none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; ID_BYTES] = bytes.try_into().ok()?;
        let is_one = &bytes[..2] == PREFIX && bytes[14] >> 4 == 4 && bytes[16] >> 6 == 2;
        is_one.then_some(Self(bytes))
    }

    /// The id in characters that a multipart boundary may have unquoted.
    pub(super) fn url_safe(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ResourceId {
    type Err = PullStreamError;

    fn from_str(text: &str) -> Result<Self, PullStreamError> {
        let bytes = STANDARD.decode(text).ok();
        bytes.and_then(|bytes| Self::from_bytes(&bytes)).ok_or_else(|| PullStreamError::Invalid {
            field: "PI-ResourceId",
            reason: "give the 32 characters as they were handed out".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn an_id_is_pi_the_time_and_a_uuid_in_32_characters() {
        let clock = ManualClock::seeded(1);
        for _ in 0..100 {
            let id = ResourceId::draw(&*clock);
            let text = id.to_string();
            assert_eq!(text.len(), 32);
            assert_eq!(id.at(), clock.now());
            assert_eq!(text.parse::<ResourceId>().unwrap(), id);
            let bytes = STANDARD.decode(&text).unwrap();
            assert_eq!(&bytes[..2], b"PI");
            assert_eq!((bytes[14] >> 4, bytes[16] >> 6), (4, 2), "a UUIDv4");
            assert!(id.url_safe().bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
        }
    }

    #[test]
    fn other_texts_are_no_ids() {
        let id = ResourceId::draw(&*ManualClock::seeded(1)).to_string();
        for wrong in ["", "UEk=", &id[1..], &format!("{id}="), &format!("QQ{}", &id[2..])] {
            assert!(wrong.parse::<ResourceId>().is_err(), "{wrong}");
        }
    }
}
