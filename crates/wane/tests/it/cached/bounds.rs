//! Bytes: the cache stays within them, and what does not fit is not cached at all.

use wane::store::{CacheSettings, Life, MAX_VALUE, Store, Value, Write};

use super::{MAX_STALE, setup_with};
use crate::{key, permanent};

fn filled(byte: u8, bytes: usize) -> Write {
    Write::new(Value::new(vec![byte; bytes]).expect("a legal size"), Life::Permanent)
}

/// "A cache entry limit that silently keeps the old value."
#[tokio::test]
async fn a_value_of_any_size_is_cached_right_or_not_at_all() {
    for max_bytes in [1, 1_000, 100_000, 300_000, 1 << 20, 64 << 20] {
        let setup = setup_with(Some(CacheSettings { max_stale: MAX_STALE, max_bytes }));
        let (store, name) = (&setup.store, key("a"));
        let mut byte = 0_u8;
        for size in [10, 400, MAX_VALUE, 10, 200_000, 0, 65_536, MAX_VALUE, 1] {
            byte += 1;
            // Written here, and read; then written elsewhere, and read once that is due.
            assert!(store.put(&name, filled(byte, size)).await.unwrap().is_applied());
            for _ in 0..2 {
                let found = store.get(&name).await.unwrap().unwrap();
                assert_eq!(*found.value, vec![byte; size], "{size} bytes in {max_bytes}");
            }
            byte += 1;
            assert!(setup.other.put(&name, filled(byte, size)).await.unwrap().is_applied());
            setup.clock.advance(MAX_STALE);
            let found = store.get(&name).await.unwrap().unwrap();
            assert_eq!(*found.value, vec![byte; size], "{size} bytes in {max_bytes}");
        }
    }
}

#[tokio::test]
async fn the_cache_stays_within_its_bytes() {
    let max_bytes = 1 << 20;
    let setup = setup_with(Some(CacheSettings { max_stale: MAX_STALE, max_bytes }));
    let mut most = 0;
    for number in 0..5_000_usize {
        let name = key(&format!("{:>1$}", number, 1 + number % 900));
        if number % 3 != 0 {
            let write = filled(7, number * 37 % 20_000);
            assert!(setup.other.put(&name, write).await.unwrap().is_applied());
        }
        setup.store.get(&name).await.unwrap();
        let stats = setup.store.stats().unwrap();
        assert!(stats.bytes <= max_bytes, "{} bytes", stats.bytes);
        most = most.max(stats.bytes);
    }
    assert!(most > max_bytes * 3 / 4, "only {most} bytes were ever used");
    // What is read all the time stays while much else passes through.
    assert!(setup.other.put(&key("hot"), permanent("v")).await.unwrap().is_applied());
    let before = setup.store.stats().unwrap();
    for number in 0..20_000 {
        setup.store.get(&key("hot")).await.unwrap();
        setup.store.get(&key(&format!("cold {number}"))).await.unwrap();
    }
    let hits = setup.store.stats().unwrap().hits - before.hits;
    assert!(hits > 19_900, "{hits} of 20,000 reads of a hot key were served");
}
