//! The limits of the contract, against the same limits written down a second time.
//!
//! - A key, a value or a time to live is taken exactly within the limits, and comes back as given.
//! - Keys are equal where both parts are, and are ordered by partition, then by clustering.
//! - Durations round up to milliseconds; arithmetic of instants neither panics nor wraps.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use wane::store::{Key, PageLimit, StoreError, Timestamp, Ttl, Value};

use crate::Input;
use crate::input::{KEY_LENGTHS, VALUE_LENGTHS};

const YEAR_MILLIS: u128 = 31_536_000_000;

/// Makes a key.
pub type MakeKey = fn(&[u8], &[u8]) -> Result<Key, StoreError>;

/// The contract's limits.
pub fn target(bytes: &[u8]) {
    check(Key::new, bytes);
}

/// The limits, with those of keys made by `make_key`.
pub fn check(make_key: MakeKey, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let a = (input.text(&KEY_LENGTHS), input.text(&KEY_LENGTHS));
    let b = match input.byte() % 3 {
        0 => (a.0.clone(), input.text(&KEY_LENGTHS)),
        1 => (input.text(&KEY_LENGTHS), a.1.clone()),
        _ => (input.text(&KEY_LENGTHS), input.text(&KEY_LENGTHS)),
    };
    check_keys(make_key, &a, &b);
    check_times(&mut input);
    check_counts(&mut input);
}

/// Whether the contract allows this clustering.
pub(super) fn is_legal_clustering(clustering: &[u8]) -> bool {
    clustering.len() < 1_024 || (clustering.len() == 1_024 && clustering[0] != 0)
}

type Parts = (Vec<u8>, Vec<u8>);

fn check_keys(make_key: MakeKey, a: &Parts, b: &Parts) {
    for (partition, clustering) in [a, b] {
        let legal = (1..=1_024).contains(&partition.len()) && is_legal_clustering(clustering);
        let key = make_key(partition, clustering);
        assert_eq!(key.is_ok(), legal, "{} and {} bytes", partition.len(), clustering.len());
        let Ok(key) = key else { return };
        assert_eq!((key.partition(), key.clustering()), (&**partition, &**clustering));
        assert_eq!(key.size(), partition.len() + clustering.len());
    }
    let (Ok(key_a), Ok(key_b)) = (make_key(&a.0, &a.1), make_key(&b.0, &b.1)) else { return };
    assert_eq!(key_a.cmp(&key_b), a.cmp(b), "{key_a:?} and {key_b:?} are out of order");
    assert_eq!(key_a == key_b, a == b, "{key_a:?} and {key_b:?} are not told apart");
    if key_a == key_b {
        let hasher = BuildHasherDefault::<DefaultHasher>::new();
        assert_eq!(hasher.hash_one(&key_a), hasher.hash_one(&key_b), "equal keys hash alike");
    }
}

fn check_times(input: &mut Input<'_>) {
    let (number, nanos) = (input.number(), (input.number() % 1_000_000_000) as u32);
    let given = [
        (Ttl::from_millis(number), u128::from(number)),
        (Ttl::from_secs(number), u128::from(number) * 1_000),
        (Ttl::try_from(Duration::new(number, nanos)), {
            (u128::from(number) * 1_000_000_000 + u128::from(nanos)).div_ceil(1_000_000)
        }),
        (Ttl::try_from(Duration::from_nanos(number)), u128::from(number).div_ceil(1_000_000)),
    ];
    let now = Timestamp::from_unix_millis(input.number());
    for (ttl, millis) in given {
        assert_eq!(ttl.is_ok(), (1..=YEAR_MILLIS).contains(&millis), "{millis} ms");
        let Ok(ttl) = ttl else { continue };
        assert_eq!(u128::from(ttl.as_millis()), millis);
        assert_eq!(ttl.as_duration().as_millis(), millis);
        let expiry = now.after(ttl);
        let sum = u128::from(now.as_unix_millis()) + millis;
        assert_eq!(u128::from(expiry.as_unix_millis()), sum.min(u128::from(u64::MAX)));
        assert!(now.until(expiry) <= ttl.as_duration(), "more is left than was given");
        assert_eq!(expiry.until(now), Duration::ZERO);
    }
}

fn check_counts(input: &mut Input<'_>) {
    let rows = input.number() as usize;
    assert_eq!(PageLimit::new(rows).is_ok(), (1..=10_000).contains(&rows), "{rows} rows");
    let bytes = input.text(&VALUE_LENGTHS);
    let value = Value::new(bytes.clone());
    assert_eq!(value.is_ok(), bytes.len() <= 262_144, "{} bytes", bytes.len());
    if let Ok(value) = value {
        assert!(value.into_bytes() == bytes, "a value comes back as given");
    }
}
