//! The layout of items and the calls of changes, without a server.

use aws_sdk_dynamodb::types::AttributeValue;
use proptest::prelude::*;
use wane::store::{
    Change, ClusteringRange, Fence, Key, Keyspace, Life, MAX_CLUSTERING, MAX_STORED_PARTITION,
    Timestamp, Ttl, Value, Write,
};

use super::conditions::{Meets, Purpose, Request};
use super::item::{
    CLEANUP, EXPIRY, Item, NEVER, cleanup_after, cleanup_of_deleted, clustering_of, integer,
    item_key, key_of, live_record, stored_bound, stored_clustering,
};

/// Clusterings with many zero bytes in front, short and of full length.
fn clusterings() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![3 => Just(0_u8), 1 => Just(1), 1 => Just(0xFF), 1 => any::<u8>()];
    let short = || prop::collection::vec(byte(), 0..6);
    let lengths = MAX_CLUSTERING - 3..=MAX_CLUSTERING;
    let long = (short(), byte(), lengths, short()).prop_map(|(first, fill, len, last)| {
        let middle = vec![fill; len - first.len() - last.len()];
        [first, middle, last].concat()
    });
    prop_oneof![4 => short(), 1 => long].prop_filter("within the limits", |bytes| {
        bytes.len() < MAX_CLUSTERING || bytes.first() != Some(&0)
    })
}

proptest! {
    #[test]
    fn a_clustering_comes_back_and_fits(clustering in clusterings()) {
        let stored = stored_clustering(&clustering);
        prop_assert!((1..=1_024).contains(&stored.len()));
        prop_assert_eq!(clustering_of(&stored), Some(&*clustering));
        prop_assert!(Key::new(b"p", &clustering).is_ok());
    }

    #[test]
    fn the_order_of_bytes_is_kept(one in clusterings(), other in clusterings()) {
        let stored = stored_clustering(&one).cmp(&stored_clustering(&other));
        prop_assert_eq!(stored, one.cmp(&other));
    }

    /// Both bounds are asked for inclusively; the range itself leaves out what is too much.
    #[test]
    fn bounds_leave_out_no_row_of_the_range(
        start in clusterings(), end in clusterings(), row in clusterings(), longer in 0_usize..3,
    ) {
        let start = [start, vec![0; longer]].concat();
        let range = ClusteringRange::new("", end.clone()).unwrap().starting_at(start);
        let stored = stored_clustering(&row);
        let is_asked_for = stored >= stored_bound(range.start())
            && (end.is_empty() || stored <= stored_bound(&end));
        prop_assert!(is_asked_for || !range.contains(&row));
        prop_assert!(stored_bound(range.start()).len() <= 1_024);
    }
}

#[test]
fn marks_are_no_clusterings() {
    for stored in [&b""[..], b"\0\x01", b"\0\x01format", b"\0\xFF"] {
        assert_eq!(clustering_of(stored), None, "{stored:?}");
    }
    assert_eq!(clustering_of(b"\0"), Some(&b""[..]));
    assert_eq!(clustering_of(b"\0\0"), Some(&b"\0"[..]));
}

/// "Prefix bytes that push the longest legal key over a limit": DynamoDB takes 2,048 bytes of hash
/// key and 1,024 of range key.
#[test]
fn the_longest_key_of_every_keyspace_fits() {
    for keyspace in Keyspace::ALL {
        let mut partition = keyspace.prefix().to_vec();
        partition.resize(MAX_STORED_PARTITION, 7);
        for clustering in [vec![7; MAX_CLUSTERING], vec![0; MAX_CLUSTERING - 1]] {
            let key = Key::stored(&partition, &clustering).unwrap();
            let item = item_key(&key);
            let len = |name| item[name].as_b().unwrap().as_ref().len();
            assert!(len("p") <= 2_048 && len("c") <= 1_024, "{keyspace:?}");
            assert_eq!(key_of(&item).unwrap(), key);
        }
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

/// "Seconds where milliseconds were stored", and the other way round.
#[test]
fn cleanup_is_in_seconds_and_never_before_a_minute_after_the_expiry() {
    let now = at(1_700_000_000_500);
    assert_eq!(cleanup_after(at(1_700_000_001_001), now), 1_700_000_002 + 60);
    assert_eq!(cleanup_after(at(1_700_000_002_000), now), 1_700_000_002 + 60);
    assert_eq!(cleanup_after(at(1), now), 1_700_000_001 + 60, "items of 1970 are never removed");
    assert_eq!(cleanup_of_deleted(now), 1_700_000_061 + 60);
}

#[test]
fn what_is_no_record_reads_as_absent_and_what_is_broken_as_corrupt() {
    let key = Key::new(b"p", b"c").unwrap();
    let number = |number: u64| AttributeValue::N(number.to_string());
    let binary = super::item::binary(&b"value"[..]);
    let item = |attributes: &[(&str, &AttributeValue)]| -> Item {
        attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect()
    };
    let whole = item(&[("v", &binary), (EXPIRY, &number(10)), ("fence", &number(u64::MAX))]);
    let record = live_record(&key, whole.clone(), at(9)).unwrap().unwrap();
    assert_eq!((&*record.value, record.expires_at), (&b"value"[..], Some(at(10))));
    assert_eq!(record.fence, Fence(u64::MAX));
    assert_eq!(live_record(&key, whole.clone(), at(10)).unwrap(), None);
    let left_by_delete = item(&[("op", &binary), ("was", &number(10))]);
    assert_eq!(live_record(&key, left_by_delete, at(9)).unwrap(), None);
    let mut permanent = whole.clone();
    permanent.insert(EXPIRY.to_owned(), number(NEVER));
    assert_eq!(live_record(&key, permanent, at(u64::MAX - 1)).unwrap().unwrap().expires_at, None);
    for (broken, with) in [(EXPIRY, binary.clone()), ("v", number(1)), ("fence", binary)] {
        let mut item = whole.clone();
        item.insert(broken.to_owned(), with);
        let error = live_record(&key, item, at(9)).unwrap_err().to_string();
        assert!(error.starts_with("corrupt record at p/c") && error.contains(broken), "{error}");
    }
}

/// Every value that an expression names is bound, and none besides: DynamoDB refuses either.
#[test]
fn every_call_binds_exactly_what_it_names() {
    let now = at(1_000);
    let lives = [Life::Permanent, Life::For(Ttl::MIN), Life::Until(at(5)), Life::Keep];
    for (life, fence) in lives.into_iter().flat_map(|life| [(life, 0), (life, 7)]) {
        let write = Write::new(Value::new("new").unwrap(), life).fenced(Fence(fence));
        let mut changes = vec![
            Change::swap(b"old", write.clone(), || now).unwrap(),
            Change::delete(b"old", Fence(fence)),
        ];
        if life != Life::Keep {
            changes.push(Change::put(write.clone(), || now).unwrap());
            changes.push(Change::insert(write, || now).unwrap());
        }
        for change in &changes {
            for meets in [Meets::NoStaleStamp, Meets::Nothing] {
                assert_binds_what_it_names(change, meets, now);
            }
        }
    }
}

fn assert_binds_what_it_names(change: &Change<'_>, meets: Meets, now: Timestamp) {
    let key = Key::new(b"p", b"").unwrap();
    let call = Purpose { key: &key, change, operation: &[1; 16] }.call(meets, now);
    let (update, cleanup) = match &call.request {
        Request::Put(item) => ("", integer(item, CLEANUP)),
        Request::Update { expression, .. } => (*expression, integer(&call.values, ":ttl")),
    };
    let named: std::collections::BTreeSet<&str> = [call.condition, update]
        .iter()
        .flat_map(|expression| expression.split([' ', ',', '(', ')']))
        .filter(|word| word.starts_with(':'))
        .collect();
    let bound: std::collections::BTreeSet<&str> = call.values.keys().map(String::as_str).collect();
    assert_eq!(named, bound, "{change:?} {meets:?}");
    assert!(call.condition.contains("exp"), "the expiry is part of every condition");
    assert_eq!(update.contains("#ttl"), call.request.names().is_some());
    if let Some(Some(_)) = call.expires_at {
        assert!(cleanup.is_some(), "what expires is cleaned up: {change:?}");
    }
}
