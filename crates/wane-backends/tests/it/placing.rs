//! A store that was filled in one directory and takes its place in another.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use wane::clock::SystemClock;
use wane::store::{Key, Life, Store, Value, Write};
use wane_backends::OpenError;
use wane_backends::file::FileStore;

fn key() -> Key {
    Key::new(b"placing", b"row").expect("a legal key")
}

async fn fill(store: &FileStore, text: &str) {
    let value = Value::new(text.to_owned()).expect("a legal value");
    let outcome = store.put(&key(), Write::new(value, Life::Permanent)).await.expect("it works");
    assert!(outcome.is_applied());
}

async fn held(directory: &Path) -> Vec<u8> {
    let store = FileStore::open(directory, SystemClock::shared()).expect("a store");
    store.get(&key()).await.expect("it works").expect("the row").value.to_vec()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it works");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().display().to_string()).collect();
    names.sort();
    names
}

async fn draft(directory: &TempDir, text: &str) -> std::path::PathBuf {
    let draft = directory.path().join("draft");
    fill(&FileStore::create(&draft, SystemClock::shared()).expect("a store"), text).await;
    draft
}

/// Restorations rest on it: there is no store, and then there is all of it.
#[tokio::test]
async fn a_placed_store_is_whole_and_the_draft_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let draft = draft(&directory, "filled").await;
    assert!(!FileStore::exists(directory.path()));
    FileStore::place(&draft, directory.path()).unwrap();
    assert!(FileStore::exists(directory.path()) && !FileStore::exists(&draft));
    assert_eq!(held(directory.path()).await, b"filled");
    assert_eq!(names(directory.path()), ["acknowledged", "draft", "log", "records.redb"]);
    assert!(names(&draft).is_empty());
}

/// What another store left in the place is not taken for its own.
#[tokio::test]
async fn large_values_are_placed_with_their_store() {
    let directory = tempfile::tempdir().unwrap();
    let large = "large".repeat(20_000);
    let draft = draft(&directory, &large).await;
    fs::write(directory.path().join("values"), "left behind").unwrap();
    FileStore::place(&draft, directory.path()).unwrap();
    assert!(held(directory.path()).await == large.as_bytes());
    let files = ["acknowledged", "draft", "log", "records.redb", "reserve", "values"];
    assert_eq!(names(directory.path()), files, "what a store with large values has");
    assert!(names(&draft).is_empty());
}

/// The note of the last commit may never have been written, where the disk was full.
#[tokio::test]
async fn a_store_without_a_note_of_its_last_commit_is_placed() {
    let directory = tempfile::tempdir().unwrap();
    let draft = draft(&directory, "filled").await;
    fs::remove_file(draft.join("acknowledged")).unwrap();
    FileStore::place(&draft, directory.path()).unwrap();
    assert!(names(&draft).is_empty());
    assert_eq!(held(directory.path()).await, b"filled");
}

#[tokio::test]
async fn a_store_in_the_place_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let draft = draft(&directory, "filled").await;
    fill(&FileStore::create(directory.path(), SystemClock::shared()).unwrap(), "older").await;
    let refused = FileStore::place(&draft, directory.path());
    assert!(matches!(refused, Err(OpenError::Exists { .. })), "{refused:?}");
    assert_eq!(held(directory.path()).await, b"older");
    assert_eq!(held(&draft).await, b"filled");
}

#[tokio::test]
async fn an_open_or_absent_draft_is_not_placed() {
    let directory = tempfile::tempdir().unwrap();
    let draft = draft(&directory, "filled").await;
    let open = FileStore::open(&draft, SystemClock::shared()).unwrap();
    let refused = FileStore::place(&draft, directory.path());
    assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");
    drop(open);
    let absent = FileStore::place(&directory.path().join("elsewhere"), directory.path());
    assert!(matches!(absent, Err(OpenError::Absent { .. })), "{absent:?}");
    assert!(!FileStore::exists(directory.path()));
}
