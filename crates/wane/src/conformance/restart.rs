//! Restart: what was acknowledged is there again, with what is left of its life.

use super::Harness;
use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::reads::{is_absent_everywhere, is_everywhere, whole};
use super::sample::{LONG, SHORT, keeping, lasting, permanent, ttl};
use crate::store::{Fence, Key, Remaining, Store};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Restart;
        Restart: every_kind_of_acknowledged_write_survives,
            expiry_and_fence_survive,
            deleted_record_stays_deleted,
            expired_record_stays_gone,
            expiry_comes_after_a_restart_all_the_same,
            renewed_record_survives_its_old_expiry_and_a_restart,
            many_records_survive_in_order,
            conditions_hold_after_a_restart,
    ]
}

/// Closes the store and opens it again.
async fn restart<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    check::that(trial.harness().reopen().await?, "the store was said to keep its records")
}

async fn every_kind_of_acknowledged_write_survives<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys = ["put", "insert", "swap", "keep", "batch", ""].map(|row| trial.row("p", row));
    let [put, insert, swap, keep, batch, empty] = &keys;
    check::applied(store.put(put, permanent("v")).await?)?;
    check::applied(store.insert_if_not_exists(insert, permanent("v")).await?)?;
    for (key, write) in [(swap, lasting("v", LONG)), (keep, keeping("v"))] {
        check::applied(store.put(key, permanent("u")).await?)?;
        check::applied(store.compare_and_swap(key, b"u", write).await?)?;
    }
    let writes = [batch, empty].map(|key| (key.clone(), permanent("v")));
    for outcome in store.put_batch(writes.to_vec()).await? {
        check::applied(outcome)?;
    }
    drop(store);
    for _ in 0..2 {
        restart(trial).await?;
        for key in &keys {
            is_everywhere(&trial.store(), key, b"v").await?;
        }
    }
    Ok(())
}

async fn expiry_and_fence_survive<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let writes = [
        lasting("a", LONG).fenced(Fence(9)),
        permanent("").fenced(Fence(u64::MAX)),
        lasting(b"\0\xFF", 31_536_000_000),
        permanent(vec![3; 100 * 1024]),
    ];
    let keys: Vec<Key> = (0..writes.len()).map(|row| trial.row("p", format!("{row}"))).collect();
    let store = trial.store();
    for outcome in store.put_batch(keys.iter().cloned().zip(writes).collect()).await? {
        check::applied(outcome)?;
    }
    let before = store.get_batch(&keys).await?;
    drop(store);
    restart(trial).await?;
    check::equal("records", trial.store().get_batch(&keys).await?, before)?;
    let left = check::remaining_millis(trial.store().query_ttl(&keys[0]).await?)?;
    check::that(left <= LONG, "a life began anew")?;
    let remaining = trial.store().query_ttl(&keys[1]).await?;
    check::equal("remaining", remaining, Remaining::Permanent)
}

async fn deleted_record_stays_deleted<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("v").fenced(Fence(5))).await?)?;
    check::applied(store.compare_and_delete(&key, b"v", Fence(5)).await?)?;
    drop(store);
    restart(trial).await?;
    is_absent_everywhere(&trial.store(), &key).await?;
    let write = permanent("w").fenced(Fence(1));
    check::applied(trial.store().insert_if_not_exists(&key, write).await?)?;
    Ok(())
}

async fn expired_record_stays_gone<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let (seen, unseen) = (trial.row("p", "seen"), trial.row("p", "unseen"));
    for key in [&seen, &unseen] {
        check::applied(store.put(key, lasting("v", SHORT)).await?)?;
    }
    trial.outlive(ttl(SHORT)).await;
    check::absent(store.get(&seen).await?)?;
    drop(store);
    restart(trial).await?;
    let store = trial.store();
    is_absent_everywhere(&store, &seen).await?;
    is_absent_everywhere(&store, &unseen).await?;
    check::applied(store.insert_if_not_exists(&unseen, permanent("new")).await?)?;
    Ok(())
}

async fn expiry_comes_after_a_restart_all_the_same<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let key = trial.key("k");
    check::applied(trial.store().put(&key, lasting("v", SHORT)).await?)?;
    restart(trial).await?;
    trial.outlive(ttl(SHORT)).await;
    is_absent_everywhere(&trial.store(), &key).await?;
    check::applied(trial.store().insert_if_not_exists(&key, permanent("new")).await?)?;
    Ok(())
}

async fn renewed_record_survives_its_old_expiry_and_a_restart<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, lasting("old", SHORT)).await?)?;
    check::applied(store.compare_and_swap(&key, b"old", lasting("new", LONG)).await?)?;
    drop(store);
    restart(trial).await?;
    trial.outlive(ttl(SHORT)).await;
    is_everywhere(&trial.store(), &key, b"new").await?;
    restart(trial).await?;
    is_everywhere(&trial.store(), &key, b"new").await
}

async fn many_records_survive_in_order<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let row = |row: u32| (trial.row("p", row.to_be_bytes()), permanent(row.to_be_bytes()));
    for outcome in store.put_batch((0..2_000).map(row).collect()).await? {
        check::applied(outcome)?;
    }
    drop(store);
    restart(trial).await?;
    let rows = whole(&trial.store(), &trial.partition("p")).await?;
    check::equal("rows", rows.len(), 2_000)?;
    let right = rows.iter().all(|row| row.record.value[..] == *row.key.clustering());
    check::that(right, "a value moved to another key")
}

async fn conditions_hold_after_a_restart<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let key = trial.key("k");
    check::applied(trial.store().put(&key, permanent("v").fenced(Fence(5))).await?)?;
    restart(trial).await?;
    let store = trial.store();
    check::refused_by(store.insert_if_not_exists(&key, permanent("x")).await?, b"v")?;
    check::refused_by(store.put(&key, permanent("x").fenced(Fence(4))).await?, b"v")?;
    check::refused_by(store.compare_and_swap(&key, b"w", permanent("x")).await?, b"v")?;
    check::applied(store.compare_and_swap(&key, b"v", permanent("w").fenced(Fence(5))).await?)?;
    check::applied(store.compare_and_delete(&key, b"w", Fence::NONE).await?)?;
    Ok(())
}
