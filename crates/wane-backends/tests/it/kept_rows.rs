//! Rows of the tree that are kept in memory: they are what the tree holds, whatever reaches it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::store::{Fence, Key, Life, Remaining, Store, Ttl, Value, Write};
use wane_backends::file::FileStore;

use crate::proof::{count, wait};

const KEYS: u64 = 8;
const READERS: u64 = 3;

/// How often a row is read, so that it is kept: it must have been asked for before.
const OFTEN: usize = 3;

fn key(number: u64) -> Key {
    Key::new(b"kept", &number.to_be_bytes()).unwrap()
}

fn write(number: u64, life: Life) -> Write {
    Write::new(Value::new(number.to_be_bytes().to_vec()).unwrap(), life)
}

fn created(clock: SharedClock) -> (TempDir, FileStore) {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::create(home.path(), clock).unwrap();
    (home, store)
}

async fn read(store: &FileStore, key: &Key) -> Option<u64> {
    let record = store.get(key).await.unwrap();
    record.map(|record| u64::from_be_bytes((*record.value).try_into().unwrap()))
}

/// What is read all the time while it is in the tree, by all the ways to read one record.
async fn assert_holds(store: &FileStore, key: &Key, number: Option<u64>) {
    store.flush().await.unwrap();
    for _ in 0..OFTEN {
        assert_eq!(read(store, key).await, number);
        let batch = store.get_batch(std::slice::from_ref(key)).await.unwrap();
        assert_eq!(batch[0].is_some(), number.is_some());
        let remaining = store.query_ttl(key).await.unwrap();
        assert_eq!(matches!(remaining, Remaining::Absent), number.is_none());
    }
}

#[tokio::test]
async fn a_kept_row_goes_with_every_kind_of_write() {
    let clock = ManualClock::seeded(1);
    let (_home, store) = created(Arc::clone(&clock) as SharedClock);
    let (key, ttl) = (key(1), Ttl::from_millis(1_000).unwrap());
    assert_holds(&store, &key, None).await;
    assert!(
        store.insert_if_not_exists(&key, write(1, Life::Permanent)).await.unwrap().is_applied()
    );
    assert_holds(&store, &key, Some(1)).await;
    assert!(store.put(&key, write(2, Life::Permanent)).await.unwrap().is_applied());
    assert_holds(&store, &key, Some(2)).await;
    assert!(
        store
            .compare_and_swap(&key, &2_u64.to_be_bytes(), write(3, Life::For(ttl)))
            .await
            .unwrap()
            .is_applied()
    );
    assert_holds(&store, &key, Some(3)).await;
    clock.advance(ttl.as_duration());
    assert_holds(&store, &key, None).await;
    assert!(
        store.insert_if_not_exists(&key, write(4, Life::Permanent)).await.unwrap().is_applied()
    );
    assert_holds(&store, &key, Some(4)).await;
    assert!(
        store
            .compare_and_delete(&key, &4_u64.to_be_bytes(), Fence::NONE)
            .await
            .unwrap()
            .is_applied()
    );
    assert_holds(&store, &key, None).await;
}

/// What has expired leaves memory too, and not only when others push it out.
#[tokio::test]
async fn a_kept_row_leaves_when_its_record_is_swept() {
    let clock = ManualClock::seeded(1);
    let (_home, store) = created(Arc::clone(&clock) as SharedClock);
    let ttl = Ttl::from_millis(1_000).unwrap();
    assert!(store.put(&key(1), write(1, Life::For(ttl))).await.unwrap().is_applied());
    assert_holds(&store, &key(1), Some(1)).await;
    assert_eq!(store.kept_rows(), 1);
    clock.advance(ttl.as_duration());
    // Sweeping begins by itself, on a thread that looks at this clock now and then.
    for _ in 0..1_000 {
        clock.advance(Duration::from_secs(1));
        if store.stored_records().await.unwrap() == 0 {
            break;
        }
        wait(Duration::from_millis(5));
    }
    assert_eq!((store.stored_records().await.unwrap(), store.kept_rows()), (0, 0));
}

/// A row that was read before a commit and kept after it would be one that was replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_what_was_replaced_while_it_reaches_the_tree() {
    let (_home, store) = created(SystemClock::shared());
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| 0.into()).collect());
    let over = Arc::new(AtomicBool::new(false));
    for number in 0..KEYS {
        assert!(store.put(&key(number), write(0, Life::Permanent)).await.unwrap().is_applied());
    }
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        let (store, over) = (store.clone(), Arc::clone(&over));
        let acknowledged = Arc::clone(&acknowledged);
        readers.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                for number in 0..KEYS {
                    let at_least = acknowledged[number as usize].load(Ordering::SeqCst);
                    let found = read(&store, &key(number)).await;
                    assert!(found >= Some(at_least), "{found:?} after {at_least}");
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for round in 1..=count("WANE_TEST_KEPT_ROUNDS", 100) {
        for number in 0..KEYS {
            assert!(
                store.put(&key(number), write(round, Life::Permanent)).await.unwrap().is_applied()
            );
            acknowledged[number as usize].store(round, Ordering::SeqCst);
        }
        store.flush().await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    readers.join_all().await;
}
