//! There and back: all records, at one moment, into an empty store only.

use super::*;
use crate::clock::Clock;
use crate::store::{Faults, FaultyStore, MAX_CLUSTERING, MAX_PARTITION, MAX_VALUE};

fn bytes_of(clock: &ManualClock, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    clock.fill_random(&mut bytes);
    bytes
}

/// A length of 0 to `most`, often at the ends.
fn length(clock: &ManualClock, most: usize) -> usize {
    match clock.random_u64() % 8 {
        0 => 0,
        1 => most,
        2 => clock.random_u64() as usize % (most + 1),
        _ => clock.random_u64() as usize % 60.min(most),
    }
}

fn any_write(clock: &ManualClock) -> (Key, Write) {
    let partition = bytes_of(clock, 1 + length(clock, MAX_PARTITION - 1));
    // One byte less is legal whatever it begins with.
    let clustering = bytes_of(clock, length(clock, MAX_CLUSTERING - 1));
    let life = match clock.random_u64() % 3 {
        0 => Life::Permanent,
        1 => Life::For(Ttl::MAX),
        _ => lasting(1 + clock.random_u64() % DAY),
    };
    let fence = Fence(if clock.random_u64().is_multiple_of(2) { 0 } else { clock.random_u64() });
    let most = if clock.random_u64().is_multiple_of(8) { MAX_VALUE } else { 3_000 };
    let value = value(&bytes_of(clock, length(clock, most)));
    (Key::new(&partition, &clustering).unwrap(), Write::new(value, life).fenced(fence))
}

/// Operators depend on it: what was restored cannot be told from what was backed up.
#[tokio::test]
async fn a_restored_store_holds_the_same_records_with_expiry_and_fence() {
    for seed in 0..24 {
        let fixture = Fixture::new(seed);
        let count = [0, 1, 2, 40, 200][seed as usize % 5];
        let writes = (0..count).map(|_| any_write(&fixture.clock)).collect();
        let outcomes = fixture.store.put_batch(writes).await.unwrap();
        assert_eq!(outcomes.len(), count, "seed {seed}");
        let before = contents(&fixture.store).await;

        let bytes = fixture.bytes().await;
        let (store, restored) = fixture.restore(&bytes).await;

        let restored = restored.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(contents(&store).await, before, "seed {seed}");
        assert_eq!(restored.records, before.len() as u64, "seed {seed}");
        assert_eq!(restored.bytes, bytes.len() as u64, "seed {seed}");
        let permanent = before.values().filter(|record| record.expires_at.is_none()).count();
        assert_eq!(restored.permanent, permanent as u64, "seed {seed}");
        let once = fixture.beside();
        let mut chunks = ReadChunks::new(&bytes[..]);
        restore_stream(&once, &*fixture.clock, &mut chunks, |_| ()).await.unwrap();
        assert_eq!(contents(&once).await, before, "seed {seed}, in one pass");
    }
}

/// A failure means that backups already made can no longer be read: raise the version and read
/// both, or undo the change. The checksums and the digest were computed by another program.
#[tokio::test]
async fn a_backup_keeps_its_bytes() {
    let fixture = Fixture::new(1);
    fixture.put("row", lasting(1_000), 7).await;
    let preamble = b"\xF7wane\r\n\0\x00\x00\x00\x01\x19\x1D\x6F\x13";
    let header =
        b"H\x00\x00\x00\x10\x00\x00\x00\xE8\xD4\xA5\x10\x00\x00\x00\x00\x01\x03mem\x2C\x16\xBB\xE2";
    let flags_and_lengths = b"\x03\x00\x05\x00\x03\x00\x00\x00\x03";
    let expiry_and_fence = b"\x00\x00\x00\xE8\xD4\xA5\x13\xE8\x00\x00\x00\x00\x00\x00\x00\x07";
    let digest = b"\x5E\xAA\xF9\xE9\xCB\x2D\x4C\x78\xCE\x7D\xE4\x67\xF8\x5F\x73\x3A\
        \x94\x16\x19\x22\xFE\x6D\xFD\xF9\x0E\x77\x15\xA4\x9B\x77\xF2\xB4";
    let golden = [
        &preamble[..],
        header,
        b"R\x00\x00\x00\x24",
        flags_and_lengths,
        expiry_and_fence,
        b"testsrowrow\x42\x29\x50\x6F",
        b"T\x00\x00\x00\x28\x00\x00\x00\x00\x00\x00\x00\x01",
        digest,
        b"\x6A\xED\x7D\xCB",
    ];
    assert_eq!(fixture.bytes().await, golden.concat());
}

/// A backup larger than a page and a frame, taken apart into chunks of any size.
#[tokio::test]
async fn chunks_of_any_size_make_the_same_backup() {
    let fixture = Fixture::new(3);
    for index in 0..30 {
        let text = vec![index as u8; 3_000 * index];
        let write = Write::new(value(&text), Life::Permanent);
        assert!(fixture.store.put(&key(&format!("{index}")), write).await.unwrap().is_applied());
    }
    let bytes = fixture.bytes().await;
    let whole = verified(&bytes, fixture.clock.now()).await.unwrap();
    assert_eq!(whole.records, 30);
    for size in [1, 7, 4_096, 1 << 20] {
        let mut verifier = Verifier::new(fixture.clock.now());
        bytes.chunks(size).for_each(|chunk| verifier.push(chunk).unwrap());
        assert_eq!(verifier.finish().unwrap(), whole, "chunks of {size}");
    }
}

#[tokio::test]
async fn chunks_are_no_longer_than_the_longest_record_and_its_frame() {
    let fixture = Fixture::new(3);
    for index in 0..8 {
        let write = Write::new(value(&vec![1; MAX_VALUE - index]), Life::Permanent);
        assert!(fixture.store.put(&key(&format!("{index}")), write).await.unwrap().is_applied());
    }
    let mut backup = fixture.begin().await;
    let mut longest = 0;
    while let Some(chunk) = backup.next().await {
        longest = longest.max(chunk.unwrap().len());
    }
    let frame = super::super::format::MAX_PAYLOAD + 9;
    assert!((MAX_VALUE..=frame).contains(&longest), "{longest}");
}

/// Memory promises a picture: writers that go on do not blur it.
#[tokio::test]
async fn a_backup_shows_the_moment_it_was_begun_while_writers_go_on() {
    let fixture = Fixture::new(5);
    for index in 0..25_000 {
        fixture.put(&format!("{index:05}"), Life::Permanent, 0).await;
    }
    let before = contents(&fixture.store).await;
    let mut backup = fixture.begin().await;
    let mut bytes = Vec::new();
    let mut index = 0;
    while let Some(chunk) = backup.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
        for _ in 0..1_500 {
            fixture.put(&format!("{:05}", (index * 7_919) % 25_000), lasting(DAY), 9).await;
            fixture.put(&format!("new {index}"), Life::Permanent, 0).await;
            index += 1;
        }
    }
    assert_ne!(contents(&fixture.store).await, before, "the writers went on");
    let (store, restored) = fixture.restore(&bytes).await;
    assert_eq!(restored.unwrap().records, 25_000);
    assert!(contents(&store).await == before, "the backup shows another moment");
}

#[tokio::test]
async fn a_store_that_holds_anything_is_not_restored_into() {
    let fixture = Fixture::new(1);
    fixture.put("kept", Life::Permanent, 0).await;
    let bytes = fixture.bytes().await;
    let before = contents(&fixture.store).await;
    let mut chunks = ReadChunks::new(&bytes[..]);
    for refused in [
        restore(&fixture.store, &*fixture.clock, &mut Cursor::new(&bytes), |_| ()).await,
        restore_stream(&fixture.store, &*fixture.clock, &mut chunks, |_| ()).await,
    ] {
        let error = refused.expect_err("the store is not empty");
        assert!(matches!(&error, BackupError::NotEmpty { key: held } if *held == key("kept")));
    }
    assert_eq!(contents(&fixture.store).await, before);
}

#[tokio::test]
async fn a_summary_counts_what_the_backup_holds() {
    let fixture = Fixture::new(1);
    let keyspace = crate::store::Keyspace::AppTtl.partition(&[0, 0, 0, 1]).unwrap();
    let app_key = Key::new(keyspace.as_bytes(), b"user").unwrap();
    let write = Write::new(value(b"v"), Life::Permanent);
    assert!(fixture.store.put(&app_key, write).await.unwrap().is_applied());
    fixture.put("short", lasting(1_000), 0).await;
    fixture.put("long", lasting(DAY), 0).await;
    let made = fixture.clock.now();
    let bytes = fixture.bytes().await;

    fixture.clock.advance(std::time::Duration::from_secs(1));

    let mut told = Progress::default();
    let mut chunks = ReadChunks::new(&bytes[..]);
    let summary = verify(&mut chunks, fixture.clock.now(), |progress| told = progress).await;
    let expected = Summary {
        created_at: made,
        backend: "mem".into(),
        records: 3,
        permanent: 1,
        expired: 1,
        bytes: bytes.len() as u64,
        keyspaces: BTreeMap::from([("app_ttl", 1), ("other", 2)]),
    };
    assert_eq!(summary.unwrap(), expected);
    assert_eq!(told, Progress { records: 3, bytes: bytes.len() as u64 });
}

/// Whoever receives half a backup must see that it is one.
#[tokio::test]
async fn a_store_that_fails_ends_the_backup_without_its_trailer() {
    let fixture = Fixture::new(1);
    for index in 0..12_000 {
        fixture.put(&format!("{index}"), Life::Permanent, 0).await;
    }
    let store = FaultyStore::new(fixture.store.clone(), Faults::NONE, 1, fixture.clock.clone());
    let mut backup = Backup::begin(store.clone(), &*fixture.clock, "mem").await.unwrap();
    store.set_faults(Faults { error: 1.0, ..Faults::NONE });
    let mut bytes = Vec::new();
    let failed = loop {
        match backup.next().await.expect("it fails before it ends") {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, BackupError::Store { .. }), "{failed}");
    assert!(backup.next().await.is_none());
    let refused = verified(&bytes, fixture.clock.now()).await;
    let end = bytes.len() as u64;
    assert!(matches!(refused, Err(BackupError::Truncated { offset, .. }) if offset == end));

    let unreachable = Backup::begin(store, &*fixture.clock, "mem").await;
    assert!(unreachable.is_err(), "known before the first byte");
}

#[tokio::test]
async fn a_store_that_fails_while_it_is_restored_is_said_to_hold_a_part() {
    let fixture = Fixture::new(1);
    fixture.put("row", Life::Permanent, 0).await;
    let bytes = fixture.bytes().await;
    let faults = Faults { error: 1.0, ..Faults::NONE };
    let store = FaultyStore::new(fixture.beside(), Faults::NONE, 1, fixture.clock.clone());
    // The store is found empty, and fails from the first sign of progress on.
    let listen = |_| store.set_faults(faults);
    let failed = restore(&store, &*fixture.clock, &mut Cursor::new(&bytes), listen).await;
    assert!(matches!(failed, Err(BackupError::Interrupted { restored: 0, .. })), "{failed:?}");
}
