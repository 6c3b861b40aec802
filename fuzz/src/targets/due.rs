//! Entries of the expiry index.
//!
//! - Decoding never panics; what decodes encodes to the same bytes again, and the reverse.
//! - Entries are stored in the order of their instants, and of their keys within one instant: all
//!   that is due at an instant lies before any entry of the next.

use wane::store::Timestamp;
use wane_backends::file::format::{FormatError, decode_due, encode_due};

use crate::Input;
use crate::input::KEY_LENGTHS;

/// An entry as read back: when it is due, and the stored key.
pub type Entry<'a> = (Timestamp, &'a [u8]);

/// How entries are written and read back.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Codec {
    pub encode: fn(Timestamp, &[u8]) -> Vec<u8>,
    pub decode: fn(&[u8]) -> Result<Entry<'_>, FormatError>,
}

/// The file backend's expiry index.
pub fn target(bytes: &[u8]) {
    check(Codec { encode: encode_due, decode: decode_due }, bytes);
}

/// The properties of a codec.
pub fn check(Codec { encode, decode }: Codec, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let a = (Timestamp::from_unix_millis(input.number()), input.text(&KEY_LENGTHS));
    let same_instant = input.byte() & 1 == 1;
    let instant = if same_instant { a.0 } else { Timestamp::from_unix_millis(input.number()) };
    let b = (instant, input.text(&KEY_LENGTHS));

    for (instant, key) in [&a, &b] {
        let entry = encode(*instant, key);
        assert_eq!(decode(&entry), Ok((*instant, &**key)), "it was encoded like this");
    }
    let stored = encode(a.0, &a.1).cmp(&encode(b.0, &b.1));
    assert_eq!(stored, a.cmp(&b), "{a:?} and {b:?} are out of order");

    let raw = input.rest();
    if let Ok((instant, key)) = decode(raw) {
        assert_eq!(encode(instant, key), raw, "{instant:?} has two encodings");
    }
}
