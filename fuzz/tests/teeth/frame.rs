//! Broken readers of a log.

use wane_backends::file::log::frame::{BLOCK, HEAD, Head, TAIL};
use wane_backends::file::log::header::Header;
use wane_fuzz::targets::frame::{Frame, check, read};

use crate::assert_caught;

fn read_header(bytes: &[u8; BLOCK]) -> Option<Header> {
    Header::decode(bytes).ok()
}

/// Gives a frame the end that it ought to have.
fn ignores_the_end(identity: u64, bytes: &[u8]) -> Option<Frame> {
    let mut bytes = bytes.to_vec();
    let head = Head::decode(identity, &bytes).ok()?;
    let end = head.size();
    let crc: [u8; TAIL] = *bytes.get(4..8)?.as_array()?;
    bytes.resize(bytes.len().max(end), 0);
    bytes[end - TAIL..end].copy_from_slice(&crc);
    read(identity, &bytes)
}

/// Gives the changes of a frame the checksum that they ought to have.
fn ignores_the_checksum_of_changes(identity: u64, bytes: &[u8]) -> Option<Frame> {
    let mut bytes = bytes.to_vec();
    let len = Head::decode(identity, &bytes).ok()?.len as usize;
    let crc = crc32fast::hash(bytes.get(HEAD..HEAD + len)?);
    bytes[40..HEAD].copy_from_slice(&crc.to_be_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_be_bytes());
    hasher.update(&bytes[8..HEAD]);
    let crc = hasher.finalize().to_be_bytes();
    bytes[4..8].copy_from_slice(&crc);
    ignores_the_end(identity, &bytes)
}

/// Takes a frame for its own that another store has logged.
fn ignores_the_store(identity: u64, bytes: &[u8]) -> Option<Frame> {
    (0..=10).chain([identity]).find_map(|identity| read(identity, bytes))
}

fn panics_on_short_bytes(identity: u64, bytes: &[u8]) -> Option<Frame> {
    assert!(bytes.len() >= HEAD, "there is no head");
    read(identity, bytes)
}

/// Reads what it finds behind the magic.
fn ignores_the_headers_checksum(bytes: &[u8; BLOCK]) -> Option<Header> {
    let number = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_be_bytes);
    let (identity, of, size) = (number(16)?, number(24)?, number(32)?);
    (bytes[..8] == *b"wane log").then_some(Header { version: 1, identity, number: of, size })
}

#[test]
fn broken_readers_of_a_log_are_caught() {
    assert_caught(|bytes| check(ignores_the_end, read_header, bytes), "byte");
    assert_caught(|bytes| check(ignores_the_checksum_of_changes, read_header, bytes), "byte");
    assert_caught(|bytes| check(ignores_the_store, read_header, bytes), "another store");
    assert_caught(|bytes| check(panics_on_short_bytes, read_header, bytes), "no head");
    assert_caught(|bytes| check(read, ignores_the_headers_checksum, bytes), "of a header flipped");
}
