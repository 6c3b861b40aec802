//! Creating and opening a file store: every way it can go wrong says what to do.

use std::fs;
use std::sync::Arc;

use redb::{ReadableDatabase, ReadableTable};
use tempfile::TempDir;
use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::store::{Key, Life, Outcome, Store, StoreError, Value, Write};
use wane_backends::OpenError;
use wane_backends::file::FileStore;

use crate::proof::copied;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn key(name: &str) -> Key {
    Key::new(b"opening", name.as_bytes()).expect("a legal key")
}

fn permanent(value: &str) -> Write {
    Write::new(Value::new(value.to_owned()).expect("a legal value"), Life::Permanent)
}

async fn insert(store: &FileStore, name: &str, value: &str) -> Result<Outcome, StoreError> {
    store.insert_if_not_exists(&key(name), permanent(value)).await
}

#[tokio::test]
async fn a_missing_store_and_an_existing_one_are_told_apart() {
    let directory = directory();
    let clock = SystemClock::shared();
    let absent = FileStore::open(directory.path(), Arc::clone(&clock));
    assert!(matches!(absent, Err(OpenError::Absent { .. })), "{absent:?}");
    let created = FileStore::create(directory.path(), Arc::clone(&clock));
    assert!(created.is_ok(), "{created:?}");
    let again = FileStore::create(directory.path(), clock);
    assert!(matches!(again, Err(OpenError::Exists { .. })), "{again:?}");
}

#[tokio::test]
async fn opening_twice_in_one_process_is_the_same_store() {
    let directory = directory();
    let one = FileStore::open_or_create(directory.path(), SystemClock::shared()).unwrap();
    let two = FileStore::open(directory.path(), SystemClock::shared()).unwrap();
    assert!(insert(&one, "a", "1").await.unwrap().is_applied());
    assert!(!insert(&two, "a", "2").await.unwrap().is_applied());
}

/// Nobody harms what another is just creating, and all end up with the same store.
#[test]
fn a_store_that_many_create_at_once_is_created_once() {
    for round in 0..20 {
        let directory = directory();
        let start = std::sync::Barrier::new(8);
        let open = || {
            start.wait();
            FileStore::open_or_create(directory.path(), SystemClock::shared())
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for store in &opened {
            assert!(store.is_ok(), "round {round}: {store:?}");
        }
        let files = fs::read_dir(directory.path()).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "round {round}: {names:?}");
    }
}

/// Whoever opens a store that another is closing waits for that, and misses nothing.
#[test]
fn a_store_closed_and_opened_by_many_is_never_in_use_and_never_behind() {
    let directory = directory();
    drop(FileStore::create(directory.path(), SystemClock::shared()).unwrap());
    let open_and_insert = |thread: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for round in 0..12 {
            let store = FileStore::open(directory.path(), SystemClock::shared());
            let store = store.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            let name = |round| format!("{thread}-{round}");
            let inserted = runtime.block_on(insert(&store, &name(round), "v"));
            assert!(inserted.is_ok_and(|outcome| outcome.is_applied()));
            for earlier in 0..round {
                let found = runtime.block_on(store.get(&key(&name(earlier))));
                assert!(found.is_ok_and(|found| found.is_some()), "round {round}");
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || open_and_insert(thread));
        }
    });
}

#[tokio::test]
async fn a_store_reopens_with_what_it_held() {
    let directory = directory();
    for round in 0..5 {
        let store = FileStore::open_or_create(directory.path(), SystemClock::shared()).unwrap();
        assert!(insert(&store, &format!("{round}"), "v").await.unwrap().is_applied());
        for earlier in 0..=round {
            assert!(store.get(&key(&format!("{earlier}"))).await.unwrap().is_some());
        }
    }
}

/// A clock set back during downtime must not revive what had expired.
#[tokio::test]
async fn time_does_not_restart_below_what_the_file_has_seen() {
    let directory = directory();
    let ahead = ManualClock::seeded(1);
    ahead.advance(std::time::Duration::from_secs(1_000));
    let store = FileStore::open_or_create(directory.path(), ahead.clone()).unwrap();
    assert!(insert(&store, "a", "1").await.unwrap().is_applied());
    drop(store);
    let behind: SharedClock = ManualClock::seeded(2);
    FileStore::open(directory.path(), Arc::clone(&behind)).unwrap();
    assert!(behind.now() >= wane::clock::Clock::now(&*ahead));
}

fn damaged(directory: &TempDir) -> String {
    match FileStore::open(directory.path(), SystemClock::shared()) {
        Err(OpenError::Damaged { path, reason }) => {
            assert!(path.ends_with("records.redb"), "{path:?}");
            reason
        }
        other => panic!("not refused as damaged: {other:?}"),
    }
}

async fn filled() -> TempDir {
    let directory = directory();
    let store = FileStore::create(directory.path(), SystemClock::shared()).expect("a store");
    for number in 0..200 {
        let inserted = insert(&store, &format!("{number}"), "value").await;
        assert!(inserted.is_ok_and(|outcome| outcome.is_applied()));
    }
    directory
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_as_it_is() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let damages: [(&str, Damage); 5] = [
        ("emptied", |_| Vec::new()),
        ("cut", |bytes| bytes[..bytes.len() / 2].to_vec()),
        ("nearly gone", |bytes| bytes[..100].to_vec()),
        ("overwritten with zeros", |bytes| vec![0; bytes.len()]),
        ("something else", |_| b"# not a store at all\n".repeat(500)),
    ];
    for (name, damage) in damages {
        let directory = filled().await;
        let path = directory.path().join("records.redb");
        let harmed = damage(fs::read(&path).unwrap());
        fs::write(&path, &harmed).unwrap();
        let reason = damaged(&directory);
        assert!(!reason.is_empty(), "{name}");
        assert_eq!(fs::read(&path).unwrap(), harmed, "{name}: the file was changed");
    }
}

/// Large values lie in a file of their own, which is checked like the other.
#[tokio::test]
async fn a_damaged_or_missing_file_of_large_values_is_refused() {
    let directory = directory();
    let store = FileStore::create(directory.path(), SystemClock::shared()).unwrap();
    let large = "large".repeat(20_000);
    assert!(insert(&store, "large", &large).await.unwrap().is_applied());
    drop(store);
    let path = directory.path().join("values");
    let sound = fs::read(&path).unwrap();
    let refused = || match FileStore::open(directory.path(), SystemClock::shared()) {
        Err(OpenError::Damaged { path, .. }) => path.ends_with("values"),
        _ => false,
    };
    for at in [0, sound.len() / 2, large.len() - 1] {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        fs::write(&path, flipped).unwrap();
        assert!(refused(), "a bit of byte {at} was flipped");
    }
    fs::write(&path, &sound[..large.len() - 1]).unwrap();
    assert!(refused(), "it was cut");
    fs::remove_file(&path).unwrap();
    assert!(refused(), "it is gone");
    fs::write(&path, sound).unwrap();
    let store = FileStore::open(directory.path(), SystemClock::shared()).unwrap();
    let found = store.get(&key("large")).await.unwrap().unwrap();
    assert!(*found.value == *large.as_bytes());
}

/// A file that went back behind an acknowledged commit has lost something, however sound it is.
#[tokio::test]
async fn a_file_older_than_its_acknowledgements_is_refused() {
    let directory = filled().await;
    let path = directory.path().join("records.redb");
    let old = fs::read(&path).unwrap();
    let store = FileStore::open(directory.path(), SystemClock::shared()).unwrap();
    assert!(insert(&store, "later", "value").await.unwrap().is_applied());
    drop(store);
    fs::write(&path, old).unwrap();
    assert!(damaged(&directory).contains("acknowledged"));
    fs::remove_file(directory.path().join("acknowledged")).unwrap();
    // The log has been ahead of it as well.
    let refused = FileStore::open(directory.path(), SystemClock::shared()).unwrap_err();
    assert!(refused.to_string().contains("was acknowledged"), "{refused}");
    fs::remove_file(directory.path().join("log/acknowledged")).unwrap();
    assert!(FileStore::open(directory.path(), SystemClock::shared()).is_ok());
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_an_error_with_its_path() {
    let directory = directory();
    let file = directory.path().join("a-file");
    fs::write(&file, "x").unwrap();
    let error = FileStore::create(&file, SystemClock::shared()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("a-file"), "{error}");
}

/// What another store left behind says nothing of a new one in its place.
#[tokio::test]
async fn a_store_can_be_created_where_another_was_deleted() {
    let directory = filled().await;
    fs::remove_file(directory.path().join("records.redb")).unwrap();
    let store = FileStore::create(directory.path(), SystemClock::shared()).unwrap();
    assert!(insert(&store, "a", "1").await.unwrap().is_applied());
}

/// What a reader saw expire stays gone, although nothing was written since.
#[tokio::test]
async fn closing_notes_the_time() {
    let directory = directory();
    let clock = ManualClock::seeded(1);
    let store = FileStore::create(directory.path(), clock.clone()).unwrap();
    assert!(insert(&store, "a", "1").await.unwrap().is_applied());
    clock.advance(std::time::Duration::from_secs(3_600));
    drop(store);
    let behind: SharedClock = ManualClock::seeded(2);
    FileStore::open(directory.path(), Arc::clone(&behind)).unwrap();
    assert!(behind.now() >= wane::clock::Clock::now(&*clock));
}

#[tokio::test]
async fn a_newer_format_is_told_from_damage() {
    const STATE: redb::TableDefinition<'_, (), (u64, u64, u64, u64, u64)> =
        redb::TableDefinition::new("state");
    let directory = filled().await;
    let database = redb::Database::open(directory.path().join("records.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut state = transaction.open_table(STATE).unwrap();
        let row = state.get(()).unwrap().unwrap().value();
        state.insert((), (4, row.1, row.2, row.3, row.4)).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let error = FileStore::open(directory.path(), SystemClock::shared()).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found: 4, known: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("use a newer one"), "{error}");
}

#[tokio::test]
async fn what_only_the_log_holds_is_there_after_a_kill() {
    let directory = directory();
    let store = FileStore::create(directory.path(), SystemClock::shared()).unwrap();
    assert!(insert(&store, "a", "1").await.unwrap().is_applied());
    store.flush().await.unwrap();
    assert!(insert(&store, "b", "2").await.unwrap().is_applied());
    let removed = store.compare_and_delete(&key("a"), b"1", wane::store::Fence::NONE).await;
    assert!(removed.unwrap().is_applied());
    let left = copied(directory.path());
    for _ in 0..2 {
        let store = FileStore::open(left.path(), SystemClock::shared()).unwrap();
        assert_eq!(store.get(&key("a")).await.unwrap(), None);
        assert_eq!(*store.get(&key("b")).await.unwrap().unwrap().value, *b"2");
    }
}

#[tokio::test]
async fn a_log_without_its_tree_is_refused_with_what_is_missing() {
    let directory = directory();
    let store = FileStore::create(directory.path(), SystemClock::shared()).unwrap();
    assert!(insert(&store, "a", "1").await.unwrap().is_applied());
    let left = copied(directory.path());
    let tree = left.path().join("records.redb");
    let aside = left.path().join("aside");
    fs::rename(&tree, &aside).unwrap();
    assert!(damaged(&left).contains("it is missing, and the log beside it is there"));
    let created = FileStore::open_or_create(left.path(), SystemClock::shared()).unwrap_err();
    assert!(matches!(created, OpenError::Damaged { .. }), "{created:?}");
    assert!(!tree.exists(), "nothing was created in its place");
    fs::rename(aside, tree).unwrap();
    assert!(FileStore::open(left.path(), SystemClock::shared()).is_ok());
}

#[tokio::test]
async fn a_tree_without_its_log_is_refused_with_what_is_missing() {
    let directory = filled().await;
    fs::remove_dir_all(directory.path().join("log")).unwrap();
    let refused = FileStore::open(directory.path(), SystemClock::shared()).unwrap_err();
    assert!(matches!(&refused, OpenError::Damaged { path, .. } if path.ends_with("log")));
    assert!(refused.to_string().contains("put it back"), "{refused}");
}

/// A store of format 2 is one of format 3 without a log.
#[tokio::test]
async fn an_older_store_is_upgraded_once() {
    const STATE: redb::TableDefinition<'_, (), (u64, u64, u64, u64, u64)> =
        redb::TableDefinition::new("state");
    const LOGGED: redb::TableDefinition<'_, (), u64> = redb::TableDefinition::new("logged");
    let directory = filled().await;
    let path = directory.path().join("records.redb");
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut state = transaction.open_table(STATE).unwrap();
        let row = state.get(()).unwrap().unwrap().value();
        state.insert((), (2, row.1, row.2, row.3, row.4)).unwrap();
        assert!(transaction.delete_table(LOGGED).unwrap());
    }
    transaction.commit().unwrap();
    drop(database);
    fs::remove_dir_all(directory.path().join("log")).unwrap();
    assert_eq!(FileStore::verify(directory.path()).unwrap().format, 2, "and it is left so");
    assert!(!directory.path().join("log").exists());
    for later in ["later", "and later"] {
        let store = FileStore::open(directory.path(), SystemClock::shared()).unwrap();
        assert_eq!(*store.get(&key("7")).await.unwrap().unwrap().value, *b"value");
        assert!(insert(&store, later, "x").await.unwrap().is_applied());
    }
    let database = redb::Database::open(&path).unwrap();
    let state = database.begin_read().unwrap().open_table(STATE).unwrap();
    assert_eq!(state.get(()).unwrap().unwrap().value().0, 3);
}
