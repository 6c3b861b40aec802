//! What is young takes no more memory and log than was set, however fast callers are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use wane::clock::SystemClock;
use wane::store::{
    ClusteringRange, Key, Life, PageLimit, Partition, Store, StoreError, Value, Write,
};
use wane_backends::file::{FileSettings, FileStore};

use crate::proof::{runtime, size_of_log};

/// The least that can be set, and what is written meanwhile: eight times as much.
const YOUNG: u64 = 16 << 20;
const WRITTEN: u64 = 8 * YOUNG;

const VALUE: usize = 4_000;
const BATCH: u64 = 100;

fn key(number: u64) -> Key {
    Key::new(b"young", &number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).unwrap()
}

#[test]
fn the_log_keeps_to_what_was_set_and_nothing_is_lost() {
    let home = tempfile::tempdir().unwrap();
    drop(FileStore::create(home.path(), SystemClock::shared()).unwrap());
    let settings = FileSettings::default().with_young_bytes(YOUNG as usize).unwrap();
    let store = FileStore::open_as(home.path(), settings, SystemClock::shared()).unwrap();
    let records = WRITTEN / VALUE as u64;
    let mut longest = 0;
    for first in (0..records).step_by(BATCH as usize) {
        let write = Write::new(Value::new(vec![first as u8; VALUE]).unwrap(), Life::Permanent);
        let rows = (first..first + BATCH).map(|number| (key(number), write.clone())).collect();
        runtime().block_on(store.put_batch(rows)).unwrap();
        longest = longest.max(size_of_log(home.path()));
    }
    // What is needed, the segment that is being prepared, and those that wait to be written over.
    assert!(longest <= 2 * YOUNG, "the log took {longest} bytes");
    assert!(longest > YOUNG / 4, "it never grew");
    assert_eq!(rows(&store), records.next_multiple_of(BATCH));
    drop(store);
    let store = FileStore::open(home.path(), SystemClock::shared()).unwrap();
    assert_eq!(rows(&store), records.next_multiple_of(BATCH));
}

/// All rows, page by page, over what is young and what is not.
fn rows(store: &FileStore) -> u64 {
    let partition = Partition::new(b"young".to_vec()).unwrap();
    let (mut range, mut found) = (ClusteringRange::ALL, 0);
    loop {
        let read = store.read(&partition, &range, PageLimit::new(100).unwrap());
        let page = runtime().block_on(read).unwrap();
        found += page.rows.len() as u64;
        match page.rest {
            Some(rest) => range = rest,
            None => return found,
        }
    }
}

/// However many of its rows are young.
#[test]
fn a_page_is_whole_wherever_its_rows_lie() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::create(home.path(), SystemClock::shared()).unwrap();
    let write = Write::new(Value::new(b"row".to_vec()).unwrap(), Life::Permanent);
    let put = |numbers: Vec<u64>| {
        let rows = numbers.into_iter().map(|number| (key(number), write.clone())).collect();
        runtime().block_on(store.put_batch(rows)).unwrap();
    };
    let page = |limit: usize| {
        let partition = Partition::new(b"young".to_vec()).unwrap();
        let limit = PageLimit::new(limit).unwrap();
        runtime().block_on(store.read(&partition, &ClusteringRange::ALL, limit)).unwrap()
    };
    put((0..300).collect());
    let all_young = [100, 60, 10, 299].map(&page);
    runtime().block_on(store.flush()).unwrap();
    // The same rows again over those in the tree: few of them, then all.
    put((0..300).step_by(10).collect());
    let few_young = [100, 60, 10, 299].map(&page);
    put((0..300).filter(|number| number % 10 > 0).collect());
    let again_young = [100, 60, 10, 299].map(&page);
    assert_eq!(all_young.each_ref().map(|page| page.rows.len()), [100, 60, 10, 299]);
    assert_eq!(few_young, all_young);
    assert_eq!(again_young, all_young);
    assert_eq!((page(300).rows.len(), page(300).rest), (300, None));
}

/// The bound of the log's frames: values that are small, and too many of them.
#[test]
fn a_batch_that_cannot_be_logged_at_once_is_invalid_and_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    drop(FileStore::create(home.path(), SystemClock::shared()).unwrap());
    let store = FileStore::open(home.path(), SystemClock::shared()).unwrap();
    let write = Write::new(Value::new(vec![7; 79 << 10]).unwrap(), Life::Permanent);
    let put = |numbers: std::ops::Range<u64>| {
        let writes = numbers.map(|number| (key(number), write.clone())).collect();
        runtime().block_on(store.put_batch(writes))
    };
    let too_many = (1 << 30) / (79 << 10);
    let refused = put(0..too_many).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "batch", .. }), "{refused:?}");
    assert_eq!(rows(&store), 0);
    assert_eq!(put(0..100).unwrap().len(), 100, "it goes on");
    assert_eq!(rows(&store), 100);
}
