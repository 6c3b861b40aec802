//! Tidying up: the file of a store becomes small again after most of it has expired.

use std::time::Duration;

use wane::clock::SystemClock;
use wane::store::{Key, Life, PageLimit, Store, Ttl, Value, Write};
use wane_backends::file::FileStore;

use crate::proof::{runtime, wait};

/// Below this size a file is left as it is.
const SMALL: u64 = 8 << 20;

/// A store with 12 MB that expire at once, and one record that stays.
async fn crowded(store: &FileStore) {
    let row = |number: u32, life| {
        let key = Key::new(b"crowd", &number.to_be_bytes()).expect("a legal key");
        (key, Write::new(Value::new(vec![7; 200_000]).expect("a legal value"), life))
    };
    let crowd = (0..60).map(|number| row(number, Life::For(Ttl::MIN)));
    let rows = crowd.chain([row(100, Life::Permanent), row(101, Life::Permanent)]).collect();
    store.put_batch(rows).await.expect("the rows are put");
}

fn shrinks(store: &FileStore, meanwhile: impl Fn()) -> bool {
    (0..200).any(|_| {
        meanwhile();
        wait(Duration::from_millis(20));
        store.size_on_disk().expect("a file") < SMALL
    })
}

/// A store is seldom without a record that falls due within the minute.
#[test]
fn a_file_shrinks_while_other_records_keep_falling_due() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::create(home.path(), SystemClock::shared()).unwrap();
    runtime().block_on(crowded(&store));
    assert!(store.size_on_disk().unwrap() > SMALL);
    let key = Key::new(b"trickle", b"").unwrap();
    let write = Write::new(Value::new("x").unwrap(), Life::For(Ttl::from_millis(15).unwrap()));
    let trickle = || {
        let put = runtime().block_on(store.put(&key, write.clone()));
        assert!(put.is_ok_and(|outcome| outcome.is_applied()));
    };
    assert!(shrinks(&store, trickle), "{:?} bytes are left", store.size_on_disk());
}

/// A scan keeps the file from being made smaller, but only until it ends.
#[test]
fn a_file_shrinks_after_the_scan_that_kept_it_large() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::create(home.path(), SystemClock::shared()).unwrap();
    let page = runtime().block_on(async {
        crowded(&store).await;
        store.scan(None, PageLimit::new(1).unwrap()).await.unwrap()
    });
    let cursor = page.next.expect("there is more to scan");
    wait(Duration::from_millis(300));
    drop(cursor);
    let key = Key::new(b"trickle", b"").unwrap();
    let write = Write::new(Value::new("x").unwrap(), Life::For(Ttl::MIN));
    assert!(runtime().block_on(store.put(&key, write)).unwrap().is_applied());
    assert!(shrinks(&store, || ()), "{:?} bytes are left", store.size_on_disk());
}

/// A scan shows the store as it was when it began, whatever is written over since.
#[test]
fn large_values_that_a_scan_shows_are_not_written_over() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::create(home.path(), SystemClock::shared()).unwrap();
    let row = |number: u8, byte: u8| {
        let key = Key::new(b"large", &[number]).expect("a legal key");
        (key, Write::new(Value::new(vec![byte; 100_000]).expect("legal"), Life::Permanent))
    };
    runtime().block_on(async {
        store.put_batch((0..8).map(|number| row(number, 1)).collect()).await.unwrap();
        let mut page = store.scan(None, PageLimit::new(1).unwrap()).await.unwrap();
        for byte in 2..6 {
            store.put_batch((0..8).map(|number| row(number, byte)).collect()).await.unwrap();
        }
        let mut seen = 0;
        loop {
            for found in &page.rows {
                assert!(found.record.value.iter().all(|byte| *byte == 1), "{:?}", found.key);
                seen += 1;
            }
            let Some(next) = page.next else { break };
            page = store.scan(Some(next), PageLimit::new(1).unwrap()).await.unwrap();
        }
        assert_eq!(seen, 8);
        // Without the scan the same room is used over and over.
        let before = store.size_on_disk().unwrap();
        for byte in 6..40 {
            store.put_batch((0..8).map(|number| row(number, byte)).collect()).await.unwrap();
        }
        let after = store.size_on_disk().unwrap();
        assert!(after <= before + 8 * 102_400, "{before} grew to {after}");
    });
}
