//! The controls: broken code that every target must catch, and what it finds must be small.
//!
//! Without these, a target that checks nothing would look like code that holds.

mod backup;
mod frame;

use std::time::Duration;

use wane::clock::SystemClock;
use wane::store::{ClusteringRange, Fence, Key, Record, StoreError, Timestamp, Value};
use wane_backends::file::format::{FormatError, StoredRecord};
use wane_fuzz::targets::key::Codec;
use wane_fuzz::targets::{self, due, key, limits, range, record};
use wane_fuzz::{Campaign, Target};

/// What `make test` grants each target.
const BUDGET: Duration = Duration::from_secs(5);

/// Without the corpus: the seeds must not be what catches it.
fn campaign(seed: u64) -> Campaign {
    Campaign { seed, budget: BUDGET, corpus: Vec::new() }
}

/// Expects the property to be found broken within the budget, and the shrunk input to say so.
fn assert_caught(broken: Target, property: &str) {
    let report = campaign(1).run(broken, &*SystemClock::shared());
    let executions = report.executions;
    let failure =
        report.failure.unwrap_or_else(|| panic!("not caught in {executions}: {property}"));
    assert!(failure.message.contains(property), "{property}: {}", failure.message);
}

/// Reads the fields and checks nothing.
fn read_fields(bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    let (&flags, mut rest) =
        bytes.get(4..).and_then(<[u8]>::split_first).ok_or(FormatError::Short)?;
    let mut number = |flag: u8| {
        if flags & flag == 0 {
            return Ok(None);
        }
        let (number, after) = rest.split_first_chunk().ok_or(FormatError::Short)?;
        rest = after;
        Ok(Some(u64::from_be_bytes(*number)))
    };
    let expires_at = number(1)?.map(Timestamp::from_unix_millis);
    let filed = number(2)?.map(Timestamp::from_unix_millis).or(expires_at);
    let fence = Fence(number(4)?.unwrap_or(0));
    let value = Value::new(rest.to_vec()).map_err(|_| FormatError::Impossible("length"))?;
    Ok(StoredRecord { record: Record { value, expires_at, fence }, filed })
}

fn ignores_checksum(_: &[u8], bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    read_fields(bytes)
}

/// Takes a record for its own although it was stored under a key that ends otherwise.
fn ignores_end_of_key(key: &[u8], bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    let start = &key[..key.len().saturating_sub(1)];
    let keys = (0..=255).map(|last| [start, &[last]].concat());
    let decoded = keys.map(|key| StoredRecord::decode(&key, bytes)).find(Result::is_ok);
    decoded.unwrap_or_else(|| StoredRecord::decode(key, bytes))
}

/// Takes impossible records of one kind, and is right about all others.
fn takes(
    kind: fn(&StoredRecord) -> bool,
    key: &[u8],
    bytes: &[u8],
) -> Result<StoredRecord, FormatError> {
    StoredRecord::decode(key, bytes).or_else(|error| match error {
        FormatError::Impossible(_) => read_fields(bytes).ok().filter(kind).ok_or(error),
        FormatError::Short | FormatError::Checksum => Err(error),
    })
}

fn takes_late(key: &[u8], bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    let kind = |it: &StoredRecord| {
        it.record.expires_at.is_some_and(|expiry| it.filed.is_some_and(|filed| filed > expiry))
    };
    takes(kind, key, bytes)
}

fn takes_listed_permanent(key: &[u8], bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    takes(|it| it.record.expires_at.is_none() && it.filed.is_some(), key, bytes)
}

/// Takes a stated fence of 0, which is never written.
fn takes_zero_fence(key: &[u8], bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    takes(|it| it.record.fence == Fence::NONE && it.filed == it.record.expires_at, key, bytes)
}

fn panics_on_short_bytes(key: &[u8], bytes: &[u8]) -> Result<StoredRecord, FormatError> {
    assert!(bytes.len() >= 4, "there is no checksum");
    StoredRecord::decode(key, bytes)
}

#[test]
fn broken_record_decoders_are_caught() {
    use record::check;
    assert_caught(|bytes| check(ignores_checksum, bytes), "another checksum");
    assert_caught(|bytes| check(ignores_end_of_key, bytes), "another checksum");
    assert_caught(|bytes| check(panics_on_short_bytes, bytes), "there is no checksum");
    assert_caught(|bytes| check(takes_late, bytes), "must not list it after its expiry");
    assert_caught(|bytes| check(takes_listed_permanent, bytes), "list exactly what expires");
    assert_caught(|bytes| check(takes_zero_fence, bytes), "has two encodings");
}

/// Each reads back what it wrote, and breaks one rule of how keys lie on disk.
mod broken_keys {
    use super::*;

    fn key(partition: &[u8], clustering: &[u8]) -> Result<Key, FormatError> {
        Key::new(partition, clustering).map_err(|_| FormatError::Impossible("key"))
    }

    /// Orders clusterings by their length first.
    pub(super) const BY_LENGTH: Codec = Codec {
        encode: |key| {
            let len = (key.clustering().len() as u16).to_be_bytes();
            [&partition_of(key), &len[..], key.clustering()].concat()
        },
        decode: |bytes| {
            let (partition, rest) = split_counted(bytes)?;
            let (clustering, []) = split_counted(rest)? else { return Err(FormatError::Short) };
            key(partition, clustering)
        },
    };

    /// Orders by clustering before partition. 0x00 is escaped, and ends the clustering.
    pub(super) const CLUSTERING_FIRST: Codec = Codec {
        encode: |key| {
            let escaped = key.clustering().iter().flat_map(|byte| match byte {
                0 => vec![0, 0xFF],
                other => vec![*other],
            });
            escaped.chain([0, 0]).chain(key.partition().iter().copied()).collect()
        },
        decode: |bytes| {
            let mut clustering = Vec::new();
            let mut rest = bytes;
            loop {
                rest = match rest {
                    [0, 0, partition @ ..] => return key(partition, &clustering),
                    [0, 0xFF, after @ ..] => {
                        clustering.push(0);
                        after
                    }
                    [0, ..] | [] => return Err(FormatError::Short),
                    [byte, after @ ..] => {
                        clustering.push(*byte);
                        after
                    }
                };
            }
        },
    };

    /// Forgets where the partition ends.
    pub(super) const JOINED: Codec = Codec {
        encode: |key| [key.partition(), key.clustering()].concat(),
        decode: |bytes| key(bytes, b""),
    };

    fn partition_of(key: &Key) -> Vec<u8> {
        [&(key.partition().len() as u16).to_be_bytes(), key.partition()].concat()
    }

    fn split_counted(bytes: &[u8]) -> Result<(&[u8], &[u8]), FormatError> {
        let (len, rest) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
        rest.split_at_checked(usize::from(u16::from_be_bytes(*len))).ok_or(FormatError::Short)
    }
}

#[test]
fn broken_key_encodings_are_caught() {
    assert_caught(|bytes| key::check(broken_keys::BY_LENGTH, bytes), "out of order");
    assert_caught(|bytes| key::check(broken_keys::CLUSTERING_FIRST, bytes), "torn apart");
    assert_caught(|bytes| key::check(broken_keys::JOINED, bytes), "encoded like this");
}

#[test]
fn a_broken_expiry_index_is_caught() {
    const LITTLE_ENDIAN: due::Codec = due::Codec {
        encode: |instant, key| [&instant.as_unix_millis().to_le_bytes(), key].concat(),
        decode: |bytes| {
            let (instant, key) = bytes.split_first_chunk().ok_or(FormatError::Short)?;
            Ok((Timestamp::from_unix_millis(u64::from_le_bytes(*instant)), key))
        },
    };
    const FORGETS_THE_KEY: due::Codec = due::Codec {
        encode: |instant, _| instant.as_unix_millis().to_be_bytes().to_vec(),
        ..LITTLE_ENDIAN
    };
    assert_caught(|bytes| due::check(LITTLE_ENDIAN, bytes), "out of order");
    assert_caught(|bytes| due::check(FORGETS_THE_KEY, bytes), "encoded like this");
}

#[test]
fn broken_prefix_ranges_are_caught() {
    /// Forgets that 0xFF has no successor.
    fn wrapping(start: Vec<u8>) -> Result<ClusteringRange, StoreError> {
        let mut end = start.clone();
        if let Some(last) = end.last_mut() {
            *last = last.wrapping_add(1);
        }
        ClusteringRange::new(start, end)
    }
    /// Leaves out what follows the prefix by many 0xFF.
    fn padded(start: Vec<u8>) -> Result<ClusteringRange, StoreError> {
        let mut end = start.clone();
        end.resize(start.len().max(200), 0xFF);
        ClusteringRange::new(start, end)
    }
    assert_caught(|bytes| range::check(wrapping, bytes), "of prefix");
    assert_caught(|bytes| range::check(padded, bytes), "of prefix");
}

#[test]
fn broken_limits_are_caught() {
    fn too_strict(partition: &[u8], clustering: &[u8]) -> Result<Key, StoreError> {
        let key = Key::new(partition, clustering)?;
        if clustering.len() == 1_024 { Key::new(b"", b"") } else { Ok(key) }
    }
    /// Forgets the byte that escaping a leading 0x00 takes.
    fn too_lenient(partition: &[u8], clustering: &[u8]) -> Result<Key, StoreError> {
        let unescaped = clustering.len() == 1_024 && clustering[0] == 0;
        Key::new(partition, if unescaped { &clustering[1..] } else { clustering })
    }
    assert_caught(|bytes| limits::check(too_strict, bytes), "1024 bytes");
    assert_caught(|bytes| limits::check(too_lenient, bytes), "1024 bytes");
}

#[test]
fn a_failing_input_is_shrunk_to_what_matters() {
    fn fails_on_two_bytes(bytes: &[u8]) {
        assert!(!(bytes.contains(&0x7F) && bytes.contains(&0xC5)), "both are there");
    }
    let report = campaign(1).run(fails_on_two_bytes, &*SystemClock::shared());
    let failure = report.failure.expect("two of the dictionary's bytes meet soon");
    assert_eq!(failure.input.len(), 2, "{:?} of {} bytes", failure.input, failure.found_len);
    assert_eq!(failure.message, "both are there");
}

/// A campaign can be run again: the seed decides which input fails first.
#[test]
fn a_seed_decides_the_inputs() {
    let broken: Target = |bytes| record::check(ignores_checksum, bytes);
    let run = |seed| {
        let report = campaign(seed).run(broken, &*SystemClock::shared());
        (report.executions, report.failure.map(|failure| failure.input))
    };
    assert_eq!(run(7), run(7));
}

#[test]
fn the_real_targets_hold_for_a_moment() {
    for (name, target) in targets::ALL {
        let campaign = Campaign { budget: Duration::from_millis(200), ..campaign(1) };
        let report = campaign.run(target, &*SystemClock::shared());
        assert!(report.executions > 100, "{name} is too slow: {}", report.executions);
        assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    }
}
