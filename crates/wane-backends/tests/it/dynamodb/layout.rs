//! What stands in the table, and how many calls it takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use wane::clock::{Clock, ManualClock};
use wane::store::{
    ClusteringRange, Fence, Key, Keyspace, Life, MAX_CLUSTERING, MAX_STORED_PARTITION, MAX_VALUE,
    PageLimit, Partition, Remaining, Store, Timestamp, Ttl, Value, Write,
};
use wane_backends::dynamodb::DynamodbStore;

use super::unclear::{Pair, permanent, row};
use crate::harness::dynamodb::{Server, clock_of_today, with_real_pauses};

/// The store on a clock that stands still.
async fn still() -> Option<(Server, DynamodbStore, Arc<ManualClock>)> {
    let (server, clock) = (Server::listed()?, clock_of_today());
    let store = server.connect(with_real_pauses(clock.clone())).await;
    Some((server, store, clock))
}

fn lasting(value: &str, millis: u64) -> Write {
    Write { life: Life::For(Ttl::from_millis(millis).expect("a legal life")), ..permanent(value) }
}

async fn numbers(server: &Server, key: &Key, names: [&str; 2]) -> [Option<u64>; 2] {
    let item = server.item(key.partition(), key.clustering()).await.expect("an item");
    names.map(|name| {
        item.get(name).map(|value| {
            let number = value.as_n().expect("a number");
            number.parse().expect("a whole number")
        })
    })
}

/// "Seconds where milliseconds were stored": the expiry decides and is exact, the time to live of
/// DynamoDB only cleans up, a minute or more later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiry_is_in_milliseconds_and_cleanup_in_seconds_a_minute_later() {
    let Some((server, store, clock)) = still().await else { return };
    for life in [1, 999, 1_001, 31_536_000_000] {
        for (at, write) in
            [lasting("v", life), lasting("v", life).fenced(Fence(1))].into_iter().enumerate()
        {
            let key = row(&format!("{life} {at}"));
            assert!(store.put(&key, write).await.unwrap().is_applied());
            let expiry = clock.now().as_unix_millis() + life;
            let [exp, ttl] = numbers(&server, &key, ["exp", "ttl"]).await;
            assert_eq!((exp, ttl), (Some(expiry), Some(expiry.div_ceil(1_000) + 60)));
        }
    }
    // Making it permanent takes the cleanup away, also where the stamp is left.
    let key = row("1 0");
    for write in
        [lasting("v", 10), permanent("w"), lasting("v", 10), permanent("w").fenced(Fence(2))]
    {
        let expires = write.life != Life::Permanent;
        assert!(store.put(&key, write).await.unwrap().is_applied());
        assert_eq!(numbers(&server, &key, ["ttl", "exp"]).await[0].is_some(), expires);
    }
    server.remove_table().await;
}

/// An instant of 1970 would never be cleaned up: DynamoDB leaves the distant past alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_expired_is_absent_and_cleaned_up() {
    let Some((server, store, clock)) = still().await else { return };
    let past = Write { life: Life::Until(Timestamp::from_unix_millis(1)), ..permanent("v") };
    for (name, write) in [("unfenced", past.clone()), ("fenced", past.fenced(Fence(3)))] {
        let key = row(name);
        assert!(store.put(&key, write).await.unwrap().is_applied());
        assert_eq!(store.get(&key).await.unwrap(), None);
        let [exp, ttl] = numbers(&server, &key, ["exp", "ttl"]).await;
        assert_eq!(exp, Some(1));
        assert!(ttl.unwrap() >= clock.now().as_unix_millis() / 1_000 + 60, "{ttl:?}");
    }
    server.remove_table().await;
}

/// A delete leaves its operation, and nothing of the record but when it would have expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_delete_leaves_is_no_record_and_goes_in_time() {
    let Some((server, store, clock)) = still().await else { return };
    let key = row("k");
    assert!(store.put(&key, lasting("v", 5_000).fenced(Fence(9))).await.unwrap().is_applied());
    assert!(store.compare_and_delete(&key, b"v", Fence::NONE).await.unwrap().is_applied());
    let left = server.item(key.partition(), key.clustering()).await.unwrap();
    let names: BTreeSet<&str> = left.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["p", "c", "op", "ttl", "was"]));
    let [ttl, was] = numbers(&server, &key, ["ttl", "was"]).await;
    let now = clock.now().as_unix_millis();
    assert_eq!(was, Some(now + 5_000));
    assert!((now / 1_000 + 60..now / 1_000 + 180).contains(&ttl.unwrap()), "{ttl:?}");
    assert_eq!(store.get(&key).await.unwrap(), None);
    assert_eq!(store.query_ttl(&key).await.unwrap(), Remaining::Absent);
    let page = store.scan(None, PageLimit::MAX).await.unwrap();
    assert!(page.rows.is_empty() && page.next.is_none(), "neither it nor the mark of the format");

    // Whatever is written over it leaves no trace of it.
    assert!(store.put(&key, permanent("w")).await.unwrap().is_applied());
    let left = server.item(key.partition(), key.clustering()).await.unwrap();
    let names: BTreeSet<&str> = left.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["p", "c", "v", "exp", "fence", "op"]));
    server.remove_table().await;
}

/// The rows of the partition that tests share, in pages of up to `limit`.
async fn clusterings(store: &DynamodbStore, limit: usize) -> Vec<Vec<u8>> {
    let partition = Partition::new("partition").expect("a legal partition");
    let limit = PageLimit::new(limit).expect("a legal limit");
    let mut seen = Vec::new();
    let mut rest = Some(ClusteringRange::ALL);
    while let Some(range) = rest {
        let page = store.read(&partition, &range, limit).await.expect("an answer");
        seen.extend(page.rows.iter().map(|row| row.key.clustering().to_vec()));
        if let Some(rest) = &page.rest {
            let legal = ClusteringRange::new(rest.start().to_vec(), "");
            assert!(legal.is_ok(), "a page goes on at a legal key");
        }
        rest = page.rest;
    }
    seen
}

/// "Only the first page of a query": a range of 6 MB, where DynamoDB ends each page at 1 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_of_several_megabytes_comes_complete() {
    let Some(pair) = Pair::listed().await else { return };
    // The last key of a page may have no successor that is a legal key.
    let longest = |at: u8| Key::new(b"partition", &[at; MAX_CLUSTERING]).unwrap();
    let value = Value::new(vec![7; MAX_VALUE]).unwrap();
    let rows = (1..25).map(|at| (longest(at), Write::new(value.clone(), Life::Permanent)));
    assert_eq!(pair.direct.put_batch(rows.collect()).await.unwrap().len(), 24);
    for limit in [1, 3, 4, 10_000] {
        let seen = clusterings(&pair.store, limit).await;
        assert_eq!(seen.iter().map(|row| row[0]).collect::<Vec<_>>(), (1..25).collect::<Vec<_>>());
    }
    assert!(pair.front.seen().iter().all(|operation| operation == "Query"));
    pair.end().await;
}

/// 3,000 rows that expired and were not cleaned up lie between two that live: more than 1 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stretch_of_expired_rows_hides_nothing_behind_it() {
    let Some((server, store, clock)) = still().await else { return };
    let mut rows: Vec<_> = (0..3_000)
        .map(|at| (row(&format!("m{at:04}")), lasting(&"x".repeat(600), 1_000)))
        .collect();
    rows.push((row("a"), permanent("first")));
    rows.push((row("z"), permanent("last")));
    assert_eq!(store.put_batch(rows).await.unwrap().len(), 3_002);
    clock.advance(std::time::Duration::from_secs(2));
    for limit in [1, 2, 100, 10_000] {
        assert_eq!(clusterings(&store, limit).await, [b"a".to_vec(), b"z".to_vec()], "{limit}");
    }
    server.remove_table().await;
}

/// "Prefix bytes that push the longest legal key over a limit".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_keys_of_every_keyspace_are_stored() {
    let Some((server, store, _)) = still().await else { return };
    for keyspace in Keyspace::ALL {
        let partition = keyspace.partition(&[0xFF; 1_020]).unwrap();
        let keys = [vec![0xFF; MAX_CLUSTERING], vec![0; MAX_CLUSTERING - 1]]
            .map(|clustering| Key::new(partition.as_bytes(), &clustering).unwrap());
        for key in &keys {
            assert!(store.insert_if_not_exists(key, permanent("v")).await.unwrap().is_applied());
            assert!(store.compare_and_swap(key, b"v", permanent("w")).await.unwrap().is_applied());
            assert!(store.get(key).await.unwrap().is_some());
        }
        assert_eq!(store.get_batch(&keys).await.unwrap().iter().flatten().count(), 2);
        let page = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
        assert_eq!(page.rows.iter().map(|row| &row.key).collect::<Vec<_>>(), [&keys[1], &keys[0]]);
        for key in &keys {
            assert!(store.compare_and_delete(key, b"w", Fence::NONE).await.unwrap().is_applied());
        }
    }
    // A wrapper appends a bucket of two bytes.
    let key = Key::stored(&[0xFF; MAX_STORED_PARTITION], &[0xFF; MAX_CLUSTERING]).unwrap();
    assert!(store.insert_if_not_exists(&key, permanent("v")).await.unwrap().is_applied());
    assert_eq!(
        store.get_batch(std::slice::from_ref(&key)).await.unwrap().iter().flatten().count(),
        1
    );
    let scanned = store.scan(None, PageLimit::MAX).await.unwrap().rows;
    assert_eq!(scanned.into_iter().map(|row| row.key).collect::<Vec<_>>(), [key]);
    server.remove_table().await;
}

/// "Empty clustering handled in some operations only": it is the row `00` in every one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_clustering_is_one_row_in_every_operation() {
    let Some((server, store, _)) = still().await else { return };
    let (empty, zero) = (Key::new(b"p", b"").unwrap(), Key::new(b"p", b"\0").unwrap());
    assert!(store.insert_if_not_exists(&empty, permanent("a")).await.unwrap().is_applied());
    assert!(!store.insert_if_not_exists(&empty, permanent("x")).await.unwrap().is_applied());
    assert!(store.compare_and_swap(&empty, b"a", permanent("b")).await.unwrap().is_applied());
    assert!(store.put(&empty, permanent("c")).await.unwrap().is_applied());
    let batch = vec![(empty.clone(), permanent("d")), (zero.clone(), permanent("zero"))];
    assert!(store.put_batch(batch).await.unwrap().iter().all(|outcome| outcome.is_applied()));
    assert!(server.item(b"p", b"\0").await.is_some() && server.item(b"p", b"\0\0").await.is_some());
    assert_eq!(*store.get(&empty).await.unwrap().unwrap().value, *b"d");
    assert_eq!(store.query_ttl(&empty).await.unwrap(), Remaining::Permanent);
    let both = store.get_batch(&[zero.clone(), empty.clone()]).await.unwrap();
    assert_eq!(
        both.iter().flatten().map(|r| r.value.to_vec()).collect::<Vec<_>>(),
        [b"zero".to_vec(), b"d".to_vec()]
    );
    let partition = Partition::new("p").unwrap();
    let keys = async |start: &'static str, end: &'static str| {
        let range = ClusteringRange::new(start, end).unwrap();
        let page = store.read(&partition, &range, PageLimit::MAX).await.unwrap();
        page.rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("", "").await, [empty.clone(), zero.clone()]);
    assert_eq!(keys("", "\0").await, std::slice::from_ref(&empty));
    assert_eq!(keys("\0", "").await, std::slice::from_ref(&zero));
    assert_eq!(keys("\0", "\u{1}").await, std::slice::from_ref(&zero));
    let scanned = store.scan(None, PageLimit::MAX).await.unwrap().rows;
    assert_eq!(
        scanned.into_iter().map(|row| row.key).collect::<BTreeSet<_>>(),
        BTreeSet::from([empty.clone(), zero])
    );
    assert!(store.compare_and_delete(&empty, b"d", Fence::NONE).await.unwrap().is_applied());
    assert_eq!(store.get(&empty).await.unwrap(), None);
    server.remove_table().await;
}

/// No operation reads before it writes, or writes twice; refusals need no second look either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_is_one_call() {
    let Some(pair) = Pair::listed().await else { return };
    let (store, key) = (&pair.store, row("k"));
    let one_call = |operation: &str| assert_eq!(pair.front.seen(), [operation]);
    for fence in [Fence::NONE, Fence(1)] {
        let write = |value: &str| permanent(value).fenced(fence);
        assert!(store.insert_if_not_exists(&key, write("a")).await.unwrap().is_applied());
        one_call("PutItem");
        assert!(!store.insert_if_not_exists(&key, write("x")).await.unwrap().is_applied());
        one_call("PutItem");
        for life in [Life::Permanent, Life::For(Ttl::MAX), Life::Keep] {
            let swap = Write { life, ..write("a") };
            assert!(store.compare_and_swap(&key, b"a", swap.clone()).await.unwrap().is_applied());
            assert_eq!(pair.front.seen().len(), 1);
            assert!(!store.compare_and_swap(&key, b"x", swap).await.unwrap().is_applied());
            assert_eq!(pair.front.seen().len(), 1);
        }
        assert!(store.put(&key, write("a")).await.unwrap().is_applied());
        assert_eq!(pair.front.seen().len(), 1);
        assert!(store.compare_and_delete(&key, b"a", fence).await.unwrap().is_applied());
        one_call("UpdateItem");
        // Over what a delete left, too.
        assert!(store.put(&key, write("b")).await.unwrap().is_applied());
        assert_eq!(pair.front.seen().len(), 1);
        assert!(store.get(&key).await.unwrap().is_some());
        one_call("GetItem");
        assert!(store.compare_and_delete(&key, b"b", fence).await.unwrap().is_applied());
        pair.front.seen();
    }
    pair.end().await;
}

/// The one write that takes two: a put without a fence where a stamp outlived its record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_over_an_expired_stamp_takes_a_second_call() {
    let Some(pair) = Pair::listed().await else { return };
    let key = row("k");
    let stamped = lasting("v", 1).fenced(Fence(7));
    assert!(pair.direct.put(&key, stamped).await.unwrap().is_applied());
    pair.clock.sleep(std::time::Duration::from_millis(5)).await;
    assert!(pair.store.put(&key, permanent("w")).await.unwrap().is_applied());
    assert_eq!(pair.front.seen(), ["UpdateItem", "PutItem"]);
    assert_eq!(pair.direct.get(&key).await.unwrap().unwrap().fence, Fence::NONE);
    pair.end().await;
}
