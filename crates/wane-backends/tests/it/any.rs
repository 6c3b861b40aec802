//! AnyStore: the backend that a URL names, and cursors that stay with their own.

use std::sync::Arc;

use wane::clock::{ManualClock, SystemClock};
use wane::conformance::Harness;
use wane::store::{Key, Life, PageLimit, Store, StoreError, Value, Write};
use wane_backends::{AnyScanCursor, AnyStore, OpenError};

use crate::harness::any::Any;

/// The cursor of a scan that has not seen all of `store`.
async fn cursor_within(store: &AnyStore) -> AnyScanCursor {
    for number in 0..3 {
        let write = Write::new(Value::new("v").expect("a legal value"), Life::Permanent);
        let key = Key::new(b"any", &[number]).expect("a legal key");
        assert!(store.put(&key, write).await.expect("the store works").is_applied());
    }
    let page = store.scan(None, PageLimit::new(1).expect("a legal limit")).await;
    page.expect("the store works").next.expect("two more rows")
}

/// Another backend could only guess where that scan was: it must not answer with a part.
#[tokio::test]
async fn a_cursor_of_another_backend_is_refused() {
    let (memory, file) = (Any::memory().await.store(), Any::file().await);
    let file = file.store();
    for (store, foreign) in [(&memory, &file), (&file, &memory)] {
        let own = cursor_within(store).await;
        let cursor = cursor_within(foreign).await;
        let error = store.scan(Some(cursor), PageLimit::MAX).await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid { field: "after", .. }), "{error:?}");
        assert!(error.to_string().contains("another backend"), "{error}");
        let rest = store.scan(Some(own), PageLimit::MAX).await.unwrap();
        assert_eq!(rest.rows.len(), 2, "the control: its own goes on");
    }
}

#[tokio::test]
async fn the_url_decides_the_backend() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file:{}", directory.path().join("made").display());
    for (url, name) in [("mem:", "mem"), (&file, "file")] {
        assert_eq!(wane_backends::open(url, SystemClock::shared()).await.unwrap().name(), name);
    }
    assert!(directory.path().join("made").is_dir());
}

#[tokio::test]
async fn a_url_that_names_no_store_is_told_with_what_would() {
    let clock = ManualClock::seeded(1);
    let urls = [
        "",
        ":",
        "mem",
        "file",
        "file:",
        "mem:x",
        "MEM:",
        " mem:",
        "memory:",
        "postgres://localhost",
        "./file:",
        "a path",
    ];
    for url in urls {
        let clock = Arc::clone(&clock);
        match wane_backends::open(url, clock).await {
            Err(OpenError::UnknownUrl { url: told }) => assert_eq!(told, url),
            other => panic!("{url:?}: {other:?}"),
        }
    }
    let error = wane_backends::open("ram:", clock).await.unwrap_err();
    let advice = "\"ram:\" names no store; give mem:, file:DIRECTORY, redis://.., cas1://.., \
                  cas3://.. or dynamodb://..";
    assert_eq!(error.to_string(), advice);
}
