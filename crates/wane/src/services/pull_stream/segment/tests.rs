//! Segments: what was written is read, and nothing else is.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::clock::ManualClock;
use crate::services::pull_stream::message::Message;
use crate::services::pull_stream::resource_id::ResourceId;

const START: u64 = 1_800_000_000_000;

fn place() -> Place<'static> {
    Place { region: "local", ispb: "00000208".parse().unwrap() }
}

fn moment(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(START + millis)
}

/// The bytes of a row with one message.
fn value(row: u64, at: Timestamp) -> Bytes {
    let clock = ManualClock::seeded(row);
    let message = Message::new(format!("<Envelope>{row}</Envelope>")).unwrap();
    let sealed = SealedRow::seal(at, [7; 16], &[(ResourceId::draw(&*clock), message)], None);
    sealed.value().unwrap().into_bytes()
}

fn segment(rows: impl IntoIterator<Item = u64>) -> (SegmentName, Bytes) {
    let mut writer = SegmentWriter::new(place(), SEGMENT_BYTES);
    for row in rows {
        writer.push(row, moment(row * 10), &value(row, moment(row * 10))).unwrap();
    }
    writer.finish().unwrap().unwrap()
}

fn reason(name: &SegmentName, bytes: &[u8]) -> String {
    match decode(name, bytes) {
        Err(ArchiveError::Damaged { segment, reason }) => {
            assert_eq!(segment, *name, "the error names the segment");
            reason
        }
        other => panic!("taken for whole: {other:?}"),
    }
}

fn bodies(rows: &[(u64, SealedRow)]) -> Vec<(u64, Bytes)> {
    rows.iter().map(|(row, sealed)| (*row, sealed.body())).collect()
}

/// Bytes that are sealed again, as somebody would who can compute a digest.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - DIGEST);
    bytes.extend(Sha256::digest(&bytes));
    bytes
}

#[test]
fn what_was_written_is_read_with_its_gaps() {
    let (name, bytes) = segment([5, 6, 7, 300, 301]);
    assert_eq!((name.rows.clone(), name.count), (5..302, 5));
    assert_eq!(name.times, moment(50)..moment(3_011));
    let rows = decode(&name, &bytes).unwrap();
    assert_eq!(rows.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [5, 6, 7, 300, 301]);
    for (row, sealed) in &rows {
        assert_eq!(sealed.at(), moment(row * 10));
        assert_eq!(sealed.message(0).unwrap().1, format!("<Envelope>{row}</Envelope>"));
    }
    assert!(
        SegmentWriter::new(place(), SEGMENT_BYTES).finish().unwrap().is_none(),
        "no rows are no segment"
    );
}

#[test]
fn the_same_rows_make_the_same_bytes() {
    assert_eq!(segment(0..100), segment(0..100));
    assert_ne!(segment(0..100).1, segment(0..101).1);
}

#[test]
fn a_flip_of_any_bit_a_cut_and_what_is_longer_are_damage() {
    let (name, bytes) = segment(0..3);
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        reason(&name, &flipped);
    }
    for length in 0..bytes.len() {
        reason(&name, &bytes[..length]);
    }
    reason(&name, &[&bytes[..], &[0]].concat());
}

#[test]
fn a_segment_under_another_name_is_damage() {
    let (name, bytes) = segment(0..3);
    let others = [
        SegmentName { region: "other".into(), ..name.clone() },
        SegmentName { ispb: "00000209".parse().unwrap(), ..name.clone() },
        SegmentName { rows: 0..4, ..name.clone() },
        SegmentName { times: moment(0)..moment(1), ..name.clone() },
        SegmentName { count: 2, ..name.clone() },
    ];
    for other in others {
        assert!(reason(&other, &bytes).contains("another segment"), "{other}");
    }
}

/// Where in a segment what begins: the index, the lengths, the rows.
fn places(name: &SegmentName, bytes: &[u8]) -> [Range<usize>; 3] {
    let index = head(name).len();
    let lengths = index + ENTRY * usize::try_from(name.count).unwrap();
    [index..lengths, lengths..lengths + 8, lengths + 8..bytes.len() - DIGEST]
}

/// The digest holds against accidents alone: what it covers is checked as well.
#[test]
fn what_is_sealed_again_is_read_no_more_than_it_is_right() {
    let (name, bytes) = segment(0..3);
    let [index, lengths, packed] = places(&name, &bytes);
    let with = |at: usize, value: u8| {
        let mut changed = bytes.to_vec();
        changed[at] ^= value;
        reason(&name, &resealed(changed))
    };
    assert!(with(0, 1).contains("does not begin like a segment"));
    assert!(with(MAGIC.len(), 3).contains("version"));
    assert!(with(index.start + 7, 9).contains("order"), "the number of the first row");
    assert!(with(index.start + 15, 1).contains("another time"));
    assert!(with(index.start + 19, 1).contains("order"), "where the first row lies");
    assert!(with(index.start + 20, 1).contains("outside"), "how long the first row is");
    assert!(with(index.start + 27, 1).contains("checksum"));
    assert!(with(lengths.start, 1).contains("more bytes than any"));
    assert!(with(lengths.start + 3, 1).contains("do not decompress to their length"));
    assert!(with(lengths.start + 7, 1).contains("another length"));
    // Bytes that are compressed otherwise may be the same bytes: then they are the same rows.
    for at in packed {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x10;
        if let Ok(rows) = decode(&name, &resealed(changed)) {
            assert_eq!(bodies(&rows), bodies(&decode(&name, &bytes).unwrap()));
        }
    }
}

/// A few bytes that would become gigabytes stop at what they announced, and that at the limit.
#[test]
fn a_bomb_is_not_decompressed() {
    let (name, bytes) = segment(0..1);
    let [_, lengths, packed] = places(&name, &bytes);
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    for _ in 0..256 {
        encoder.write_all(&[0; 1 << 20]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    let announced = |plain: u32| {
        let mut changed = bytes[..lengths.start].to_vec();
        changed.extend(plain.to_be_bytes());
        changed.extend((bomb.len() as u32).to_be_bytes());
        changed.extend(&bomb);
        changed.extend(&bytes[packed.end..]);
        reason(&name, &resealed(changed))
    };
    assert!(announced(1_000).contains("do not decompress to their length"));
    assert!(announced(LONGEST as u32).contains("do not decompress to their length"));
    assert!(announced(1 << 30).contains("more bytes than any"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing panics, whatever the bytes; and what is decoded is what was written.
    #[test]
    fn any_bytes_are_decoded_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let (name, bytes) = segment(0..8);
        let mut changed = bytes.to_vec();
        for (at, to) in changes {
            let at = at.index(changed.len());
            changed[at] = to;
        }
        if is_cut {
            let length = DIGEST.max(cut.index(changed.len()));
            changed.truncate(length);
        }
        let changed = resealed(changed);
        if let Ok(rows) = decode(&name, &changed) {
            let written = decode(&name, &bytes).unwrap();
            prop_assert_eq!(bodies(&rows), bodies(&written));
        }
    }

    #[test]
    fn noise_is_no_segment(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let (name, _) = segment(0..3);
        let headed = [&head(&name)[..], &bytes, &[0; DIGEST]].concat();
        prop_assert!(decode(&name, &bytes).is_err());
        prop_assert!(decode(&name, &resealed(headed)).is_err());
    }
}
