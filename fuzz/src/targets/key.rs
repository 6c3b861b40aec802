//! Keys on disk.
//!
//! - Decoding never panics; what decodes encodes to the same bytes again, and the reverse.
//! - Keys of one partition are stored in the order of their clusterings.
//! - Keys of different partitions never interleave, not even where the end of one partition reads
//!   like the start of the other's clustering.

use std::collections::BTreeMap;

use wane::store::Key;
use wane_backends::file::format::{FormatError, decode_key, encode_key};

use crate::Input;
use crate::input::KEY_LENGTHS;

/// How keys are written and read back.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Codec {
    pub encode: fn(&Key) -> Vec<u8>,
    pub decode: fn(&[u8]) -> Result<Key, FormatError>,
}

/// The file backend's keys.
pub fn target(bytes: &[u8]) {
    check(Codec { encode: encode_key, decode: decode_key }, bytes);
}

/// The properties of a codec.
pub fn check(Codec { encode, decode }: Codec, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut keys = Vec::new();
    for _ in 0..3 {
        if let Some(key) = next_key(&mut input, keys.last()) {
            keys.push(key);
        }
    }
    let raw = input.rest();
    if let Ok(key) = decode(raw) {
        assert_eq!(encode(&key), raw, "{key:?} has two encodings");
    }
    for key in &keys {
        assert_eq!(decode(&encode(key)).as_ref(), Ok(key), "it was encoded like this");
    }
    for (a, b) in keys.iter().zip(keys.iter().skip(1)) {
        let (stored_a, stored_b) = (encode(a), encode(b));
        assert_eq!(stored_a == stored_b, a == b, "{a:?} and {b:?} are stored as one");
        if a.partition() == b.partition() {
            let order = a.clustering().cmp(b.clustering());
            assert_eq!(stored_a.cmp(&stored_b), order, "{a:?} and {b:?} are out of order");
        }
    }
    partitions_do_not_interleave(encode, &keys);
}

fn partitions_do_not_interleave(encode: fn(&Key) -> Vec<u8>, keys: &[Key]) {
    let stored: BTreeMap<_, _> = keys.iter().map(|key| (encode(key), key)).collect();
    let mut partitions: Vec<_> = stored.values().map(|key| key.partition()).collect();
    partitions.dedup();
    let runs = partitions.len();
    partitions.sort_unstable();
    partitions.dedup();
    assert_eq!(runs, partitions.len(), "a partition of {keys:?} is torn apart");
}

/// A key of any partition, of the same as the last one, or with the same bytes split elsewhere.
fn next_key(input: &mut Input<'_>, last: Option<&Key>) -> Option<Key> {
    let relation = input.byte();
    match last {
        Some(last) if relation & 3 == 1 => {
            Key::new(last.partition(), &input.text(&KEY_LENGTHS)).ok()
        }
        Some(last) if relation & 3 == 2 => {
            let joined = [last.partition(), last.clustering()].concat();
            let (partition, clustering) = joined.split_at(input.place(joined.len()));
            Key::new(partition, clustering).ok()
        }
        _ => Key::new(&input.text(&KEY_LENGTHS), &input.text(&KEY_LENGTHS)).ok(),
    }
}
