//! The number of buckets: recorded once, kept by everyone, and nobody else's record.

use std::io::Cursor;

use wane::clock::{Clock, ManualClock};
use wane::services::backup::{Backup, restore};
use wane::store::{
    ClusteringRange, EventKind, Fence, Key, Keyspace, MAX_PARTITION, MAX_STORED_PARTITION,
    MemoryStore, Notice, PageLimit, Partition, SpreadError, SpreadStore, Store, StoreError,
    WatchedStore,
};

use super::{partition, row, setup, spread};
use crate::{InnerStore, inner_store, permanent};

fn below() -> InnerStore {
    inner_store(ManualClock::seeded(1))
}

/// Where the number is recorded.
fn record() -> Key {
    let partition = Keyspace::Settings.partition(b"spread").expect("short enough");
    Key::new(partition.as_bytes(), b"").expect("short enough")
}

#[tokio::test]
async fn a_store_is_opened_with_its_own_number_only() {
    for (first, second) in [(1, 256), (256, 1), (256, 255), (65_535, 1)] {
        let store = below();
        spread(store.clone(), first).await;
        assert_eq!(spread(store.clone(), first).await.buckets(), first);
        let refused = SpreadStore::open(store.clone(), second).await.unwrap_err();
        assert!(
            matches!(refused, SpreadError::Mismatch { recorded, given }
                if recorded == first && given == second),
            "{refused}"
        );
        let message = refused.to_string();
        for part in [first.to_string(), second.to_string(), "backup".into()] {
            assert!(message.contains(&part), "{message}");
        }
        spread(store, first).await;
    }
}

#[tokio::test]
async fn no_buckets_are_refused_before_anything_is_written() {
    let store = below();
    let refused = SpreadStore::open(store.clone(), 0).await.unwrap_err();
    assert!(matches!(refused, SpreadError::NoBuckets), "{refused}");
    assert_eq!(store.get(&record()).await.unwrap(), None);
}

/// Its records would no longer be found.
#[tokio::test]
async fn a_store_written_without_a_spread_has_one_bucket() {
    let store = below();
    assert!(store.put(&row("a"), permanent("v")).await.unwrap().is_applied());
    let refused = SpreadStore::open(store.clone(), 256).await.unwrap_err();
    assert!(matches!(refused, SpreadError::Mismatch { recorded: 1, given: 256 }), "{refused}");
    let store = spread(store, 1).await;
    assert!(store.get(&row("a")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_number_that_cannot_be_read_is_an_error() {
    for value in ["", "256", "{\"buckets\":0}", "{\"buckets\":256,\"hash\":\"new\"}", "{}"] {
        let store = below();
        assert!(store.put(&record(), permanent(value)).await.unwrap().is_applied());
        let refused = SpreadStore::open(store, 256).await.unwrap_err();
        assert!(matches!(refused, SpreadError::Unreadable { .. }), "{value:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_open_an_empty_store_at_once_agree() {
    for _ in 0..50 {
        let store = below();
        let open = |buckets| tokio::spawn(SpreadStore::open(store.clone(), buckets));
        let nodes: Vec<_> = [2, 3, 2, 3].map(open).into_iter().collect();
        let mut opened = Vec::new();
        for node in nodes {
            match node.await.unwrap() {
                Ok(store) => opened.push(store.buckets()),
                Err(SpreadError::Mismatch { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert!(opened == [2, 2] || opened == [3, 3], "opened with {opened:?}");
    }
}

#[tokio::test]
async fn the_number_is_neither_scanned_nor_written() {
    let setup = setup(16).await;
    let store = &setup.store;
    let page = store.scan(None, PageLimit::MAX).await.unwrap();
    assert!(page.rows.is_empty(), "{:?}", page.rows);
    let key = record();
    let stands = setup.below.get(&key).await.unwrap().expect("it is recorded");
    assert_eq!(&*stands.value, b"{\"buckets\":16}");
    assert_eq!(stands.expires_at, None);
    let write = || permanent("x");
    let answers = [
        store.put(&key, write()).await.map(drop),
        store.put_batch(vec![(row("a"), write()), (key.clone(), write())]).await.map(drop),
        store.insert_if_not_exists(&key, write()).await.map(drop),
        store.compare_and_swap(&key, &stands.value, write()).await.map(drop),
        store.compare_and_delete(&key, &stands.value, Fence::NONE).await.map(drop),
    ];
    for answer in answers {
        assert!(matches!(answer, Err(StoreError::Invalid { .. })), "{answer:?}");
    }
    assert_eq!(setup.below.get(&key).await.unwrap(), Some(stands));
    assert_eq!(store.get(&row("a")).await.unwrap(), None, "a part of the batch was applied");
}

/// Changing the number takes a backup and a restoration.
#[tokio::test]
async fn a_backup_goes_into_a_store_with_another_number() {
    let clock = ManualClock::seeded(1);
    let make = || MemoryStore::new(clock.clone()).expect("a thread for the sweeper");
    let mut from = spread(make(), 1).await;
    let keys: Vec<_> = (0..200_u32).map(|number| row(number.to_be_bytes())).collect();
    let other = Key::new(b"tests", b"row").unwrap();
    for key in keys.iter().chain([&other]) {
        assert!(from.put(key, permanent("v")).await.unwrap().is_applied());
    }
    for buckets in [256, 3, 1] {
        let mut backup = Backup::begin(from.clone(), &*clock, "mem").await.unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = backup.next().await {
            bytes.extend_from_slice(&chunk.unwrap());
        }
        let to = spread(make(), buckets).await;
        let clock: &dyn Clock = &*clock;
        let restored = restore(&to, clock, &mut Cursor::new(bytes), |_| ()).await.unwrap();
        assert_eq!(restored.records, 201);
        for key in keys.iter().chain([&other]) {
            assert!(to.get(key).await.unwrap().is_some(), "{key:?} in {buckets} buckets");
        }
        let page = to.read(&partition(), &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
        assert_eq!(page.rows.len(), 200);
        from = to;
    }
}

/// Two bytes more than callers may give: nobody above notices.
#[tokio::test]
async fn the_longest_partition_is_spread_like_any_other() {
    let setup = setup(256).await;
    let rest = vec![b'p'; MAX_PARTITION - 4];
    let longest = Keyspace::DeviceAuth.partition(&rest).unwrap();
    let key = Key::new(longest.as_bytes(), b"row").unwrap();
    assert!(setup.store.put(&key, permanent("v")).await.unwrap().is_applied());
    let rows = setup.store.scan(None, PageLimit::MAX).await.unwrap().rows;
    assert_eq!(rows[0].key, key);
    let below = setup.below.scan(None, PageLimit::MAX).await.unwrap().rows;
    let stored = below.iter().map(|row| row.key.partition().len()).max();
    assert_eq!(stored, Some(MAX_STORED_PARTITION));
    assert!(Key::stored(&[1; MAX_STORED_PARTITION], b"").is_ok());
    assert!(Key::stored(&[1; MAX_STORED_PARTITION + 1], b"").is_err());
    assert!(Key::stored(b"", b"row").is_err());
    assert!(Partition::new(vec![1; MAX_PARTITION + 1]).is_err());
}

#[tokio::test]
async fn a_watch_above_a_spread_reports_the_callers_keys() {
    let setup = setup(256).await;
    let store = WatchedStore::new(setup.store, setup.clock.clone());
    let mut watch = store.watch(&partition(), ClusteringRange::ALL).await.unwrap();
    assert!(store.put(&row("a"), crate::lasting("v", 10)).await.unwrap().is_applied());
    for kind in [EventKind::Put, EventKind::Expired] {
        match watch.next().await {
            Some(Notice::Event(event)) => {
                assert_eq!((event.kind, &event.key), (kind, &row("a")));
            }
            other => panic!("{other:?} in place of {kind:?}"),
        }
        setup.clock.advance(std::time::Duration::from_millis(10));
    }
}
