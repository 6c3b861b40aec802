//! Limits: what is beyond them is invalid, names its field, and touches nothing.

use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::reads::whole;
use super::sample::{LONG, keeping, lasting, permanent, read_all, ttl, value};
use super::{CaseError, Harness};
use crate::clock::Clock;
use crate::store::{
    ClusteringRange, Key, Life, MAX_CLUSTERING, MAX_PARTITION, MAX_VALUE, PageLimit, Partition,
    Store, StoreError, Timestamp, Ttl, Value, Write,
};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Limits;
        Store: partition_has_1_to_1024_bytes,
            clustering_has_up_to_1024_bytes,
            clustering_from_zero_byte_has_up_to_1023_bytes,
            bounds_keep_the_limits_of_clusterings,
            value_has_up_to_262144_bytes,
            life_is_1_ms_to_365_days,
            page_holds_1_to_10000_rows,
            keep_is_for_swaps_only,
            keep_in_a_batch_applies_nothing_of_it,
            instant_beyond_365_days_is_invalid,
            instant_beyond_365_days_applies_nothing_of_a_batch;
        Clock: instant_365_days_ahead_is_the_last_one,
    ]
}

async fn partition_has_1_to_1024_bytes<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    check::invalid(Partition::new(""), "partition")?;
    check::invalid(Partition::new(vec![1; MAX_PARTITION + 1]), "partition")?;
    check::invalid(Key::new(b"", b"row"), "partition")?;
    check::invalid(Key::new(&[1; MAX_PARTITION + 1], b"row"), "partition")?;
    let store = trial.store();
    let longest = padded(trial, MAX_PARTITION);
    for partition in [&trial.prefix()[..1], &longest[..]] {
        // The shortest partition is shared by all runs, the clustering is not.
        let key = Key::new(partition, trial.prefix())?;
        check::applied(store.insert_if_not_exists(&key, lasting("v", LONG)).await?)?;
        check::holds(store.get(&key).await?, b"v")?;
        check::applied(store.compare_and_delete(&key, b"v", Default::default()).await?)?;
    }
    Ok(())
}

async fn clustering_has_up_to_1024_bytes<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let partition = trial.partition("p");
    check::invalid(Key::new(partition.as_bytes(), &[1; MAX_CLUSTERING + 1]), "clustering")?;
    check::invalid(Key::new(partition.as_bytes(), &[0xFF; MAX_CLUSTERING + 1]), "clustering")?;
    stores(trial, &trial.row("p", [1; MAX_CLUSTERING])).await
}

async fn clustering_from_zero_byte_has_up_to_1023_bytes<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let partition = trial.partition("p");
    check::invalid(Key::new(partition.as_bytes(), &[0; MAX_CLUSTERING]), "clustering")?;
    stores(trial, &trial.row("p", [0; MAX_CLUSTERING - 1])).await
}

async fn bounds_keep_the_limits_of_clusterings<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (longest, beyond) = (vec![1; MAX_CLUSTERING], vec![1; MAX_CLUSTERING + 1]);
    check::invalid(ClusteringRange::new(beyond.clone(), "x"), "start")?;
    check::invalid(ClusteringRange::new("a", beyond), "end")?;
    check::invalid(ClusteringRange::new(vec![0; MAX_CLUSTERING], "x"), "start")?;
    check::invalid(ClusteringRange::new("a", vec![0; MAX_CLUSTERING]), "end")?;
    let store = trial.store();
    let key = trial.row("p", &longest);
    check::applied(store.put(&key, permanent("v")).await?)?;
    let partition = trial.partition("p");
    let from = ClusteringRange::new(longest.clone(), "")?;
    let until = ClusteringRange::new("", longest)?;
    let found = read_all(&store, &partition, &from, PageLimit::MAX).await?;
    check::equal("rows from the longest bound on", found.len(), 1)?;
    let found = read_all(&store, &partition, &until, PageLimit::MAX).await?;
    check::equal("rows before the longest bound", found.len(), 0)
}

async fn value_has_up_to_262144_bytes<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    check::invalid(Value::new(vec![7; MAX_VALUE + 1]), "value")?;
    let (store, key) = (trial.store(), trial.key("k"));
    let longest = vec![7; MAX_VALUE];
    check::applied(store.put(&key, permanent(&longest)).await?)?;
    check::holds(store.get(&key).await?, &longest)?;
    Ok(())
}

async fn life_is_1_ms_to_365_days<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    check::invalid(Ttl::from_millis(0), "ttl")?;
    check::invalid(Ttl::from_millis(31_536_000_001), "ttl")?;
    check::invalid(Ttl::from_secs(31_536_001), "ttl")?;
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, lasting("v", 31_536_000_000)).await?)?;
    check::holds(store.get(&key).await?, b"v")?;
    Ok(())
}

async fn page_holds_1_to_10000_rows<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    check::invalid(PageLimit::new(0), "limit")?;
    check::invalid(PageLimit::new(10_001), "limit")?;
    let store = trial.store();
    for row in ["a", "b"] {
        check::applied(store.put(&trial.row("p", row), permanent("v")).await?)?;
    }
    for (limit, rows) in [(PageLimit::new(1)?, 1), (PageLimit::new(10_000)?, 2)] {
        let page = store.read(&trial.partition("p"), &ClusteringRange::ALL, limit).await?;
        check::equal("rows on the first page", page.rows.len(), rows)?;
    }
    Ok(())
}

async fn keep_is_for_swaps_only<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for (tag, before) in [("absent", None), ("present", Some("old"))] {
        let key = trial.key(tag);
        if let Some(value) = before {
            check::applied(store.put(&key, lasting(value, LONG)).await?)?;
        }
        let stored = store.get(&key).await?;
        check::invalid(store.put(&key, keeping("new")).await, "life")?;
        check::invalid(store.insert_if_not_exists(&key, keeping("new")).await, "life")?;
        check::equal("what an invalid write leaves", store.get(&key).await?, stored)?;
    }
    Ok(())
}

async fn keep_in_a_batch_applies_nothing_of_it<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    batch_with_invalid_write_applies_nothing(trial, keeping("bad")).await
}

async fn instant_beyond_365_days_is_invalid<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    let write = Write::new(value("new"), Life::Until(FAR));
    check::invalid(store.put(&key, write.clone()).await, "life")?;
    check::invalid(store.insert_if_not_exists(&key, write.clone()).await, "life")?;
    check::absent(store.get(&key).await?)?;
    check::applied(store.put(&key, permanent("old")).await?)?;
    check::invalid(store.put(&key, write.clone()).await, "life")?;
    check::invalid(store.compare_and_swap(&key, b"old", write.clone()).await, "life")?;
    // Limits come before conditions: the answer does not depend on what is stored.
    check::invalid(store.compare_and_swap(&key, b"other", write).await, "life")?;
    check::holds(store.get(&key).await?, b"old")?;
    Ok(())
}

async fn instant_beyond_365_days_applies_nothing_of_a_batch<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let far = Write::new(value("bad"), Life::Until(FAR));
    batch_with_invalid_write_applies_nothing(trial, far).await
}

async fn instant_365_days_ahead_is_the_last_one<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let clock = trial.harness().clock().ok_or_else(|| CaseError::new("no clock"))?;
    let (store, key) = (trial.store(), trial.key("k"));
    let last = clock.now().after(Ttl::MAX);
    let expiry = store.put(&key, Write::new(value("v"), Life::Until(last))).await?;
    check::equal("expiry", check::applied(expiry)?, Some(last))?;
    let beyond = Write::new(value("w"), Life::Until(last.after(ttl(1))));
    check::invalid(store.put(&key, beyond).await, "life")?;
    check::holds(store.get(&key).await?, b"v")?;
    Ok(())
}

/// An instant that is far beyond 365 days by any clock.
const FAR: Timestamp = Timestamp::from_unix_millis(u64::MAX / 2);

async fn batch_with_invalid_write_applies_nothing<H: Harness>(
    trial: &Trial<'_, H>,
    bad: Write,
) -> CaseResult {
    let store = trial.store();
    let old = trial.row("p", "old");
    check::applied(store.put(&old, permanent("old")).await?)?;
    for position in [0, 1, 29] {
        let mut writes = vec![(old.clone(), permanent("new"))];
        writes.extend((1..30).map(|row| (trial.row("p", format!("{row}")), permanent("new"))));
        writes[position].1 = bad.clone();
        let answer: Result<_, StoreError> = store.put_batch(writes).await;
        check::invalid(answer, "life")?;
        check::holds(store.get(&old).await?, b"old")?;
        let rows = whole(&store, &trial.partition("p")).await?;
        check::equal("rows after an invalid batch", rows.len(), 1)?;
    }
    Ok(())
}

/// A key at a limit is a key like any other.
async fn stores<H: Harness>(trial: &Trial<'_, H>, key: &Key) -> CaseResult {
    let store = trial.store();
    check::applied(store.insert_if_not_exists(key, permanent("v")).await?)?;
    check::holds(store.get(key).await?, b"v")?;
    Ok(())
}

/// A partition of exactly this length that only this trial uses.
fn padded<H: Harness>(trial: &Trial<'_, H>, len: usize) -> Vec<u8> {
    let mut bytes = trial.prefix().to_vec();
    bytes.resize(len, b'x');
    bytes
}
