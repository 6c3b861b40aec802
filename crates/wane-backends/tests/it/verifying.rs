//! Verifying: files that are each whole are held against each other, and none is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use tempfile::TempDir;
use wane::clock::SystemClock;
use wane::store::{Key, Life, Store, Ttl, Value, Write};
use wane_backends::OpenError;
use wane_backends::file::{FileStore, VerifiedFiles};

use crate::proof::copied;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const DUE: TableDefinition<'_, &[u8], ()> = TableDefinition::new("due");
const LARGE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("large");

/// Bytes of a value that lies in a file of its own.
const LARGE_BYTES: usize = 100_000;

/// Puts ten records that stay, ten that expire some day, and two large values.
async fn fill(store: &FileStore, partition: &[u8]) {
    let row = |number: u8, bytes, life| {
        let key = Key::new(partition, &[number]).expect("a legal key");
        (key, Write::new(Value::new(vec![number; bytes]).expect("a legal value"), life))
    };
    let day = || Life::For(Ttl::from_millis(86_400_000).expect("a day"));
    let mut rows: Vec<_> = (0..10).map(|number| row(number, 10, Life::Permanent)).collect();
    rows.extend((10..20).map(|number| row(number, 10, day())));
    rows.extend([row(20, LARGE_BYTES, day()), row(21, LARGE_BYTES, Life::Permanent)]);
    store.put_batch(rows).await.expect("the rows are put");
}

async fn closed() -> TempDir {
    let home = tempfile::tempdir().expect("a directory");
    let store = FileStore::create(home.path(), SystemClock::shared()).expect("a store");
    fill(&store, b"tree").await;
    home
}

/// Every file of a store, with its bytes.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let folders = [directory.to_path_buf(), directory.join("log")];
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let paths = entries.map(|entry| entry.expect("a file").path()).filter(|path| path.is_file());
    paths.map(|path| (path.clone(), fs::read(path).expect("its bytes"))).collect()
}

/// Verifies, and checks that nothing was changed by it.
fn verify(directory: &Path) -> Result<VerifiedFiles, OpenError> {
    let before = files(directory);
    let verified = FileStore::verify(directory);
    assert!(files(directory) == before, "the files were changed");
    verified
}

#[tokio::test]
async fn what_the_tree_and_the_log_hold_is_told() {
    let home = closed().await;
    let verified = verify(home.path()).unwrap();
    assert_eq!((verified.tree.records, verified.tree.expiring), (22, 11));
    assert_eq!(verified.tree.large_values, 2);
    assert_eq!(verified.tree.large_bytes, 2 * LARGE_BYTES as u64);
    assert_eq!((verified.log.segments, verified.log.young), (0, 0));

    let store = FileStore::open(home.path(), SystemClock::shared()).unwrap();
    fill(&store, b"log").await;
    let killed = copied(home.path());
    let verified = verify(killed.path()).unwrap();
    assert_eq!((verified.tree.records, verified.log.young), (22, 22));
    assert!(verified.log.segments > 0 && verified.log.bytes > 0, "{verified:?}");
    // It opens as if nobody had looked.
    drop(FileStore::open(killed.path(), SystemClock::shared()).unwrap());
    assert_eq!(verify(killed.path()).unwrap().tree.records, 44);
}

#[tokio::test]
async fn a_store_that_is_open_or_absent_is_not_verified() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(verify(home.path()), Err(OpenError::Absent { .. })));
    assert!(matches!(verify(&home.path().join("none")), Err(OpenError::Absent { .. })));
    let store = FileStore::create(home.path(), SystemClock::shared()).unwrap();
    assert!(matches!(FileStore::verify(home.path()), Err(OpenError::InUse { .. })));
    drop(store);
    assert!(verify(home.path()).is_ok());
}

/// Every bit of the log that is in use, in turn.
#[tokio::test]
async fn a_log_with_a_flipped_bit_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::create(home.path(), SystemClock::shared()).unwrap();
    for partition in [b"one", b"two"] {
        fill(&store, partition).await;
    }
    let killed = copied(home.path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
    let (path, sound) =
        files(killed.path()).into_iter().find(|(path, _)| is_segment(path)).unwrap();
    let first_frame = (4_096..).find(|at| sound[*at] != 0).unwrap();
    for at in (first_frame..first_frame + 400).step_by(40) {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        fs::write(&path, flipped).unwrap();
        let refused = verify(killed.path());
        assert!(matches!(refused, Err(OpenError::Damaged { .. })), "byte {at}: {refused:?}");
    }
    fs::write(&path, sound).unwrap();
    assert!(verify(killed.path()).is_ok());
}

/// Changes a store behind its back, and says what verifying makes of it. It opens all the same: each
/// of its files is whole.
async fn contradicted(change: impl FnOnce(&WriteTransaction)) -> String {
    let home = closed().await;
    let database = redb::Database::open(home.path().join("records.redb"));
    let database = database.expect("a tree");
    let transaction = database.begin_write().expect("a transaction");
    change(&transaction);
    transaction.commit().expect("it is committed");
    drop(database);
    let refused = match verify(home.path()) {
        Err(OpenError::Damaged { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(FileStore::open(home.path(), SystemClock::shared()).is_ok(), "{refused}");
    refused
}

#[tokio::test]
async fn a_record_that_would_never_be_removed_is_found() {
    let reason = contradicted(|transaction| {
        let mut due = transaction.open_table(DUE).unwrap();
        let first = due.first().unwrap().unwrap().0.value().to_vec();
        due.remove(&*first).unwrap();
    });
    let reason = reason.await;
    assert!(reason.contains("the record tree/"), "{reason}");
    assert!(reason.contains("not in the expiry index"), "{reason}");
}

#[tokio::test]
async fn an_entry_of_the_expiry_index_without_a_record_is_found() {
    let reason = contradicted(|transaction| {
        transaction.open_table(DUE).unwrap().insert(&[7_u8; 20][..], ()).unwrap();
    });
    let reason = reason.await;
    assert!(reason.contains("12 entries for 11 records"), "{reason}");
}

#[tokio::test]
async fn a_large_value_that_nobody_refers_to_is_found() {
    let reason = contradicted(|transaction| {
        let mut records = transaction.open_table(RECORDS).unwrap();
        // Permanent, so that the expiry index knows nothing of it.
        let last = records.last().unwrap().unwrap().0.value().to_vec();
        records.remove(&*last).unwrap();
    });
    let reason = reason.await;
    assert!(reason.contains("2 large values are listed, and records refer to 1"), "{reason}");
}

/// Its room would be given to another.
#[tokio::test]
async fn a_large_value_that_is_not_listed_is_found() {
    let reason = contradicted(|transaction| {
        let mut large = transaction.open_table(LARGE).unwrap();
        let first = large.first().unwrap().unwrap().0.value();
        large.remove(first).unwrap();
    });
    let reason = reason.await;
    assert!(reason.contains("is not listed at byte 0, where it lies"), "{reason}");
}
