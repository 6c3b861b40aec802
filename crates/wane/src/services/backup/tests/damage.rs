//! Bytes that are not what was written: each is refused, at the byte where it went wrong.

use super::*;
use crate::clock::Clock;
use crate::services::backup::decoder::Decoder;
use crate::services::backup::format::MAX_PAYLOAD;
use crate::services::backup::restoring::GROUP_RECORDS;

fn sample() -> (Fixture, Vec<u8>) {
    let fixture = Fixture::new(1);
    let now = fixture.clock.now();
    let forged = Forged::new(now).record("kept", b"value", None, 0);
    let forged = forged.record("lasting", b"", Some(now.after(Ttl::MAX)), 12);
    (fixture, forged.record("fenced", b"other", None, u64::MAX).end())
}

/// Asserts that the bytes are refused, that nothing of them reaches a store, and returns why.
async fn refused(fixture: &Fixture, bytes: &[u8], what: &str) -> BackupError {
    let restored = restore(&fixture.store, &*fixture.clock, &mut Cursor::new(bytes), |_| ()).await;
    assert!(restored.is_err(), "{what}: restored {restored:?}");
    assert!(contents(&fixture.store).await.is_empty(), "{what}: something was written");
    verified(bytes, fixture.clock.now()).await.expect_err(what)
}

/// The control of all others: without the damage the same bytes are sound.
#[tokio::test]
async fn the_sample_is_sound() {
    let (fixture, bytes) = sample();
    let (store, restored) = fixture.restore(&bytes).await;
    assert_eq!(restored.unwrap().records, 3);
    assert_eq!(contents(&store).await.len(), 3);
}

#[tokio::test]
async fn every_flipped_bit_is_refused() {
    let (fixture, bytes) = sample();
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(&fixture, &flipped, &format!("bit {bit}")).await;
    }
}

#[tokio::test]
async fn every_byte_set_to_another_is_refused() {
    let (fixture, bytes) = sample();
    for index in 0..bytes.len() {
        for other in [0, 0xFF, b'H', b'R', b'T'] {
            let mut changed = bytes.clone();
            changed[index] = other;
            if changed != bytes {
                refused(&fixture, &changed, &format!("byte {index} as {other}")).await;
            }
        }
    }
}

#[tokio::test]
async fn every_cut_is_refused_where_the_bytes_end() {
    let (fixture, bytes) = sample();
    for len in 0..bytes.len() {
        let error = refused(&fixture, &bytes[..len], &format!("{len} bytes")).await;
        let end = len as u64;
        assert!(matches!(error, BackupError::Truncated { offset, .. } if offset == end), "{error}");
    }
}

#[tokio::test]
async fn every_missing_or_doubled_byte_is_refused() {
    let (fixture, bytes) = sample();
    for index in 0..bytes.len() {
        let without = [&bytes[..index], &bytes[index + 1..]].concat();
        refused(&fixture, &without, &format!("without byte {index}")).await;
        let doubled = [&bytes[..=index], &bytes[index..]].concat();
        refused(&fixture, &doubled, &format!("byte {index} doubled")).await;
    }
}

#[tokio::test]
async fn what_follows_the_end_is_refused() {
    let (fixture, bytes) = sample();
    let end = bytes.len() as u64;
    for tail in [&b"\0"[..], b"\n", &bytes] {
        let error = refused(&fixture, &[&bytes, tail].concat(), "a tail").await;
        assert!(matches!(error, BackupError::TrailingBytes { offset } if offset == end), "{error}");
    }
}

/// What one group of writes cannot hide: the damage is at the end of many.
#[tokio::test]
async fn nothing_is_written_from_a_file_that_is_damaged_at_its_end() {
    let fixture = Fixture::new(1);
    let mut forged = Forged::new(fixture.clock.now());
    for index in 0..=GROUP_RECORDS {
        forged = forged.record(&format!("{index}"), b"", None, 0);
    }
    let mut bytes = forged.end();
    *bytes.last_mut().unwrap() ^= 1;
    refused(&fixture, &bytes, "a damaged trailer").await;

    let mut chunks = ReadChunks::new(&bytes[..]);
    let once = restore_stream(&fixture.store, &*fixture.clock, &mut chunks, |_| ()).await;
    assert!(once.is_err());
    assert!(
        !contents(&fixture.store).await.is_empty(),
        "the control: one pass had written by then"
    );
}

/// Where each frame begins, and where the last one ends.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![16];
    while let Some(head) = bytes.get(starts[starts.len() - 1]..).and_then(<[u8]>::first_chunk::<5>)
    {
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        starts.push(starts[starts.len() - 1] + 5 + len + 4);
    }
    starts
}

#[tokio::test]
async fn frames_moved_doubled_or_left_out_are_refused_where_they_are() {
    let (fixture, bytes) = sample();
    let starts = frames(&bytes);
    assert_eq!(starts.len(), 6, "a header, three records, a trailer");
    let frame = |index: usize| &bytes[starts[index]..starts[index + 1]];
    let order = |indexes: &[usize]| {
        let frames: Vec<_> = indexes.iter().map(|index| frame(*index)).collect();
        [&bytes[..16], &frames.concat()].concat()
    };
    assert_eq!(order(&[0, 1, 2, 3, 4]), bytes);
    for (indexes, broken) in [
        (&[0, 2, 1, 3, 4][..], 1),
        (&[0, 1, 1, 2, 3, 4], 2),
        (&[0, 1, 3, 4], 2),
        (&[1, 2, 3, 4], 0),
    ] {
        let error = refused(&fixture, &order(indexes), &format!("{indexes:?}")).await;
        let at = starts[broken] as u64;
        assert!(matches!(error, BackupError::Damaged { offset, .. } if offset == at), "{error}");
    }
}

#[tokio::test]
async fn a_later_version_is_told_from_damage() {
    let (fixture, bytes) = sample();
    let mut later = bytes.clone();
    later[11] = 2;
    let error = refused(&fixture, &later, "a version without its checksum").await;
    assert!(matches!(error, BackupError::Damaged { offset: 8, .. }), "{error}");
    let crc = crc32fast::hash(&later[..12]).to_be_bytes();
    later[12..16].copy_from_slice(&crc);
    let error = refused(&fixture, &later, "version 2").await;
    assert!(matches!(error, BackupError::Newer { offset: 8, found: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("use a newer program"));

    // The store format of the header, at its place in the frame that begins at byte 16.
    let mut header = bytes[21..frames(&bytes)[1] - 4].to_vec();
    header[11] = 2;
    let mut forged = Forged { bytes: encode_preamble().to_vec(), records: 0 };
    forged.frame(FrameFill::of_bytes(FrameKind::Header, &header));
    let error = refused(&fixture, &forged.end(), "store format 2").await;
    assert!(matches!(error, BackupError::Newer { offset: 29, found: 2, known: 1, .. }), "{error}");
}

/// The checksums of frames are 32 bits each; the digest is what a large backup rests on.
#[tokio::test]
async fn a_digest_of_other_bytes_is_refused() {
    let fixture = Fixture::new(1);
    let mut forged = Forged::new(fixture.clock.now());
    let at = forged.bytes.len() as u64;
    forged.frame(FrameFill::trailer(&Trailer { records: 0, digest: [0; 32] }));
    let error = refused(&fixture, &forged.bytes, "another digest").await;
    assert!(
        matches!(&error, BackupError::Damaged { offset, reason }
        if *offset == at && reason.contains("SHA-256")),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_no_backup_is_said_to_be_none() {
    let fixture = Fixture::new(1);
    for (bytes, at) in [(&b"PK\x03\x04"[..], 0), (b"\xF7wane\n\0\0", 5), (&[0; 500], 0)] {
        let error = refused(&fixture, bytes, "no backup").await;
        assert!(matches!(error, BackupError::NotABackup { offset } if offset == at), "{error}");
    }
}

/// A payload under the checksums that belong to it, as the only frame of records.
fn sealed(now: Timestamp, payload: &[u8], records: u64) -> Vec<u8> {
    let mut forged = Forged::new(now);
    forged.frame(FrameFill::of_bytes(FrameKind::Records, payload));
    forged.records = records;
    forged.end()
}

#[tokio::test]
async fn records_that_no_store_can_hold_are_refused() {
    let fixture = Fixture::new(1);
    let now = fixture.clock.now();
    let sound = b"\0\0\x01\0\0\0\0\0\0p";
    assert!(verified(&sealed(now, sound, 1), now).await.is_ok(), "the control");
    let cases: [(&str, &[u8]); 9] = [
        ("no record", b""),
        ("an unknown flag", b"\x04\0\x01\0\0\0\0\0\0p"),
        ("an empty partition", b"\0\0\0\0\0\0\0\0\0"),
        ("a fence of 0", b"\x02\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0p"),
        ("the last expiry there is", b"\x01\0\x01\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFp"),
        ("a value longer than the frame", b"\0\0\x01\0\0\xFF\xFF\xFF\xFFp"),
        ("a partition longer than the frame", b"\0\xFF\xFF\0\0\0\0\0\0p"),
        ("a partition too long", &[&b"\0\x04\x01\0\0\0\0\0\0"[..], &[1; 1_025]].concat()),
        ("a second record cut short", b"\0\0\x01\0\0\0\0\0\0p\0\0"),
    ];
    for (what, payload) in cases {
        let error = refused(&fixture, &sealed(now, payload, 1), what).await;
        assert!(matches!(error, BackupError::Damaged { .. }), "{what}: {error}");
    }
    let miscounted = refused(&fixture, &sealed(now, sound, 2), "a wrong count").await;
    assert!(miscounted.to_string().contains("it had 2 records and has 1"), "{miscounted}");
}

/// Memory is bounded by what came, not by what a length says will come.
#[tokio::test]
async fn a_hostile_length_takes_no_memory() {
    let (_, bytes) = sample();
    let opened = |length: u32| {
        let mut decoder = Decoder::new();
        decoder.push(&bytes[..frames(&bytes)[1]]);
        assert!(decoder.next().is_ok_and(|header| header.is_some()));
        decoder.push(b"R");
        decoder.push(&length.to_be_bytes());
        (decoder.next(), decoder)
    };
    let (waiting, decoder) = opened(MAX_PAYLOAD as u32);
    assert!(matches!(waiting, Ok(None)));
    assert!(decoder.capacity() < 1_024, "{} bytes for 5", decoder.capacity());
    for length in [MAX_PAYLOAD as u32 + 1, u32::MAX] {
        assert!(matches!(opened(length).0, Err(BackupError::Damaged { .. })), "{length}");
    }
}
