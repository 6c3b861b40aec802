//! Application TTL storage: its operations, its limits, its buckets and its events.

mod fenced;
mod quota;

use std::time::Duration;

use wane::services::ClusterAppId;
use wane::services::app_ttl::{
    AppTtl, AppTtlError, AppTtlEventKind, AppTtlNotice, AppTtlStorage, Quota, Renewal,
};
use wane::store::{Answer, ObservedStore, Operation, Outcome, PageLimit, Remaining, WatchedStore};

use super::{InnerStore, inner_store, manual_clock};

const MINUTE: Duration = Duration::from_secs(60);

fn storage() -> AppTtlStorage<InnerStore> {
    let (_, clock) = manual_clock();
    AppTtl::new(inner_store(clock.clone()), clock).of(ClusterAppId(7), Quota::default())
}

fn page(limit: usize) -> PageLimit {
    PageLimit::new(limit).expect("within the limits")
}

#[tokio::test]
async fn the_four_operations_do_what_the_first_example_shows() {
    let storage = storage();
    let inserted = storage.insert_if_not_exists("alpha:ABC123", "device:XYZ789", 15 * MINUTE).await;
    assert!(inserted.unwrap().is_applied());
    let entry = storage.ttl_get("alpha:ABC123").await.unwrap().expect("just inserted");
    assert_eq!(*entry.value, *b"device:XYZ789");
    assert_eq!(entry.remaining, Some(15 * MINUTE));

    let taken = storage.insert_if_not_exists("alpha:ABC123", "other", MINUTE).await.unwrap();
    let Outcome::Refused { current: Some(current) } = taken else { panic!("{taken:?}") };
    assert_eq!(*current.value, *b"device:XYZ789", "a refusal tells what is there");

    let renewal = Renewal::For(15 * MINUTE);
    let swapped =
        storage.compare_and_swap("alpha:ABC123", "device:XYZ789", "device:NEW123", renewal).await;
    assert!(swapped.unwrap().is_applied());
    let stale =
        storage.compare_and_swap("alpha:ABC123", "device:XYZ789", "x", renewal).await.unwrap();
    assert!(!stale.is_applied());
    assert!(!storage.compare_and_delete("alpha:ABC123", "wrong").await.unwrap().is_applied());
    assert!(
        storage.compare_and_delete("alpha:ABC123", "device:NEW123").await.unwrap().is_applied()
    );
    assert_eq!(storage.ttl_get("alpha:ABC123").await.unwrap(), None);
    let absent = storage.compare_and_swap("alpha:ABC123", "", "x", renewal).await.unwrap();
    assert_eq!(absent, Outcome::Refused { current: None }, "absent is not empty");
}

#[tokio::test]
async fn every_limit_is_told_before_the_store_is_touched() {
    let (_, clock) = manual_clock();
    let store = ObservedStore::new(inner_store(clock.clone()), "mem", clock.clone());
    let storage = AppTtl::new(store.clone(), clock).of(ClusterAppId(7), Quota::default());
    let (long_key, long_value) = ("k".repeat(1_025), "v".repeat(65_537));
    let day = Duration::from_secs(86_400);
    type IsRight = fn(&AppTtlError) -> bool;
    let keys: [(&[u8], IsRight); 3] = [
        (b"", |error| matches!(error, AppTtlError::KeyEmpty)),
        (long_key.as_bytes(), |error| matches!(error, AppTtlError::KeyTooLong { len: 1_025 })),
        (b"ab\xC3\x28", |error| matches!(error, AppTtlError::KeyNotUtf8 { at: 2 })),
    ];
    for (key, is_right) in keys {
        assert!(is_right(&storage.ttl_get(key).await.unwrap_err()));
        assert!(is_right(&storage.query_ttl(key).await.unwrap_err()));
        assert!(is_right(&storage.insert_if_not_exists(key, "v", day).await.unwrap_err()));
        assert!(is_right(&storage.set(key, "v", day).await.unwrap_err()));
        assert!(is_right(&storage.touch(key, day).await.unwrap_err()));
        assert!(is_right(&storage.delete(key).await.unwrap_err()));
        assert!(is_right(&storage.compare_and_delete(key, "v").await.unwrap_err()));
        let swap = storage.compare_and_swap(key, "a", "b", Renewal::Keep).await;
        assert!(is_right(&swap.unwrap_err()));
    }
    let too_long = |error: AppTtlError| matches!(error, AppTtlError::ValueTooLong { .. });
    assert!(too_long(storage.insert_if_not_exists("k", &long_value, day).await.unwrap_err()));
    assert!(too_long(storage.compare_and_delete("k", &long_value).await.unwrap_err()));
    for (expected, new) in [(&*long_value, "b"), ("a", &*long_value)] {
        let swap = storage.compare_and_swap("k", expected, new, Renewal::Keep).await;
        assert!(too_long(swap.unwrap_err()));
    }
    for ttl in [Duration::ZERO, Duration::from_secs(31_536_001)] {
        let error = storage.insert_if_not_exists("k", "v", ttl).await.unwrap_err();
        assert!(matches!(error, AppTtlError::InvalidTtl { .. }), "{error}");
        assert!(error.to_string().contains("365 days"), "the message says what is legal: {error}");
    }
    for operation in [Operation::Get, Operation::InsertIfNotExists, Operation::CompareAndSwap] {
        let answers = [Answer::Applied, Answer::Refused, Answer::Found, Answer::Absent];
        let calls: u64 =
            answers.iter().map(|answer| store.metrics().of(operation).count(*answer)).sum();
        assert_eq!(calls, 0, "{operation:?} reached the store");
    }
}

#[tokio::test]
async fn limits_themselves_are_legal() {
    let storage = storage();
    let (key, value) = ("k".repeat(1_024), "v".repeat(65_536));
    let year = Duration::from_secs(31_536_000);
    assert!(storage.insert_if_not_exists(&key, &value, year).await.unwrap().is_applied());
    assert_eq!(storage.query_ttl(&key).await.unwrap(), Remaining::For(year));
    let shortest = storage.insert_if_not_exists("s", "", Duration::from_millis(1)).await.unwrap();
    assert!(shortest.is_applied());
}

#[tokio::test]
async fn an_application_sees_nothing_of_another() {
    let (_, clock) = manual_clock();
    let all = AppTtl::new(inner_store(clock.clone()), clock);
    let (one, two) =
        (all.of(ClusterAppId(1), Quota::default()), all.of(ClusterAppId(2), Quota::default()));
    assert!(one.set("k", "of one", MINUTE).await.unwrap().is_applied());
    assert_eq!(two.ttl_get("k").await.unwrap(), None);
    assert!(two.insert_if_not_exists("k", "of two", MINUTE).await.unwrap().is_applied());
    assert!(!two.compare_and_delete("k", "of one").await.unwrap().is_applied());
    assert_eq!(*one.ttl_get("k").await.unwrap().expect("untouched").value, *b"of one");
    assert_eq!(two.scan("", None, page(10)).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn a_life_ends_at_its_millisecond_and_can_be_renewed_before() {
    let (hand, clock) = manual_clock();
    let storage =
        AppTtl::new(inner_store(clock.clone()), clock).of(ClusterAppId(7), Quota::default());
    assert!(storage.set("k", "v", Duration::from_millis(1_000)).await.unwrap().is_applied());
    hand.advance(Duration::from_millis(900));
    assert!(storage.touch("k", Duration::from_millis(500)).await.unwrap().is_applied());
    hand.advance(Duration::from_millis(400));
    let swap = storage.compare_and_swap("k", "v", "w", Renewal::Keep).await.unwrap();
    assert!(swap.is_applied());
    let entry = storage.ttl_get("k").await.unwrap().expect("100 ms are left");
    assert_eq!(entry.remaining, Some(Duration::from_millis(100)), "a kept expiry stays");
    hand.advance(Duration::from_millis(99));
    assert!(storage.ttl_get("k").await.unwrap().is_some());
    hand.advance(Duration::from_millis(1));
    assert_eq!(storage.ttl_get("k").await.unwrap(), None);
    assert_eq!(storage.touch("k", MINUTE).await.unwrap(), Outcome::Refused { current: None });
    assert!(!storage.delete("k").await.unwrap(), "nothing is left to delete");
}

#[tokio::test]
async fn a_scan_goes_through_a_prefix_in_pages() {
    let storage = storage();
    for key in ["a:1", "a:2", "a:3", "a:4", "b:1", "a"] {
        assert!(storage.set(key, key, MINUTE).await.unwrap().is_applied());
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let found = storage.scan("a:", after.as_deref(), page(2)).await.unwrap();
        assert!(found.entries.len() <= 2);
        seen.extend(found.entries.into_iter().map(|(key, _)| key));
        match found.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, ["a:1", "a:2", "a:3", "a:4"]);
    let rest = storage.scan("", Some(b"a:4"), page(10)).await.unwrap();
    assert_eq!(rest.entries.len(), 1, "after a key that is there");
    let rest = storage.scan("", Some(b"a:35"), page(10)).await.unwrap();
    assert_eq!(rest.entries.len(), 2, "after a key that is not");
}

#[tokio::test]
async fn no_two_buckets_and_keys_meet() {
    let storage = storage();
    let parts = ["", "a", ":", "\\", "a:", ":a", "\\:", "a\\", ":\\", "::", "\\\\"];
    let mut keys = std::collections::BTreeMap::new();
    for bucket in parts {
        for key in parts.iter().filter(|key| !key.is_empty()) {
            let joined = storage.bucket(bucket).key(key).unwrap();
            let before = keys.insert(joined.clone(), (bucket, key));
            assert_eq!(before, None, "{bucket:?} and {key:?} give {joined:?} as well");
        }
    }
    assert_eq!(storage.bucket("alpha").key("ABC123").unwrap(), "alpha:ABC123");
    assert!(matches!(storage.bucket("alpha").key(""), Err(AppTtlError::KeyEmpty)));
}

#[tokio::test]
async fn a_bucket_is_a_view_of_its_keys() {
    let storage = storage();
    let (codes, tokens) = (storage.bucket("codes"), storage.bucket("tokens"));
    assert!(codes.insert_if_not_exists("1", "c", MINUTE).await.unwrap().is_applied());
    assert!(tokens.insert_if_not_exists("1", "t", MINUTE).await.unwrap().is_applied());
    assert_eq!(*storage.ttl_get("codes:1").await.unwrap().expect("the same entry").value, *b"c");
    let swapped = codes.compare_and_swap("1", "c", "d", Renewal::Keep).await.unwrap();
    assert!(swapped.is_applied());
    let listed = codes.scan(None, page(10)).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    assert_eq!(listed.entries[0].0, "1", "keys come without the bucket");
    assert!(codes.compare_and_delete("1", "d").await.unwrap().is_applied());
    assert_eq!(*tokens.ttl_get("1").await.unwrap().expect("another bucket").value, *b"t");
}

#[tokio::test]
async fn a_watch_tells_every_change_with_its_value_and_resumes() {
    let (hand, clock) = manual_clock();
    let store = WatchedStore::new(inner_store(clock.clone()), clock.clone());
    let storage = AppTtl::new(store, clock).of(ClusterAppId(7), Quota::default());
    let mut watch = storage.watch("a:", None).await.unwrap();
    assert!(storage.set("b:0", "unwatched", MINUTE).await.unwrap().is_applied());
    assert!(storage.insert_if_not_exists("a:1", "one", MINUTE).await.unwrap().is_applied());
    assert!(storage.set("a:1", "two", MINUTE).await.unwrap().is_applied());
    assert!(storage.delete("a:1").await.unwrap());
    let brief = Duration::from_millis(50);
    assert!(storage.insert_if_not_exists("a:2", "brief", brief).await.unwrap().is_applied());
    hand.advance(Duration::from_millis(51));
    let expected = [
        (AppTtlEventKind::Inserted, "a:1", "one"),
        (AppTtlEventKind::Swapped, "a:1", "two"),
        (AppTtlEventKind::Deleted, "a:1", "two"),
        (AppTtlEventKind::Inserted, "a:2", "brief"),
        (AppTtlEventKind::Expired, "a:2", "brief"),
    ];
    let mut ids = Vec::new();
    for (kind, key, value) in expected {
        let Some(AppTtlNotice::Event(event)) = watch.next().await else { panic!("no event") };
        assert_eq!((event.kind, &*event.key), (kind, key.as_bytes()));
        assert_eq!(*event.value, *value.as_bytes());
        ids.push(event.id);
    }
    let mut resumed = storage.watch("a:", Some(ids[2])).await.unwrap();
    let Some(AppTtlNotice::Event(event)) = resumed.next().await else { panic!("no event") };
    assert_eq!(event.id, ids[3], "nothing is told twice and nothing is left out");
    let mut too_old = storage.watch("a:", Some(1)).await.unwrap();
    assert!(matches!(too_old.next().await, Some(AppTtlNotice::Gap { .. })));
}
