//! Backup and restoration over a file: one moment of a store that goes on, and across a restart.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::ManualClock;
use wane::services::backup::{Backup, restore};
use wane::store::{Fence, Key, Life, MemoryStore, PageLimit, Record, Store, Ttl, Value, Write};
use wane_backends::file::FileStore;

fn key(index: usize) -> Key {
    Key::new(b"backup", &index.to_be_bytes()).expect("a legal key")
}

fn write(text: &str, life: Life, fence: u64) -> Write {
    Write::new(Value::new(text.to_owned()).expect("a legal value"), life).fenced(Fence(fence))
}

fn lasting(millis: u64) -> Life {
    Life::For(Ttl::from_millis(millis).expect("a legal life"))
}

async fn contents(store: &impl Store) -> BTreeMap<Key, Record> {
    let mut rows = BTreeMap::new();
    let mut page = store.scan(None, PageLimit::MAX).await.expect("a sound store");
    loop {
        rows.extend(page.rows.drain(..).map(|row| (row.key, row.record)));
        let Some(next) = page.next else { return rows };
        page = store.scan(Some(next), PageLimit::MAX).await.expect("a sound store");
    }
}

/// A store of records of all kinds: permanent, lasting 2 s and lasting a day, every third fenced.
async fn filled(directory: &TempDir, clock: &Arc<ManualClock>, records: usize) -> FileStore {
    let store = FileStore::create(&directory.path().join("old"), clock.clone()).expect("a store");
    let lives = [Life::Permanent, lasting(2_000), lasting(86_400_000)];
    let writes = (0..records).map(|index| {
        let fence = if index % 3 == 0 { index as u64 } else { 0 };
        (key(index), write(&format!("value {index}"), lives[index % 3], fence))
    });
    assert_eq!(store.put_batch(writes.collect()).await.expect("a sound store").len(), records);
    store
}

#[tokio::test]
async fn a_restored_file_holds_the_moment_of_the_backup_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::seeded(1);
    let store = filled(&directory, &clock, 15_000).await;
    let before = contents(&store).await;

    let mut backup = Backup::begin(store.clone(), &*clock, "file").await.unwrap();
    let mut bytes = Vec::new();
    let mut round = 0;
    while let Some(chunk) = backup.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
        // Near the end of the scan and beyond what it began with.
        let changes = [14_999 - round, 15_000 + round]
            .map(|index| (key(index), write("changed meanwhile", Life::Permanent, u64::MAX)));
        assert_eq!(store.put_batch(changes.to_vec()).await.unwrap().len(), 2);
        round += 1;
    }
    assert!(round > 10 && contents(&store).await != before, "the writer went on");

    let new = directory.path().join("new");
    let restored = FileStore::create(&new, clock.clone()).unwrap();
    let counts = restore(&restored, &*clock, &mut Cursor::new(&bytes), |_| ()).await.unwrap();
    assert_eq!((counts.records, counts.permanent, counts.expired), (15_000, 5_000, 0));
    drop(restored);
    let restored = FileStore::open(&new, clock.clone()).unwrap();
    assert!(contents(&restored).await == before, "the restored store shows another moment");
}

/// From one backend to another, after the short ones have expired.
#[tokio::test]
async fn a_backup_of_a_file_restores_into_memory() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::seeded(1);
    let store = filled(&directory, &clock, 300).await;
    let mut backup = Backup::begin(store.clone(), &*clock, "file").await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = backup.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }

    clock.advance(Duration::from_millis(2_000));

    let memory = MemoryStore::new(clock.clone()).unwrap();
    let counts = restore(&memory, &*clock, &mut Cursor::new(&bytes), |_| ()).await.unwrap();
    assert_eq!((counts.records, counts.permanent, counts.expired), (200, 100, 100));
    assert_eq!(contents(&memory).await, contents(&store).await);
    let late = memory.put(&key(3), write("late", Life::Permanent, 2)).await.unwrap();
    assert!(!late.is_applied(), "the fence went along");
}
