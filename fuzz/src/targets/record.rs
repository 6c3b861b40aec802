//! Records on disk.
//!
//! - Decoding never panics, whatever the bytes and the key.
//! - What decodes carries the checksum of its key and body, is listed in the expiry index exactly
//!   if it expires and no later than that, and encodes to the same bytes again.
//! - What is encoded decodes to the same record.
//! - A flipped bit never decodes. Cut bytes, and bytes under another key, decode only where CRC-32
//!   collides, which this target computes on its own.

use wane::store::{Fence, Record, Timestamp, Value};
use wane_backends::file::format::{FormatError, StoredRecord};

use crate::Input;
use crate::input::{KEY_LENGTHS, VALUE_LENGTHS};

/// Reads the record stored under a key.
pub type Decode = fn(&[u8], &[u8]) -> Result<StoredRecord, FormatError>;

/// The file backend's records.
pub fn target(bytes: &[u8]) {
    check(StoredRecord::decode, bytes);
}

/// The properties of `decode`.
pub fn check(decode: Decode, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let key = input.text(&KEY_LENGTHS);
    let other_key = other_key(&mut input, &key);
    let stored = stored_record(&mut input);
    let (flip, cut) = (input.clone(), input.clone());
    let raw = input.rest();

    decodes_to_itself_or_not_at_all(decode, &key, raw);
    decodes_to_itself_or_not_at_all(decode, &key, &sealed(&key, raw));

    let Some(stored) = stored else { return };
    let encoded = encode(&stored, &key);
    assert_eq!(decode(&key, &encoded).as_ref(), Ok(&stored), "it was encoded like this");
    a_flipped_bit_is_noticed(decode, &key, &encoded, flip);
    a_cut_is_noticed(decode, &key, &encoded, cut);
    if other_key != key {
        decodes_to_itself_or_not_at_all(decode, &other_key, &encoded);
    }
}

fn decodes_to_itself_or_not_at_all(decode: Decode, key: &[u8], bytes: &[u8]) {
    let Ok(stored) = decode(key, bytes) else { return };
    assert_eq!(bytes, sealed(key, &bytes[4..]), "decoded with another checksum");
    let (expiry, filed) = (stored.record.expires_at, stored.filed);
    assert_eq!(filed.is_some(), expiry.is_some(), "the index must list exactly what expires");
    assert!(filed <= expiry, "the index must not list it after its expiry");
    assert!(encode(&stored, key) == bytes, "{stored:?} has two encodings");
}

fn a_flipped_bit_is_noticed(decode: Decode, key: &[u8], encoded: &[u8], mut input: Input<'_>) {
    let mut flipped = encoded.to_vec();
    let (at, bit) = (input.place(encoded.len()), input.byte() % 8);
    flipped[at] ^= 1 << bit;
    assert!(
        decode(key, &flipped).is_err(),
        "bit {bit} of byte {at} flipped: decoded with another checksum"
    );
}

fn a_cut_is_noticed(decode: Decode, key: &[u8], encoded: &[u8], mut input: Input<'_>) {
    let at = input.place(encoded.len());
    decodes_to_itself_or_not_at_all(decode, key, &encoded[..at]);
    decodes_to_itself_or_not_at_all(decode, key, &encoded[encoded.len() - at..]);
}

/// Another key: near to the first one, or any.
fn other_key(input: &mut Input<'_>, key: &[u8]) -> Vec<u8> {
    let mut other = key.to_vec();
    match input.byte() % 4 {
        0 if !key.is_empty() => other[input.place(key.len())] ^= input.byte(),
        1 => other.push(input.byte()),
        2 => other.truncate(key.len().saturating_sub(1)),
        _ => other = input.text(&KEY_LENGTHS),
    }
    other
}

/// A record that a store may write, unless its value is too long.
fn stored_record(input: &mut Input<'_>) -> Option<StoredRecord> {
    let shape = input.byte();
    let expires_at = (shape & 1 != 0).then(|| input.number());
    let filed =
        expires_at.map(|expiry| if shape & 2 != 0 { input.number().min(expiry) } else { expiry });
    let fence = Fence(if shape & 4 != 0 { input.number() } else { 0 });
    let value = Value::new(input.text(&VALUE_LENGTHS)).ok()?;
    let expires_at = expires_at.map(Timestamp::from_unix_millis);
    let filed = filed.map(Timestamp::from_unix_millis);
    Some(StoredRecord { record: Record { value, expires_at, fence }, filed })
}

fn encode(stored: &StoredRecord, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    stored.encode(key, &mut bytes);
    bytes
}

/// A body under the checksum that belongs to it, whatever the body holds.
fn sealed(key: &[u8], body: &[u8]) -> Vec<u8> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(body);
    [&crc.finalize().to_be_bytes(), body].concat()
}
