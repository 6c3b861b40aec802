//! Expiry: expired is absent, for every operation, from the instant on, and for good.

use std::time::Duration;

use super::case::{Case, Trial, cases};
use super::check::{self, CaseError, CaseResult};
use super::reads::{is_absent_everywhere, is_everywhere, whole};
use super::sample::{LONG, SHORT, lasting, pages_of, permanent, read_all, ttl, value};
use super::{Harness, Need};
use crate::clock::{Clock, ManualClock};
use crate::store::{ClusteringRange, Fence, Key, Life, Remaining, Store, Ttl, Write};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Expiry;
        Store: remaining_time_never_exceeds_the_life;
        Time: insert_after_expiry_works_at_once,
            put_after_expiry_works_at_once,
            read_skips_expired_rows,
            pages_skip_expired_rows,
            remaining_time_is_gone_after_expiry,
            life_of_1_ms_passes,
            every_way_to_write_a_life_expires,
            expired_record_does_not_come_back;
        Clock: record_lives_1_ms_before_its_expiry_and_is_gone_at_it,
            writes_see_the_record_1_ms_before_its_expiry_and_not_at_it,
            instant_of_expiry_is_kept_to_the_millisecond,
            remaining_time_falls_with_the_clock,
            life_of_365_days_is_exact,
            life_of_1_ms_and_1_s_is_exact,
            every_read_agrees_about_the_same_instant,
            life_starts_when_the_write_is_applied,
            clock_set_back_revives_nothing,
    ]
}

/// The harness's clock, which the runner made sure of.
pub(super) fn clock<'h, H: Harness>(trial: &Trial<'h, H>) -> Result<&'h ManualClock, CaseError> {
    trial.harness().clock().ok_or_else(|| CaseError::new(format!("lacks {:?}", Need::Clock)))
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn remaining_time_never_exceeds_the_life<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for life in [SHORT, LONG, 31_536_000_000] {
        let key = trial.key(format!("{life}"));
        check::applied(store.put(&key, lasting("v", life)).await?)?;
        let left = check::remaining_millis(store.query_ttl(&key).await?)?;
        check::that((1..=life).contains(&left), format!("{left} ms are left of {life} ms"))?;
        // Half a minute for the slowest store; a unit mistaken for another is off by more.
        check::that(left + 30_000 >= life, format!("only {left} ms are left of {life} ms"))?;
    }
    Ok(())
}

async fn insert_after_expiry_works_at_once<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, lasting("old", SHORT)).await?)?;
    let early = store.insert_if_not_exists(&key, permanent("early")).await?;
    check::refused_by(early, b"old")?;
    trial.outlive(ttl(SHORT)).await;
    check::applied(store.insert_if_not_exists(&key, permanent("new")).await?)?;
    is_everywhere(&store, &key, b"new").await
}

async fn put_after_expiry_works_at_once<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, lasting("old", SHORT)).await?)?;
    trial.outlive(ttl(SHORT)).await;
    check::applied(store.put(&key, lasting("new", LONG)).await?)?;
    is_everywhere(&store, &key, b"new").await
}

async fn read_skips_expired_rows<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    mixed_rows(trial).await?;
    check::equal("rows before", whole(&store, &partition).await?.len(), 30)?;
    trial.outlive(ttl(SHORT)).await;
    let rows = whole(&store, &partition).await?;
    check::equal("rows after", rows.len(), 20)?;
    let stays = rows.iter().all(|row| &row.record.value[..] != b"short");
    check::that(stays, "an expired row is read")
}

async fn pages_skip_expired_rows<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    mixed_rows(trial).await?;
    trial.outlive(ttl(SHORT)).await;
    for limit in [1, 2, 3, 10] {
        let rows = read_all(&store, &partition, &ClusteringRange::ALL, pages_of(limit)).await?;
        check::equal(&format!("rows in pages of {limit}"), rows.len(), 20)?;
    }
    Ok(())
}

/// Thirty rows in the partition `p`: ten of each of a short, a long and a permanent life.
async fn mixed_rows<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let lives = [lasting("short", SHORT), lasting("long", LONG), permanent("permanent")];
    let row = |at: usize| (trial.row("p", format!("{at:02}")), lives[at % 3].clone());
    for outcome in trial.store().put_batch((0..30).map(row).collect()).await? {
        check::applied(outcome)?;
    }
    Ok(())
}

async fn remaining_time_is_gone_after_expiry<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, lasting("v", SHORT)).await?)?;
    check::remaining_millis(store.query_ttl(&key).await?)?;
    trial.outlive(ttl(SHORT)).await;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Absent)
}

async fn life_of_1_ms_passes<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, lasting("v", 1)).await?)?;
    trial.outlive(Ttl::MIN).await;
    is_absent_everywhere(&store, &key).await?;
    check::applied(store.insert_if_not_exists(&key, lasting("w", 1)).await?)?;
    trial.outlive(Ttl::MIN).await;
    is_absent_everywhere(&store, &key).await
}

async fn every_way_to_write_a_life_expires<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys = ["put", "insert", "swap", "batch", "until"].map(|tag| trial.key(tag));
    let [put, insert, swap, batch, until] = &keys;
    let expiry = check::applied(store.put(put, lasting("v", SHORT)).await?)?;
    check::applied(store.insert_if_not_exists(insert, lasting("v", SHORT)).await?)?;
    check::applied(store.put(swap, permanent("u")).await?)?;
    check::applied(store.compare_and_swap(swap, b"u", lasting("v", SHORT)).await?)?;
    for outcome in store.put_batch(vec![(batch.clone(), lasting("v", SHORT))]).await? {
        check::applied(outcome)?;
    }
    if let Some(expiry) = expiry {
        let write = Write::new(value("v"), Life::Until(expiry));
        check::applied(store.insert_if_not_exists(until, write).await?)?;
    }
    for key in &keys {
        check::holds(store.get(key).await?, b"v")?;
    }
    trial.outlive(ttl(SHORT)).await;
    for key in &keys {
        is_absent_everywhere(&store, key).await?;
    }
    Ok(())
}

async fn expired_record_does_not_come_back<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let (key, neighbour) = (trial.row("p", "a"), trial.row("p", "b"));
    check::applied(store.put(&key, lasting("v", SHORT)).await?)?;
    trial.outlive(ttl(SHORT)).await;
    check::absent(store.get(&key).await?)?;
    // Neither a refused write nor one to its neighbour brings it back.
    check::refused_by_absence(store.compare_and_swap(&key, b"v", lasting("v", LONG)).await?)?;
    check::applied(store.put(&neighbour, permanent("w")).await?)?;
    is_absent_everywhere(&store, &key).await?;
    check::applied(store.insert_if_not_exists(&key, permanent("new")).await?)?;
    check::applied(store.compare_and_delete(&key, b"new", Fence::NONE).await?)?;
    is_absent_everywhere(&store, &key).await
}

async fn record_lives_1_ms_before_its_expiry_and_is_gone_at_it<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key, clock) = (trial.store(), trial.key("k"), clock(trial)?);
    check::applied(store.insert_if_not_exists(&key, lasting("v", SHORT)).await?)?;
    clock.advance(millis(SHORT - 1));
    is_everywhere(&store, &key, b"v").await?;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::For(millis(1)))?;
    clock.advance(millis(1));
    is_absent_everywhere(&store, &key).await
}

async fn writes_see_the_record_1_ms_before_its_expiry_and_not_at_it<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, clock) = (trial.store(), clock(trial)?);
    let keys = ["insert", "swap", "delete", "put"].map(|tag| trial.key(tag));
    let [insert, swap, delete, put] = &keys;
    for key in &keys {
        check::applied(
            store.insert_if_not_exists(key, lasting("v", SHORT).fenced(Fence(9))).await?,
        )?;
    }
    clock.advance(millis(SHORT - 1));
    check::refused_by(store.insert_if_not_exists(insert, permanent("x")).await?, b"v")?;
    check::refused_by(store.compare_and_swap(swap, b"x", permanent("x")).await?, b"v")?;
    check::refused_by(store.compare_and_delete(delete, b"x", Fence::NONE).await?, b"v")?;
    check::refused_by(store.put(put, permanent("x").fenced(Fence(8))).await?, b"v")?;
    clock.advance(millis(1));
    check::applied(store.insert_if_not_exists(insert, permanent("x")).await?)?;
    check::refused_by_absence(store.compare_and_swap(swap, b"v", permanent("x")).await?)?;
    check::refused_by_absence(store.compare_and_delete(delete, b"v", Fence::NONE).await?)?;
    check::applied(store.put(put, permanent("x").fenced(Fence(8))).await?)?;
    Ok(())
}

async fn instant_of_expiry_is_kept_to_the_millisecond<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, clock) = (trial.store(), clock(trial)?);
    for odd in [1, 7, 499, 500, 501, 999, 1_000, 1_001] {
        clock.advance(millis(odd));
        let key = trial.key(format!("{odd}"));
        let expected = Some(clock.now().after(ttl(odd)));
        let reported = check::applied(store.put(&key, lasting("v", odd)).await?)?;
        check::equal("expiry reported", reported, expected)?;
        check::equal("expiry", check::holds(store.get(&key).await?, b"v")?.expires_at, expected)?;
        let remaining = store.query_ttl(&key).await?;
        check::equal("remaining", remaining, Remaining::For(millis(odd)))?;
    }
    Ok(())
}

async fn remaining_time_falls_with_the_clock<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key, clock) = (trial.store(), trial.key("k"), clock(trial)?);
    check::applied(store.put(&key, lasting("v", 2_500)).await?)?;
    for passed in [0, 1, 999, 1_000, 1_500, 1_501, 2_000, 2_499] {
        let key_age = 2_500 - check::remaining_millis(store.query_ttl(&key).await?)?;
        clock.advance(millis(passed - key_age));
        let left = check::remaining_millis(store.query_ttl(&key).await?)?;
        check::equal("remaining", left, 2_500 - passed)?;
    }
    clock.advance(millis(1));
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Absent)
}

async fn life_of_365_days_is_exact<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    exact_life(trial, Ttl::MAX.as_millis()).await
}

async fn life_of_1_ms_and_1_s_is_exact<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    exact_life(trial, 1).await?;
    exact_life(trial, 1_000).await
}

async fn exact_life<H: Harness>(trial: &Trial<'_, H>, life: u64) -> CaseResult {
    let (store, clock) = (trial.store(), clock(trial)?);
    let key = trial.key(format!("{life}"));
    check::applied(store.insert_if_not_exists(&key, lasting("v", life)).await?)?;
    clock.advance(millis(life - 1));
    is_everywhere(&store, &key, b"v").await?;
    clock.advance(millis(1));
    is_absent_everywhere(&store, &key).await
}

async fn every_read_agrees_about_the_same_instant<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, clock) = (trial.store(), clock(trial)?);
    let keys: Vec<Key> = (0..8).map(|row| trial.row("p", [row])).collect();
    for (key, life) in keys.iter().zip(1..) {
        check::applied(store.put(key, lasting("v", life)).await?)?;
    }
    for passed in 0..=8 {
        let batch = store.get_batch(&keys).await?;
        let rows = whole(&store, &trial.partition("p")).await?;
        for (at, key) in keys.iter().enumerate() {
            let record = store.get(key).await?;
            check::equal("alive", record.is_some(), at >= passed)?;
            let row = rows.iter().find(|row| row.key == *key).map(|row| row.record.clone());
            check::equal("read", row, record.clone())?;
            check::equal("get_batch", batch[at].clone(), record.clone())?;
            let left = record.and_then(|record| record.expires_at);
            let left = left.map(|expiry| clock.now().until(expiry));
            let expected = left.map_or(Remaining::Absent, Remaining::For);
            check::equal("query_ttl", store.query_ttl(key).await?, expected)?;
        }
        clock.advance(millis(1));
    }
    Ok(())
}

async fn life_starts_when_the_write_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key, clock) = (trial.store(), trial.key("k"), clock(trial)?);
    check::applied(store.insert_if_not_exists(&key, lasting("a", SHORT)).await?)?;
    clock.advance(millis(SHORT - 1));
    check::applied(store.compare_and_swap(&key, b"a", lasting("b", SHORT)).await?)?;
    clock.advance(millis(SHORT - 1));
    is_everywhere(&store, &key, b"b").await?;
    check::applied(store.put(&key, lasting("c", SHORT)).await?)?;
    clock.advance(millis(SHORT - 1));
    is_everywhere(&store, &key, b"c").await?;
    clock.advance(millis(1));
    is_absent_everywhere(&store, &key).await
}

/// Consumed codes rest on this: what was seen gone stays gone, whatever the machine's clock does.
async fn clock_set_back_revives_nothing<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key, clock) = (trial.store(), trial.key("k"), clock(trial)?);
    let stays = trial.key("stays");
    check::applied(store.insert_if_not_exists(&key, lasting("v", SHORT)).await?)?;
    trial.outlive(ttl(SHORT)).await;
    is_absent_everywhere(&store, &key).await?;
    check::applied(store.insert_if_not_exists(&stays, lasting("v", 500)).await?)?;
    clock.set_back(millis(50));
    for _ in 0..20 {
        clock.advance(millis(1_000));
        // A store need not look at the clock for a record that it no longer has.
        clock.now();
        is_absent_everywhere(&store, &key).await?;
        is_absent_everywhere(&store, &stays).await?;
    }
    // The clock has caught up with the machine's: the cases that follow are exact again.
    let before = clock.now();
    clock.advance(millis(1_500));
    check::equal("the clock's second", before.until(clock.now()), millis(1_500))
}
