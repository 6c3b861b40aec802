//! Ordered pages out of many buckets: complete, in order, and in bounded memory.

use std::sync::atomic::Ordering;

use wane::store::{
    ClusteringRange, Key, Life, MAX_VALUE, PAGE_BYTES, Page, PageLimit, Partition, SpreadStore,
    Store, StoreError, Value, Write,
};

use super::lanes::{Lanes, Pages};
use super::{partition, row, setup, spread};
use crate::{InnerStore, inner_store, manual_clock, permanent};

type Spread = SpreadStore<Lanes<InnerStore>>;

/// A spread whose range reads are watched.
async fn watched(buckets: u16, pages: Pages) -> (Spread, Lanes<InnerStore>) {
    let (_, clock) = manual_clock();
    let below = Lanes::new(inner_store(clock), pages);
    (spread(below.clone(), buckets).await, below)
}

async fn fill(store: &impl Store, names: &[Vec<u8>]) {
    let rows = names.iter().map(|name| (row(name), permanent("v"))).collect();
    let outcomes = store.put_batch(rows).await.expect("memory does not fail");
    assert!(outcomes.iter().all(wane::store::Outcome::is_applied));
}

/// Names of all lengths, so that some are the beginnings of others.
fn names(count: u32) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = (0..count)
        .map(|number| {
            let number = number.wrapping_mul(2_654_435_761);
            number.to_be_bytes()[..1 + (number % 4) as usize].to_vec()
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn pages_of(rows: usize) -> PageLimit {
    PageLimit::new(rows).expect("a legal limit")
}

/// All clusterings of a range, and the pages that they came in.
async fn walk(store: &impl Store, range: ClusteringRange, limit: PageLimit) -> Vec<Page> {
    let mut pages = Vec::new();
    let mut rest = Some(range);
    while let Some(range) = rest {
        let page = store.read(&partition(), &range, limit).await;
        let page = page.expect("memory does not fail");
        assert!(page.rows.len() <= limit.rows(), "a page beyond its limit");
        if let Some(rest) = &page.rest {
            assert!(rest.start() > range.start(), "{rest:?} does not go on after {range:?}");
            assert_eq!(rest.end(), range.end());
        }
        rest = page.rest.clone();
        pages.push(page);
    }
    pages
}

fn clusterings(pages: &[Page]) -> Vec<Vec<u8>> {
    let rows = pages.iter().flat_map(|page| &page.rows);
    rows.map(|row| row.key.clustering().to_vec()).collect()
}

#[tokio::test]
async fn pages_join_to_all_rows_in_order() {
    let names = names(3_000);
    for buckets in [2, 7, 256, 1_000] {
        let store = setup(buckets).await.store;
        fill(&store, &names).await;
        for limit in [1, 2, 100, 999, 10_000] {
            if limit < 100 && buckets > 7 {
                continue;
            }
            let pages = walk(&store, ClusteringRange::ALL, pages_of(limit)).await;
            assert_eq!(clusterings(&pages), names, "{buckets} buckets in pages of {limit}");
            let full = pages.iter().rev().skip(1).all(|page| page.rows.len() == limit);
            assert!(full, "a page is short though there are more rows");
        }
        let range = ClusteringRange::new(vec![0x40], vec![0xC0, 0]).unwrap();
        let expected: Vec<_> = names.iter().filter(|name| range.contains(name)).cloned().collect();
        let pages = walk(&store, range, pages_of(100)).await;
        assert_eq!(clusterings(&pages), expected, "a part of {buckets} buckets");
    }
}

/// Backends end pages where they like, and empty ones where rows have expired.
#[tokio::test]
async fn short_and_empty_pages_of_a_bucket_lose_nothing() {
    let names = names(300);
    for buckets in [2, 5, 64] {
        let (store, _) = watched(buckets, Pages::Stuttering).await;
        fill(&store, &names).await;
        for limit in [1, 3, 50, 10_000] {
            let pages = walk(&store, ClusteringRange::ALL, pages_of(limit)).await;
            assert_eq!(clusterings(&pages), names, "{buckets} buckets in pages of {limit}");
        }
    }
}

/// The control of the two tests above: a bucket that is left out is missed.
#[tokio::test]
async fn a_row_outside_of_every_bucket_is_missed() {
    let names = names(300);
    let setup = setup(4).await;
    fill(&setup.store, &names).await;
    let stray = Key::stored(&[partition().as_bytes(), &[0, 4]].concat(), b"a").unwrap();
    assert!(setup.below.put(&stray, permanent("v")).await.unwrap().is_applied());
    let pages = walk(&setup.store, ClusteringRange::ALL, pages_of(100)).await;
    assert_eq!(clusterings(&pages), names);
    let scanned = setup.store.scan(None, PageLimit::MAX).await;
    assert!(matches!(scanned, Err(StoreError::Corrupt { .. })), "a scan tells: {scanned:?}");
}

/// Bytes that may be alive at once: the page, and the pages of 16 buckets.
const BOUND: usize = 17 * (PAGE_BYTES + MAX_VALUE);

#[tokio::test]
async fn memory_of_a_read_does_not_grow_with_the_buckets() {
    let large = Write::new(Value::new(vec![7; MAX_VALUE]).unwrap(), Life::Permanent);
    let (store, below) = watched(256, Pages::Full).await;
    for number in 0..512_u32 {
        let put = store.put(&row(number.to_be_bytes()), large.clone()).await;
        assert!(put.unwrap().is_applied());
    }
    for limit in [1, 100, 10_000] {
        let page = store.read(&partition(), &ClusteringRange::ALL, pages_of(limit)).await.unwrap();
        let held = page.rows.iter().map(|row| row.record.value.len()).sum::<usize>();
        assert_eq!(page.rows.len(), limit.min(PAGE_BYTES / MAX_VALUE));
        assert_eq!(below.bytes.now(), held, "more is alive than what was handed out");
    }
    assert!(below.bytes.most() <= BOUND, "{} bytes at once", below.bytes.most());
    assert!(below.under_way.most() <= 16, "{} reads at once", below.under_way.most());
    assert!(below.under_way.most() >= 8, "buckets are read one after the other");

    // The control: a page of each bucket at once is far beyond the bound, and is noticed.
    let mut pages = Vec::new();
    for bucket in 0..256_u16 {
        let part = [partition().as_bytes(), &bucket.to_be_bytes()].concat();
        let part = Partition::new(part).unwrap();
        let page = below.read(&part, &ClusteringRange::ALL, PageLimit::MAX).await;
        pages.push(page.unwrap());
    }
    assert!(below.bytes.most() > BOUND, "the control was not noticed");
}

/// Reads of one row from each bucket would be slow where all rows are in one.
#[tokio::test]
async fn rows_of_one_bucket_take_few_reads() {
    let (store, below) = watched(16, Pages::Full).await;
    let probe = setup(16).await;
    let mut names = Vec::new();
    for number in 0_u32.. {
        let key = row(number.to_be_bytes());
        assert!(probe.store.put(&key, permanent("v")).await.unwrap().is_applied());
        let part = Partition::new([partition().as_bytes(), &[0, 3]].concat()).unwrap();
        let only = ClusteringRange::new(key.clustering().to_vec(), "").unwrap();
        let found = probe.below.read(&part, &only, pages_of(1)).await.unwrap();
        if !found.rows.is_empty() {
            names.push(key.clustering().to_vec());
        }
        if names.len() == 2_000 {
            break;
        }
    }
    fill(&store, &names).await;
    let before = below.reads.load(Ordering::SeqCst);
    let page = store.read(&partition(), &ClusteringRange::ALL, pages_of(1_600)).await.unwrap();
    assert_eq!(page.rows.len(), 1_600);
    let reads = below.reads.load(Ordering::SeqCst) - before;
    assert!(reads <= 16 + 10, "{reads} reads for one page");
}

/// An even spread is read about once.
#[tokio::test]
async fn a_page_reads_little_more_than_it_shows() {
    let (store, below) = watched(256, Pages::Full).await;
    let names: Vec<_> = (0..20_000_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    fill(&store, &names).await;
    for limit in [10, 1_000, 10_000] {
        let before = below.reads.load(Ordering::SeqCst);
        let page = store.read(&partition(), &ClusteringRange::ALL, pages_of(limit)).await.unwrap();
        assert_eq!(page.rows.len(), limit);
        let reads = below.reads.load(Ordering::SeqCst) - before;
        assert!(reads < 256 * 3 / 2, "{reads} reads of buckets for {limit} rows");
    }
}

#[tokio::test]
async fn an_error_of_one_bucket_ends_the_read_and_names_the_callers_key() {
    let (store, _) = watched(8, Pages::CorruptIn(5)).await;
    fill(&store, &names(100)).await;
    let failed = store.read(&partition(), &ClusteringRange::ALL, PageLimit::MAX).await;
    match failed {
        Err(StoreError::Corrupt { key, .. }) => {
            assert_eq!(key.partition(), partition().as_bytes(), "a bucket is shown");
        }
        other => panic!("{other:?} in place of the error"),
    }
}

#[tokio::test]
async fn the_rest_goes_on_after_a_row_at_the_start_of_the_range() {
    let store = setup(64).await.store;
    let longest = vec![vec![0xFF; 1_023], vec![0xFF; 1_024]];
    fill(&store, &[vec![vec![]], longest.clone()].concat()).await;
    let pages = walk(&store, ClusteringRange::ALL, pages_of(1)).await;
    assert_eq!(clusterings(&pages).len(), 3);
    let last = ClusteringRange::new(longest[1].clone(), "").unwrap();
    let page = store.read(&partition(), &last, pages_of(1)).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(page.rest, None, "nothing lies beyond the last of all keys");
}
