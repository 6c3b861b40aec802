//! Cleaning: expired data leaves by itself, and nothing else does.

use std::time::Duration;

use super::Harness;
use super::case::{Case, Trial, cases};
use super::check::{self, CaseError, CaseResult};
use super::reads::is_everywhere;
use super::sample::{LONG, SHORT, lasting, permanent, ttl};
use crate::clock::SystemClock;
use crate::store::{Fence, Key, Store};

/// How many records expire at once, and the bytes of each value.
const RECORDS: u32 = 4_000;
const BYTES: usize = 1_024;

/// A life that lasts through hundreds of calls to a busy server, and can be waited for.
const PATIENT: u64 = 10_007;

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Cleaning;
        Footprint: footprint_falls_back_after_expiry,
            footprint_falls_back_after_deletes_and_renewals,
            sweep_touches_no_live_record,
            writers_go_on_while_records_leave,
    ]
}

/// Writes records that are to expire, and returns the footprint before and after.
///
/// A store may have room to spare from earlier, so it is filled until it has grown.
async fn grow<H: Harness>(trial: &Trial<'_, H>) -> Result<(u64, u64), CaseError> {
    let size = || trial.harness().footprint().ok_or_else(|| CaseError::new("no footprint"));
    let before = size()?;
    let row = |row: u32| (trial.row("p", row.to_be_bytes()), lasting(vec![7; BYTES], SHORT));
    for batch in 0..16 {
        let rows = batch * RECORDS..(batch + 1) * RECORDS;
        for outcome in trial.store().put_batch(rows.map(row).collect()).await? {
            check::applied(outcome)?;
        }
        let grown = size()?;
        if grown >= before + u64::from(RECORDS) * BYTES as u64 / 2 {
            return Ok((before, grown));
        }
    }
    Err(CaseError::new(format!("{before} bytes before, {} with 64 MB more", size()?)))
}

/// Lets time pass, without a call to the store, until most of the growth is gone.
async fn shrinks<H: Harness>(trial: &Trial<'_, H>, before: u64, grown: u64) -> CaseResult {
    let patience = SystemClock::shared();
    let near = before + (grown - before) / 8;
    for _ in 0..500 {
        trial.outlive(ttl(SHORT)).await;
        if trial.harness().footprint().is_some_and(|size| size <= near) {
            return Ok(());
        }
        // Tasks and threads of the store get real time to notice that the clock has moved.
        patience.sleep(Duration::from_millis(20)).await;
    }
    let size = trial.harness().footprint();
    Err(CaseError::new(format!("{before} bytes before, {grown} grown, {size:?} after expiry")))
}

async fn footprint_falls_back_after_expiry<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (before, grown) = grow(trial).await?;
    shrinks(trial, before, grown).await
}

async fn footprint_falls_back_after_deletes_and_renewals<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (before, grown) = grow(trial).await?;
    let (store, value) = (trial.store(), [7; BYTES]);
    let keys: Vec<Key> = (0..200_u32).map(|row| trial.row("p", row.to_be_bytes())).collect();
    let writes = keys.iter().map(|key| (key.clone(), lasting(value, PATIENT)));
    for outcome in store.put_batch(writes.collect()).await? {
        check::applied(outcome)?;
    }
    for (row, key) in keys.iter().enumerate() {
        match row % 2 {
            0 => check::applied(store.compare_and_delete(key, &value, Fence::NONE).await?)?,
            _ => check::applied(store.compare_and_swap(key, &value, lasting("", PATIENT)).await?)?,
        };
    }
    shrinks(trial, before, grown).await
}

async fn sweep_touches_no_live_record<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys: Vec<Key> = (0..40_u8).map(|row| trial.row("stay", [row])).collect();
    for (row, key) in keys.iter().enumerate() {
        // Each kind of record that had, or nearly has, the expiry of those that leave.
        match row % 4 {
            0 => check::applied(store.put(key, permanent("v")).await?)?,
            1 => check::applied(store.put(key, lasting("v", LONG)).await?)?,
            2 => {
                check::applied(store.put(key, lasting("u", SHORT)).await?)?;
                check::applied(store.compare_and_swap(key, b"u", lasting("v", LONG)).await?)?
            }
            _ => {
                check::applied(store.put(key, lasting("u", SHORT)).await?)?;
                check::applied(store.compare_and_delete(key, b"u", Fence::NONE).await?)?;
                check::applied(store.insert_if_not_exists(key, permanent("v")).await?)?
            }
        };
    }
    let (before, grown) = grow(trial).await?;
    shrinks(trial, before, grown).await?;
    for key in &keys {
        is_everywhere(&store, key, b"v").await?;
    }
    Ok(())
}

/// A bounded step takes milliseconds. The bound leaves room for a busy machine and a slow disk.
async fn writers_go_on_while_records_leave<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (before, grown) = grow(trial).await?;
    let (store, watch) = (trial.store(), SystemClock::shared());
    trial.outlive(ttl(SHORT)).await;
    for row in 0..200_u32 {
        let started = watch.monotonic();
        check::applied(store.put(&trial.row("next", row.to_be_bytes()), permanent("v")).await?)?;
        let took = watch.monotonic() - started;
        check::that(took < Duration::from_secs(1), format!("a write waited {took:?}"))?;
    }
    shrinks(trial, before, grown).await
}
