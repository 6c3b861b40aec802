//! Batches: one answer per position, of any number of rows.

use super::Harness;
use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::reads::whole;
use super::sample::{LONG, SHORT, lasting, permanent, ttl};
use crate::store::{Fence, Key, Store, Write};

/// Numbers of rows around those at which the known backends split a batch.
const SIZES: [usize; 7] = [0, 1, 25, 26, 100, 101, 10_000];

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Batches;
        Store: batches_of_every_size_are_complete,
            batches_reach_over_partitions,
            answers_come_by_position,
            absent_partition_answers_none_for_all,
            duplicates_are_answered_each,
            empty_value_in_a_batch_is_present,
            last_of_two_writes_to_a_key_wins,
            last_of_many_writes_to_a_key_wins_across_a_large_batch,
            batch_writes_over_what_is_there;
        Time: rows_of_a_batch_expire_on_their_own,
    ]
}

async fn batches_of_every_size_are_complete<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for size in SIZES {
        let tag = format!("{size}");
        let keys: Vec<Key> = (0..size).map(|row| trial.row(&tag, format!("{row:05}"))).collect();
        let write = |(row, key): (usize, &Key)| (key.clone(), permanent(format!("v{row}")));
        let answers = store.put_batch(keys.iter().enumerate().map(write).collect()).await?;
        check::equal("answers to put_batch", answers.len(), size)?;
        for outcome in answers {
            check::applied(outcome)?;
        }
        let answers = store.get_batch(&keys).await?;
        check::equal("answers to get_batch", answers.len(), size)?;
        for (row, record) in answers.into_iter().enumerate() {
            check::holds(record, format!("v{row}").as_bytes())?;
        }
        check::equal("rows", whole(&store, &trial.partition(&tag)).await?.len(), size)?;
    }
    Ok(())
}

async fn batches_reach_over_partitions<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys: Vec<Key> = (0..30_u8).map(|row| trial.row(format!("{}", row % 7), [row])).collect();
    let write = |key: &Key| (key.clone(), lasting(key.clustering(), LONG));
    for outcome in store.put_batch(keys.iter().map(write).collect()).await? {
        check::that(check::applied(outcome)?.is_some(), "an answer without its expiry")?;
    }
    for (key, record) in keys.iter().zip(store.get_batch(&keys).await?) {
        check::holds(record, key.clustering())?;
    }
    Ok(())
}

async fn answers_come_by_position<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys = ["d", "absent", "a", "c", "none", "b"].map(|row| trial.row("p", row));
    for at in [0, 2, 3, 5] {
        check::applied(store.put(&keys[at], permanent(keys[at].clustering())).await?)?;
    }
    let answers = store.get_batch(&keys).await?;
    check::equal("answers", answers.len(), keys.len())?;
    for (at, record) in answers.into_iter().enumerate() {
        match at {
            1 | 4 => check::absent(record)?,
            _ => drop(check::holds(record, keys[at].clustering())?),
        }
    }
    Ok(())
}

async fn absent_partition_answers_none_for_all<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let keys = ["", "a", "b", "a"].map(|row| trial.row("never written", row));
    check::equal("answers", trial.store().get_batch(&keys).await?, vec![None; 4])?;
    check::equal("answers to nothing", trial.store().get_batch(&[]).await?, vec![])
}

async fn duplicates_are_answered_each<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let (a, b, none) = (trial.row("p", "a"), trial.row("p", "b"), trial.row("p", "none"));
    check::applied(store.put(&a, permanent("a")).await?)?;
    check::applied(store.put(&b, permanent("b")).await?)?;
    let asked = [&a, &b, &a, &none, &a, &none].map(Clone::clone);
    let answers = store.get_batch(&asked).await?;
    let found = answers.into_iter().map(|record| record.map(|record| record.value.to_vec()));
    let expected = [Some("a"), Some("b"), Some("a"), None, Some("a"), None];
    let expected = expected.map(|value| value.map(|value| value.as_bytes().to_vec()));
    check::equal("answers", found.collect::<Vec<_>>(), expected.to_vec())?;
    // More than any backend fetches at once.
    let answers = store.get_batch(&vec![a; 250]).await?;
    check::equal("answers", answers.iter().flatten().count(), 250)
}

async fn empty_value_in_a_batch_is_present<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys = ["a", "b"].map(|row| trial.row("p", row));
    let writes = keys.clone().map(|key| (key, permanent("")));
    for outcome in store.put_batch(writes.to_vec()).await? {
        check::applied(outcome)?;
    }
    for record in store.get_batch(&keys).await? {
        check::holds(record, b"")?;
    }
    Ok(())
}

async fn last_of_two_writes_to_a_key_wins<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.row("p", "twice"));
    let between = (trial.row("p", "between"), permanent("x"));
    let (first, last) = (lasting("first", LONG), permanent("last"));
    for (first, last) in [(first.clone(), last.clone()), (last, first)] {
        let expected = last.value.clone();
        let expiry = matches!(last.life, crate::store::Life::For(_));
        let writes = vec![(key.clone(), first), between.clone(), (key.clone(), last)];
        let answers = store.put_batch(writes).await?;
        check::equal("answers", answers.len(), 3)?;
        for outcome in answers {
            check::applied(outcome)?;
        }
        let record = check::holds(store.get(&key).await?, &expected)?;
        check::equal("expires", record.expires_at.is_some(), expiry)?;
    }
    Ok(())
}

async fn last_of_many_writes_to_a_key_wins_across_a_large_batch<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let store = trial.store();
    let row = |at: usize| (trial.row("p", format!("{}", at % 10)), permanent(format!("{at}")));
    let answers = store.put_batch((0..205).map(row).collect()).await?;
    check::equal("answers", answers.len(), 205)?;
    for at in 195..205 {
        let (key, write) = row(at);
        check::holds(store.get(&key).await?, &write.value)?;
    }
    Ok(())
}

async fn batch_writes_over_what_is_there<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let (key, other) = (trial.row("p", "a"), trial.row("p", "b"));
    check::applied(store.put(&key, lasting("old", LONG)).await?)?;
    let writes = vec![(key.clone(), permanent("new")), (other.clone(), lasting("new", LONG))];
    for outcome in store.put_batch(writes).await? {
        check::applied(outcome)?;
    }
    check::equal("expiry", check::holds(store.get(&key).await?, b"new")?.expires_at, None)?;
    let expiry = check::holds(store.get(&other).await?, b"new")?.expires_at;
    check::that(expiry.is_some(), "the batch lost an expiry")?;
    check::applied(store.compare_and_delete(&key, b"new", Fence::NONE).await?)?;
    Ok(())
}

async fn rows_of_a_batch_expire_on_their_own<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let row = |(at, write): (usize, Write)| (trial.row("p", format!("{at}")), write);
    let writes = [lasting("short", SHORT), lasting("long", LONG), permanent("permanent")];
    let rows: Vec<_> = writes.into_iter().cycle().take(60).enumerate().map(row).collect();
    let keys: Vec<Key> = rows.iter().map(|(key, _)| key.clone()).collect();
    for outcome in store.put_batch(rows.clone()).await? {
        check::applied(outcome)?;
    }
    trial.outlive(ttl(SHORT)).await;
    for ((_, write), record) in rows.into_iter().zip(store.get_batch(&keys).await?) {
        match &write.value[..] {
            b"short" => check::absent(record)?,
            value => drop(check::holds(record, value)?),
        }
    }
    Ok(())
}
